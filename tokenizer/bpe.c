#include "tokenizer/bpe.h"

#include "util/array.h"
#include "util/hash.h"
#include "util/utf8.h"

#include <stdlib.h>

static bool check_count(size_t merges, Error *error) {
  return merges <= BPE_MERGES_LIMIT ||
         fail(error, EXIT_CHECKPOINT, "%zu merges, more than %d", merges, BPE_MERGES_LIMIT);
}

void bpe_free(Bpe *bpe) {
  if (!bpe) return;
  free(bpe->tokens.bytes);
  free(bpe->tokens.begins);
  free(bpe->merges);
  free(bpe->slots);
  free(bpe->words);
  free(bpe->classes);
  free(bpe);
}

const uint8_t *bpe_decode(const Bpe *bpe, int32_t id, size_t *size) {
  *size = 0;
  if (id < 0 || id >= bpe->tokens.size) return bpe->tokens.bytes;
  *size = bpe->tokens.begins[id + 1] - bpe->tokens.begins[id];
  return bpe->tokens.bytes + bpe->tokens.begins[id];
}

static uint32_t pair_slot(const Bpe *bpe, int32_t left, int32_t right) {
  return (uint32_t)hash_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right, 0) & bpe->slot_mask;
}

int32_t bpe_rank(const Bpe *bpe, int32_t left, int32_t right) {
  for (uint32_t at = pair_slot(bpe, left, right);; at = (at + 1) & bpe->slot_mask) {
    int32_t rank = bpe->slots[at];
    if (rank < 0 || (bpe->merges[rank].left == left && bpe->merges[rank].right == right)) return rank;
  }
}

static bool copy_tables(Bpe *bpe, const BpeTokens *tokens, const BpeMerge *merges, size_t merge_count) {
  size_t ids = (size_t)tokens->size, bytes = tokens->begins[ids], slots = 2;
  while (slots < 2 * merge_count) slots *= 2;
  bpe->tokens = (BpeTokens){.size = tokens->size, .bytes = malloc(bytes + 1)};
  bpe->tokens.begins = calloc(ids + 1, sizeof *bpe->tokens.begins);
  bpe->merges = malloc((merge_count + 1) * sizeof *bpe->merges);
  bpe->slots = malloc(slots * sizeof *bpe->slots);
  if (!bpe->tokens.bytes || !bpe->tokens.begins || !bpe->merges || !bpe->slots) return false;
  if (bytes > 0) memcpy(bpe->tokens.bytes, tokens->bytes, bytes);
  memcpy(bpe->tokens.begins, tokens->begins, (ids + 1) * sizeof *bpe->tokens.begins);
  if (merge_count > 0) memcpy(bpe->merges, merges, merge_count * sizeof *merges);
  bpe->merge_count = (int32_t)merge_count;
  memset(bpe->slots, 0xFF, slots * sizeof *bpe->slots); /* -1 */
  bpe->slot_mask = (uint32_t)slots - 1;
  return true;
}

static bool find_bytes(Bpe *bpe, Error *error) {
  memset(bpe->byte_ids, 0xFF, sizeof bpe->byte_ids); /* -1 */
  for (int32_t id = 0; id < bpe->tokens.size; id++) {
    size_t size;
    const uint8_t *bytes = bpe_decode(bpe, id, &size);
    if (size != 1) continue;
    int32_t *known = &bpe->byte_ids[bytes[0]];
    if (*known >= 0)
      return fail(error, EXIT_CHECKPOINT, "ids %d and %d are both the byte 0x%02X", (int)*known, (int)id, bytes[0]);
    *known = id;
  }
  for (int byte = 0; byte < BPE_BYTES; byte++)
    if (bpe->byte_ids[byte] < 0) return fail(error, EXIT_CHECKPOINT, "no id is the byte 0x%02X", (unsigned)byte);
  return true;
}

/* Whether all three tokens of a merge have bytes, and the bytes of merge->id are those of the other two. */
static bool is_concatenation(const Bpe *bpe, const BpeMerge *merge) {
  size_t left, right, both;
  const uint8_t *left_bytes = bpe_decode(bpe, merge->left, &left), *right_bytes = bpe_decode(bpe, merge->right, &right);
  const uint8_t *bytes = bpe_decode(bpe, merge->id, &both);
  return left > 0 && right > 0 && both == left + right && memcmp(bytes, left_bytes, left) == 0 &&
         memcmp(bytes + left, right_bytes, right) == 0;
}

static bool index_merges(Bpe *bpe, Error *error) {
  for (int32_t rank = 0; rank < bpe->merge_count; rank++) {
    const BpeMerge *merge = &bpe->merges[rank];
    if (!is_concatenation(bpe, merge))
      return fail(error, EXIT_CHECKPOINT, "merge %d: token %d is not the concatenation of the tokens %d and %d",
                  (int)rank, (int)merge->id, (int)merge->left, (int)merge->right);
    uint32_t at = pair_slot(bpe, merge->left, merge->right);
    for (; bpe->slots[at] >= 0; at = (at + 1) & bpe->slot_mask) {
      const BpeMerge *other = &bpe->merges[bpe->slots[at]];
      if (other->left != merge->left || other->right != merge->right) continue;
      return fail(error, EXIT_CHECKPOINT, "merges %d and %d have the same pair", (int)bpe->slots[at], (int)rank);
    }
    bpe->slots[at] = rank;
  }
  return true;
}

/* ---- tokens by their bytes ---- */

