#include "text/dataset/packing.h"

#include "kernels.h"
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table of windows ---- */

void window_table_free(WindowTable *table) {
  free(table->firsts);
  free(table->spans);
  *table = (WindowTable){0};
}

static bool no_memory(const WindowFiller *f, Error *error) {
  return fail(error, EXIT_MEMORY, "out of memory for a table of %lld windows of documents",
              (long long)f->table->windows);
}

bool window_filler_begin(WindowFiller *f, WindowTable *table, int rows, int slots, Error *error) {
  *f = (WindowFiller){.table = table, .rows = rows, .slots = slots, .most_open = OPEN_WINDOWS};
  if (!array_reserve(&table->firsts, &f->firsts_capacity, 1, sizeof *table->firsts)) return no_memory(f, error);
  table->firsts[0] = 0;
  return true;
}

static void empty_window(const WindowFiller *f, OpenWindow *window) {
  for (int row = 0; row < f->rows; row++) window->free[row] = f->slots;
  window->count = 0;
}

/* Moves the window's spans to the table and empties the window. */
static bool close_window(WindowFiller *f, OpenWindow *window, Error *error) {
  WindowTable *out = f->table;
  const size_t spans = f->spans + window->count;
  if (!array_reserve(&out->spans, &f->spans_capacity, spans, sizeof *out->spans) ||
      !array_reserve(&out->firsts, &f->firsts_capacity, (size_t)out->windows + 2, sizeof *out->firsts))
    return no_memory(f, error);
  memcpy(out->spans + f->spans, window->spans, window->count * sizeof *out->spans);
  f->spans = spans;
  out->firsts[++out->windows] = (int64_t)spans;
  empty_window(f, window);
  return true;
}

/* Returns the total number of free slots of a window; -1 when the span does not fit. */
static int64_t free_slots(const WindowFiller *f, const OpenWindow *window, const int *sizes) {
  int64_t slots = 0;
  for (int row = 0; row < f->rows; row++) {
    if (window->free[row] < sizes[row]) return -1;
    slots += window->free[row];
  }
  return slots;
}

/* Returns the open window with the fewest free slots that the span fits into; NULL: none. */
static OpenWindow *tightest(WindowFiller *f, const int *sizes) {
  OpenWindow *best = NULL;
  for (int64_t i = 0, least = INT64_MAX; i < f->open_count; i++) {
    const int64_t slots = free_slots(f, &f->open[i], sizes);
    if (slots < 0 || slots >= least) continue;
    best = &f->open[i];
    least = slots;
  }
  return best;
}

static OpenWindow *window_for(WindowFiller *f, const int *sizes, Error *error) {
  OpenWindow *window = tightest(f, sizes);
  if (window) return window;
  if (f->open_count < f->most_open) {
    window = &f->open[f->open_count++];
    empty_window(f, window);
    return window;
  }
  window = tightest(f, (const int[WINDOW_ROWS]){0});
  return close_window(f, window, error) ? window : NULL;
}

bool window_filler_add(WindowFiller *f, int64_t begin, const int *sizes, Error *error) {
  OpenWindow *window = window_for(f, sizes, error);
  if (!window) return false;
  if (!array_reserve(&window->spans, &window->capacity, window->count + 1, sizeof *window->spans))
    return no_memory(f, error);
  window->spans[window->count++] = begin;
  bool full = false;
  for (int row = 0; row < f->rows; row++) {
    window->free[row] -= sizes[row];
    full = full || window->free[row] == 0;
  }
  return !full || close_window(f, window, error);
}

bool window_filler_end(WindowFiller *f, bool ok, Error *error) {
  for (int i = 0; i < f->open_count; i++) {
    OpenWindow *window = &f->open[i];
    ok = ok && (!window->count || close_window(f, window, error));
    free(window->spans);
  }
  return ok;
}

/* ---- lengths of documents ---- */

PackTokens pack_tokens(const Tokenizer *tokenizer) {
  return (PackTokens){tokenizer_before(tokenizer), tokenizer_end(tokenizer)};
}

static bool add_length(void *context, int64_t begin, int64_t stop) {
  document_lengths_add(context, stop - begin);
  return true;
}

