#include "dataset/packing.h"

#include "kernels.h"
#include "util/array.h"

#include <stdlib.h>
#include <string.h>

enum {
  OPEN_WINDOWS = 64,     /* that documents are still put into */
  SCAN_TOKENS = 1 << 16, /* searched together for ends of documents */
  KEPT_TOKENS = 16 << 20 /* of the token file in memory while it is scanned */
};

/* ---- documents ---- */

/* Calls `found` with the first token of every document and the one after its last. */
static bool scan(const TokenRange *range, int32_t end, bool (*found)(void *context, int64_t begin, int64_t stop),
                 void *context, Progress progress, Error *error) {
  int64_t begin = range->begin, dropped = begin;
  int32_t *ids = malloc(SCAN_TOKENS * sizeof *ids);
  if (!ids) return error_memory(error, "the lengths of documents");
  bool ok = true;
  for (int64_t at = begin; ok && at < range->end; at += SCAN_TOKENS) {
    int64_t count = range->end - at < SCAN_TOKENS ? range->end - at : SCAN_TOKENS;
    if (at - dropped >= KEPT_TOKENS) token_file_drop_pages(range->file), dropped = at;
    ok = token_file_read(range->file, at, count, ids, error);
    for (int64_t i = 0; ok && i < count; i++) {
      if (ids[i] != end) continue;
      ok = found(context, begin, at + i + 1);
      begin = at + i + 1;
    }
    ok = ok && progress_report(progress, at + count - range->begin, error);
  }
  free(ids);
  return ok && (begin == range->end || found(context, begin, range->end));
}

static bool count_length(void *context, int64_t begin, int64_t stop) {
  DocumentLengths *lengths = context;
  int k = 0;
  while (((int64_t)1 << k) < stop - begin) k++;
  lengths->counts[k]++;
  lengths->documents++;
  return true;
}

bool packing_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error) {
  *out = (DocumentLengths){0};
  return scan(range, end, count_length, out, progress, error);
}

/* ---- making ---- */

/* A window that still has room. */
typedef struct OpenWindow {
  int room; /* tokens */
  int64_t *spans;
  size_t count, capacity;
} OpenWindow;

typedef struct Packer {
  Packing *packing;
  OpenWindow open[OPEN_WINDOWS];
  int open_count;
  size_t spans, spans_capacity, firsts_capacity; /* of the tables */
  Error *error;
} Packer;

static bool no_memory(const Packer *p) {
  return fail(p->error, EXIT_MEMORY, "out of memory for a table of %lld windows of documents; use --pack stream",
              (long long)p->packing->windows);
}

/* The window's spans go to the table; its place in `open` is free for the next one. */
static bool close_window(Packer *p, OpenWindow *window) {
  Packing *out = p->packing;
  const size_t spans = p->spans + window->count;
  if (!array_reserve(&out->spans, &p->spans_capacity, spans, sizeof *out->spans) ||
      !array_reserve(&out->firsts, &p->firsts_capacity, (size_t)out->windows + 2, sizeof *out->firsts))
    return no_memory(p);
  memcpy(out->spans + p->spans, window->spans, window->count * sizeof *out->spans);
  p->spans = spans;
  out->firsts[++out->windows] = (int64_t)spans;
  out->used += out->ctx - window->room;
  window->room = out->ctx;
  window->count = 0;
  return true;
}

/* The open window with the least room, but at least `length`; NULL: there is none. */
static OpenWindow *tightest(Packer *p, int length) {
  OpenWindow *best = NULL;
  for (int i = 0; i < p->open_count; i++) {
    OpenWindow *window = &p->open[i];
    if (window->room >= length && (!best || window->room < best->room)) best = window;
  }
  return best;
}

static OpenWindow *window_for(Packer *p, int length) {
  OpenWindow *window = tightest(p, length);
  if (window) return window;
  if (p->open_count < OPEN_WINDOWS) {
    window = &p->open[p->open_count++];
    *window = (OpenWindow){.room = p->packing->ctx};
    return window;
  }
  window = tightest(p, 0);
  return close_window(p, window) ? window : NULL;
}

