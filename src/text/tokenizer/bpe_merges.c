#include "text/tokenizer/bpe_merges.h"

#include "base/array.h"
#include "base/hash.h"

#include <stdlib.h>

enum { SEPARATOR = -1, INSIDE = -2, PREFETCH = 12, FIRST_SLOTS = 1 << 13 };
/* Progress is reported after this many merges, or after merges that visited this many positions. */
enum { REPORT_MERGES = 256, REPORT_POSITIONS = 1 << 22 };

/* ---- pairs of adjacent tokens: a hash table by ids and a heap by count ---- */

/* The count of a pair only decreases after the pair is added, so the heap may hold outdated, higher counts. The entry
 * at the top is compared with the pair's count and moved down if it is outdated. */
typedef struct Pair {
  int32_t left, right;
  uint64_t count;
  uint32_t *positions; /* [size], ascending; owned by the queue */
  uint32_t size;
} Pair;

/* A pair while its occurrences are counted and its positions are filled. */
typedef struct NewPair {
  uint64_t count;
  uint32_t size;       /* number of positions */
  uint32_t *positions; /* the next position to fill; NULL: the pair is not kept */
} NewPair;

typedef struct HeapEntry {
  uint64_t count, ids; /* ids: left << 32 | right */
  uint32_t pair;
} HeapEntry;

typedef struct PairQueue {
  Pair *pairs;
  HeapEntry *heap;
  uint32_t *slots; /* [slot_count] hash table: pair + 1, or 0 */
  size_t size, heap_size, slot_count, pairs_capacity, heap_capacity;
} PairQueue;

static void pair_queue_free(PairQueue *queue) {
  for (size_t i = 0; i < queue->size; i++) free(queue->pairs[i].positions);
  free(queue->pairs);
  free(queue->heap);
  free(queue->slots);
  *queue = (PairQueue){0};
}

