#include "util/one_line.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the UTF-8 character at `bytes`; 0 where there is none, or one that could move a terminal's cursor. */
static size_t character_at(const uint8_t *bytes, size_t left) {
  static const uint32_t least[] = {0, 0, 0xA0, 0x800, 0x10000}; /* what is below has a shorter form, or is a control */
  uint8_t lead = bytes[0];
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F;
  size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || left < size) return 0;
  uint32_t code = lead & (0x7Fu >> size);
  for (size_t i = 1; i < size; i++) {
    if ((bytes[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (bytes[i] & 0x3F);
  }
  if (code < least[size] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
  return size;
}

/* Appends `size` bytes; never more of them than come in. */
static char *append(char *out, const char *text, size_t size) {
  while (size > 0) {
    size_t character = character_at((const uint8_t *)text, size);
    size_t step = character > 0 ? character : 1;
    if (character > 0) memcpy(out, text, step);
    if (character == 0) *out = '?';
    out += step;
    text += step;
    size -= step;
  }
  return out;
}

static size_t inside_character(char c) { return ((uint8_t)c & 0xC0) == 0x80; }

OneLine one_line(const char *text, size_t limit) {
  OneLine out = {""};
  size_t size = strlen(text);
  if (limit >= sizeof out.text) limit = sizeof out.text - 1;
  if (size <= limit) {
    *append(out.text, text, size) = '\0';
    return out;
  }
  size_t head = (limit - 3) / 2, tail = limit - 3 - head;
  while (head > 0 && inside_character(text[head])) head--;
  while (tail > 0 && inside_character(text[size - tail])) tail--;
  char *end = append(out.text, text, head);
  end = append(end, "...", 3);
  *append(end, text + size - tail, tail) = '\0';
  return out;
}
