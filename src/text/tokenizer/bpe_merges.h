/* The two steps of bpe_train.h: count the distinct pieces of a text, and compute merges, or whole tokens, from the
 * counts. */
#ifndef INKLING_TEXT_TOKENIZER_BPE_MERGES_H
#define INKLING_TEXT_TOKENIZER_BPE_MERGES_H

#include "text/tokenizer/bpe_train.h"

/* ---- bpe_train.c: pieces ---- */

typedef struct PieceCount {
  size_t begin; /* offset of its first byte; it ends at the next piece's `begin` */
  uint64_t count;
} PieceCount;

/* The distinct pieces of a text and their counts. Memory grows with the number of distinct pieces, not with the text.
 * Starts as {0}. */
typedef struct PieceCounts {
  uint8_t *bytes;
  PieceCount *pieces; /* [size + 1], the last one without a count; NULL while size is 0 */
  uint32_t size;
  size_t bytes_capacity, pieces_capacity;
  uint64_t *slots; /* [slot_count], a power of two: low 32 bits of the hash, above them piece + 1, or 0 */
  size_t slot_count;
  bool failed; /* bpe_train.c: a thread could not add a piece */
} PieceCounts;

void piece_counts_free(PieceCounts *counts);

/* Adds `times` to the count of a piece of `size` bytes. Returns false, without changes, when memory is out or there are
 * 2^31 distinct pieces. */
bool piece_counts_add(PieceCounts *counts, const uint8_t *piece, size_t size, uint64_t times);

/* ---- bpe_merges.c ---- */

/* Finds merges as bpe_trainer_finish does, at most `wanted`. Empties `counts`. */
bool bpe_merges_find(PieceCounts *counts, size_t wanted, Progress progress, BpeMerge **merges, size_t *merge_count,
                     Error *error);

/* ---- word_level_train.c ---- */

/* Makes a tokenizer as bpe_trainer_word_level does. */
bool word_level_make(Tokenizer **out, WordLevel level, const PieceCounts *counts, int32_t vocab_size, bool unknown,
                     Error *error);

#endif
