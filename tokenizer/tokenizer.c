#include "tokenizer/internal.h"

#include "util/checksum.h"

#include <stdlib.h>

bool tokenizer_from_merges(Tokenizer **out, const BpeMerge *merges, size_t merge_count, Error *error) {
  *out = NULL;
  Tokenizer *t = calloc(1, sizeof *t);
  if (!t) return error_memory(error, "a tokenizer");
  if (!bpe_from_merges(&t->bpe, merges, merge_count, error)) {
    tokenizer_free(t);
    return false;
  }
  *out = t;
  t->end = t->bpe->tokens.size - 1;
  t->end_text = END_OF_TEXT;
  return true;
}

Tokenizer *tokenizer_byte(void) {
  Tokenizer *out;
  Error ignored = {0};
  return tokenizer_from_merges(&out, NULL, 0, &ignored) ? out : NULL;
}

void tokenizer_free(Tokenizer *t) {
  if (!t) return;
  bpe_free(t->bpe);
  free(t->json);
  free(t);
}

const char *tokenizer_name(const Tokenizer *t) { return t->bpe->merge_count ? "BPE" : "byte"; }
int tokenizer_vocab(const Tokenizer *t) { return t->bpe->tokens.size; }
int tokenizer_end(const Tokenizer *t) { return t->end; }
const Bpe *tokenizer_bpe(const Tokenizer *t) { return t->bpe; }
const char *tokenizer_special(const Tokenizer *t, int32_t id) { return id == t->end ? t->end_text : NULL; }

bool tokenizer_begins_with_end(const Tokenizer *t) { return t->begins_with_end; }

bool tokenizer_ends_with_end(const Tokenizer *t) { return t->ends_with_end; }

static void set_ends(Tokenizer *t, bool begins, bool ends) {
  if (t->begins_with_end == begins && t->ends_with_end == ends) return;
  t->begins_with_end = begins;
  t->ends_with_end = ends;
  t->json_differs = true;
}

void tokenizer_set_begins_with_end(Tokenizer *t, bool begins) { set_ends(t, begins, !begins && t->ends_with_end); }
void tokenizer_set_ends_with_end(Tokenizer *t, bool ends) { set_ends(t, !ends && t->begins_with_end, ends); }

void tokenizer_set_separate_vocabs(Tokenizer *t, bool separate) { t->separate_vocabs = separate; }
void tokenizer_set_starts_elsewhere(Tokenizer *t, bool elsewhere) { t->starts_elsewhere = elsewhere; }

uint64_t tokenizer_fingerprint(const Tokenizer *t) {
  const Bpe *bpe = t->bpe;
  const size_t ids = (size_t)bpe->tokens.size;
  uint64_t sum = checksum_xxh64(&t->end, sizeof t->end, ids);
  sum = checksum_xxh64(bpe->tokens.begins, (ids + 1) * sizeof *bpe->tokens.begins, sum);
  sum = checksum_xxh64(bpe->tokens.bytes, bpe->tokens.begins[ids], sum);
  return checksum_xxh64(bpe->merges, (size_t)bpe->merge_count * sizeof *bpe->merges, sum);
}

bool tokenizer_encode(const Tokenizer *t, const uint8_t *text, size_t size, BpeIds *out, Error *error) {
  BpeEncoder *encoder;
  const PretokenizeText document = {text, size};
  if (!bpe_encoder_create(&encoder, t->bpe, 1, NULL, error)) return false;
  bool ok = bpe_encode(encoder, &document, 1, -1, bpe_ids_sink, out, error);
  bpe_encoder_free(encoder);
  return ok;
}

const uint8_t *tokenizer_decode(const Tokenizer *t, int32_t id, size_t *size) { return bpe_decode(t->bpe, id, size); }
