/* The two halves of bpe_train.h: how often each different piece of a text occurs, and the merges that follow. */
#ifndef INKLING_TOKENIZER_BPE_MERGES_H
#define INKLING_TOKENIZER_BPE_MERGES_H

#include "tokenizer/bpe_train.h"

/* ---- bpe_train.c: pieces ---- */

typedef struct PieceCount {
  size_t begin; /* its first byte; the next piece's `begin` is its end */
  uint64_t count;
} PieceCount;

/* Their memory grows with the number of different pieces, not with the text. Starts as {0}. */
typedef struct PieceCounts {
  uint8_t *bytes;
  PieceCount *pieces; /* [size + 1], the last one without a count; NULL while size is 0 */
  uint32_t size;
  size_t bytes_capacity, pieces_capacity;
  uint64_t *slots; /* [slot_count], a power of two: low 32 bits of the hash, above them piece + 1, or 0 */
  size_t slot_count;
} PieceCounts;

void piece_counts_free(PieceCounts *counts);

/* `times` more of a piece of `size` bytes. false: out of memory, or 2^31 different pieces; nothing has changed then. */
bool piece_counts_add(PieceCounts *counts, const uint8_t *piece, size_t size, uint64_t times);

/* ---- bpe_merges.c ---- */

/* As bpe_trainer_finish, with at most `wanted` merges. Empties `counts`. */
bool bpe_merges_find(PieceCounts *counts, size_t wanted, Progress progress, BpeMerge **merges, size_t *merge_count,
                     Error *error);

#endif
