#include "tokenizer/joined_pairs.h"

#include "util/hash.h"
#include "util/utf8.h"

#include <stdlib.h>

enum { PAIR_BITS = 1 << 20 };

struct JoinedPairs {
  uint64_t bits[PAIR_BITS / 64];
};

JoinedPairs *joined_pairs_create(void) { return calloc(1, sizeof(JoinedPairs)); }

static uint32_t bit_of(int32_t left, int32_t right) {
  return (uint32_t)hash_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right, 0) % PAIR_BITS;
}

bool joined_pairs_have(const JoinedPairs *pairs, int32_t left, int32_t right) {
  if (left == JOINED_NONE || right == JOINED_NONE) return false;
  const uint32_t at = bit_of(left, right);
  return pairs->bits[at / 64] >> at % 64 & 1;
}

int32_t joined_character(const uint8_t *text, size_t size, size_t *length) {
  uint32_t point;
  const size_t bytes = utf8_read(text, size, &point);
  *length = bytes ? bytes : 1;
  return bytes ? (int32_t)point : JOINED_NONE;
}

int32_t joined_character_before(const uint8_t *text, size_t at) {
  size_t begin = at - 1, length;
  while (begin > 0 && at - begin < 4 && utf8_continues(text[begin])) begin--;
  const int32_t character = joined_character(text + begin, at - begin, &length);
  return begin + length == at ? character : JOINED_NONE;
}

static void add_pair(JoinedPairs *pairs, int32_t left, int32_t right) {
  const uint32_t bit = bit_of(left, right);
  pairs->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

void joined_pairs_add_end(JoinedPairs *pairs, const uint8_t *text, size_t size) {
  if (size > 0) add_pair(pairs, joined_character_before(text, size), JOINED_END);
}

void joined_pairs_add(JoinedPairs *pairs, const uint8_t *text, size_t size) {
  int32_t before = JOINED_NONE;
  for (size_t at = 0, length; at < size; at += length) {
    const int32_t character = joined_character(text + at, size - at, &length);
    if (before != JOINED_NONE && character != JOINED_NONE) add_pair(pairs, before, character);
    before = character;
  }
}
