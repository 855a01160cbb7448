/* The GGUF container, version 3, of ggml and llama.cpp: keys with values, the list of tensors, their data.
 * Specification: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef INKLING_FILES_FORMATS_GGUF_H
#define INKLING_FILES_FORMATS_GGUF_H

#include "base/error.h"
#include "base/file.h"

#include <stddef.h>
#include <stdint.h>

typedef enum GgufTensorType {
  GGUF_TENSOR_F32 = 0,
  GGUF_TENSOR_F16 = 1,
  GGUF_TENSOR_Q8_0 = 8,
  GGUF_TENSOR_BF16 = 30
} GgufTensorType;
enum { GGUF_Q8_0_BLOCK = 32, GGUF_ALIGNMENT = 32 };

/* Returns the bytes of a row of `cols` numbers; q8_0 needs whole blocks. */
size_t gguf_row_bytes(GgufTensorType type, int cols);
/* Converts a row of finite numbers. Returns false when a number is too large for the type. */
bool gguf_convert_row(GgufTensorType type, const float *row, int cols, void *out);

/* Types of values. */
enum { GGUF_VALUE_U32 = 4, GGUF_VALUE_I32, GGUF_VALUE_F32, GGUF_VALUE_BOOL, GGUF_VALUE_TEXT, GGUF_VALUE_ARRAY };

/* A header under construction; begins as {0}. Adding cannot fail: gguf_begin() reports missing memory. */
typedef struct GgufHeader {
  uint8_t *bytes;
  size_t size, capacity;
  uint64_t keys, tensors, data; /* data: bytes of tensors so far, with padding */
  bool no_memory;
} GgufHeader;

void gguf_header_free(GgufHeader *header);

void gguf_key_u32(GgufHeader *header, const char *key, uint32_t value);
void gguf_key_f32(GgufHeader *header, const char *key, float value);
void gguf_key_bool(GgufHeader *header, const char *key, bool value);
void gguf_key_text(GgufHeader *header, const char *key, const char *value);
/* Begins an array: `count` calls of gguf_text(), gguf_i32() or gguf_f32() follow. */
void gguf_key_array(GgufHeader *header, const char *key, uint32_t type, int count);
void gguf_text(GgufHeader *header, const char *value);
void gguf_i32(GgufHeader *header, int32_t value);
void gguf_f32(GgufHeader *header, float value);

/* Adds a tensor, after all keys. A vector has rows 0. */
void gguf_tensor(GgufHeader *header, const char *name, GgufTensorType type, int rows, int cols);

/* Writes the header to a new file. The rows of all tensors follow in the same order, with gguf_pad() after each tensor.
 * EXIT_MEMORY, EXIT_OUTPUT. */
bool gguf_begin(FileWriter *file, const char *path, const GgufHeader *header, Error *error);
bool gguf_pad(FileWriter *file, uint64_t bytes, Error *error); /* pads after a tensor of `bytes` bytes */

#endif
