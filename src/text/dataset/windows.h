/* Windows of ctx tokens from a range of a token file, for training and evaluation.
 * Windows of the stream may begin at any token, and the target of a token is the one after it; the stream contains the
 * documents in order, each with an end token. text/dataset/packing.h has windows of packed documents,
 * text/dataset/pairs.h windows of sources and targets. */
#ifndef INKLING_TEXT_DATASET_WINDOWS_H
#define INKLING_TEXT_DATASET_WINDOWS_H

#include "base/error.h"
#include "text/dataset/token_file.h"

#include <stdint.h>

typedef struct Windows {
  TokenRange range;
  int ctx;
  /* at most one, with the same range and ctx; both NULL: windows of the stream */
  const struct Packing *packing;
  const struct Pairs *pairs;
} Windows;

/* The output arrays of one window, each [ctx]. */
typedef struct Window {
  int32_t *tokens, *targets; /* targets that the loss ignores are IGNORE_INDEX */
  int32_t *positions;        /* for packed documents and pairs only */
  /* for pairs only: a slot of the sources attends to slots [source_begin, source_end) of the sources, and a slot of
   * the targets to slots [cross_begin, cross_end) of the sources */
  int32_t *source_tokens, *source_positions, *source_begin, *source_end;
  int32_t *cross_begin, *cross_end;
} Window;

/* Reads window `number` of the training: the windows of all steps are numbered from 0. Every epoch takes each window
 * once, in an order of its own: the packed windows, or windows of the stream that follow each other from a random
 * offset of the epoch on. Fewer than 2 * ctx tokens, before the first window and after the last, are left out of an
 * epoch. The range has at least ctx + 1 tokens. EXIT_CHECKPOINT for a damaged token file. */
bool windows_draw(const Windows *windows, uint64_t seed, int64_t number, const Window *out, Error *error);
/* Starts reading the window that windows_draw() will return for these arguments from the disk. */
void windows_prefetch(const Windows *windows, uint64_t seed, int64_t number);
/* Returns the index of the first token of that window in the stream. */
int64_t windows_draw_begin(const TokenRange *range, uint64_t seed, int64_t number, int ctx);

/* ---- texts with shares of the windows ---- */

#define MIXTURE_LEAST 1e-6 /* share */
enum { MIXTURE_TEXTS = TOKEN_GROUPS, MIXTURE_WHOLE = 1000000 };

/* Text 0 has the windows that the others leave. */
typedef struct Mixture {
  int count;                     /* of the others */
  int64_t shares[MIXTURE_TEXTS]; /* of MIXTURE_WHOLE windows, for texts 1..count; their sum is less */
  int items[MIXTURE_TEXTS];      /* their places on the command line */
} Mixture;

/* Returns the text of window `number` of the training; *index: which of the windows of that text it is. The windows of
 * a text are spread evenly: of the first n, text 1 has floor(n * share), text 2 likewise of the rest, and so on. */
int mixture_text(const Mixture *mixture, int64_t number, int64_t *index);
int64_t mixture_rest(const Mixture *mixture); /* the share of text 0 */

/* ---- windows in order ---- */

/* Returns the number of windows for reading in order: packed ones, or windows of the stream that begin every `stride`
 * tokens (1..ctx). A window of the stream keeps only its last `stride` targets (the first window keeps all), so that
 * every token of the range except the first is a target exactly once. */
int64_t windows_count(const Windows *windows, int stride);
/* Reads window `index`; windows from windows_count on are empty. */
bool windows_read(const Windows *windows, int stride, int64_t index, const Window *out, Error *error);

#endif
