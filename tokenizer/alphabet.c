#include "tokenizer/alphabet.h"

#include "util/json.h"

#include <stdlib.h>
#include <string.h>

/* The 188 printable characters of Latin-1 represent themselves; the other 68 bytes, in order (0 to 0x20, 0x7F to 0xA0,
 * 0xAD), are U+0100 and up. */
static uint32_t point_of(uint8_t byte) {
  return byte <= 0x20                   ? 0x100u + byte
         : byte >= 0x7F && byte <= 0xA0 ? 0x121u - 0x7F + byte
         : byte == 0xAD                 ? 0x143
                                        : byte;
}

/* Returns -1 for other characters. */
static int byte_of(uint32_t point) {
  const int byte = (int)(point < 0x100   ? point
                         : point < 0x121 ? point - 0x100
                         : point < 0x143 ? point - 0x121 + 0x7F
                                         : 0xAD);
  return point_of((uint8_t)byte) == point ? byte : -1;
}

char *alphabet_token(const Bpe *bpe, int32_t id) {
  size_t size;
  const uint8_t *bytes = bpe_decode(bpe, id, &size);
  char *out = json_allocate(2 * size + 1), *to = out;
  if (!out) return NULL;
  for (size_t i = 0; i < size; i++) to += utf8_write(point_of(bytes[i]), (uint8_t *)to);
  *to = '\0';
  return out;
}

int64_t alphabet_read(const char *text, uint8_t *out) {
  int64_t count = 0;
  uint32_t point;
  for (size_t left = strlen(text), length; left > 0; left -= length, text += length) {
    length = utf8_read((const uint8_t *)text, left, &point);
    const int byte = length ? byte_of(point) : -1;
    if (byte < 0) return -1;
    out[count++] = (uint8_t)byte;
  }
  return count;
}
