/* Input lines: of a file or of standard input, read as they arrive, or typed at a terminal with editing and a history
 * (libedit). */
#ifndef INKLING_GENERATE_LINE_INPUT_H
#define INKLING_GENERATE_LINE_INPUT_H

#include "cli/text_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LineInput {
  int fd;
  const char *name; /* for messages */
  TextCheck *check; /* of the bytes that were read with the first line; NULL: none */
  uint8_t *bytes;   /* bytes read but not yet returned: [used, size) */
  size_t used, size, capacity;
  bool ended;
  int64_t taken;        /* the number of lines returned */
  int64_t refused;      /* of these, by line_input_refuse() or the caller */
  bool terminal, edits; /* set by line_input_open_session(); edits: with libedit */
} LineInput;

/* Opens a file; `path` NULL or "-": standard input. EXIT_INPUT. line_input_close() is harmless on {.fd = -1}. */
bool line_input_open(LineInput *out, const char *path, TextCheck *check, Error *error);
/* Opens standard input for line_input_ask(). Prompts and echo on a terminal go to stderr. libedit is loaded here; if it
 * is missing at run time or build time, the terminal's own editing is used. EXIT_MEMORY. */
bool line_input_open_session(LineInput *out, Error *error);
void line_input_close(LineInput *input);

/* Reads the next line as line_take() does, valid until the next call. A byte-order mark before the first is dropped.
 * NULL at the end of the input and, unless `wait`, when reading would block. EXIT_INPUT: reading fails, a line is
 * longer than 64 MiB, or text_check() refuses the first; the status of a signal. */
bool line_input_next(LineInput *input, bool wait, const uint8_t **line, size_t *size, Error *error);
/* The same in a session, after a prompt on a terminal; NULL also when a signal asked to stop. EXIT_MEMORY. */
bool line_input_ask(LineInput *input, const uint8_t **line, size_t *size, Error *error);

/* Counts the newest line as refused; a warning says why for each of the first five. */
void line_input_refuse(LineInput *input, Console *console, const char *why);
/* At the end: fails with EXIT_INPUT if lines were refused, which `have` says what: "have no score". */
bool line_input_check(const LineInput *input, const char *have, Error *error);

#endif
