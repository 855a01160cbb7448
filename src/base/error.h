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

/* The exit statuses of both programs: name, number, and the words of --help and the manual pages. docs/runs.md has the
 * same. */
#define EXIT_CODES(ROW)                                                                                                \
  ROW(EXIT_DONE, 0, "success")                                                                                         \
  ROW(EXIT_INTERNAL, 1, "internal error (a bug)")                                                                      \
  ROW(EXIT_USAGE, 2, "invalid option or value")         /* also an output directory that already contains a run */     \
  ROW(EXIT_INPUT, 3, "problem with the text or prompt") /* missing, empty, too short, too long */                      \
  ROW(EXIT_CHECKPOINT, 4, "problem with the model or tokenizer") /* invalid or incompatible */                         \
  ROW(EXIT_MEMORY, 5, "out of memory")                                                                                 \
  ROW(EXIT_NONFINITE, 6, "loss, gradient or logits not finite (NaN or infinity)")                                      \
  ROW(EXIT_OUTPUT, 7, "output cannot be written") /* full disk, unwritable directory */                                \
  ROW(EXIT_BUSY, 8, "the run directory is in use")
#define EXIT_STATUSES(ROW) EXIT_CODES(ROW) ROW(EXIT_SIGNALS, 128 + n, "stopped by signal n")

#define EXIT_CODE_MEMBER(name, number, words) name = number,
typedef enum ExitCode { EXIT_CODES(EXIT_CODE_MEMBER) EXIT_SIGNALS = 128 /* + the signal that stopped it */ } ExitCode;

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
