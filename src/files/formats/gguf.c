#include "files/formats/gguf.h"

#include "base/array.h"
#include "base/half.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3 };

/* ---- numbers ---- */

/* The smallest numbers that are rounded to infinity. */
static const float F16_LIMIT = 65520, BF16_LIMIT = 0x1.FFp+127f;

typedef struct Q8_0Block {
  uint16_t scale; /* f16 */
  int8_t numbers[GGUF_Q8_0_BLOCK];
} Q8_0Block;
_Static_assert(sizeof(Q8_0Block) == 34, "the layout in files");

size_t gguf_row_bytes(GgufTensorType type, int cols) {
  const size_t count = (size_t)cols;
  switch (type) {
  case GGUF_TENSOR_F32: return count * sizeof(float);
  case GGUF_TENSOR_F16:
  case GGUF_TENSOR_BF16: return count * sizeof(uint16_t);
  case GGUF_TENSOR_Q8_0: return count / GGUF_Q8_0_BLOCK * sizeof(Q8_0Block);
  }
  return 0;
}

/* Quantizes a block: the largest number becomes 127 steps. Numbers are divided by the step before it is rounded to
 * f16. */
static Q8_0Block quantize(const float *from) {
  Q8_0Block block;
  float largest = 0;
  for (int i = 0; i < GGUF_Q8_0_BLOCK; i++) largest = fmaxf(largest, fabsf(from[i]));
  const float step = largest / 127, inverse = step >= FLT_MIN ? 1 / step : 0; /* 1 / a smaller step may be infinite */
  block.scale = half_float_to_f16(step);
  for (int i = 0; i < GGUF_Q8_0_BLOCK; i++) block.numbers[i] = (int8_t)roundf(from[i] * inverse);
  return block;
}

/* Returns whether all numbers of a row are below the limit. */
static bool fits(const float *row, int cols, float limit) {
  bool ok = true;
  for (int i = 0; i < cols; i++) ok &= fabsf(row[i]) < limit;
  return ok;
}

bool gguf_convert_row(GgufTensorType type, const float *row, int cols, void *out) {
  uint16_t *halves = out;
  switch (type) {
  case GGUF_TENSOR_F32: memcpy(out, row, (size_t)cols * sizeof *row); return true;
  case GGUF_TENSOR_F16:
    for (int i = 0; i < cols; i++) halves[i] = half_float_to_f16(row[i]);
    return fits(row, cols, F16_LIMIT);
  case GGUF_TENSOR_BF16:
    for (int i = 0; i < cols; i++) halves[i] = half_float_to_bf16(row[i]);
    return fits(row, cols, BF16_LIMIT);
  case GGUF_TENSOR_Q8_0:
    for (int i = 0; i < cols / GGUF_Q8_0_BLOCK; i++) {
      const Q8_0Block block = quantize(row + (size_t)i * GGUF_Q8_0_BLOCK);
      memcpy((uint8_t *)out + (size_t)i * sizeof block, &block, sizeof block);
    }
    return fits(row, cols, 127 * F16_LIMIT);
  }
  return false;
}

/* ---- the header ---- */

void gguf_header_free(GgufHeader *h) {
  free(h->bytes);
  *h = (GgufHeader){0};
}

static void add(GgufHeader *h, const void *bytes, size_t size) {
  if (!h->no_memory && !array_reserve(&h->bytes, &h->capacity, h->size + size, 1)) h->no_memory = true;
  if (h->no_memory || !size) return;
  memcpy(h->bytes + h->size, bytes, size);
  h->size += size;
}

static void add_u32(GgufHeader *h, uint32_t value) { add(h, &value, sizeof value); }
static void add_u64(GgufHeader *h, uint64_t value) { add(h, &value, sizeof value); }

void gguf_text(GgufHeader *h, const char *value) {
  add_u64(h, strlen(value));
  add(h, value, strlen(value));
}

void gguf_i32(GgufHeader *h, int32_t value) { add(h, &value, sizeof value); }
void gguf_f32(GgufHeader *h, float value) { add(h, &value, sizeof value); }

static void add_key(GgufHeader *h, const char *key, uint32_t type) {
  gguf_text(h, key);
  add_u32(h, type);
  h->keys++;
}

void gguf_key_u32(GgufHeader *h, const char *key, uint32_t value) {
  add_key(h, key, GGUF_VALUE_U32);
  add_u32(h, value);
}

void gguf_key_f32(GgufHeader *h, const char *key, float value) {
  add_key(h, key, GGUF_VALUE_F32);
  gguf_f32(h, value);
}

void gguf_key_bool(GgufHeader *h, const char *key, bool value) {
  const uint8_t byte = value;
  add_key(h, key, GGUF_VALUE_BOOL);
  add(h, &byte, sizeof byte);
}

void gguf_key_text(GgufHeader *h, const char *key, const char *value) {
  add_key(h, key, GGUF_VALUE_TEXT);
  gguf_text(h, value);
}

void gguf_key_array(GgufHeader *h, const char *key, uint32_t type, int count) {
  add_key(h, key, GGUF_VALUE_ARRAY);
  add_u32(h, type);
  add_u64(h, (uint64_t)count);
}

static uint64_t pad_of(uint64_t bytes) { return (GGUF_ALIGNMENT - bytes % GGUF_ALIGNMENT) % GGUF_ALIGNMENT; }

/* Writes the dimensions in ggml's order: the size of a row first. */
void gguf_tensor(GgufHeader *h, const char *name, GgufTensorType type, int rows, int cols) {
  const uint64_t bytes = (uint64_t)gguf_row_bytes(type, cols) * (uint64_t)(rows ? rows : 1);
  gguf_text(h, name);
  add_u32(h, rows ? 2 : 1);
  add_u64(h, (uint64_t)cols);
  if (rows) add_u64(h, (uint64_t)rows);
  add_u32(h, type);
  add_u64(h, h->data);
  h->data += bytes + pad_of(bytes);
  h->tensors++;
}

/* ---- the file ---- */

bool gguf_pad(FileWriter *file, uint64_t bytes, Error *error) {
  static const uint8_t zeros[GGUF_ALIGNMENT];
  return file_writer_add(file, zeros, pad_of(bytes), error);
}

bool gguf_begin(FileWriter *file, const char *path, const GgufHeader *h, Error *error) {
  GgufHeader first = {0};
  add(&first, "GGUF", 4);
  add_u32(&first, VERSION);
  add_u64(&first, h->tensors);
  add_u64(&first, h->keys);
  const bool ok = (!first.no_memory && !h->no_memory) || error_memory(error, "the header of a GGUF file");
  const bool done = ok && file_writer_begin(file, path, error) &&
                    file_writer_add(file, first.bytes, first.size, error) &&
                    file_writer_add(file, h->bytes, h->size, error) && gguf_pad(file, first.size + h->size, error);
  gguf_header_free(&first);
  return done;
}
