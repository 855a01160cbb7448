#include "dataset/spool.h"

#include "util/file.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 /* bytes */, WAIT = 200 /* milliseconds */ };

/* Returns the number of bytes read; 0 at the end; -1 with errno: EAGAIN when nothing came in time, so that the caller
 * can check for Ctrl-C. */
static ssize_t read_chunk(int from, uint8_t *chunk) {
  struct pollfd wanted = {.fd = from, .events = POLLIN};
  int ready = poll(&wanted, 1, WAIT);
  if (ready < 0) return -1;
  if (ready == 0) {
    errno = EAGAIN;
    return -1;
  }
  return read(from, chunk, CHUNK);
}

static bool copy(int from, FileWriter *to, uint8_t *chunk, Progress progress, Error *error) {
  for (int64_t bytes = 0;;) {
    ssize_t count = read_chunk(from, chunk);
    if (count < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return fail(error, EXIT_INPUT, "cannot read standard input: %s", strerror(errno));
    if (count > 0 && !file_writer_add(to, chunk, (size_t)count, error)) return false;
    if (count > 0) bytes += count;
    if (!progress_report(progress, bytes, error)) return false;
    if (count == 0) return true;
  }
}

bool spool_copy(int from, const char *path, Progress progress, Error *error) {
  FileWriter file;
  uint8_t *chunk = malloc(CHUNK);
  if (!chunk) return error_memory(error, "standard input");
  bool ok = file_writer_begin(&file, path, error);
  if (ok) {
    ok = copy(from, &file, chunk, progress, error) && file_writer_commit(&file, error);
    file_writer_abort(&file);
  }
  free(chunk);
  return ok;
}
