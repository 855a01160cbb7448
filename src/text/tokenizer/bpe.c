#include "text/tokenizer/bpe.h"

#include "base/array.h"
#include "base/hash.h"
#include "base/json.h"

#include <stdlib.h>

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

const uint8_t *bpe_token(const BpeTokens *tokens, int32_t id, size_t *size) {
  *size = 0;
  if (id < 0 || id >= tokens->size) return tokens->bytes;
  *size = tokens->begins[id + 1] - tokens->begins[id];
  return tokens->bytes + tokens->begins[id];
}

const uint8_t *bpe_decode(const Bpe *bpe, int32_t id, size_t *size) { return bpe_token(&bpe->tokens, id, size); }

/* Makes an empty hash table for `items` items. */
static bool make_slots(int32_t **slots, uint32_t *mask, size_t items) {
  size_t count = 2;
  while (count < 2 * items) count *= 2;
  *slots = malloc(count * sizeof **slots);
  if (*slots) memset(*slots, 0xFF, count * sizeof **slots); /* -1 */
  *mask = (uint32_t)count - 1;
  return *slots;
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

/* With a level, tokens need not contain all bytes. */
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
  for (int byte = 0; byte < BPE_BYTES && !bpe->level; byte++)
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
  if (!make_slots(&bpe->words, &bpe->word_mask, (size_t)bpe->tokens.size))
    return error_memory(error, "a BPE vocabulary");
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

/* Returns the first token of a word before merging, and its number of bytes in *length; size > 0. */
static int32_t symbol(const Bpe *bpe, const uint8_t *text, size_t size, size_t *length) {
  uint32_t point;
  *length = bpe->characters ? utf8_read(text, size, &point) : 0;
  const int32_t id = *length ? bpe->words[word_slot(bpe, text, *length)] : -1;
  if (id >= 0) return id;
  *length = 1;
  return bpe->byte_ids[text[0]];
}

/* ---- creation ---- */

/* Creates a BPE without the bytes of its tokens. NULL: EXIT_CHECKPOINT, EXIT_MEMORY. */
static Bpe *begin(size_t size, const BpeMerge *merges, size_t merge_count, Error *error) {
  Bpe *bpe = NULL;
  if (merge_count > BPE_MERGES_LIMIT)
    fail(error, EXIT_CHECKPOINT, "%zu merges, more than %d", merge_count, BPE_MERGES_LIMIT);
  else if (!(bpe = calloc(1, sizeof *bpe))) error_memory(error, "a BPE vocabulary");
  if (!bpe) return NULL;
  bpe->tokens.size = (int32_t)size;
  bpe->tokens.begins = calloc(size + 1, sizeof *bpe->tokens.begins);
  bpe->merges = malloc((merge_count + 1) * sizeof *bpe->merges);
  if (!make_slots(&bpe->slots, &bpe->slot_mask, merge_count) || !bpe->tokens.begins || !bpe->merges) {
    error_memory(error, "a BPE vocabulary");
    bpe_free(bpe);
    return NULL;
  }
  if (merge_count > 0) memcpy(bpe->merges, merges, merge_count * sizeof *merges);
  bpe->merge_count = (int32_t)merge_count;
  return bpe;
}

/* Checks and indexes the tokens and merges if all went well so far (`ok`); frees the BPE on failure. */
static bool finish(Bpe **out, Bpe *bpe, BpeOptions options, bool ok, Error *error) {
  *out = bpe;
  if (ok) {
    bpe->characters = options.byte_tokens != NULL;
    bpe->ignore_merges = options.ignore_merges || options.level;
    bpe->level = options.level;
    bpe->unknown = options.unknown;
    if (bpe->characters) memcpy(bpe->byte_ids, options.byte_tokens, sizeof bpe->byte_ids);
  }
  ok = ok && (bpe->characters || find_bytes(bpe, error)) && index_merges(bpe, error) &&
       (!(bpe->characters || bpe->ignore_merges) || index_words(bpe, options.byte_tokens, error)) &&
       char_classes_create(&bpe->classes, error);
  if (ok) return true;
  bpe_free(bpe);
  *out = NULL;
  return false;
}

static bool copy_tokens(BpeTokens *to, const BpeTokens *from, Error *error) {
  const size_t ids = (size_t)from->size, bytes = from->begins[ids];
  to->bytes = malloc(bytes + 1);
  if (!to->bytes) return error_memory(error, "a BPE vocabulary");
  if (bytes > 0) memcpy(to->bytes, from->bytes, bytes);
  memcpy(to->begins, from->begins, (ids + 1) * sizeof *to->begins);
  return true;
}

bool bpe_create(Bpe **out, const BpeTokens *tokens, const BpeMerge *merges, size_t merge_count, BpeOptions options,
                Error *error) {
  Bpe *bpe = begin((size_t)tokens->size, merges, merge_count, error);
  return finish(out, bpe, options, bpe && copy_tokens(&bpe->tokens, tokens, error), error);
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
  Bpe *bpe = begin(BPE_BYTES + merge_count + 1, merges, merge_count, error);
  const bool ok = bpe && make_own_tokens(&bpe->tokens, bpe->merges, merge_count, error);
  return finish(out, bpe, (BpeOptions){0}, ok, error);
}

/* ---- the alphabet ---- */

/* The 188 printable characters of Latin-1 represent themselves; the other 68 bytes, in order (0 to 0x20, 0x7F to 0xA0,
 * 0xAD), are U+0100 and up. */
static uint32_t point_of(uint8_t byte) {
  return byte <= 0x20                   ? 0x100u + byte
         : byte >= 0x7F && byte <= 0xA0 ? 0x121u - 0x7F + byte
         : byte == 0xAD                 ? 0x143
                                        : byte;
}

/* Returns -1 for other characters. */
static int byte_of(uint32_t point) {
  const int byte = (int)(point < 0x100   ? point
                         : point < 0x121 ? point - 0x100
                         : point < 0x143 ? point - 0x121 + 0x7F
                                         : 0xAD);
  return point_of((uint8_t)byte) == point ? byte : -1;
}

char *alphabet_token(const Bpe *bpe, int32_t id) {
  size_t size;
  const uint8_t *bytes = bpe_decode(bpe, id, &size);
  char *out = json_allocate(2 * size + 1), *to = out;
  if (!out) return NULL;
  for (size_t i = 0; i < size; i++) to += utf8_write(point_of(bytes[i]), (uint8_t *)to);
  *to = '\0';
  return out;
}

int64_t alphabet_read(const char *text, uint8_t *out) {
  int64_t count = 0;
  uint32_t point;
  for (size_t left = strlen(text), length; left > 0; left -= length, text += length) {
    length = utf8_read((const uint8_t *)text, left, &point);
    const int byte = length ? byte_of(point) : -1;
    if (byte < 0) return -1;
    out[count++] = (uint8_t)byte;
  }
  return count;
}

/* ---- encoding of short pieces: each merge scans all ranks ---- */

static size_t lowest(const uint32_t *ranks, size_t size) {
  size_t best = 0;
  for (size_t i = 1; i < size; i++)
    if (ranks[i] < ranks[best]) best = i;
  return best;
}

static size_t encode_short(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids) {
  uint32_t ranks[SHORT_PIECE]; /* of token i with the next one; UINT32_MAX (which is -1): none */
  size_t count = 0, length;
  for (size_t at = 0; at < size; at += length) ids[count++] = symbol(bpe, piece + at, size - at, &length);
  size = count;
  for (size_t i = 0; i + 1 < size; i++) ranks[i] = (uint32_t)bpe_rank(bpe, ids[i], ids[i + 1]);
  while (size > 1) {
    size_t at = lowest(ranks, size - 1);
    if (ranks[at] == UINT32_MAX) break;
    ids[at] = bpe->merges[ranks[at]].id;
    size--;
    memmove(&ids[at + 1], &ids[at + 2], (size - at - 1) * sizeof *ids);
    if (at + 1 < size) {
      memmove(&ranks[at + 1], &ranks[at + 2], (size - at - 2) * sizeof *ranks);
      ranks[at] = (uint32_t)bpe_rank(bpe, ids[at], ids[at + 1]);
    }
    if (at > 0) ranks[at - 1] = (uint32_t)bpe_rank(bpe, ids[at - 1], ids[at]);
  }
  return size;
}

/* ---- encoding of long pieces: a heap of possible merges ---- */

enum {
  POSITION_BITS = 40,
  CHILDREN = 4 /* of a node of the heap: half the depth of a binary heap, and they share a cache line */
};
_Static_assert(BPE_MERGES_LIMIT <= 1 << (64 - POSITION_BITS), "rank and position share 64 bits");

void piece_scratch_free(PieceScratch *scratch) {
  free(scratch->cells);
  free(scratch->heap);
  *scratch = (PieceScratch){0};
}

/* The first and the last cell of a token hold its id, as in bpe_merges.c. An entry of the heap is rank << POSITION_BITS
 * | position of a merge that was possible when it was added. */

static void heap_push(PieceScratch *scratch, uint64_t entry) {
  uint64_t *heap = scratch->heap;
  size_t at = scratch->heap_size++;
  for (; at > 0 && entry < heap[(at - 1) / CHILDREN]; at = (at - 1) / CHILDREN) heap[at] = heap[(at - 1) / CHILDREN];
  heap[at] = entry;
}

static size_t lowest_child(const uint64_t *heap, size_t begin, size_t end) {
  size_t best = begin;
  for (size_t i = begin + 1; i < end; i++)
    if (heap[i] < heap[best]) best = i;
  return best;
}

static uint64_t heap_pop(PieceScratch *scratch) {
  uint64_t *heap = scratch->heap, top = heap[0], entry = heap[--scratch->heap_size];
  size_t at = 0, size = scratch->heap_size;
  for (size_t begin; (begin = CHILDREN * at + 1) < size;) {
    size_t child = lowest_child(heap, begin, size - begin < CHILDREN ? size : begin + CHILDREN);
    if (heap[child] >= entry) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = entry;
  return top;
}

/* Adds the merge of a pair of tokens, the left of which begins at `at`. */
static void push_pair(const Bpe *bpe, PieceScratch *scratch, int32_t left, int32_t right, size_t at) {
  int32_t rank = bpe_rank(bpe, left, right);
  if (rank >= 0) heap_push(scratch, (uint64_t)rank << POSITION_BITS | at);
}

static size_t length_of(const Bpe *bpe, int32_t id) { return bpe->tokens.begins[id + 1] - bpe->tokens.begins[id]; }

enum { STOP_INTERVAL = 1 << 16 }; /* merges or pairs between two checks of the stop signal: about a millisecond */

static bool must_stop(const PieceScratch *scratch, size_t done) {
  return done % STOP_INTERVAL == 0 && stop_requested(scratch->stop);
}

/* The heap starts with fewer than `size` entries; each of the fewer than `size` merges removes one entry and adds at
 * most two. */
static bool start_cells(const Bpe *bpe, const uint8_t *piece, size_t size, PieceScratch *scratch) {
  if (!array_reserve(&scratch->cells, &scratch->cells_capacity, size, sizeof *scratch->cells) ||
      !array_reserve(&scratch->heap, &scratch->heap_capacity, 2 * size, sizeof *scratch->heap))
    return false;
  int32_t *cells = scratch->cells;
  scratch->heap_size = 0;
  for (size_t at = 0, before = 0, length; at < size; before = at, at += length) {
    if (must_stop(scratch, at)) return false;
    cells[at] = symbol(bpe, piece + at, size - at, &length);
    cells[at + length - 1] = cells[at];
    if (at > 0) push_pair(bpe, scratch, cells[before], cells[at], before);
  }
  return !must_stop(scratch, 0);
}

static void merge_at(const Bpe *bpe, PieceScratch *scratch, size_t size, const BpeMerge *merge, size_t at) {
  int32_t *cells = scratch->cells;
  size_t middle = at + length_of(bpe, merge->left), end = middle + length_of(bpe, merge->right);
  if (cells[at] != merge->left || middle >= size || cells[middle] != merge->right)
    return; /* an earlier merge changed it */
  cells[middle] = -1;
  cells[at] = cells[end - 1] = merge->id;
  if (at > 0) push_pair(bpe, scratch, cells[at - 1], merge->id, at - length_of(bpe, cells[at - 1]));
  if (end < size) push_pair(bpe, scratch, merge->id, cells[end], at);
}

static size_t encode_long(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids, PieceScratch *scratch) {
  if ((uint64_t)size >> POSITION_BITS != 0 || !start_cells(bpe, piece, size, scratch)) return 0;
  for (size_t done = 1; scratch->heap_size > 0; done++) {
    if (must_stop(scratch, done)) return 0;
    uint64_t top = heap_pop(scratch);
    size_t at = (size_t)(top & ((UINT64_C(1) << POSITION_BITS) - 1));
    merge_at(bpe, scratch, size, &bpe->merges[top >> POSITION_BITS], at);
  }
  size_t count = 0;
  for (size_t at = 0; at < size; at += length_of(bpe, scratch->cells[at])) {
    ids[count++] = scratch->cells[at];
    if (must_stop(scratch, count)) return 0;
  }
  return count;
}

size_t bpe_encode_piece(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids, PieceScratch *scratch) {
  const int32_t word = bpe_word(bpe, piece, size);
  if (word >= 0) {
    ids[0] = word;
    return 1;
  }
  if (bpe->level) {
    ids[0] = bpe->unknown;
    return bpe->unknown >= 0;
  }
  return size <= SHORT_PIECE ? encode_short(bpe, piece, size, ids) : encode_long(bpe, piece, size, ids, scratch);
}
