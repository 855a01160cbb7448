/* A growing array of bytes. Starts as {0}; the owner frees `bytes`. */
#ifndef INKLING_TOKENIZER_BYTE_BUFFER_H
#define INKLING_TOKENIZER_BYTE_BUFFER_H

#include "util/array.h"
#include "util/error.h"

#include <stdint.h>
#include <string.h>

typedef struct ByteBuffer {
  uint8_t *bytes;
  size_t size, capacity;
} ByteBuffer;

static inline bool byte_buffer_add(ByteBuffer *out, const void *bytes, size_t size, Error *error) {
  if (!array_reserve(&out->bytes, &out->capacity, out->size + size + 1, 1)) return error_memory(error, "a text");
  if (size > 0) memcpy(out->bytes + out->size, bytes, size);
  out->size += size;
  return true;
}

#endif
