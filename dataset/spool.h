/* Standard input as a file: a corpus is read more than once, a pipe cannot be. */
#ifndef INKLING_DATASET_SPOOL_H
#define INKLING_DATASET_SPOOL_H

#include "util/error.h"
#include "util/progress.h"

/* Copies descriptor `from` up to its end to `path`, which appears or is replaced only when all of it is there.
 * `progress` counts bytes: after each chunk, and five times a second while none comes. EXIT_INPUT where reading fails,
 * EXIT_OUTPUT where writing does, EXIT_MEMORY; the error of `progress`. */
bool spool_copy(int from, const char *path, Progress progress, Error *error);

#endif
