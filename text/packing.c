#include "text/packing.h"

#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum {
  OPEN_WINDOWS = 64,     /* that documents are still put into */
  SCAN_TOKENS = 1 << 16, /* looked at together for ends of documents */
  KEPT_TOKENS = 16 << 20 /* of the token file in memory while it is scanned */
};

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
  Error *error;
} Packer;

/* Appends to an array that doubles when it is full. */
static bool append(int64_t **items, int64_t *count, int64_t *capacity, int64_t item) {
  if (*count == *capacity) {
    int64_t larger = *capacity ? 2 * *capacity : 1024;
    int64_t *grown = realloc(*items, (size_t)larger * sizeof **items);
    if (!grown) return false;
    *items = grown;
    *capacity = larger;
  }
  (*items)[(*count)++] = item;
  return true;
}

static bool no_memory(const Packer *p) {
  return fail(p->error, EXIT_MEMORY, "out of memory for a table of %lld windows of documents; use --pack stream",
              (long long)p->packing->windows);
}

/* The window's pieces go to the table; its place in `open` is free for the next one. */
static bool close_window(Packer *p, OpenWindow *window) {
  Packing *packing = p->packing;
  int64_t pieces = packing->windows ? packing->firsts[packing->windows] : 0, firsts = packing->windows + 1;
  for (int i = 0; i < window->count; i++)
    if (!append(&packing->pieces, &pieces, &packing->pieces_capacity, window->pieces[i])) return no_memory(p);
  if (!append(&packing->firsts, &firsts, &packing->firsts_capacity, pieces)) return no_memory(p);
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

/* Tokens [begin, begin + length) of one document, at most a window. */
static bool add_piece(Packer *p, int64_t begin, int length) {
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

static bool add_document(Packer *p, int64_t begin, int64_t end) {
  const int ctx = p->packing->ctx;
  for (; end - begin > ctx; begin += ctx)
    if (!add_piece(p, begin, ctx)) return false;
  return begin == end || add_piece(p, begin, (int)(end - begin));
}

static bool scan(Packer *p, int32_t *ids, bool (*tick)(void *, int64_t, Error *), void *context) {
  const Split *split = &p->packing->split;
  int64_t begin = split->begin, kept = begin;
  for (int64_t at = begin; at < split->end; at += SCAN_TOKENS) {
    int64_t count = split->end - at < SCAN_TOKENS ? split->end - at : SCAN_TOKENS;
    if (at - kept >= KEPT_TOKENS) token_file_let_go(split->file), kept = at;
    if (!token_file_read(split->file, at, count, ids, p->error)) return false;
    for (int64_t i = 0; i < count; i++) {
      if (ids[i] != p->packing->end) continue;
      if (!add_document(p, begin, at + i + 1)) return false;
      begin = at + i + 1;
    }
    if (tick && !tick(context, at + count - split->begin, p->error)) return false;
  }
  if (!add_document(p, begin, split->end)) return false;
  for (int i = 0; i < p->open_count; i++)
    if (p->open[i].count && !close_window(p, &p->open[i])) return false;
  return true;
}

bool packing_make(Packing *out, const Split *split, int ctx, int32_t end, bool (*tick)(void *, int64_t, Error *),
                  void *context, Error *error) {
  *out = (Packing){.split = *split, .ctx = ctx, .end = end};
  Packer packer = {.packing = out, .error = error};
  int64_t none = 0;
  int32_t *ids = malloc(SCAN_TOKENS * sizeof *ids);
  bool ok = ids && append(&out->firsts, &none, &out->firsts_capacity, 0) ? scan(&packer, ids, tick, context)
                                                                         : no_memory(&packer);
  for (int i = 0; i < packer.open_count; i++) free(packer.open[i].pieces);
  free(ids);
  if (!ok) packing_free(out);
  return ok;
}

void packing_free(Packing *packing) {
  free(packing->firsts);
  free(packing->pieces);
  *packing = (Packing){0};
}

/* ---- reading ---- */

/* A piece into places [at, ctx) of a sequence: up to its document's end, or the window's. Returns the next place. */
static int read_piece(const Packing *p, int64_t begin, int at, const Sequence *out, Error *error) {
  const TokenFile *file = p->split.file;
  const int64_t left = p->split.end - begin;
  const int room = p->ctx - at < left ? p->ctx - at : (int)left;
  /* A document's last token is needed as a target only, and the one before its first is an end token. */
  int32_t *tokens = out->tokens + at;
  tokens[0] = p->end;
  if (begin > 0 && !token_file_read(file, begin - 1, 1, tokens, error)) return -1;
  if (!token_file_read(file, begin, room - 1, tokens + 1, error) ||
      !token_file_read_targets(file, begin, room, IGNORE_INDEX, out->targets + at, error))
    return -1;
  int count = 1;
  while (count < room && tokens[count] != p->end) count++;
  for (int i = 0; i < count; i++) out->positions[at + i] = i;
  return at + count;
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
