/* How often each different piece of a text occurs. The memory grows with the number of different pieces, not with the
 * text. */
#ifndef INKLING_TOKENIZER_PIECE_COUNTS_H
#define INKLING_TOKENIZER_PIECE_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Piece i is bytes[begins[i] .. begins[i + 1]). Starts as {0}. */
typedef struct PieceCounts {
  uint8_t *bytes;
  size_t bytes_capacity;
  size_t *begins;   /* [size + 1], or NULL while size is 0 */
  uint64_t *counts; /* [size] */
  uint32_t size, capacity;
  uint64_t *slots; /* [slot_count], a power of two: low 32 bits of the hash, above them piece + 1, or 0 */
  size_t slot_count;
} PieceCounts;

void piece_counts_free(PieceCounts *counts);

/* `times` more of a piece of `size` bytes. false: out of memory, or 2^31 different pieces; nothing has changed then. */
bool piece_counts_add(PieceCounts *counts, const uint8_t *piece, size_t size, uint64_t times);
/* All of `from`, too. false: as above; a part may have been added. */
bool piece_counts_merge(PieceCounts *counts, const PieceCounts *from);

#endif
