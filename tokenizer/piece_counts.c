#include "tokenizer/piece_counts.h"

#include "util/hash.h"

#include <stdlib.h>

enum { FIRST_SLOTS = 1 << 12, PIECES_LIMIT = INT32_MAX };

void piece_counts_free(PieceCounts *counts) {
  free(counts->bytes);
  free(counts->begins);
  free(counts->counts);
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

static bool grow_pieces(PieceCounts *counts) {
  uint32_t capacity = counts->capacity > 0 ? 2 * counts->capacity : FIRST_SLOTS;
  size_t *begins = realloc(counts->begins, ((size_t)capacity + 1) * sizeof *begins);
  if (!begins) return false;
  if (!counts->begins) begins[0] = 0;
  counts->begins = begins;
  uint64_t *numbers = realloc(counts->counts, capacity * sizeof *numbers);
  if (!numbers) return false;
  counts->counts = numbers;
  counts->capacity = capacity;
  return true;
}

static bool grow_bytes(PieceCounts *counts, size_t size) {
  size_t used = counts->size > 0 ? counts->begins[counts->size] : 0, capacity = counts->bytes_capacity;
  if (size <= capacity - used) return true;
  if (size > SIZE_MAX / 2 - used) return false;
  capacity = capacity > SIZE_MAX / 2 || 2 * capacity < used + size ? used + size : 2 * capacity;
  uint8_t *bytes = realloc(counts->bytes, capacity);
  if (!bytes) return false;
  counts->bytes = bytes;
  counts->bytes_capacity = capacity;
  return true;
}

static bool reserve(PieceCounts *counts, size_t size) {
  if (counts->size >= PIECES_LIMIT) return false;
  if (counts->size >= counts->capacity && !grow_pieces(counts)) return false;
  return grow_bytes(counts, size);
}

bool piece_counts_add(PieceCounts *counts, const uint8_t *piece, size_t size, uint64_t times) {
  if (2 * (size_t)counts->size >= counts->slot_count && !grow_slots(counts)) return false;
  uint32_t hash = (uint32_t)hash_bytes(piece, size);
  size_t mask = counts->slot_count - 1, at = hash & mask;
  for (; counts->slots[at] != 0; at = (at + 1) & mask) {
    if ((uint32_t)counts->slots[at] != hash) continue;
    size_t found = (size_t)(counts->slots[at] >> 32) - 1, begin = counts->begins[found];
    if (counts->begins[found + 1] - begin != size || memcmp(counts->bytes + begin, piece, size) != 0) continue;
    counts->counts[found] += times;
    return true;
  }
  if (!reserve(counts, size)) return false;
  size_t begin = counts->begins[counts->size];
  memcpy(counts->bytes + begin, piece, size);
  counts->counts[counts->size++] = times;
  counts->begins[counts->size] = begin + size;
  counts->slots[at] = (uint64_t)counts->size << 32 | hash;
  return true;
}

bool piece_counts_merge(PieceCounts *counts, const PieceCounts *from) {
  for (uint32_t i = 0; i < from->size; i++) {
    size_t begin = from->begins[i];
    if (!piece_counts_add(counts, from->bytes + begin, from->begins[i + 1] - begin, from->counts[i])) return false;
  }
  return true;
}
