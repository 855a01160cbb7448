#include "dataset/windows.h"

#include "dataset/packing.h"
#include "dataset/pairs.h"
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

/* ---- random windows ---- */

static int64_t draw(uint64_t seed, uint32_t step, uint32_t sequence, int64_t range) {
  PhiloxWords words = philox(seed, 0, SITE_WINDOW, step, sequence);
  const uint64_t u = (uint64_t)words.word[1] << 32 | words.word[0];
  __extension__ typedef unsigned __int128 Product;
  return (int64_t)((Product)u * (uint64_t)range >> 64); /* floor(u / 2^64 * range) */
}

int64_t windows_draw_begin(const TokenRange *range, uint64_t seed, uint32_t step, uint32_t sequence, int ctx) {
  return range->begin + draw(seed, step, sequence, token_range_size(range) - ctx);
}

bool windows_draw(const Windows *w, uint64_t seed, uint32_t step, uint32_t sequence, const Window *out, Error *error) {
  const WindowTable *table = table_of(w);
  if (table) return read_packed(w, draw(seed, step, sequence, table->windows), out, error);
  const int64_t begin = windows_draw_begin(&w->range, seed, step, sequence, w->ctx);
  return token_file_read(w->range.file, begin, w->ctx, out->tokens, error) &&
         token_file_read_targets(w->range.file, begin + 1, w->ctx, IGNORE_INDEX, out->targets, error);
}

void windows_prefetch(const Windows *w, uint64_t seed, uint32_t step, uint32_t sequence) {
  const TokenFile *file = w->range.file;
  const WindowTable *table = table_of(w);
  if (!table) {
    token_file_prefetch(file, windows_draw_begin(&w->range, seed, step, sequence, w->ctx), w->ctx + 1);
    return;
  }
  const int64_t window = draw(seed, step, sequence, table->windows);
  for (int64_t i = table->firsts[window]; i < table->firsts[window + 1]; i++)
    token_file_prefetch(file, table->spans[i], 1);
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
