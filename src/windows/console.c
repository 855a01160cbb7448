/* The console. */
#include "windows/internal.h"

#include <sys/ioctl.h>

/* What was found, to be restored at exit: the console outlives the program. */
static UINT found_output, found_input;
static struct {
  HANDLE handle;
  DWORD mode;
} found[2];
static bool can_mark;

bool windows_can_mark(void) { return can_mark; }

/* Not _isatty(), which takes NUL for one, too. */
int win_isatty(int fd) {
  DWORD mode;
  return GetConsoleMode(windows_handle(fd), &mode) ? 1 : 0;
}

int ioctl(int fd, int what, struct winsize *size) {
  CONSOLE_SCREEN_BUFFER_INFO info;
  (void)what;
  if (!GetConsoleScreenBufferInfo(windows_handle(fd), &info)) return -1;
  size->ws_col = (unsigned short)(info.srWindow.Right - info.srWindow.Left + 1);
  return 0;
}

static void restore_console(void) {
  fflush(NULL);
  if (found_output) SetConsoleOutputCP(found_output);
  if (found_input) SetConsoleCP(found_input);
  for (int i = 1; i >= 0; i--) /* both may be the same console */
    if (found[i].handle) SetConsoleMode(found[i].handle, found[i].mode);
}

void windows_open_console(void) {
  enum { STDERR_BYTES = 1 << 12 };
  for (int fd = 0; fd <= 2; fd++) _setmode(fd, O_BINARY);
  setvbuf(stderr, NULL, _IOFBF, STDERR_BYTES); /* a console takes no parts of characters */
  SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
  if ((found_output = GetConsoleOutputCP())) SetConsoleOutputCP(CP_UTF8);
  if ((found_input = GetConsoleCP())) SetConsoleCP(CP_UTF8);
  for (int i = 0; i < 2; i++) {
    const HANDLE handle = windows_handle(1 + i);
    if (!GetConsoleMode(handle, &found[i].mode)) continue;
    found[i].handle = handle;
    can_mark = SetConsoleMode(handle, found[i].mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
  atexit(restore_console);
}
