/* Inside checkpoint/: what its files share. */
#ifndef INKLING_CHECKPOINT_INTERNAL_H
#define INKLING_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"

/* EXIT_MEMORY, naming what was being read or written; false. */
static inline bool checkpoint_no_memory(const char *path, Error *error) {
  fail(error, EXIT_MEMORY, "out of memory while reading or writing %s", path);
  return false; /* said outright, for static analysis */
}

/* A failed system call, with errno: EXIT_OUTPUT; false. */
bool checkpoint_system_failed(const char *what, const char *path, Error *error);

/* A row of the table as a tensor of a file, under another name perhaps. */
SafeTensor checkpoint_tensor(const ParameterTensor *p, const char *name, const float *arena);

/* Whether a file's tensor has the table's shape; EXIT_CHECKPOINT with both. */
bool checkpoint_check_shape(const char *path, const SafeTensor *tensor, const ParameterTensor *p, Error *error);

#endif
