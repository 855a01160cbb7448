/* Encoding of one piece of text: applies the merge of lowest rank, the leftmost of equals, until no merge applies. */
#ifndef INKLING_TOKENIZER_BPE_PIECE_H
#define INKLING_TOKENIZER_BPE_PIECE_H

#include "tokenizer/bpe.h"
#include "util/progress.h"

/* Reusable memory; starts as {0}. A long piece takes 20 bytes of it per byte. */
typedef struct PieceScratch {
  int32_t *cells;
  uint64_t *heap;
  size_t cells_capacity, heap_size, heap_capacity;
  StopSignal stop; /* encoding of a long piece then returns 0 */
} PieceScratch;

void piece_scratch_free(PieceScratch *scratch);

/* Pieces up to this length are merged without a heap. */
enum { SHORT_PIECE = 64 };

/* Writes the ids of a piece of `size` > 0 bytes to `ids`, which has room for `size` ids; returns their number, or 0
 * when out of memory or stopped. Takes O(size log size) time. A piece may have 2^40 bytes. */
size_t bpe_encode_piece(const Bpe *bpe, const uint8_t *piece, size_t size, int32_t *ids, PieceScratch *scratch);

#endif
