/* One piece of text to tokens: the merge of lowest rank first, the leftmost of equals, until none is left. */
#ifndef INKLING_TOKENIZER_BPE_PIECE_H
#define INKLING_TOKENIZER_BPE_PIECE_H

#include "tokenizer/bpe.h"
#include "util/stop.h"

/* Memory that is used again; starts as {0}. A long piece takes 20 bytes of it for each of its own. */
typedef struct PieceScratch {
  int32_t *cells;
  uint64_t *heap;
  size_t cells_capacity, heap_size, heap_capacity;
  StopSignal stop; /* long pieces end without ids */
} PieceScratch;

void piece_scratch_free(PieceScratch *scratch);

/* Pieces up to this length are merged without a heap. */
enum { SHORT_PIECE = 64 };

/* Writes the ids of a piece of `size` > 0 bytes to `ids`, which has room for one a byte; returns how many there are, or
 * 0 when out of memory or stopped. Takes O(size log size). A piece may have 2^40 bytes. */
size_t bpe_encode_piece(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids, PieceScratch *scratch);

#endif
