/* Compression of the validation text with xz, a baseline in the report that a model should beat. */
#include "training/run.h"

#include "report/xz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 2 << 20, MEASURED = 256 << 10, BLOCK = 4096 }; /* bytes, bytes, tokens */

/* Appends the bytes of the range from token `begin` on to `out`, up to `most` bytes. */
static bool add_text(const Tokenizer *tokenizer, const TokenRange *range, int64_t begin, uint8_t *out, size_t *used,
                     size_t most, Error *error) {
  int32_t ids[BLOCK];
  for (int64_t at = begin, count; at < range->end && *used < most; at += count) {
    count = range->end - at < BLOCK ? range->end - at : BLOCK;
    if (!token_file_read(range->file, at, count, ids, error)) return false;
    for (int64_t i = 0; i < count; i++) {
      size_t size;
      const uint8_t *bytes = tokenizer_decode(tokenizer, ids[i], &size);
      if (size > most - *used) size = most - *used;
      if (size) memcpy(out + *used, bytes, size);
      *used += size;
    }
  }
  return true;
}

/* Returns approximately the token at which the last BEFORE bytes of the training text begin. */
static int64_t last_part(const TokenRange *train) {
  const TokenFileInfo *info = &train->file->info;
  const double tokens = (double)BEFORE * (double)info->tokens / fmax(1, (double)info->bytes);
  return tokens < (double)token_range_size(train) ? train->end - (int64_t)tokens : train->begin;
}

bool run_measure_compression(const RunText *text, double *bits_per_byte, Error *error) {
  *bits_per_byte = NAN;
  uint8_t *bytes = malloc(BEFORE + MEASURED);
  size_t before = 0, size;
  bool ok = bytes || error_memory(error, "a comparison with xz");
  ok = ok && add_text(text->tokenizer, &text->train, last_part(&text->train), bytes, &before, BEFORE, error);
  size = before;
  ok = ok && add_text(text->tokenizer, &text->val, text->val.begin, bytes, &size, before + MEASURED, error);
  if (ok) *bits_per_byte = xz_bits_per_byte(bytes, before, size);
  free(bytes);
  return ok;
}
