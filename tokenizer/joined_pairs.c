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
  if (left == UTF8_INVALID || right == UTF8_INVALID) return false;
  const uint32_t at = bit_of(left, right);
  return pairs->bits[at / 64] >> at % 64 & 1;
}

static void add_pair(JoinedPairs *pairs, int32_t left, int32_t right) {
  const uint32_t bit = bit_of(left, right);
  pairs->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

void joined_pairs_add_end(JoinedPairs *pairs, const uint8_t *text, size_t size) {
  if (size > 0) add_pair(pairs, utf8_previous(text, size), JOINED_END);
}

void joined_pairs_add(JoinedPairs *pairs, const uint8_t *text, size_t size) {
  int32_t before = UTF8_INVALID;
  for (size_t at = 0, length; at < size; at += length) {
    const int32_t character = utf8_next(text + at, size - at, &length);
    if (before != UTF8_INVALID && character != UTF8_INVALID) add_pair(pairs, before, character);
    before = character;
  }
}
