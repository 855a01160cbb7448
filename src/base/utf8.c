#include "base/utf8.h"

#include <string.h>

/* Returns the number of bytes of a character with this first byte, or 0 for an invalid first byte. */
static size_t length_of(uint8_t lead) {
  return lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

size_t utf8_read(const uint8_t *text, size_t size, uint32_t *point) {
  const size_t length = length_of(text[0]);
  if (length == 0 || length > size) return 0;
  uint32_t out = length == 1 ? text[0] : text[0] & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (!utf8_continues(text[i])) return 0;
    out = out << 6 | (text[i] & 0x3Fu);
  }
  /* C0 and C1 are invalid, so only characters of three and four bytes can be overlong. */
  bool overlong = (length == 3 && out < 0x800) || (length == 4 && out < 0x10000);
  if (overlong || (out >= UTF8_SURROGATES && out < UTF8_SURROGATES_END) || out >= UTF8_POINTS) return 0;
  *point = out;
  return length;
}

int32_t utf8_next(const uint8_t *text, size_t size, size_t *length) {
  uint32_t point;
  const size_t bytes = utf8_read(text, size, &point);
  *length = bytes ? bytes : 1;
  return bytes ? (int32_t)point : UTF8_INVALID;
}

int32_t utf8_previous(const uint8_t *text, size_t at) {
  size_t begin = at - 1, length;
  while (begin > 0 && at - begin < 4 && utf8_continues(text[begin])) begin--;
  const int32_t point = utf8_next(text + begin, at - begin, &length);
  return begin + length == at ? point : UTF8_INVALID;
}

size_t utf8_read_visible(const uint8_t *text, size_t size) {
  uint32_t point;
  const size_t length = utf8_read(text, size, &point);
  return length > 0 && (point < 0x20 || (point >= 0x7F && point < 0xA0)) ? 0 : length;
}

size_t utf8_write(uint32_t point, uint8_t *out) {
  if (point < 0x80) {
    out[0] = (uint8_t)point;
    return 1;
  }
  size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--, point >>= 6) out[i] = (uint8_t)(0x80 | (point & 0x3F));
  out[0] = (uint8_t)((0xF00u >> length & 0xF0) | point);
  return length;
}

size_t utf8_mark(const void *text, size_t size) { return size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; }

size_t utf8_complete(const uint8_t *text, size_t size) {
  for (size_t back = 1; back <= 3 && back <= size; back++) {
    const uint8_t byte = text[size - back];
    if (!utf8_continues(byte)) return length_of(byte) > back ? size - back : size;
  }
  return size;
}

int utf8_characters(const char *text) {
  int count = 0;
  for (; *text; text++) count += !utf8_continues((uint8_t)*text);
  return count;
}
