/* Streams: files, text in memory, pipes and the console. */
#include "windows/internal.h"

#include <poll.h>

#undef fopen
#undef fdopen
#undef fclose
#undef fflush
#undef fwrite
#undef read
#undef write

FILE *win_fdopen(int fd, const char *mode) {
  char binary[8];
  snprintf(binary, sizeof binary, "%s%s", mode, strchr(mode, 'b') ? "" : "b");
  return _fdopen(fd, binary);
}

FILE *win_fopen(const char *path, const char *mode) {
  const bool both = strchr(mode, '+');
  const int flags = *mode == 'r'   ? both ? O_RDWR : O_RDONLY
                    : *mode == 'w' ? (both ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC
                                   : (both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
  const int fd = open(path, flags, 0666);
  FILE *stream = fd < 0 ? NULL : win_fdopen(fd, mode);
  if (fd >= 0 && !stream) _close(fd);
  return stream;
}

/* ---- text in memory: a temporary file that is read when it is closed; one at a time ---- */

static struct {
  FILE *stream;
  char **text;
  size_t *size;
} in_memory;

FILE *open_memstream(char **text, size_t *size) {
  Wide directory, name;
  *text = NULL;
  *size = 0;
  if (in_memory.stream) return errno = EMFILE, NULL;
  if (!GetTempPathW(WINDOWS_NAME, directory.text) || !GetTempFileNameW(directory.text, L"ink", 0, name.text))
    return windows_failed(), NULL;
  const int fd = _wopen(name.text, O_RDWR | O_TEMPORARY | O_BINARY);
  FILE *stream = fd < 0 ? NULL : _fdopen(fd, "w+b");
  if (fd >= 0 && !stream) _close(fd);
  in_memory.stream = stream;
  in_memory.text = text;
  in_memory.size = size;
  return stream;
}

int win_fclose(FILE *stream) {
  if (!stream || stream != in_memory.stream) return fclose(stream);
  fseek(stream, 0, SEEK_END);
  const size_t size = *in_memory.size = (size_t)ftell(stream);
  char *text = calloc(size + 1, 1);
  rewind(stream);
  const bool ok = text && fread(text, 1, size, stream) == size;
  fclose(stream);
  in_memory.stream = NULL;
  if (ok) *in_memory.text = text;
  else free(text);
  return ok ? 0 : EOF;
}

/* ---- writing, and waiting ---- */

/* The C library calls an invalid argument what it does not know: a pipe that the reader has closed, in wine a full disk. */
static void correct_cause(void) {
  if (errno != EINVAL) return;
  SetLastError(_doserrno ? _doserrno : ERROR_DISK_FULL);
  windows_failed();
}

int win_fflush(FILE *stream) {
  _doserrno = 0;
  const int status = fflush(stream);
  if (status) correct_cause();
  return status;
}

size_t win_fwrite(const void *bytes, size_t size, size_t count, FILE *stream) {
  _doserrno = 0;
  const size_t done = fwrite(bytes, size, count, stream);
  if (done < count) correct_cause();
  return done;
}

enum { AT_ONCE = 1 << 30 };
static unsigned at_most(size_t size) { return (unsigned)(size < AT_ONCE ? size : AT_ONCE); }

int64_t win_write(int fd, const void *bytes, size_t size) {
  _doserrno = 0;
  const int done = _write(fd, bytes, at_most(size));
  if (done < 0) correct_cause();
  return done;
}

static bool unfinished; /* a line of the console was longer than what was read of it */

/* Whether reading a console has something to do: a key waits, or for a call that must not wait the end of a line. Keys
 * show while they are read, and reading ends with the line. The handle itself is ready for a moved mouse, too. */
static bool typed(HANDLE console, bool line) {
  INPUT_RECORD events[1024];
  DWORD count = 0;
  if (unfinished || !PeekConsoleInputW(console, events, 1024, &count)) return true; /* fails for NUL */
  for (DWORD i = 0; i < count; i++) {
    const KEY_EVENT_RECORD *key = &events[i].Event.KeyEvent;
    const bool pressed = events[i].EventType == KEY_EVENT && (key->bKeyDown || key->uChar.UnicodeChar);
    if (pressed && (!line || key->uChar.UnicodeChar == L'\r')) return true;
  }
  if (!line && count) ReadConsoleInputW(console, events, count, &count); /* makes room for keys */
  return false;
}

static short ready(const struct pollfd *file, bool at_once) {
  const HANDLE handle = windows_handle(file->fd);
  const DWORD type = GetFileType(handle);
  DWORD there = 0;
  if (file->events & POLLOUT) return type == FILE_TYPE_PIPE ? POLLERR : POLLOUT; /* asked after a failure */
  if (type == FILE_TYPE_PIPE) return !PeekNamedPipe(handle, NULL, 0, NULL, &there, NULL) || there ? POLLIN : 0;
  return type != FILE_TYPE_CHAR || typed(handle, at_once) ? POLLIN : 0;
}

int poll(struct pollfd *files, unsigned long count, int milliseconds) {
  enum { PAUSE = 5 };
  const uint64_t begin = GetTickCount64();
  fflush(stderr); /* a prompt */
  for (;;) {
    int found = 0;
    for (unsigned long i = 0; i < count; i++) found += (files[i].revents = ready(&files[i], !milliseconds)) != 0;
    if (found || (milliseconds >= 0 && GetTickCount64() - begin >= (uint64_t)milliseconds)) return found;
    Sleep(PAUSE);
  }
}

/* ---- typed lines ---- */

/* Reads characters in UTF-16, because a console gives zeros for the others in UTF-8. Ctrl-Z at the begin of a line and
 * Enter end the input. */
static int64_t read_console(HANDLE console, void *bytes, size_t size) {
  enum { UNITS = 4096, BYTES_OF_UNIT = 3, CTRL_Z = 26 };
  wchar_t line[UNITS];
  DWORD got = 0;
  const DWORD room = size / BYTES_OF_UNIT < UNITS ? (DWORD)(size / BYTES_OF_UNIT) : UNITS;
  if (!ReadConsoleW(console, line, room, &got, NULL)) return windows_failed();
  if (!got && GetLastError() == ERROR_OPERATION_ABORTED) return errno = EINTR, -1; /* Ctrl-C */
  if (!got || line[0] == CTRL_Z) return 0;
  unfinished = line[got - 1] != L'\n';
  return WideCharToMultiByte(CP_UTF8, 0, line, (int)got, bytes, (int)at_most(size), NULL, NULL);
}

int64_t win_read(int fd, void *bytes, size_t size) {
  return isatty(fd) ? read_console(windows_handle(fd), bytes, size) : _read(fd, bytes, at_most(size));
}