bool packing_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error) {
  *out = (DocumentLengths){0};
  return token_range_documents(range, end, add_length, out, progress, error);
}

/* ---- packing ---- */

typedef struct Packer {
  Packing *packing;
  WindowFiller filler;
  Error *error;
} Packer;

/* Adds tokens [begin, begin + length) of one document; length: at most ctx. */
static bool add_span(Packer *p, int64_t begin, int length) {
  if (token_file_find(p->packing->range.file, begin, begin + length, true) == begin + length) {
    p->packing->left_out += length;
    return true;
  }
  p->packing->used += length;
  return window_filler_add(&p->filler, begin, &length, p->error);
}

static bool add_document(void *context, int64_t begin, int64_t stop) {
  Packer *p = context;
  const int ctx = p->packing->ctx;
  p->packing->documents++;
  p->packing->cut += stop - begin > ctx;
  for (; stop - begin > ctx; begin += ctx)
    if (!add_span(p, begin, ctx)) return false;
  return add_span(p, begin, (int)(stop - begin));
}

/* With one open window, documents stay in order. */
static bool pack(Packing *out, const TokenRange *range, int ctx, PackTokens tokens, int most_open, Progress progress,
                 Error *error) {
  *out = (Packing){.range = *range, .ctx = ctx, .tokens = tokens};
  Packer packer = {.packing = out, .error = error};
  bool ok = window_filler_begin(&packer.filler, &out->table, 1, ctx, error);
  packer.filler.most_open = most_open;
  ok = ok && token_range_documents(range, tokens.end, add_document, &packer, progress, error);
  if (window_filler_end(&packer.filler, ok, error)) return true;
  packing_free(out);
  return error->code == EXIT_MEMORY ? error_append(error, "; use --pack stream") : false;
}

bool packing_make(Packing *out, const TokenRange *range, int ctx, PackTokens tokens, Progress progress, Error *error) {
  return pack(out, range, ctx, tokens, OPEN_WINDOWS, progress, error);
}

bool packing_make_in_order(Packing *out, const TokenRange *range, int ctx, PackTokens tokens, Progress progress,
                           Error *error) {
  return pack(out, range, ctx, tokens, 1, progress, error);
}

void packing_free(Packing *packing) {
  window_table_free(&packing->table);
  *packing = (Packing){0};
}

/* ---- reading ---- */

/* Reads a span into slots [at, ctx) of a window, up to the end of its document or window. Returns the next slot, or -1.
 * It reads small blocks, because most documents are much shorter than the window. */
static int read_span(const Packing *p, int64_t begin, int at, const Window *out, Error *error) {
  enum { BLOCK = 64 };
  const TokenFile *file = p->range.file;
  int32_t before = p->tokens.end; /* the input of a slot is the token before its target */
  if (begin > 0 && !token_file_read(file, begin - 1, 1, &before, error)) return -1;
  if (before == p->tokens.end) before = p->tokens.before;
  for (int position = 0, ended = 0; !ended && at < p->ctx && begin < p->range.end;) {
    int32_t ids[BLOCK];
    const int64_t left = p->range.end - begin;
    const int most = p->ctx - at < BLOCK ? p->ctx - at : BLOCK, count = left < most ? (int)left : most;
    if (!token_file_read(file, begin, count, ids, error) ||
        !token_file_read_targets(file, begin, count, IGNORE_INDEX, out->targets + at, error))
      return -1;
    for (int i = 0; i < count && !ended; i++, at++) {
      out->tokens[at] = before;
      out->positions[at] = position++;
      before = ids[i];
      ended = before == p->tokens.end;
    }
    begin += count;
  }
  return at;
}

bool packing_read(const Packing *p, int64_t index, const Window *out, Error *error) {
  int at = 0;
  const WindowTable *table = &p->table;
  const bool exists = index < table->windows;
  for (int64_t i = exists ? table->firsts[index] : 0; exists && i < table->firsts[index + 1]; i++) {
    at = read_span(p, table->spans[i], at, out, error);
    if (at < 0) return false;
  }
  for (; at < p->ctx; at++) {
    out->tokens[at] = p->tokens.end;
    out->targets[at] = IGNORE_INDEX;
    out->positions[at] = 0;
  }
  return true;
}
