#include "tokenizer/piece_counts.h"

#include "util/array.h"
#include "util/hash.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 1 << 12, PIECES_LIMIT = INT32_MAX };

void piece_counts_free(PieceCounts *counts) {
  free(counts->bytes);
  free(counts->pieces);
  free(counts->slots);
  *counts = (PieceCounts){0};
}

/* The low 32 bits both place a piece and tell most others apart, so a table grows without looking at its pieces. */
static bool grow_slots(PieceCounts *counts) {
  size_t slot_count = counts->slot_count > 0 ? 2 * counts->slot_count : FIRST_SLOTS, mask = slot_count - 1;
  uint64_t *slots = calloc(slot_count, sizeof *slots);
  if (!slots) return false;
  for (size_t i = 0; i < counts->slot_count; i++) {
    if (counts->slots[i] == 0) continue;
    size_t at = (uint32_t)counts->slots[i] & mask;
    while (slots[at] != 0) at = (at + 1) & mask;
    slots[at] = counts->slots[i];
  }
  free(counts->slots);
  counts->slots = slots;
  counts->slot_count = slot_count;
  return true;
}

static bool reserve(PieceCounts *counts, size_t size) {
  const size_t count = counts->size, used = count > 0 ? counts->pieces[count].begin : 0;
  return count < PIECES_LIMIT &&
         array_reserve(&counts->pieces, &counts->pieces_capacity, count + 2, sizeof *counts->pieces) &&
         array_reserve(&counts->bytes, &counts->bytes_capacity, used + size, 1);
}

bool piece_counts_add(PieceCounts *counts, const uint8_t *piece, size_t size, uint64_t times) {
  if (2 * (size_t)counts->size >= counts->slot_count && !grow_slots(counts)) return false;
  uint32_t hash = (uint32_t)hash_bytes(piece, size);
  size_t mask = counts->slot_count - 1, at = hash & mask;
  for (; counts->slots[at] != 0; at = (at + 1) & mask) {
    if ((uint32_t)counts->slots[at] != hash) continue;
    PieceCount *found = &counts->pieces[(counts->slots[at] >> 32) - 1];
    if (found[1].begin - found->begin != size || memcmp(counts->bytes + found->begin, piece, size) != 0) continue;
    found->count += times;
    return true;
  }
  if (!reserve(counts, size)) return false;
  PieceCount *added = &counts->pieces[counts->size];
  if (counts->size == 0) added->begin = 0;
  memcpy(counts->bytes + added->begin, piece, size);
  added->count = times;
  added[1].begin = added->begin + size;
  counts->size++;
  counts->slots[at] = (uint64_t)counts->size << 32 | hash;
  return true;
}

bool piece_counts_merge(PieceCounts *counts, const PieceCounts *from) {
  for (uint32_t i = 0; i < from->size; i++) {
    const PieceCount *piece = &from->pieces[i];
    if (!piece_counts_add(counts, from->bytes + piece->begin, piece[1].begin - piece->begin, piece->count))
      return false;
  }
  return true;
}
