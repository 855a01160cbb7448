#include "tokenizer/tokenizer.h"

#include "util/checksum.h"
#include "tokenizer/tokenizer_json.h"

#include <stdlib.h>

struct Tokenizer {
  TokenizerFile file;
};

static bool make_tokenizer(Tokenizer **out, TokenizerFile file, Error *error) {
  *out = malloc(sizeof **out);
  if (*out) {
    (*out)->file = file;
    return true;
  }
  bpe_free(file.bpe);
  free(file.json);
  return fail(error, EXIT_MEMORY, "out of memory for a tokenizer");
}

bool tokenizer_from_merges(Tokenizer **out, const BpeMerge *merges, size_t merge_count, Error *error) {
  TokenizerFile file = {.end_text = END_OF_TEXT};
  *out = NULL;
  if (!bpe_from_merges(&file.bpe, merges, merge_count, error)) return false;
  file.end = file.bpe->tokens.size - 1;
  return make_tokenizer(out, file, error);
}

Tokenizer *tokenizer_byte(void) {
  Tokenizer *out;
  Error ignored = {0};
  return tokenizer_from_merges(&out, NULL, 0, &ignored) ? out : NULL;
}

bool tokenizer_load(Tokenizer **out, const char *path, Error *error) {
  TokenizerFile file;
  *out = NULL;
  return tokenizer_json_read(&file, path, error) && make_tokenizer(out, file, error);
}

bool tokenizer_save(const Tokenizer *t, const char *dir, int ctx, Error *error) {
  return tokenizer_json_write(&t->file, dir, ctx, error);
}

void tokenizer_free(Tokenizer *tokenizer) {
  if (!tokenizer) return;
  bpe_free(tokenizer->file.bpe);
  free(tokenizer->file.json);
  free(tokenizer);
}

const char *tokenizer_name(const Tokenizer *tokenizer) { return tokenizer->file.bpe->merge_count ? "BPE" : "byte"; }
int tokenizer_vocab(const Tokenizer *tokenizer) { return tokenizer->file.bpe->tokens.size; }
int tokenizer_end(const Tokenizer *tokenizer) { return tokenizer->file.end; }
const Bpe *tokenizer_bpe(const Tokenizer *tokenizer) { return tokenizer->file.bpe; }

bool tokenizer_begins_with_end(const Tokenizer *tokenizer) { return tokenizer->file.begins_with_end; }

void tokenizer_set_begins_with_end(Tokenizer *tokenizer, bool begins) {
  if (tokenizer->file.begins_with_end == begins) return;
  tokenizer->file.begins_with_end = begins;
  tokenizer->file.json_differs = true;
}

uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer) {
  const Bpe *bpe = tokenizer->file.bpe;
  const size_t ids = (size_t)bpe->tokens.size;
  uint64_t sum = checksum_xxh64(&tokenizer->file.end, sizeof tokenizer->file.end, ids);
  sum = checksum_xxh64(bpe->tokens.begins, (ids + 1) * sizeof *bpe->tokens.begins, sum);
  sum = checksum_xxh64(bpe->tokens.bytes, bpe->tokens.begins[ids], sum);
  return checksum_xxh64(bpe->merges, (size_t)bpe->merge_count * sizeof *bpe->merges, sum);
}

bool tokenizer_encode(const Tokenizer *tokenizer, const uint8_t *text, size_t size, BpeIds *out, Error *error) {
  BpeEncoder *encoder;
  const TextSpan document = {text, size};
  if (!bpe_encoder_create(&encoder, tokenizer->file.bpe, 1, error)) return false;
  bool ok = bpe_encode(encoder, &document, 1, -1, bpe_ids_sink, out, error);
  bpe_encoder_free(encoder);
  return ok;
}

const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, size_t *size) {
  return bpe_decode(tokenizer->file.bpe, id, size);
}
