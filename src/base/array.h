/* Growing arrays, and the order of numbers in one. */
#ifndef INKLING_BASE_ARRAY_H
#define INKLING_BASE_ARRAY_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Makes the capacity of an array at least `wanted` items of `item_bytes` bytes; `items` is the address of its pointer,
 * which may be NULL. A reallocation at least doubles the capacity. Returns false, without changes, when memory is
 * out. */
bool array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes);

/* A growing array of bytes. Starts as {0}; the owner frees `bytes`. */
typedef struct ByteBuffer {
  uint8_t *bytes;
  size_t size, capacity; /* capacity > size, so that a zero can be put after the bytes */
} ByteBuffer;

/* Appends bytes. EXIT_MEMORY. */
static inline bool byte_buffer_add(ByteBuffer *out, const void *bytes, size_t size, Error *error) {
  if (!array_reserve(&out->bytes, &out->capacity, out->size + size + 1, 1)) return error_memory(error, "a text");
  if (size > 0) memcpy(out->bytes + out->size, bytes, size);
  out->size += size;
  return true;
}

/* ---- doubles ---- */

/* Orders an array of doubles for qsort(), the smallest first. */
int array_compare_doubles(const void *a, const void *b);

/* Statistics of a series of timings, in the unit of the values. */
typedef struct Quantiles {
  double p10, median, p90, mean;
} Quantiles;

/* Computes the quantiles of `count` >= 1 values; sorts the values. */
Quantiles quantiles_of(double *values, size_t count);

#endif
