/* Standard input as a file: a corpus is read more than once, a pipe cannot be. */
#ifndef INKLING_DATASET_SPOOL_H
#define INKLING_DATASET_SPOOL_H

#include "util/error.h"

#include <stdint.h>

/* Hears how many bytes have come, after each piece and five times a second while none comes; false, with `error`
 * filled in, ends the copy. */
typedef bool (*SpoolProgress)(void *context, int64_t bytes, Error *error);

/* Copies descriptor `from` up to its end to `path`, which appears or is replaced only when all of it is there.
 * `progress` may be NULL. EXIT_INPUT where reading fails, EXIT_OUTPUT where writing does, EXIT_MEMORY; the progress
 * function's error. */
bool spool_copy(int from, const char *path, SpoolProgress progress, void *context, Error *error);

#endif
