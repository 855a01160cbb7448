/* The safetensors container: an 8-byte little-endian header length, a JSON header, raw little-endian tensors.
 * Specification: https://github.com/huggingface/safetensors (format section). */
#ifndef INKLING_FORMATS_SAFETENSORS_H
#define INKLING_FORMATS_SAFETENSORS_H

#include "util/error.h"
#include "util/file.h"
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
  MetadataEntry *metadata; /* in the file's order */
  int metadata_count;
  MappedFile file;
  void *header; /* the parsed JSON that names point into */
} SafeTensors;

/* Opens and checks everything a hostile file can get wrong; every size is compared with the bytes that remain before it
 * is used. EXIT_CHECKPOINT, naming the file, the tensor and the numbers. The values of the tensors are not looked
 * at. */
bool safetensors_open(SafeTensors *out, const char *path, Error *error);
void safetensors_close(SafeTensors *file);                                     /* harmless on a zeroed struct */
const SafeTensor *safetensors_find(const SafeTensors *file, const char *name); /* NULL when absent */
const char *safetensors_metadata(const SafeTensors *file, const char *key);    /* NULL when absent */
size_t safetensors_type_bytes(TensorType type);
const char *safetensors_type_name(TensorType type); /* "F32" */

/* Writes atomically (util/file.h), tensors in the order given; `__metadata__` always holds {"format":"pt"} besides
 * `metadata`, which must not have that key. Equal input gives equal bytes. EXIT_OUTPUT. */
bool safetensors_write(const char *path, const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                       int metadata_count, Error *error);

/* The same of tensors that are made one after the other: source(state, i) gives the data of tensor i, which stay as
 * they are until the next call; NULL when it has failed, and has filled `error` itself. */
typedef const void *TensorSource(void *state, int index);
bool safetensors_write_from(const char *path, const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                            int metadata_count, TensorSource *source, void *state, Error *error);

bool safetensors_same_shape(const SafeTensor *a, const SafeTensor *b);
/* The file's tensor of that name, which must have that shape; NULL with EXIT_CHECKPOINT. */
const SafeTensor *safetensors_expect(const char *path, const SafeTensors *file, const SafeTensor *expected,
                                     Error *error);
/* A row of the table of parameters as a tensor in fp32 called `name`. `arena` as in the table, or NULL. */
SafeTensor safetensors_of_parameter(const ParameterTensor *p, const char *name, const float *arena);

#endif
