/* Lines of a file or of standard input, as they come. */
#ifndef INKLING_GENERATING_LINE_INPUT_H
#define INKLING_GENERATING_LINE_INPUT_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LineInput {
  int fd;
  const char *name; /* for messages */
  uint8_t *bytes;   /* read and not yet taken: [used, size) */
  size_t used, size, capacity;
  bool ended;
  int64_t taken; /* lines */
} LineInput;

/* `path` NULL or "-": standard input. EXIT_INPUT. line_input_close is harmless on {.fd = -1}. */
bool line_input_open(LineInput *out, const char *path, Error *error);
void line_input_close(LineInput *input);

/* Waits until there is something to read, or the end; false where a signal asks to stop. */
bool line_input_wait(int fd);

/* The next line, without its end, or NULL at the end of the input and, unless `wait`, where that would take time. It is
 * valid until the next call. EXIT_INPUT: it cannot be read, or a line is longer than 1 GiB; the status of a signal. */
bool line_input_next(LineInput *input, bool wait, const uint8_t **line, size_t *size, Error *error);

#endif
