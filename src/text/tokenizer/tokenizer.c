#include "text/tokenizer/internal.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

bool tokenizer_from_merges(Tokenizer **out, const BpeMerge *merges, size_t merge_count, Error *error) {
  Tokenizer *t = *out = calloc(1, sizeof *t);
  if (!t) return error_memory(error, "a tokenizer");
  if (bpe_from_merges(&t->bpe, merges, merge_count, error)) {
    t->pipeline = pipeline_trained(t->bpe);
    t->vocab = t->bpe->tokens.size;
    t->begin = -1;
    t->end = t->vocab - 1;
    t->added = calloc(1, sizeof *t->added);
    if (t->added && (t->added->text = strdup(END_OF_TEXT))) {
      t->added->id = t->end;
      t->added->special = true;
      t->added_count = 1;
      return true;
    }
    error_memory(error, "a tokenizer");
  }
  tokenizer_free(t);
  *out = NULL;
  return false;
}

Tokenizer *tokenizer_byte(void) {
  Tokenizer *out;
  Error ignored = {0};
  return tokenizer_from_merges(&out, NULL, 0, &ignored) ? out : NULL;
}

void tokenizer_free(Tokenizer *t) {
  if (!t) return;
  bpe_encoder_free(t->encoder);
  pipeline_free(&t->pipeline);
  bpe_free(t->bpe);
  free(t->decoded.bytes);
  free(t->decoded.begins);
  for (size_t i = 0; i < t->added_count; i++) free(t->added[i].text);
  free(t->added);
  free(t->unknown);
  free(t->chat_template);
  free(t->json);
  free(t);
}

const char *tokenizer_name(const Tokenizer *t) {
  return t->bpe->level ? word_level_kinds[t->bpe->level].name : t->bpe->merge_count ? "BPE" : "byte";
}

bool tokenizer_is_trained_name(const char *name) {
  return strcmp(name, "byte") == 0 || strcmp(name, "bpe") == 0 || word_level_named(name);
}

int tokenizer_vocab(const Tokenizer *t) { return t->vocab; }
int tokenizer_end(const Tokenizer *t) { return t->end; }
const char *tokenizer_end_text(const Tokenizer *t) { return tokenizer_special(t, t->end); }
const EndTokens *tokenizer_other_ends(const Tokenizer *t) { return &t->others; }

void tokenizer_set_other_ends(Tokenizer *t, const EndTokens *ends) {
  t->others.count = 0;
  for (int i = 0; i < ends->count && t->others.count < END_TOKENS - 1; i++) /* with t->end, as many as files may list */
    if (ends->ids[i] != t->end) t->others.ids[t->others.count++] = ends->ids[i];
}

bool tokenizer_is_end(const Tokenizer *t, int32_t id) {
  for (int i = 0; i < t->others.count; i++)
    if (t->others.ids[i] == id) return true;
  return id == t->end;
}

int tokenizer_begin(const Tokenizer *t) { return t->begin; }
int tokenizer_before(const Tokenizer *t) { return t->begin >= 0 ? t->begin : t->end; }
const Bpe *tokenizer_bpe(const Tokenizer *t) { return t->bpe; }

const AddedToken *tokenizer_added(const Tokenizer *t, int32_t id) {
  size_t low = 0, high = t->added_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (t->added[middle].id < id) low = middle + 1;
    else high = middle;
  }
  return low < t->added_count && t->added[low].id == id ? &t->added[low] : NULL;
}

const char *tokenizer_special(const Tokenizer *t, int32_t id) {
  const AddedToken *entry = tokenizer_added(t, id);
  size_t size;
  tokenizer_decode(t, id, &size);
  return entry && entry->special && !size ? entry->text : NULL;
}

bool tokenizer_is_gpt2(const Tokenizer *t) {
  return pipeline_is_gpt2(&t->pipeline, false) && !t->decoded.bytes && !t->bpe->ignore_merges;
}

const Pipeline *tokenizer_pipeline(const Tokenizer *t) { return &t->pipeline; }

void tokenizer_set_special(Tokenizer *t, bool special) {
  if (special != t->takes_special) {
    bpe_encoder_free(t->encoder);
    t->encoder = NULL;
  }
  t->takes_special = special;
}

bool tokenizer_set_vocab(Tokenizer *t, int vocab) {
  if (vocab < t->bpe->tokens.size) return false;
  t->vocab = vocab;
  return true;
}

bool tokenizer_has_id(const Tokenizer *t, int32_t id) {
  size_t size;
  bpe_decode(t->bpe, id, &size);
  return size > 0 || tokenizer_added(t, id);
}

int tokenizer_tokens(const Tokenizer *t) {
  int count = 0;
  for (int32_t id = 0; id < t->vocab; id++) count += tokenizer_has_id(t, id);
  return count;
}

