/* Pairs of adjacent tokens, with how often and where they occur: found by their ids, taken by their count.
 *
 * Counts only go down after a pair is added. So the heap may hold counts that are too high: what comes to its top is
 * compared with the true count and put back lower if it was too high. */
#ifndef INKLING_TOKENIZER_PAIR_QUEUE_H
#define INKLING_TOKENIZER_PAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Pair {
  int32_t left, right;
  uint64_t count;
  uint32_t *positions; /* [size], ascending; of the queue */
  uint32_t size;
} Pair;

typedef struct HeapEntry {
  uint64_t count, ids; /* ids: left << 32 | right */
  uint32_t pair;
} HeapEntry;

typedef struct PairSlot {
  uint64_t ids;
  uint32_t pair; /* + 1, or 0 */
} PairSlot;

/* Starts as {0}. */
typedef struct PairQueue {
  Pair *pairs;
  HeapEntry *heap;
  PairSlot *slots;
  size_t size, heap_size, slot_count, pairs_capacity, heap_capacity;
} PairQueue;

void pair_queue_free(PairQueue *queue);

/* Adds a pair that is not there, with room for `size` positions, which the caller fills. NULL: out of memory. The
 * pointer to the positions stays valid, the pair's own only until the next pair is added. */
Pair *pair_queue_add(PairQueue *queue, int32_t left, int32_t right, uint64_t count, uint32_t size);
Pair *pair_queue_find(const PairQueue *queue, int32_t left, int32_t right); /* NULL: not there */

/* Takes the pair with the highest count, then the lowest ids, out of the heap; NULL when none has `least`. */
Pair *pair_queue_take(PairQueue *queue, uint64_t least);

#endif