static uint64_t pair_ids(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* Returns the slot of a pair, or the empty slot where it belongs. */
static uint32_t *find_slot(const PairQueue *queue, int32_t left, int32_t right) {
  for (size_t at = hash_mix(pair_ids(left, right), 0);; at++) {
    uint32_t *slot = &queue->slots[at & (queue->slot_count - 1)];
    const Pair *pair = *slot ? &queue->pairs[*slot - 1] : NULL;
    if (!pair || (pair->left == left && pair->right == right)) return slot;
  }
}

/* Returns NULL for a pair that is not in the queue. */
static Pair *pair_queue_find(const PairQueue *queue, int32_t left, int32_t right) {
  const uint32_t pair = *find_slot(queue, left, right);
  return pair > 0 ? &queue->pairs[pair - 1] : NULL;
}

static bool grow_slots(PairQueue *queue) {
  queue->slot_count = queue->slot_count > 0 ? 2 * queue->slot_count : FIRST_SLOTS;
  free(queue->slots);
  queue->slots = calloc(queue->slot_count, sizeof *queue->slots);
  for (size_t i = 0; queue->slots && i < queue->size; i++)
    *find_slot(queue, queue->pairs[i].left, queue->pairs[i].right) = (uint32_t)i + 1;
  return queue->slots;
}

/* Reserves memory for one more pair; at most half of the slots are used. */
static bool reserve(PairQueue *queue) {
  const size_t wanted = queue->size + 1;
  return wanted < UINT32_MAX / 2 && array_reserve(&queue->pairs, &queue->pairs_capacity, wanted, sizeof(Pair)) &&
         array_reserve(&queue->heap, &queue->heap_capacity, wanted, sizeof(HeapEntry)) &&
         (2 * wanted <= queue->slot_count || grow_slots(queue));
}

static bool is_before(const HeapEntry *a, const HeapEntry *b) {
  return a->count != b->count ? a->count > b->count : a->ids < b->ids;
}

static void sift_up(HeapEntry *heap, size_t at) {
  HeapEntry entry = heap[at];
  for (; at > 0 && is_before(&entry, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = entry;
}

static void sift_down(HeapEntry *heap, size_t size) {
  if (size == 0) return;
  HeapEntry entry = heap[0];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < size; at = child) {
    if (child + 1 < size && is_before(&heap[child + 1], &heap[child])) child++;
    if (!is_before(&heap[child], &entry)) break;
    heap[at] = heap[child];
  }
  heap[at] = entry;
}

/* Removes the pair with the highest count, then the lowest ids, from the heap; NULL when no count reaches `least`. */
static Pair *pair_queue_take(PairQueue *queue, uint64_t least) {
  while (queue->heap_size > 0) {
    HeapEntry *top = queue->heap;
    Pair *pair = &queue->pairs[top->pair];
    bool is_taken = pair->count == top->count && pair->count >= least;
    if (pair->count >= least && !is_taken) top->count = pair->count;
    else queue->heap[0] = queue->heap[--queue->heap_size];
    sift_down(queue->heap, queue->heap_size);
    if (is_taken) return pair;
  }
  return NULL;
}

/* Adds a new pair, of which the caller fills the positions. Returns false when memory is out. */
static bool pair_queue_add(PairQueue *queue, int32_t left, int32_t right, NewPair *made) {
  if (!reserve(queue)) return false;
  uint32_t index = (uint32_t)queue->size;
  made->positions = malloc(((size_t)made->size + 1) * sizeof *made->positions);
  if (!made->positions) return false;
  queue->pairs[index] = (Pair){left, right, made->count, made->positions, made->size};
  queue->size++;
  uint64_t ids = pair_ids(left, right);
  *find_slot(queue, left, right) = index + 1;
  queue->heap[queue->heap_size] = (HeapEntry){made->count, ids, index};
  sift_up(queue->heap, queue->heap_size++);
  return true;
}

/* ---- the pieces ---- */

/* All distinct pieces in a row, with separators around them; one cell per byte. The first and the last cell of a token
 * hold its id, so both neighbors of a token can be found: the next token begins `length` cells later; the previous
 * token has its id in the cell before, and begins its own length earlier. The cells between have no meaning.
 *
 * The pair (left, right) that was once at p is still there if and only if cell p is left and cell p + length(left) is
 * right: a merge overwrites the first cell of its right token, and cell p cannot be the last cell of a token `left`,
 * because the token that covers p began at p and has only grown since. */
typedef struct PieceCells {
  int32_t *cells; /* [size] */
  size_t size;
  struct Weight *weights; /* one for each distinct count; pieces are sorted by falling count */
} PieceCells;

/* The pieces whose cells are before `end`, and after the previous weight's end, occur `count` times. */
typedef struct Weight {
  size_t end;
  uint64_t count;
} Weight;

typedef struct Occurrence {
  int32_t id;
  uint32_t position; /* of the new pair */
} Occurrence;

/* The tokens on one side of the new token. Each merge of (left, right) after a token x moves one occurrence from the
 * pair (x, left) to (x, new), so count and size apply to both pairs; likewise for a token after them. */
typedef struct Neighbors {
  NewPair *of;             /* [tokens] the new pair of each */
  int32_t *touched;        /* [touched_count] ids whose pair has positions */
  Occurrence *occurrences; /* [occurrence_count] */
  size_t touched_count, occurrence_count, occurrences_capacity;
} Neighbors;

typedef struct Merger {
  PieceCells pieces;
  PairQueue queue;
  Neighbors before, after;
  uint32_t *lengths; /* [tokens] bytes */
} Merger;

typedef struct Piece {
  uint64_t count;
  uint32_t index;
} Piece;

static int by_falling_count(const void *a, const void *b) {
  uint64_t left = ((const Piece *)a)->count, right = ((const Piece *)b)->count;
  return (left < right) - (left > right);
}

/* Sorts the pieces that have a pair; returns their number, and the number of cells in *cells. */
static size_t sort_pieces(const PieceCounts *counts, Piece *sorted, size_t *cells) {
  size_t kept = 0;
  *cells = 1;
  for (uint32_t i = 0; i < counts->size; i++) {
    size_t size = counts->pieces[i + 1].begin - counts->pieces[i].begin;
    if (size < 2) continue;
    sorted[kept++] = (Piece){counts->pieces[i].count, i};
    *cells += size + 1;
  }
  qsort(sorted, kept, sizeof *sorted, by_falling_count);
  return kept;
}

static bool lay_out(PieceCells *out, const PieceCounts *counts, const Piece *sorted, size_t piece_count) {
  size_t at = 0, weights = 0, capacity = 0;
  out->cells = malloc(out->size * sizeof *out->cells);
  if (!out->cells) return false;
  out->cells[at++] = SEPARATOR;
  for (size_t i = 0; i < piece_count; i++) {
    const PieceCount *piece = &counts->pieces[sorted[i].index];
    for (size_t j = piece[0].begin; j < piece[1].begin; j++) out->cells[at++] = counts->bytes[j];
    out->cells[at++] = SEPARATOR;
    if (i + 1 < piece_count && sorted[i + 1].count == sorted[i].count) continue;
    if (!array_reserve(&out->weights, &capacity, weights + 1, sizeof *out->weights)) return false;
    out->weights[weights++] = (Weight){at, sorted[i].count};
  }
  return true;
}

static bool piece_cells_create(PieceCells *out, const PieceCounts *counts, Error *error) {
  Piece *sorted = malloc(((size_t)counts->size + 1) * sizeof *sorted);
  if (!sorted) return fail(error, EXIT_MEMORY, "out of memory for %u different words", (unsigned)counts->size);
  const size_t piece_count = sort_pieces(counts, sorted, &out->size);
  bool ok = out->size <= UINT32_MAX ||
            fail(error, EXIT_INPUT,
                 "the different words of the text have %zu bytes, more than the 4 GiB that BPE training can hold; "
                 "train the tokenizer on a part of the text",
                 out->size);
  if (ok && !lay_out(out, counts, sorted, piece_count))
    ok = fail(error, EXIT_MEMORY, "out of memory for %zu bytes of different words", out->size);
  free(sorted);
  return ok;
}

/* ---- the first pairs: pairs of bytes ---- */

static NewPair *byte_pair_at(NewPair *pairs, const int32_t *cells, size_t at) {
  return cells[at] < 0 || cells[at + 1] < 0 ? NULL : &pairs[cells[at] * BPE_BYTES + cells[at + 1]];
}

static bool queue_byte_pairs(Merger *merger, NewPair *pairs) {
  const PieceCells *pieces = &merger->pieces;
  const Weight *weight = pieces->weights;
  for (size_t at = 0; at + 1 < pieces->size; at++) {
    NewPair *pair = byte_pair_at(pairs, pieces->cells, at);
    if (!pair) continue;
    while (at >= weight->end) weight++;
    pair->count += weight->count;
    pair->size++;
  }
  for (int32_t i = 0; i < BPE_BYTES * BPE_BYTES; i++) {
    if (pairs[i].count < BPE_MIN_COUNT) continue;
    if (!pair_queue_add(&merger->queue, i / BPE_BYTES, i % BPE_BYTES, &pairs[i])) return false;
  }
  for (size_t at = 0; at + 1 < pieces->size; at++) {
    NewPair *pair = byte_pair_at(pairs, pieces->cells, at);
    if (pair && pair->positions) *pair->positions++ = (uint32_t)at;
  }
  return true;
}

/* ---- one merge ---- */

static void add_neighbor(Neighbors *side, int32_t id, uint32_t position, uint64_t weight) {
  NewPair *pair = &side->of[id];
  if (pair->size++ == 0) side->touched[side->touched_count++] = id;
  pair->count += weight;
  side->occurrences[side->occurrence_count++] = (Occurrence){id, position};
}

static bool reserve_occurrences(Neighbors *side, size_t count) {
  return array_reserve(&side->occurrences, &side->occurrences_capacity, count, sizeof *side->occurrences);
}

/* Replaces the pair by `id` at all its positions, from left to right, and records the neighbors. */
static void replace(Merger *merger, const Pair *pair, int32_t id) {
  int32_t *cells = merger->pieces.cells;
  const uint32_t *lengths = merger->lengths;
  const Weight *weight = merger->pieces.weights;
  uint32_t left = lengths[pair->left], right = lengths[pair->right];
  for (uint32_t i = 0; i < pair->size; i++) {
    uint32_t at = pair->positions[i], middle = at + left, end = middle + right;
    if (i + PREFETCH < pair->size) __builtin_prefetch(&cells[pair->positions[i + PREFETCH]], 1);
    if (cells[at] != pair->left || cells[middle] != pair->right) continue;
    while (at >= weight->end) weight++;
    int32_t before = cells[at - 1], after = cells[end];
    cells[middle] = INSIDE;
    cells[at] = cells[end - 1] = id;
    if (before >= 0) add_neighbor(&merger->before, before, at - lengths[before], weight->count);
    if (after >= 0) add_neighbor(&merger->after, after, at, weight->count);
  }
}

/* Adds the new pairs of one side, except pairs that cannot be merged because they are too rare or too long. */
static bool add_pairs(Merger *merger, Neighbors *side, int32_t id) {
  for (size_t i = 0; i < side->touched_count; i++) {
    int32_t other = side->touched[i];
    NewPair *pair = &side->of[other];
    if (pair->count < BPE_MIN_COUNT || merger->lengths[other] + merger->lengths[id] > BPE_TOKEN_BYTES) continue;
    int32_t left = side == &merger->before ? other : id, right = side == &merger->before ? id : other;
    if (!pair_queue_add(&merger->queue, left, right, pair)) return false;
  }
  for (size_t i = 0; i < side->occurrence_count; i++) {
    uint32_t **positions = &side->of[side->occurrences[i].id].positions;
    if (*positions) *(*positions)++ = side->occurrences[i].position;
  }
  return true;
}

/* Subtracts the merged occurrences from the old pairs of one side. */
static void subtract_old_pairs(Merger *merger, Neighbors *side, int32_t left, int32_t right) {
  for (size_t i = 0; i < side->touched_count; i++) {
    int32_t id = side->touched[i];
    Pair *pair = side == &merger->before ? pair_queue_find(&merger->queue, id, left)
                                         : pair_queue_find(&merger->queue, right, id);
    if (pair && pair->count > 0) pair->count -= side->of[id].count;
    side->of[id] = (NewPair){0};
  }
  side->touched_count = side->occurrence_count = 0;
}

/* All occurrences of token `id` are made in this call, so all positions of its pairs are found now, in ascending order.
 * No two tokens have the same bytes: the merges inside a range of bytes that no merge crosses depend only on these
 * bytes, so all equal ranges become one token in the same merge. */
static bool merge_pair(Merger *merger, Pair *pair, int32_t id) {
  int32_t left = pair->left, right = pair->right;
  merger->lengths[id] = merger->lengths[left] + merger->lengths[right];
  if (!reserve_occurrences(&merger->before, pair->size) || !reserve_occurrences(&merger->after, pair->size))
    return false;
  pair->count = 0; /* final: subtract_old_pairs() skips a count of 0 */
  replace(merger, pair, id);
  free(pair->positions);
  pair->positions = NULL;
  if (!add_pairs(merger, &merger->before, id) || !add_pairs(merger, &merger->after, id)) return false;
  /* After adding the new pairs: in abab, the second merge of (a, b) removes the pair (ab, a) that the first merge
   * added. */
  subtract_old_pairs(merger, &merger->before, left, right);
  subtract_old_pairs(merger, &merger->after, left, right);
  return true;
}

/* ---- all merges ---- */

static bool neighbors_create(Neighbors *side, size_t tokens) {
  side->of = calloc(tokens, sizeof *side->of);
  side->touched = malloc(tokens * sizeof *side->touched);
  return side->of && side->touched;
}

static void neighbors_free(Neighbors *side) {
  free(side->of);
  free(side->touched);
  free(side->occurrences);
}

static void merger_free(Merger *merger) {
  free(merger->pieces.cells);
  free(merger->pieces.weights);
  pair_queue_free(&merger->queue);
  neighbors_free(&merger->before);
  neighbors_free(&merger->after);
  free(merger->lengths);
}

static bool merger_start(Merger *merger, size_t tokens) {
  merger->lengths = malloc(tokens * sizeof *merger->lengths);
  NewPair *pairs = calloc((size_t)BPE_BYTES * BPE_BYTES, sizeof *pairs);
  bool ok = merger->lengths && pairs && neighbors_create(&merger->before, tokens) &&
            neighbors_create(&merger->after, tokens) && queue_byte_pairs(merger, pairs);
  free(pairs);
  if (!ok) return false;
  for (int i = 0; i < BPE_BYTES; i++) merger->lengths[i] = 1;
  return true;
}

static bool no_memory(const Merger *merger, Error *error) {
  return fail(error, EXIT_MEMORY, "out of memory while merging, with %zu bytes of different words",
              merger->pieces.size);
}

static bool run(Merger *merger, size_t most, Progress progress, BpeMerge *merges, size_t *merge_count, Error *error) {
  size_t made = 0, positions = 0;
  bool ok = progress_report(progress, 0, error);
  for (; ok && made < most; made++) {
    Pair *pair = pair_queue_take(&merger->queue, BPE_MIN_COUNT);
    if (!pair) break;
    int32_t id = BPE_BYTES + (int32_t)made;
    merges[made] = (BpeMerge){pair->left, pair->right, id};
    positions += pair->size;
    if (!merge_pair(merger, pair, id)) return no_memory(merger, error);
    if ((made + 1) % REPORT_MERGES && positions < REPORT_POSITIONS) continue;
    positions = 0;
    ok = progress_report(progress, (int64_t)made + 1, error);
  }
  *merge_count = made;
  return ok;
}

bool bpe_merges_find(PieceCounts *counts, size_t wanted, Progress progress, BpeMerge **merges, size_t *merge_count,
                     Error *error) {
  Merger merger = {0};
  bool ok = piece_cells_create(&merger.pieces, counts, error);
  piece_counts_free(counts);
  if (ok) {
    /* Every merge removes at least one token, and there are at most as many tokens as cells. */
    size_t most = wanted < merger.pieces.size ? wanted : merger.pieces.size;
    *merges = malloc((most + 1) * sizeof **merges);
    ok = *merges && merger_start(&merger, BPE_BYTES + most) ? run(&merger, most, progress, *merges, merge_count, error)
                                                            : no_memory(&merger, error);
  }
  merger_free(&merger);
  if (!ok) {
    free(*merges);
    *merges = NULL;
  }
  return ok;
}
