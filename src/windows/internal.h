/* Windows itself: for the files of this folder alone. Paths are UTF-8 outside and UTF-16 here. */
#pragma once
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <stdbool.h>

/* Sets errno to the cause of the failed call; returns -1. */
int windows_failed(void);
static inline int windows_result(BOOL ok) { return ok ? 0 : windows_failed(); }

enum { WINDOWS_NAME = 4200 /* longer than PathText */ };
typedef struct Wide {
  wchar_t text[WINDOWS_NAME];
} Wide;
Wide windows_word(const char *text); /* as it is */
Wide windows_path(
    const char *path); /* with backslashes; /dev/null is NUL; a long path gets the prefix that permits it */
void windows_narrow(const wchar_t *text, char *out, int size); /* to UTF-8; "" if it does not fit */
void windows_slashes(char *path);                              /* replaces backslashes */

static inline bool windows_is_directory(DWORD attributes) {
  return attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_DIRECTORY;
}
HANDLE windows_handle(int fd);
/* Opens a file or directory; all sharing is permitted, as in POSIX. INVALID_HANDLE_VALUE: see windows_failed(). */
HANDLE windows_open(const char *path, DWORD access, DWORD how, DWORD flags);

/* Sends a signal to the thread in sigwait(). */
void windows_deliver(int number);
/* From now on closing the window ends the program at once. */
void windows_expect_no_signal(void);

/* Sets the streams and the console up; they are restored at exit. */
void windows_open_console(void);
bool windows_can_mark(void); /* whether a console understands escape sequences */
