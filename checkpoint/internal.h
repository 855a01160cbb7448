/* Inside checkpoint/: what its files share. */
#ifndef INKLING_CHECKPOINT_INTERNAL_H
#define INKLING_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"

/* A row of the table as a tensor of a file, under another name perhaps. */
SafeTensor checkpoint_tensor(const ParameterTensor *p, const char *name, const float *arena);

bool checkpoint_same_shape(const SafeTensor *a, const SafeTensor *b);

/* The file's tensor of that name, which must have that shape; NULL with EXIT_CHECKPOINT. */
const SafeTensor *checkpoint_find_tensor(const char *path, const SafeTensors *file, const SafeTensor *expected,
                                         Error *error);

#endif