bool tokenizer_begins_with_end(const Tokenizer *t) { return t->begin >= 0 && t->begin == t->end; }

bool tokenizer_ends_with_end(const Tokenizer *t) { return t->ends_with_end; }

static void set_ends(Tokenizer *t, int32_t begin, bool ends) {
  if (t->begin == begin && t->ends_with_end == ends) return;
  t->begin = begin;
  t->ends_with_end = ends;
  t->json_differs = true;
}

void tokenizer_set_begins_with_end(Tokenizer *t, bool begins) {
  set_ends(t, begins ? t->end : -1, !begins && t->ends_with_end);
}
void tokenizer_set_ends_with_end(Tokenizer *t, bool ends) { set_ends(t, ends ? -1 : t->begin, ends); }

const char *tokenizer_chat_template(const Tokenizer *t) { return t->chat_template; }

bool tokenizer_set_chat_template(Tokenizer *t, const char *text, Error *error) {
  char *copy = text ? strdup(text) : NULL;
  if (text && !copy) return error_memory(error, "a chat template");
  free(t->chat_template);
  t->chat_template = copy;
  return true;
}

bool tokenizer_has_separate_vocabs(const Tokenizer *t) { return t->separate_vocabs; }
void tokenizer_set_separate_vocabs(Tokenizer *t, bool separate) { t->separate_vocabs = separate; }
void tokenizer_set_starts_elsewhere(Tokenizer *t, bool elsewhere) { t->starts_elsewhere = elsewhere; }

uint64_t tokenizer_fingerprint(const Tokenizer *t) {
  const Bpe *bpe = t->bpe;
  const size_t ids = (size_t)bpe->tokens.size;
  uint64_t hash = checksum_xxh64(&t->end, sizeof t->end, ids);
  hash = checksum_xxh64(bpe->tokens.begins, (ids + 1) * sizeof *bpe->tokens.begins, hash);
  hash = checksum_xxh64(bpe->tokens.bytes, bpe->tokens.begins[ids], hash);
  hash = checksum_xxh64(bpe->merges, (size_t)bpe->merge_count * sizeof *bpe->merges, hash);
  return t->pipeline_hash ? checksum_xxh64(&t->pipeline_hash, sizeof t->pipeline_hash, hash) : hash;
}

bool tokenizer_encode(Tokenizer *t, const uint8_t *text, size_t size, BpeIds *out, Error *error) {
  if (!t->encoder && !bpe_encoder_create(&t->encoder, &t->pipeline, t->takes_special, 1, NULL, error)) return false;
  return bpe_encode_text(t->encoder, text, size, out, error);
}

const uint8_t *tokenizer_decode(const Tokenizer *t, int32_t id, size_t *size) {
  return bpe_token(t->decoded.bytes ? &t->decoded : &t->bpe->tokens, id, size);
}

/* Returns how many bytes at the start of a text's first token are not part of the decoded text. */
static size_t leading_bytes(const Tokenizer *t, int32_t id, const uint8_t *bytes, size_t size) {
  if (t->leading == LEADING_SPACE || t->leading == LEADING_LINES) return bytes[0] == ' ';
  if (t->leading == LEADING_KEPT) return 0;
  size_t word_size, symbols = 0;
  const uint8_t *word = bpe_decode(t->bpe, id, &word_size);
  const size_t symbol = sizeof SPACE_SYMBOL - 1;
  while (symbols < size && (symbols + 1) * symbol <= word_size &&
         memcmp(word + symbols * symbol, SPACE_SYMBOL, symbol) == 0)
    symbols++;
  return symbols;
}

const uint8_t *tokenizer_decode_next(const Tokenizer *t, int32_t id, bool *at_start, size_t *size) {
  const uint8_t *bytes = tokenizer_decode(t, id, size);
  if (*size == 0) return bytes;
  const size_t left_out = *at_start ? leading_bytes(t, id, bytes, *size) : 0;
  *at_start = t->leading == LEADING_LINES && bytes[0] == '\n';
  *size -= left_out;
  return bytes + left_out;
}

const uint8_t *tokenizer_decode_after(const Tokenizer *t, int32_t before, int32_t id, size_t *size) {
  const uint8_t *bytes = tokenizer_decode(t, before, size);
  bool at_start = t->leading == LEADING_LINES && (*size == 0 || bytes[0] == '\n');
  return tokenizer_decode_next(t, id, &at_start, size);
}

bool tokenizer_at_start(const Tokenizer *t, const int32_t *ids, size_t count) {
  bool at_start = true;
  for (size_t i = 0, size; i < count; i++) tokenizer_decode_next(t, ids[i], &at_start, &size);
  return at_start;
}
