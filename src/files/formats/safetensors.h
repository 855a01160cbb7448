/* The safetensors container: an 8-byte little-endian header length, a JSON header, raw little-endian tensors.
 * Specification: https://github.com/huggingface/safetensors (format section). */
#ifndef INKLING_FILES_FORMATS_SAFETENSORS_H
#define INKLING_FILES_FORMATS_SAFETENSORS_H

#include "base/error.h"
#include "base/file.h"
#include "model.h"
#include "model/parameters.h"

#include <stddef.h>
#include <stdint.h>

typedef enum TensorType {
  TENSOR_F64,
  TENSOR_F32,
  TENSOR_F16,
  TENSOR_BF16,
  TENSOR_I64,
  TENSOR_I32,
  TENSOR_U8,
  TENSOR_BOOL
} TensorType;
enum { TENSOR_MAX_RANK = 8 };

typedef struct SafeTensor {
  const char *name;
  TensorType type;
  int rank;
  int64_t shape[TENSOR_MAX_RANK];
  const void *data; /* reading: points into the mapping, possibly unaligned; writing: host memory, contiguous */
  size_t bytes;     /* product(shape) * size of the type (writing: computed, ignored on input) */
} SafeTensor;

/* One string of `__metadata__`. */
typedef struct MetadataEntry {
  const char *key, *value;
} MetadataEntry;

typedef struct SafeTensors {
  SafeTensor *tensors; /* sorted by name */
  int count;
  MetadataEntry *metadata; /* in file order */
  int metadata_count;
  MappedFile file;
  void *header; /* the parsed JSON that names point into */
} SafeTensors;

/* Opens a file and checks its structure against corrupt and malicious input: every size is compared with the remaining
 * bytes before it is used. EXIT_CHECKPOINT, naming the file, the tensor and the numbers. The values of the tensors are
 * not checked. */
bool safetensors_open(SafeTensors *out, const char *path, Error *error);
void safetensors_close(SafeTensors *file);                                     /* harmless on a zeroed struct */
int safetensors_compare_name(const void *a, const void *b);                    /* for qsort() of tensors */
const SafeTensor *safetensors_find(const SafeTensors *file, const char *name); /* NULL when absent */
const char *safetensors_metadata(const SafeTensors *file, const char *key);    /* NULL when absent */
const char *safetensors_type_name(TensorType type);                            /* "F32" */

/* Writes a file atomically (base/file.h), tensors in the given order; `__metadata__` always contains {"format":"pt"} in
 * addition to `metadata`, which must not have that key. Equal input gives equal bytes. EXIT_OUTPUT. */
bool safetensors_write(const char *path, const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                       int metadata_count, Error *error);

/* Writes tensors that are produced one by one: source(state, i) returns the data of tensor i, valid until the next
 * call, or NULL when it has failed and filled `error`. */
typedef const void *TensorSource(void *state, int index);
bool safetensors_write_from(const char *path, const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                            int metadata_count, TensorSource *source, void *state, Error *error);

/* Begins a file whose tensors the caller writes in any order, with file_writer_seek() and file_writer_add(), before
 * file_writer_commit(). Sets *data to the offset of the first tensor in the file; the others follow it without gaps.
 * EXIT_OUTPUT. */
bool safetensors_begin(FileWriter *file, const char *path, const SafeTensor *tensors, int count,
                       const MetadataEntry *metadata, int metadata_count, int64_t *data, Error *error);

bool safetensors_same_shape(const SafeTensor *a, const SafeTensor *b);
/* Returns the file's tensor with the name of `expected`, which must have the same shape; NULL with EXIT_CHECKPOINT. */
const SafeTensor *safetensors_expect(const char *path, const SafeTensors *file, const SafeTensor *expected,
                                     Error *error);
/* Sets the shape by the rank, 1 to 3: [rows], [rows][cols], [rows][1][cols]. */
void safetensors_set_shape(SafeTensor *tensor, int64_t rows, int64_t cols);
/* Returns a row of the parameter table as an fp32 tensor called `name`. `arena` as in the table, or NULL. */
SafeTensor safetensors_of_parameter(const ParameterTensor *p, const char *name, const float *arena);

#endif
