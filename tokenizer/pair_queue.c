#include "tokenizer/pair_queue.h"

#include "util/array.h"
#include "util/hash.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 1 << 13 };

void pair_queue_free(PairQueue *queue) {
  for (size_t i = 0; i < queue->size; i++) free(queue->pairs[i].positions);
  free(queue->pairs);
  free(queue->heap);
  free(queue->slots);
  *queue = (PairQueue){0};
}

/* ---- by ids ---- */

static uint64_t pair_ids(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* The slot of a pair, or the empty one where it belongs. */
static size_t find_slot(const PairSlot *slots, size_t slot_count, uint64_t ids) {
  size_t at = hash_mix(ids, 0) & (slot_count - 1);
  while (slots[at].pair != 0 && slots[at].ids != ids) at = (at + 1) & (slot_count - 1);
  return at;
}

Pair *pair_queue_find(const PairQueue *queue, int32_t left, int32_t right) {
  if (queue->slot_count == 0) return NULL;
  uint32_t pair = queue->slots[find_slot(queue->slots, queue->slot_count, pair_ids(left, right))].pair;
  return pair > 0 ? &queue->pairs[pair - 1] : NULL;
}

static bool grow_slots(PairQueue *queue) {
  size_t slot_count = queue->slot_count > 0 ? 2 * queue->slot_count : FIRST_SLOTS;
  PairSlot *slots = calloc(slot_count, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < queue->slot_count; i++)
    if (queue->slots[i].pair != 0) slots[find_slot(slots, slot_count, queue->slots[i].ids)] = queue->slots[i];
  free(queue->slots);
  queue->slots = slots;
  queue->slot_count = slot_count;
  return true;
}

/* Room for one more pair; at most half of the slots are taken. */
static bool reserve(PairQueue *queue) {
  const size_t wanted = queue->size + 1;
  return wanted < UINT32_MAX / 2 && array_reserve(&queue->pairs, &queue->pairs_capacity, wanted, sizeof(Pair)) &&
         array_reserve(&queue->heap, &queue->heap_capacity, wanted, sizeof(HeapEntry)) &&
         (2 * wanted <= queue->slot_count || grow_slots(queue));
}

/* ---- by count ---- */

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

Pair *pair_queue_take(PairQueue *queue, uint64_t least) {
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

Pair *pair_queue_add(PairQueue *queue, int32_t left, int32_t right, uint64_t count, uint32_t size) {
  if (!reserve(queue)) return NULL;
  uint32_t index = (uint32_t)queue->size;
  Pair *pair = &queue->pairs[index];
  *pair = (Pair){left, right, count, malloc(((size_t)size + 1) * sizeof *pair->positions), size};
  if (!pair->positions) return NULL;
  queue->size++;
  uint64_t ids = pair_ids(left, right);
  queue->slots[find_slot(queue->slots, queue->slot_count, ids)] = (PairSlot){ids, index + 1};
  queue->heap[queue->heap_size] = (HeapEntry){count, ids, index};
  sift_up(queue->heap, queue->heap_size++);
  return pair;
}
