#include "generating/line_input.h"

#include "cli/startup.h"
#include "util/array.h"
#include "util/path.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, LINE_LIMIT = 1 << 30 };

bool line_input_open(LineInput *out, const char *path, Error *error) {
  const bool standard = !path || path_is_stdin(path);
  *out = (LineInput){.fd = standard ? STDIN_FILENO : open(path, O_RDONLY), .name = path_shown(path ? path : "-")};
  return out->fd >= 0 || fail(error, EXIT_INPUT, "cannot read %s: %s", path, strerror(errno));
}

void line_input_close(LineInput *in) {
  if (in->fd > STDIN_FILENO) close(in->fd);
  free(in->bytes);
  *in = (LineInput){.fd = -1};
}

/* Returns whether reading would not block. */
static bool is_ready(const LineInput *in) {
  struct pollfd input = {.fd = in->fd, .events = POLLIN};
  return poll(&input, 1, 0) > 0;
}

/* A signal interrupts no call of this thread, so the loop checks for one. */
bool line_input_wait(int fd) {
  enum { MILLISECONDS = 100 };
  struct pollfd input = {.fd = fd, .events = POLLIN};
  while (!stop_signal)
    if (poll(&input, 1, MILLISECONDS) != 0) return true;
  return false;
}

static bool read_more(LineInput *in, Error *error) {
  if (in->bytes && in->used > 0) memmove(in->bytes, in->bytes + in->used, in->size - in->used);
  in->size -= in->used;
  in->used = 0;
  if (in->size > LINE_LIMIT)
    return fail(error, EXIT_INPUT, "%s:%" PRId64 ": the line is longer than %d bytes", in->name, in->taken + 1,
                LINE_LIMIT);
  if (!array_reserve(&in->bytes, &in->capacity, in->size + READ_BYTES, 1)) return error_memory(error, "a line");
  const ssize_t got = read(in->fd, in->bytes + in->size, READ_BYTES);
  if (got < 0 && errno != EINTR) return fail(error, EXIT_INPUT, "cannot read %s: %s", in->name, strerror(errno));
  in->ended = got == 0;
  in->size += got > 0 ? (size_t)got : 0;
  return true;
}

bool line_input_next(LineInput *in, bool wait, const uint8_t **line, size_t *size, Error *error) {
  for (size_t looked = 0;;) {
    const size_t waiting = in->bytes ? in->size - in->used : 0;
    const uint8_t *begin = in->bytes ? in->bytes + in->used : NULL;
    const uint8_t *end = waiting > looked ? memchr(begin + looked, '\n', waiting - looked) : NULL;
    *line = NULL;
    if (!end && !in->ended) {
      looked = waiting;
      if (!wait && !is_ready(in)) return true;
      line_input_wait(in->fd);
      if (!startup_go_on("reading lines", error) || !read_more(in, error)) return false;
      continue;
    }
    if (!end && waiting == 0) return true;
    *line = begin;
    *size = end ? (size_t)(end - begin) : waiting;
    in->used += *size + (end != NULL);
    in->taken++;
    if (*size && begin[*size - 1] == '\r') --*size;
    return true;
  }
}
