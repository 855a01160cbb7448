#include "text/dataset/windows.h"

#include "text/dataset/packing.h"
#include "text/dataset/pairs.h"
#include "kernels.h"
#include "kernels/philox.h"

/* ---- packed windows ---- */

/* Returns the table of packed windows; NULL: windows of the stream. */
static const WindowTable *table_of(const Windows *w) {
  return w->packing ? &w->packing->table : w->pairs ? &w->pairs->table : NULL;
}

static bool read_packed(const Windows *w, int64_t index, const Window *out, Error *error) {
  return w->packing ? packing_read(w->packing, index, out, error) : pairs_read(w->pairs, index, out, error);
}

/* ---- random order ---- */

/* An order of 0..count-1, one for each seed and epoch. Returns its element `index`, by a Feistel network (Luby &
 * Rackoff 1988) that permutes the numbers of 2 * `half` bits, applied until the number is below `count`. */
static int64_t shuffled(uint64_t seed, uint32_t epoch, int64_t index, int64_t count) {
  enum { ROUNDS = 4 };
  int half = 1;
  while ((int64_t)1 << 2 * half < count) half++;
  const uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
  do {
    uint32_t left = (uint32_t)(index >> half), right = (uint32_t)index & mask;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
      const uint32_t next = left ^ (philox(seed, right, SITE_WINDOW, epoch, round).word[0] & mask);
      left = right, right = next;
    }
    index = (int64_t)left << half | right;
  } while (index >= count);
  return index;
}

/* Returns a number below `count` <= 2^31, one for each seed and epoch. */
static int64_t epoch_offset(uint64_t seed, uint32_t epoch, int64_t count) {
  return (int64_t)philox(seed, 0, SITE_WINDOW, epoch, 0).word[0] * count >> 32;
}

static int64_t draw_packed(const WindowTable *table, uint64_t seed, int64_t number) {
  return shuffled(seed, (uint32_t)(number / table->windows), number % table->windows, table->windows);
}

int64_t windows_draw_begin(const TokenRange *range, uint64_t seed, int64_t number, int ctx) {
  /* the last window of an epoch and its last target must fit behind the largest offset */
  const int64_t size = token_range_size(range), count = size < 2 * (int64_t)ctx ? 1 : (size - ctx) / ctx;
  const int64_t offsets = size - count * ctx < ctx ? size - count * ctx : ctx;
  const uint32_t epoch = (uint32_t)(number / count);
  return range->begin + epoch_offset(seed, epoch, offsets) + ctx * shuffled(seed, epoch, number % count, count);
}

bool windows_draw(const Windows *w, uint64_t seed, int64_t number, const Window *out, Error *error) {
  const WindowTable *table = table_of(w);
  if (table) return read_packed(w, draw_packed(table, seed, number), out, error);
  const int64_t begin = windows_draw_begin(&w->range, seed, number, w->ctx);
  return token_file_read(w->range.file, begin, w->ctx, out->tokens, error) &&
         token_file_read_targets(w->range.file, begin + 1, w->ctx, IGNORE_INDEX, out->targets, error);
}

void windows_prefetch(const Windows *w, uint64_t seed, int64_t number) {
  const TokenFile *file = w->range.file;
  const WindowTable *table = table_of(w);
  if (!table) {
    token_file_prefetch(file, windows_draw_begin(&w->range, seed, number, w->ctx), w->ctx + 1);
    return;
  }
  const int64_t window = draw_packed(table, seed, number);
  for (int64_t i = table->firsts[window]; i < table->firsts[window + 1]; i++)
    token_file_prefetch(file, table->spans[i], 1);
}

/* ---- texts with shares of the windows ---- */

/* floor(number * share / whole), without overflow. */
static int64_t part_of(int64_t number, int64_t share, int64_t whole) {
  return number / whole * share + number % whole * share / whole;
}

int mixture_text(const Mixture *m, int64_t number, int64_t *index) {
  int64_t left = MIXTURE_WHOLE;
  for (int i = 0; i < m->count; left -= m->shares[i++]) {
    *index = part_of(number, m->shares[i], left);
    if (part_of(number + 1, m->shares[i], left) > *index) return i + 1;
    number -= *index;
  }
  *index = number;
  return 0;
}

int64_t mixture_rest(const Mixture *m) {
  int64_t left = MIXTURE_WHOLE;
  for (int i = 0; i < m->count; i++) left -= m->shares[i];
  return left;
}

/* ---- windows in order ---- */

int64_t windows_count(const Windows *w, int stride) {
  const WindowTable *table = table_of(w);
  if (table) return table->windows;
  const int64_t targets = token_range_size(&w->range) - 1;
  if (targets <= 0) return 0;
  return targets <= w->ctx ? 1 : 1 + (targets - w->ctx + stride - 1) / stride;
}

bool windows_read(const Windows *w, int stride, int64_t index, const Window *out, Error *error) {
  if (table_of(w)) return read_packed(w, index, out, error);
  const bool exists = index < windows_count(w, stride);
  const int64_t begin = w->range.begin + (exists ? index * stride : 0), left = w->range.end - begin - 1;
  const int count = !exists ? 0 : left < w->ctx ? (int)left : w->ctx, ignored = index ? w->ctx - stride : 0;
  for (int i = 0; i < w->ctx; i++) {
    if (i >= count) out->tokens[i] = 0;
    if (i >= count || i < ignored) out->targets[i] = IGNORE_INDEX;
  }
  return token_file_read(w->range.file, begin, count, out->tokens, error) &&
         (count <= ignored || token_file_read_targets(w->range.file, begin + 1 + ignored, count - ignored, IGNORE_INDEX,
                                                      out->targets + ignored, error));
}
