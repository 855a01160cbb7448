#include "tokenizer/bpe_merges.h"

#include "tokenizer/pair_queue.h"
#include "util/array.h"

#include <stdlib.h>

enum { SEPARATOR = -1, INSIDE = -2, PREFETCH = 12 };
enum { REPORT_MERGES = 256, REPORT_PLACES = 1 << 22 }; /* between reports, at most, but for a merge of more places */

/* All different pieces, one after the other with separators around them, as cells: one a byte. The first and the last
 * cell of a token hold its id, so from a token both neighbors are found: the one after it begins `length` cells on,
 * the one before it has its id in the cell before, and begins its length earlier. Cells between mean nothing.
 *
 * Where the pair (left, right) was at p and both tokens were not merged since, cell p is left and cell p + length(left)
 * is right. The reverse holds too, so this is how old positions are told from good ones: a merge overwrites the first
 * cell of its right token; and cell p cannot be the last cell of a token `left`, because the token that covers p began
 * there, and has only grown since. */
typedef struct PieceCells {
  int32_t *cells; /* [size] */
  size_t size;
  struct Weight *weights; /* pieces are sorted by how often they occur: one for each such number */
} PieceCells;

/* The pieces whose cells are before `end`, and after the previous one's, occur `count` times. */
typedef struct Weight {
  size_t end;
  uint64_t count;
} Weight;

/* The tokens on one side of the new token. Each merge of left, right with a token x before them takes one from the pair
 * (x, left) and gives one to (x, new), so the same numbers are of both; likewise after them. */
typedef struct Neighbor {
  uint64_t weight;
  uint32_t number;     /* of positions */
  uint32_t *positions; /* of the new pair, while they are filled; NULL: not wanted */
} Neighbor;

typedef struct Place {
  int32_t id;
  uint32_t position; /* of the new pair */
} Place;

typedef struct Neighbors {
  Neighbor *of;     /* [tokens] */
  int32_t *touched; /* [touched_count] ids whose numbers are not 0 */
  Place *places;    /* [place_count] */
  size_t touched_count, place_count, places_capacity;
} Neighbors;

typedef struct Merger {
  PieceCells pieces;
  PairQueue queue;
  Neighbors before, after;
  uint32_t *lengths; /* [tokens] bytes */
} Merger;

/* ---- the pieces ---- */

typedef struct Piece {
  uint64_t count;
  uint32_t index;
} Piece;

static int by_falling_count(const void *a, const void *b) {
  uint64_t left = ((const Piece *)a)->count, right = ((const Piece *)b)->count;
  return (left < right) - (left > right);
}

/* Pieces with a pair in them; returns how many, and the cells they take. */
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

/* ---- the pairs of bytes ---- */

typedef struct BytePair {
  uint64_t count;
  uint32_t *positions; /* where the next one goes; NULL: not wanted */
  uint32_t size;
} BytePair;

static BytePair *byte_pair_at(BytePair *pairs, const int32_t *cells, size_t at) {
  return cells[at] < 0 || cells[at + 1] < 0 ? NULL : &pairs[cells[at] * BPE_BYTES + cells[at + 1]];
}

static bool queue_byte_pairs(Merger *merger, BytePair *pairs) {
  const PieceCells *pieces = &merger->pieces;
  const Weight *weight = pieces->weights;
  for (size_t at = 0; at + 1 < pieces->size; at++) {
    BytePair *pair = byte_pair_at(pairs, pieces->cells, at);
    if (!pair) continue;
    while (at >= weight->end) weight++;
    pair->count += weight->count;
    pair->size++;
  }
  for (int32_t i = 0; i < BPE_BYTES * BPE_BYTES; i++) {
    if (pairs[i].count < BPE_MIN_COUNT) continue;
    Pair *pair = pair_queue_add(&merger->queue, i / BPE_BYTES, i % BPE_BYTES, pairs[i].count, pairs[i].size);
    if (!pair) return false;
    pairs[i].positions = pair->positions;
  }
  for (size_t at = 0; at + 1 < pieces->size; at++) {
    BytePair *pair = byte_pair_at(pairs, pieces->cells, at);
    if (pair && pair->positions) *pair->positions++ = (uint32_t)at;
  }
  return true;
}

