/* Standard output, which carries only generated text and results. */
#ifndef INKLING_GENERATING_STDOUT_H
#define INKLING_GENERATING_STDOUT_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct Stdout {
  int error; /* errno of the first failed write; 0: none */
} Stdout;

/* Flushes what was printed to stdout. */
void stdout_flush(Stdout *out);

/* Writes and flushes. Returns false when writing fails or a signal asks to stop. */
bool stdout_write(Stdout *out, const void *bytes, size_t size);

/* Fails when writing has failed or a signal has arrived; a pipe that its reader has closed is no error. EXIT_OUTPUT. */
bool stdout_check(const Stdout *out, Error *error);
bool stdout_flush_and_check(Stdout *out, Error *error);

#endif
