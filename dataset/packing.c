#include "dataset/packing.h"

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
  OPEN_WINDOWS = 64,     /* that documents are still put into */
  SCAN_TOKENS = 1 << 16, /* looked at together for ends of documents */
  KEPT_TOKENS = 16 << 20 /* of the token file in memory while it is scanned */
};

/* ---- documents ---- */

/* Calls `found` with the first token of every document and the one after its last. */
static bool scan(const TokenRange *split, int32_t end, bool (*found)(void *to, int64_t begin, int64_t stop), void *to,
                 PackingTick tick, void *context, Error *error) {
  int64_t begin = split->begin, kept = begin;
  int32_t *ids = malloc(SCAN_TOKENS * sizeof *ids);
  if (!ids) return fail(error, EXIT_MEMORY, "out of memory for a look at the documents");
  bool ok = true;
  for (int64_t at = begin; ok && at < split->end; at += SCAN_TOKENS) {
    int64_t count = split->end - at < SCAN_TOKENS ? split->end - at : SCAN_TOKENS;
    if (at - kept >= KEPT_TOKENS) token_file_let_go(split->file), kept = at;
    ok = token_file_read(split->file, at, count, ids, error);
    for (int64_t i = 0; ok && i < count; i++) {
      if (ids[i] != end) continue;
      ok = found(to, begin, at + i + 1);
      begin = at + i + 1;
    }
    ok = ok && (!tick || tick(context, at + count - split->begin, error));
  }
  free(ids);
  return ok && (begin == split->end || found(to, begin, split->end));
}

static bool count_length(void *to, int64_t begin, int64_t stop) {
  DocumentLengths *lengths = to;
  int k = 0;
  while (((int64_t)1 << k) < stop - begin) k++;
  lengths->counts[k]++;
  lengths->documents++;
  return true;
}

bool packing_measure(const TokenRange *split, int32_t end, DocumentLengths *out, PackingTick tick, void *context,
                     Error *error) {
  *out = (DocumentLengths){0};
  return scan(split, end, count_length, out, tick, context, error);
}

/* ---- making ---- */

/* A window that still has room. */
typedef struct OpenWindow {
  int room; /* tokens */
  int64_t *pieces;
  int count, capacity;
} OpenWindow;

typedef struct Packer {
  Packing *packing;
  OpenWindow open[OPEN_WINDOWS];
  int open_count;
  int64_t pieces, pieces_capacity, firsts, firsts_capacity; /* of the tables */
  Error *error;
} Packer;

/* Appends `more` numbers to an array that doubles when it is full. */
static bool append(int64_t **items, int64_t *count, int64_t *capacity, const int64_t *numbers, int more) {
  int64_t larger = *capacity ? *capacity : 1024;
  while (larger < *count + more) larger *= 2;
  if (larger > *capacity) {
    int64_t *grown = realloc(*items, (size_t)larger * sizeof **items);
    if (!grown) return false;
    *items = grown;
    *capacity = larger;
  }
  memcpy(*items + *count, numbers, (size_t)more * sizeof **items);
  *count += more;
  return true;
}

static bool no_memory(const Packer *p) {
  return fail(p->error, EXIT_MEMORY, "out of memory for a table of %lld windows of documents; use --pack stream",
              (long long)p->packing->windows);
}

