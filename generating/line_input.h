/* Lines of a file or of standard input, read as they arrive. */
#ifndef INKLING_GENERATING_LINE_INPUT_H
#define INKLING_GENERATING_LINE_INPUT_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LineInput {
  int fd;
  const char *name; /* for messages */
  uint8_t *bytes;   /* bytes read but not yet returned: [used, size) */
  size_t used, size, capacity;
  bool ended;
  int64_t taken; /* the number of lines returned */
} LineInput;

/* Opens a file; `path` NULL or "-": standard input. EXIT_INPUT. line_input_close() is harmless on {.fd = -1}. */
bool line_input_open(LineInput *out, const char *path, Error *error);
void line_input_close(LineInput *input);

/* Waits for input or its end; returns false when a signal asks to stop. */
bool line_input_wait(int fd);

/* Reads the next line, without its newline, valid until the next call. NULL at the end of the input and, unless `wait`,
 * when reading would block. EXIT_INPUT: reading fails, or a line is longer than 1 GiB; the status of a signal. */
bool line_input_next(LineInput *input, bool wait, const uint8_t **line, size_t *size, Error *error);

#endif