/* Whether the loss takes any of the tokens; it takes all where the file has no loss mask. */
static bool find_target(Packer *p, int64_t begin, int length, bool *found) {
  enum { BLOCK = 256 };
  const TokenFile *file = p->packing->range.file;
  *found = !file->info.loss_mask;
  for (int at = 0; !*found && at < length; at += BLOCK) {
    int32_t targets[BLOCK];
    const int count = length - at < BLOCK ? length - at : BLOCK;
    if (!token_file_read_targets(file, begin + at, count, IGNORE_INDEX, targets, p->error)) return false;
    for (int i = 0; i < count; i++) *found = *found || targets[i] != IGNORE_INDEX;
  }
  return true;
}

/* Tokens [begin, begin + length) of one document, at most a window. */
static bool add_span(Packer *p, int64_t begin, int length) {
  bool has_target;
  if (!find_target(p, begin, length, &has_target)) return false;
  if (!has_target) {
    p->packing->left_out += length;
    return true;
  }
  OpenWindow *window = window_for(p, length);
  if (!window) return false;
  if (!array_reserve(&window->spans, &window->capacity, window->count + 1, sizeof *window->spans)) return no_memory(p);
  window->spans[window->count++] = begin;
  window->room -= length;
  return window->room > 0 || close_window(p, window);
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

static bool close_all(Packer *p) {
  for (int i = 0; i < p->open_count; i++)
    if (p->open[i].count && !close_window(p, &p->open[i])) return false;
  return true;
}

bool packing_make(Packing *out, const TokenRange *range, int ctx, int32_t end, Progress progress, Error *error) {
  *out = (Packing){.range = *range, .ctx = ctx, .end = end};
  Packer packer = {.packing = out, .error = error};
  bool ok = array_reserve(&out->firsts, &packer.firsts_capacity, 1, sizeof *out->firsts) || no_memory(&packer);
  if (ok) out->firsts[0] = 0;
  ok = ok && scan(range, end, add_document, &packer, progress, error) && close_all(&packer);
  for (int i = 0; i < packer.open_count; i++) free(packer.open[i].spans);
  if (!ok) packing_free(out);
  return ok;
}

void packing_free(Packing *packing) {
  free(packing->firsts);
  free(packing->spans);
  *packing = (Packing){0};
}

/* ---- reading ---- */

/* A span into places [at, ctx) of a window: up to its document's end, or the window's. Returns the next place, or -1.
 * Read in blocks: most documents are much shorter than the window. */
static int read_span(const Packing *p, int64_t begin, int at, const Window *out, Error *error) {
  enum { BLOCK = 64 };
  const TokenFile *file = p->range.file;
  int32_t before = p->end; /* the input of a place is the token before its target */
  if (begin > 0 && !token_file_read(file, begin - 1, 1, &before, error)) return -1;
  for (int position = 0, ended = 0; !ended && at < p->ctx && begin < p->range.end;) {
    int32_t ids[BLOCK];
    const int64_t left = p->range.end - begin;
    const int room = p->ctx - at < BLOCK ? p->ctx - at : BLOCK, count = left < room ? (int)left : room;
    if (!token_file_read(file, begin, count, ids, error) ||
        !token_file_read_targets(file, begin, count, IGNORE_INDEX, out->targets + at, error))
      return -1;
    for (int i = 0; i < count && !ended; i++, at++) {
      out->tokens[at] = before;
      out->positions[at] = position++;
      before = ids[i];
      ended = before == p->end;
    }
    begin += count;
  }
  return at;
}

bool packing_read(const Packing *p, int64_t index, const Window *out, Error *error) {
  int at = 0;
  for (int64_t i = p->firsts[index]; i < p->firsts[index + 1]; i++) {
    at = read_span(p, p->spans[i], at, out, error);
    if (at < 0) return false;
  }
  for (; at < p->ctx; at++) {
    out->tokens[at] = p->end;
    out->targets[at] = IGNORE_INDEX;
    out->positions[at] = 0;
  }
  return true;
}