/* The window's pieces go to the table; its place in `open` is free for the next one. */
static bool close_window(Packer *p, OpenWindow *window) {
  Packing *packing = p->packing;
  if (!append(&packing->pieces, &p->pieces, &p->pieces_capacity, window->pieces, window->count) ||
      !append(&packing->firsts, &p->firsts, &p->firsts_capacity, &p->pieces, 1))
    return no_memory(p);
  packing->windows++;
  packing->used += packing->ctx - window->room;
  *window = (OpenWindow){.room = packing->ctx, .pieces = window->pieces, .capacity = window->capacity};
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

/* Whether any of the tokens is to be learned; all are where the file has no masks. */
static bool is_learnt(Packer *p, int64_t begin, int length, bool *learned) {
  enum { BLOCK = 256 };
  const TokenFile *file = p->packing->split.file;
  *learned = !file->info.masked;
  for (int at = 0; !*learned && at < length; at += BLOCK) {
    int32_t targets[BLOCK];
    const int count = length - at < BLOCK ? length - at : BLOCK;
    if (!token_file_read_targets(file, begin + at, count, IGNORE_INDEX, targets, p->error)) return false;
    for (int i = 0; i < count; i++) *learned = *learned || targets[i] != IGNORE_INDEX;
  }
  return true;
}

/* Tokens [begin, begin + length) of one document, at most a window. */
static bool add_piece(Packer *p, int64_t begin, int length) {
  bool learned;
  if (!is_learnt(p, begin, length, &learned)) return false;
  if (!learned) {
    p->packing->left_out += length;
    return true;
  }
  OpenWindow *window = window_for(p, length);
  if (!window) return false;
  if (window->count == window->capacity) {
    int capacity = window->capacity ? 2 * window->capacity : 8;
    int64_t *grown = realloc(window->pieces, (size_t)capacity * sizeof *grown);
    if (!grown) return no_memory(p);
    window->pieces = grown;
    window->capacity = capacity;
  }
  window->pieces[window->count++] = begin;
  window->room -= length;
  return window->room > 0 || close_window(p, window);
}

static bool add_document(void *to, int64_t begin, int64_t stop) {
  Packer *p = to;
  const int ctx = p->packing->ctx;
  p->packing->documents++;
  p->packing->cut += stop - begin > ctx;
  for (; stop - begin > ctx; begin += ctx)
    if (!add_piece(p, begin, ctx)) return false;
  return add_piece(p, begin, (int)(stop - begin));
}

static bool close_all(Packer *p) {
  for (int i = 0; i < p->open_count; i++)
    if (p->open[i].count && !close_window(p, &p->open[i])) return false;
  return true;
}

bool packing_make(Packing *out, const TokenRange *split, int ctx, int32_t end, PackingTick tick, void *context,
                  Error *error) {
  *out = (Packing){.split = *split, .ctx = ctx, .end = end};
  Packer packer = {.packing = out, .error = error};
  bool ok = (append(&out->firsts, &packer.firsts, &packer.firsts_capacity, &packer.pieces, 1) || no_memory(&packer)) &&
            scan(split, end, add_document, &packer, tick, context, error) && close_all(&packer);
  for (int i = 0; i < packer.open_count; i++) free(packer.open[i].pieces);
  if (!ok) packing_free(out);
  return ok;
}

void packing_free(Packing *packing) {
  free(packing->firsts);
  free(packing->pieces);
  *packing = (Packing){0};
}

/* ---- reading ---- */

/* A piece into places [at, ctx) of a sequence: up to its document's end, or the window's. Returns the next place, or
 * -1. Read in blocks: most documents are much shorter than the window. */
static int read_piece(const Packing *p, int64_t begin, int at, const Sequence *out, Error *error) {
  enum { BLOCK = 64 };
  const TokenFile *file = p->split.file;
  int32_t before = p->end; /* the input of a place is the token before its target */
  if (begin > 0 && !token_file_read(file, begin - 1, 1, &before, error)) return -1;
  for (int position = 0, ended = 0; !ended && at < p->ctx && begin < p->split.end;) {
    int32_t ids[BLOCK];
    const int64_t left = p->split.end - begin;
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

bool packing_read(const Packing *p, int64_t window, const Sequence *out, Error *error) {
  int at = 0;
  for (int64_t i = p->firsts[window]; i < p->firsts[window + 1]; i++) {
    at = read_piece(p, p->pieces[i], at, out, error);
    if (at < 0) return false;
  }
  for (; at < p->ctx; at++) {
    out->tokens[at] = p->end;
    out->targets[at] = IGNORE_INDEX;
    out->positions[at] = 0;
  }
  return true;
}
