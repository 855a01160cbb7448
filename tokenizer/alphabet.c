#include "tokenizer/alphabet.h"

#include <stdlib.h>
#include <string.h>

/* The 188 printable characters of Latin-1 represent themselves; the other 68 bytes, in order, are U+0100 and up. */
static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

Alphabet alphabet_gpt2(void) {
  Alphabet out = {{{0}}, {0}};
  int hidden = 0;
  memset(out.byte, 0xFF, sizeof out.byte);
  for (int byte = 0; byte < BPE_BYTES; byte++) {
    int point = is_printable(byte) ? byte : BPE_BYTES + hidden++;
    out.byte[point] = (int16_t)byte;
    utf8_write((uint32_t)point, (uint8_t *)out.symbol[byte]);
  }
  return out;
}

char *alphabet_token(const Alphabet *alphabet, const Bpe *bpe, int32_t id) {
  size_t size;
  const uint8_t *bytes = bpe_decode(bpe, id, &size);
  char *out = malloc(size * (ALPHABET_BYTES - 1) + 1), *to = out;
  if (!out) return NULL;
  for (size_t i = 0; i < size; i++)
    for (const char *symbol = alphabet->symbol[bytes[i]]; *symbol; symbol++) *to++ = *symbol;
  *to = '\0';
  return out;
}

int64_t alphabet_read(const Alphabet *alphabet, const char *text, uint8_t *out) {
  int64_t count = 0;
  uint32_t point;
  for (size_t left = strlen(text), length; left > 0; left -= length, text += length) {
    length = utf8_read((const uint8_t *)text, left, &point);
    if (length == 0 || point >= ALPHABET_POINTS || alphabet->byte[point] < 0) return -1;
    out[count++] = (uint8_t)alphabet->byte[point];
  }
  return count;
}
