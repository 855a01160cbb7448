#include "dataset/longest_match.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 13, CHUNK = 1 << 16 };

/* Where in the short text each run of LONGEST_MATCH_LEAST tokens stands: lists of places by their hash. */
typedef struct Places {
  const int32_t *ids;
  int count;
  int16_t first[SLOTS], next[LONGEST_MATCH_TOKENS]; /* -1: none */
} Places;

static uint32_t slot_of(const int32_t *ids) {
  uint32_t hash = 0;
  for (int i = 0; i < LONGEST_MATCH_LEAST; i++) hash = (hash ^ (uint32_t)ids[i]) * 2654435761u;
  return hash >> 19;
}

static void fill(Places *p, const int32_t *ids, int count) {
  p->ids = ids;
  p->count = count;
  memset(p->first, -1, sizeof p->first);
  for (int i = count - LONGEST_MATCH_LEAST; i >= 0; i--) {
    const uint32_t slot = slot_of(ids + i);
    p->next[i] = p->first[slot];
    p->first[slot] = (int16_t)i;
  }
}

/* Runs that begin in text[at]; those that began before were looked at there. */
static void match_at(const Places *p, const int32_t *text, int at, int size, size_t *begin, size_t *length) {
  for (int i = p->first[slot_of(text + at)]; i >= 0; i = p->next[i]) {
    if (i > 0 && at > 0 && p->ids[i - 1] == text[at - 1]) continue;
    int same = 0;
    while (i + same < p->count && at + same < size && p->ids[i + same] == text[at + same]) same++;
    if (same < LONGEST_MATCH_LEAST || (size_t)same <= *length) continue;
    *begin = (size_t)i;
    *length = (size_t)same;
  }
}

/* In chunks that overlap by the short text: a run that is cut at the end of one is whole in the next. */
static bool match_all(const Places *p, const TokenRange *range, int32_t *chunk, size_t *begin, size_t *length,
                      Progress progress, Error *error) {
  const int64_t all = token_range_size(range);
  for (int64_t at = 0; at < all; at += CHUNK) {
    const int64_t left = all - at;
    const int size = (int)(left < CHUNK + p->count ? left : CHUNK + p->count);
    const int last = (size < CHUNK ? size : CHUNK) - 1, fits = size - LONGEST_MATCH_LEAST;
    if (!token_file_read(range->file, range->begin + at, size, chunk, error)) return false;
    for (int i = 0; i <= last && i <= fits; i++) match_at(p, chunk, i, size, begin, length);
    if (!progress_report(progress, at + last + 1, error)) return false;
  }
  return true;
}

bool longest_match(const TokenRange *range, const int32_t *ids, size_t count, size_t *begin, size_t *length,
                   Progress progress, Error *error) {
  *begin = *length = 0;
  if (count > LONGEST_MATCH_TOKENS) count = LONGEST_MATCH_TOKENS;
  if (count < LONGEST_MATCH_LEAST) return true;
  Places *places = malloc(sizeof *places);
  int32_t *chunk = malloc((CHUNK + LONGEST_MATCH_TOKENS) * sizeof *chunk);
  bool ok = (places && chunk) || error_memory(error, "a comparison of texts");
  if (ok) fill(places, ids, (int)count);
  ok = ok && match_all(places, range, chunk, begin, length, progress, error);
  free(places);
  free(chunk);
  return ok;
}
