#include "dataset/text_sum.h"

#include "dataset/pairs.h"
#include "util/checksum.h"

#include <string.h>

/* Bytes are summed in pieces of this size, so that the sum does not depend on the tokens. */
typedef struct Summing {
  uint64_t sum;
  size_t used;
  uint8_t bytes[1 << 16];
} Summing;

static void flush(Summing *s) {
  s->sum = checksum_xxh64(s->bytes, s->used, s->sum);
  s->used = 0;
}

static void add(Summing *s, const uint8_t *bytes, size_t size) {
  while (size) {
    const size_t room = sizeof s->bytes - s->used, part = size < room ? size : room;
    memcpy(s->bytes + s->used, bytes, part);
    s->used += part;
    bytes += part;
    size -= part;
    if (s->used == sizeof s->bytes) flush(s);
  }
}

bool text_sum(const TokenRange *range, const Tokenizer *tokenizer, const Tokenizer *source, uint64_t *out,
              Error *error) {
  enum { BLOCK = 4096 };
  static const uint8_t mark = 0xFF;
  const PairTokens tokens = pair_tokens(tokenizer, source);
  Summing s = {0};
  int32_t ids[BLOCK];
  for (int64_t at = range->begin; at < range->end; at += BLOCK) {
    const int64_t left = range->end - at, count = left < BLOCK ? left : BLOCK;
    if (!token_file_read(range->file, at, count, ids, error)) return false;
    for (int64_t i = 0; i < count; i++) {
      const bool of_source = tokens.source_first && ids[i] >= tokens.source_first;
      size_t size;
      const uint8_t *bytes = of_source ? tokenizer_decode(source, ids[i] - tokens.source_first, &size)
                                       : tokenizer_decode(tokenizer, ids[i], &size);
      if (ids[i] == tokens.end) add(&s, &mark, 1);
      else add(&s, bytes, size);
    }
  }
  flush(&s);
  *out = s.sum;
  return true;
}
