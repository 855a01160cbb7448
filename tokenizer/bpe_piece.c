#include "tokenizer/bpe_piece.h"

#include "util/array.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- short pieces: each merge scans all ranks ---- */

static size_t lowest(const uint32_t *ranks, size_t size) {
  size_t best = 0;
  for (size_t i = 1; i < size; i++)
    if (ranks[i] < ranks[best]) best = i;
  return best;
}

static size_t encode_short(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids) {
  uint32_t ranks[SHORT_PIECE]; /* of token i with the next one; UINT32_MAX (which is -1): none */
  size_t count = 0, length;
  for (size_t at = 0; at < size; at += length) ids[count++] = bpe_symbol(bpe, piece + at, size - at, &length);
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

/* ---- long pieces: a heap of possible merges ---- */

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
    cells[at] = bpe_symbol(bpe, piece + at, size - at, &length);
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
  if (size >> POSITION_BITS != 0 || !start_cells(bpe, piece, size, scratch)) return 0;
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
  return size <= SHORT_PIECE ? encode_short(bpe, piece, size, ids) : encode_long(bpe, piece, size, ids, scratch);
}