/* Returns the slot of the token with these bytes, or the empty slot where it belongs. */
static uint32_t word_slot(const Bpe *bpe, const uint8_t *word, size_t size) {
  for (uint32_t at = (uint32_t)hash_bytes(word, size) & bpe->word_mask;; at = (at + 1) & bpe->word_mask) {
    size_t other_size;
    const uint8_t *other = bpe->words[at] < 0 ? NULL : bpe_decode(bpe, bpe->words[at], &other_size);
    if (!other || (other_size == size && memcmp(other, word, size) == 0)) return at;
  }
}

static bool index_words(Bpe *bpe, const int32_t *byte_tokens, Error *error) {
  size_t slots = 2;
  while (slots < 2 * (size_t)bpe->tokens.size) slots *= 2;
  if (!(bpe->words = malloc(slots * sizeof *bpe->words))) return error_memory(error, "a BPE vocabulary");
  memset(bpe->words, 0xFF, slots * sizeof *bpe->words); /* -1 */
  bpe->word_mask = (uint32_t)slots - 1;
  for (int32_t id = 0; id < bpe->tokens.size; id++) {
    size_t size;
    const uint8_t *bytes = bpe_decode(bpe, id, &size);
    if (size > 0 && !(byte_tokens && size == 1 && byte_tokens[bytes[0]] == id))
      bpe->words[word_slot(bpe, bytes, size)] = id;
  }
  return true;
}

int32_t bpe_word(const Bpe *bpe, const uint8_t *word, size_t size) {
  return bpe->ignore_merges ? bpe->words[word_slot(bpe, word, size)] : -1;
}

int32_t bpe_symbol(const Bpe *bpe, const uint8_t *text, size_t size, size_t *length) {
  uint32_t point;
  *length = bpe->characters ? utf8_read(text, size, &point) : 0;
  const int32_t id = *length ? bpe->words[word_slot(bpe, text, *length)] : -1;
  if (id >= 0) return id;
  *length = 1;
  return bpe->byte_ids[text[0]];
}

/* ---- creation ---- */

bool bpe_create(Bpe **out, const BpeTokens *tokens, const BpeMerge *merges, size_t merge_count, BpeOptions options,
                Error *error) {
  *out = NULL;
  if (!check_count(merge_count, error)) return false;
  Bpe *bpe = calloc(1, sizeof *bpe);
  if (!bpe) return error_memory(error, "a BPE vocabulary");
  bool ok = copy_tables(bpe, tokens, merges, merge_count) || error_memory(error, "a BPE vocabulary");
  bpe->characters = options.byte_tokens != NULL;
  bpe->ignore_merges = options.ignore_merges;
  if (bpe->characters) memcpy(bpe->byte_ids, options.byte_tokens, sizeof bpe->byte_ids);
  ok = ok && (bpe->characters || find_bytes(bpe, error)) && index_merges(bpe, error) &&
       (!(bpe->characters || bpe->ignore_merges) || index_words(bpe, options.byte_tokens, error)) &&
       char_classes_create(&bpe->classes, error);
  if (ok) *out = bpe;
  else bpe_free(bpe);
  return ok;
}

/* ---- the ids of our own training ---- */

/* Fills `tokens`, of which begins is allocated, and the ids of the merges. */
static bool make_own_tokens(BpeTokens *tokens, BpeMerge *merges, size_t merge_count, Error *error) {
  uint32_t *begins = tokens->begins;
  size_t capacity = 0;
  if (!array_reserve(&tokens->bytes, &capacity, BPE_BYTES, 1)) return error_memory(error, "a BPE vocabulary");
  for (int byte = 0; byte < BPE_BYTES; byte++) {
    tokens->bytes[byte] = (uint8_t)byte;
    begins[byte + 1] = (uint32_t)byte + 1;
  }
  for (size_t i = 0; i < merge_count; i++) {
    const int32_t id = BPE_BYTES + (int32_t)i, left = merges[i].left, right = merges[i].right;
    const bool known = left >= 0 && left < id && right >= 0 && right < id;
    const uint32_t left_size = known ? begins[left + 1] - begins[left] : 0,
                   right_size = known ? begins[right + 1] - begins[right] : 0;
    const uint64_t end = begins[id] + (uint64_t)left_size + right_size;
    if (!known || end > UINT32_MAX)
      return fail(error, EXIT_CHECKPOINT, "a merge uses a token that is made later, or the tokens have too many bytes");
    if (!array_reserve(&tokens->bytes, &capacity, end, 1)) return error_memory(error, "a BPE vocabulary");
    memcpy(tokens->bytes + begins[id], tokens->bytes + begins[left], left_size);
    memcpy(tokens->bytes + begins[id] + left_size, tokens->bytes + begins[right], right_size);
    begins[id + 1] = (uint32_t)end;
    merges[i].id = id;
  }
  begins[tokens->size] = begins[tokens->size - 1]; /* the end token has no bytes */
  return true;
}

bool bpe_from_merges(Bpe **out, const BpeMerge *merges, size_t merge_count, Error *error) {
  *out = NULL;
  if (!check_count(merge_count, error)) return false;
  BpeTokens tokens = {.size = BPE_BYTES + (int32_t)merge_count + 1};
  tokens.begins = calloc((size_t)tokens.size + 1, sizeof *tokens.begins);
  BpeMerge *own = malloc((merge_count + 1) * sizeof *own);
  bool ok = (tokens.begins && own) || error_memory(error, "a BPE vocabulary");
  if (ok && merge_count > 0) memcpy(own, merges, merge_count * sizeof *own);
  ok = ok && make_own_tokens(&tokens, own, merge_count, error) &&
       bpe_create(out, &tokens, own, merge_count, (BpeOptions){0}, error);
  free(tokens.begins);
  free(tokens.bytes);
  free(own);
  return ok;
}
