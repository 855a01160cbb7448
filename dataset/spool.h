/* Copying of standard input to a file, because a corpus is read more than once and a pipe cannot be. */
#ifndef INKLING_DATASET_SPOOL_H
#define INKLING_DATASET_SPOOL_H

#include "util/error.h"
#include "util/progress.h"

/* Copies descriptor `from` up to its end to `path`, which is created or replaced only when the copy is complete.
 * `progress` counts bytes: after each chunk, and five times a second while none arrives. EXIT_INPUT when reading fails,
 * EXIT_OUTPUT when writing fails, EXIT_MEMORY; the error of `progress`. */
bool spool_copy(int from, const char *path, Progress progress, Error *error);

#endif