/* ---- one merge ---- */

static void note(Neighbors *side, int32_t id, uint32_t position, uint64_t weight) {
  Neighbor *neighbor = &side->of[id];
  if (neighbor->number++ == 0) side->touched[side->touched_count++] = id;
  neighbor->weight += weight;
  side->places[side->place_count++] = (Place){id, position};
}

static bool reserve_places(Neighbors *side, size_t count) {
  return array_reserve(&side->places, &side->places_capacity, count, sizeof *side->places);
}

/* Puts `id` wherever the pair still stands, from left to right, and notes its neighbors. */
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
    if (before >= 0) note(&merger->before, before, at - lengths[before], weight->count);
    if (after >= 0) note(&merger->after, after, at, weight->count);
  }
}

/* The new pairs of one side. Those that can never be merged are not kept: too rare, or too long. */
static bool add_pairs(Merger *merger, Neighbors *side, int32_t id) {
  for (size_t i = 0; i < side->touched_count; i++) {
    int32_t other = side->touched[i];
    Neighbor *neighbor = &side->of[other];
    neighbor->positions = NULL;
    if (neighbor->weight < BPE_MIN_COUNT || merger->lengths[other] + merger->lengths[id] > BPE_TOKEN_BYTES) continue;
    int32_t left = side == &merger->before ? other : id, right = side == &merger->before ? id : other;
    Pair *pair = pair_queue_add(&merger->queue, left, right, neighbor->weight, neighbor->number);
    if (!pair) return false;
    neighbor->positions = pair->positions;
  }
  for (size_t i = 0; i < side->place_count; i++) {
    uint32_t **positions = &side->of[side->places[i].id].positions;
    if (*positions) *(*positions)++ = side->places[i].position;
  }
  return true;
}

/* What the old pairs with the neighbors of one side lose. */
static void settle(Merger *merger, Neighbors *side, int32_t left, int32_t right) {
  for (size_t i = 0; i < side->touched_count; i++) {
    int32_t id = side->touched[i];
    Pair *pair = side == &merger->before ? pair_queue_find(&merger->queue, id, left)
                                         : pair_queue_find(&merger->queue, right, id);
    if (pair && pair->count > 0) pair->count -= side->of[id].weight;
    side->of[id] = (Neighbor){0};
  }
  side->touched_count = side->place_count = 0;
}

/* Every token `id` is made here and never again, so all positions of its pairs are found now, in ascending order. No
 * two tokens have the same bytes: which merges are made inside a stretch of a piece that nothing is merged across
 * depends on its bytes alone, so all equal stretches become one token in the same merge. */
static bool merge_pair(Merger *merger, Pair *pair, int32_t id) {
  int32_t left = pair->left, right = pair->right;
  merger->lengths[id] = merger->lengths[left] + merger->lengths[right];
  if (!reserve_places(&merger->before, pair->size) || !reserve_places(&merger->after, pair->size)) return false;
  pair->count = 0; /* it stays so: nothing is taken from 0 */
  replace(merger, pair, id);
  free(pair->positions);
  pair->positions = NULL;
  if (!add_pairs(merger, &merger->before, id) || !add_pairs(merger, &merger->after, id)) return false;
  /* Only after the new pairs are there: in abab, the second merge of (a, b) takes away the pair (ab, a) that the first
   * one gave. */
  settle(merger, &merger->before, left, right);
  settle(merger, &merger->after, left, right);
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
  free(side->places);
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
  BytePair *pairs = calloc((size_t)BPE_BYTES * BPE_BYTES, sizeof *pairs);
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
  size_t made = 0, places = 0;
  bool ok = progress_report(progress, 0, error);
  for (; ok && made < most; made++) {
    Pair *pair = pair_queue_take(&merger->queue, BPE_MIN_COUNT);
    if (!pair) break;
    int32_t id = BPE_BYTES + (int32_t)made;
    merges[made] = (BpeMerge){pair->left, pair->right, id};
    places += pair->size;
    if (!merge_pair(merger, pair, id)) return no_memory(merger, error);
    if ((made + 1) % REPORT_MERGES && places < REPORT_PLACES) continue;
    places = 0;
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
    /* A merge uses up at least one cell. */
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
