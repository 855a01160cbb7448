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

/* ---- text in memory: a temporary file that is read when it is closed ---- */

enum { MEMORY_STREAMS = 8 };
static struct {
  FILE *stream;
  char **text;
  size_t *size;
} in_memory[MEMORY_STREAMS];

FILE *open_memstream(char **text, size_t *size) {
  int free_one = 0;
  while (free_one < MEMORY_STREAMS && in_memory[free_one].stream) free_one++;
  char path[WINDOWS_NAME];
  snprintf(path, sizeof path, "%s/inkling-XXXXXX", getenv("TMPDIR"));
  const int name = free_one < MEMORY_STREAMS ? mkstemp(path) : -1;
  if (name < 0) return NULL;
  const HANDLE file = windows_open(path, GENERIC_READ | GENERIC_WRITE | DELETE, OPEN_EXISTING,
                                   FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE);
  _close(name);
  if (file == INVALID_HANDLE_VALUE) return windows_failed(), unlink(path), NULL;
  in_memory[free_one].stream = _fdopen(_open_osfhandle((intptr_t)file, O_BINARY), "w+b");
  in_memory[free_one].text = text;
  in_memory[free_one].size = size;
  *text = NULL;
  *size = 0;
  return in_memory[free_one].stream;
}

static int take_text(FILE *stream, char **text, size_t *size) {
  fseek(stream, 0, SEEK_END);
  *size = (size_t)ftell(stream);
  *text = calloc(*size + 1, 1);
  rewind(stream);
  const bool ok = *text && fread(*text, 1, *size, stream) == *size;
  fclose(stream);
  if (ok) return 0;
  free(*text);
  return *text = NULL, EOF;
}

int win_fclose(FILE *stream) {
  for (int i = 0; i < MEMORY_STREAMS; i++) {
    if (in_memory[i].stream != stream) continue;
    in_memory[i].stream = NULL;
    return take_text(stream, in_memory[i].text, in_memory[i].size);
  }
  return fclose(stream);
}

/* ---- pipes ---- */

/* The C library calls writing to a pipe that the reader has closed an invalid argument. */
static void correct_cause(FILE *stream) {
  if (errno == EINVAL && GetFileType(windows_handle(_fileno(stream))) == FILE_TYPE_PIPE) errno = EPIPE;
}

int win_fflush(FILE *stream) {
  const int status = fflush(stream);
  if (status) correct_cause(stream);
  return status;
}

size_t win_fwrite(const void *bytes, size_t size, size_t count, FILE *stream) {
  const size_t done = fwrite(bytes, size, count, stream);
  if (done < count) correct_cause(stream);
  return done;
}

enum { AT_ONCE = 1 << 30 };
static unsigned at_most(size_t size) { return (unsigned)(size < AT_ONCE ? size : AT_ONCE); }

int64_t win_write(int fd, const void *bytes, size_t size) { return _write(fd, bytes, at_most(size)); }

static short ready(const struct pollfd *file) {
  const HANDLE handle = windows_handle(file->fd);
  const DWORD type = GetFileType(handle);
  DWORD there = 0;
  if (file->events & POLLOUT) return type == FILE_TYPE_PIPE ? POLLERR : POLLOUT; /* asked after a failure */
  if (type == FILE_TYPE_PIPE) return !PeekNamedPipe(handle, NULL, 0, NULL, &there, NULL) || there ? POLLIN : 0;
  if (type == FILE_TYPE_CHAR) return WaitForSingleObject(handle, 0) == WAIT_OBJECT_0 ? POLLIN : 0;
  return POLLIN;
}

int poll(struct pollfd *files, unsigned long count, int milliseconds) {
  enum { PAUSE = 5 };
  const uint64_t begin = GetTickCount64();
  fflush(stderr); /* a prompt */
  for (;;) {
    int found = 0;
    for (unsigned long i = 0; i < count; i++) found += (files[i].revents = ready(&files[i])) != 0;
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
  return WideCharToMultiByte(CP_UTF8, 0, line, (int)got, bytes, (int)at_most(size), NULL, NULL);
}

int64_t win_read(int fd, void *bytes, size_t size) {
  return isatty(fd) ? read_console(windows_handle(fd), bytes, size) : _read(fd, bytes, at_most(size));
}
