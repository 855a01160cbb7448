/* Errors as values.
 *
 * A function that can fail returns bool (true = done) and takes an `Error *`. Only main() turns an Error into a
 * message on stderr and an exit status. The text names the cause, the numbers and what to type next. */
#ifndef INKLING_BASE_ERROR_H
#define INKLING_BASE_ERROR_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit status of both programs. */
typedef enum ExitCode {
  EXIT_DONE = 0,
  EXIT_INTERNAL = 1,   /* a bug */
  EXIT_USAGE = 2,      /* flags, values, an output directory that already contains a run */
  EXIT_INPUT = 3,      /* text or prompt missing, empty, too short, too long */
  EXIT_CHECKPOINT = 4, /* checkpoint or tokenizer invalid or incompatible */
  EXIT_MEMORY = 5,     /* out of memory */
  EXIT_NONFINITE = 6,  /* loss, gradient or logits not finite */
  EXIT_OUTPUT = 7,     /* full disk, unwritable directory */
  EXIT_BUSY = 8,       /* the run directory is in use */
  EXIT_SIGNALS = 128   /* + the signal that stopped it */
} ExitCode;

typedef struct Error {
  ExitCode code; /* EXIT_DONE while nothing has gone wrong */
  char text[2048];
} Error;

/* Fills `error` (the first error is kept: a second call changes nothing) and returns false, so that a caller can write
 * `return fail(error, EXIT_INPUT, "...")`. */
bool fail(Error *error, ExitCode code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Appends to the text of an error, for advice that only the caller can give, because it knows the flags. Returns
 * false. */
bool error_append(Error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fills `error` with EXIT_MEMORY; returns false. */
static inline bool error_memory(Error *error, const char *what) {
  fail(error, EXIT_MEMORY, "out of memory for %s", what);
  return false; /* written out for static analysis */
}

#ifdef __cplusplus
}
#endif
#endif
