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
  return token_range_documents(range, token_file_end(&range->file->info, end), add_length, out, progress, error);
}

/* ---- documents of a file with conversations ---- */

/* What a document consists of, and the part that is kept. */
typedef struct Kept {
  int64_t stop;     /* the token after it, without its mark */
  int64_t tokens;   /* without marks */
  int64_t head;     /* of them, those before the first turn of a user */
  int64_t head_end; /* where that turn begins; -1: it is no conversation */
  int64_t tail;     /* where the newest turns begin that fit behind the head; -1: none fit */
  int64_t rest;     /* the tokens from there on */
} Kept;

/* Reads a document and finds its turns; `out->tokens` < 0: they are counted first. `reading`: a window that exists, so
 * that a text without a turn in its first ctx + 1 tokens has none, and is not read to its end. */
static bool scan(const Packing *p, int64_t begin, bool reading, Kept *out, Error *error) {
  enum { BLOCK = 64 };
  const TokenFile *file = p->range.file;
  const int32_t end = token_file_end(&file->info, p->tokens.end), turn = token_file_turn(&file->info);
  const int64_t all = out->tokens;
  int64_t count = 0, at = begin;
  for (bool ended = false; !ended && at < p->range.end;) {
    int32_t ids[BLOCK];
    if (reading && out->head_end < 0 && count > p->ctx + 1) break;
    const int64_t left = p->range.end - at;
    const int size = left < BLOCK ? (int)left : BLOCK;
    if (!token_file_read(file, at, size, ids, error)) return false;
    for (int i = 0; i < size && !(ended = ids[i] == end); i++, at++) {
      count += ids[i] != turn;
      if (ids[i] != turn) continue;
      if (out->head_end < 0) {
        out->head_end = at;
        out->head = count;
      }
      if (all < 0 || out->tail >= 0 || out->head + all - count > p->ctx + 1) continue;
      out->tail = at;
      out->rest = all - count;
    }
  }
  out->stop = at;
  out->tokens = count;
  return true;
}

/* Finds what is kept of the document that begins at `begin`, and returns the number of slots that it takes, which is
 * more than ctx for a text that must be cut; -1: error. */
static int64_t find_kept(const Packing *p, int64_t begin, bool reading, Kept *out, Error *error) {
  *out = (Kept){.tokens = -1, .head_end = -1, .tail = -1};
  if (!scan(p, begin, reading, out, error)) return -1;
  if (out->head_end < 0 || out->tokens - 1 <= p->ctx) {
    out->head_end = out->tail = begin; /* all of it */
    return out->tokens - 1;
  }
  if (!scan(p, begin, reading, out, error)) return -1;
  return out->tail < 0 ? 0 : out->head + out->rest - 1;
}

/* Reads tokens [begin, stop) without marks into slots [at, ctx): a token is the target of the slot before and the input
 * of its own. `first`: the slot of the document's first token. Returns the next slot, or -1. */
static int read_kept(const Packing *p, int64_t begin, int64_t stop, int first, int at, const Window *out,
                     Error *error) {
  const TokenFile *file = p->range.file;
  const int32_t turn = token_file_turn(&file->info);
  for (; begin < stop && at <= p->ctx; begin++) {
    int32_t id, target;
    if (!token_file_read(file, begin, 1, &id, error) ||
        !token_file_read_targets(file, begin, 1, IGNORE_INDEX, &target, error))
      return -1;
    if (id == turn) continue;
    if (at > first) out->targets[at - 1] = target;
    if (at < p->ctx) {
      out->tokens[at] = id;
      out->positions[at] = at - first;
    }
    at++;
  }
  return at;
}

/* Does what read_span() does. The last token is only a target. */
static int read_document(const Packing *p, int64_t begin, int at, const Window *out, Error *error) {
  Kept kept;
  const int first = at;
  if (find_kept(p, begin, true, &kept, error) < 0) return -1;
  at = read_kept(p, begin, kept.head_end, first, at, out, error);
  if (at >= 0) at = read_kept(p, kept.tail, kept.stop, first, at, out, error);
  return at - 1;
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

/* Adds a document of a file with conversations. */
static bool add_kept(Packer *p, int64_t begin) {
  Packing *out = p->packing;
  Kept kept;
  const int64_t slots = find_kept(out, begin, false, &kept, p->error);
  const bool whole = kept.tail == begin;
  if (slots < 0) return false;
  out->shortened += slots > 0 && !whole;
  out->dropped += slots == 0 && !whole;
  out->lost += whole ? 0 : kept.tokens - (slots ? slots + 1 : 0);
  out->cut += slots > out->ctx;
  for (int64_t used = 0; used < slots; used += out->ctx) {
    const int length = slots - used < out->ctx ? (int)(slots - used) : out->ctx;
    const int64_t from = whole ? begin + used + 1 : kept.tail, to = slots > out->ctx ? from + length : kept.stop;
    if (token_file_find(out->range.file, from, to, true) == to) {
      out->left_out += length;
      continue;
    }
    out->used += length;
    if (!window_filler_add(&p->filler, begin + used, &length, p->error)) return false;
  }
  return true;
}

static bool add_document(void *context, int64_t begin, int64_t stop) {
  Packer *p = context;
  const int ctx = p->packing->ctx;
  p->packing->documents++;
  if (p->packing->range.file->info.conversations) return add_kept(p, begin);
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
  const int32_t end = token_file_end(&range->file->info, tokens.end);
  ok = ok && token_range_documents(range, end, add_document, &packer, progress, error);
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
    at = p->range.file->info.conversations ? read_document(p, table->spans[i], at, out, error)
                                           : read_span(p, table->spans[i], at, out, error);
    if (at < 0) return false;
  }
  for (; at < p->ctx; at++) {
    out->tokens[at] = p->tokens.end;
    out->targets[at] = IGNORE_INDEX;
    out->positions[at] = 0;
  }
  return true;
}
