/* What a model is trained and evaluated on: windows of ctx tokens of a part of a token file.
 *
 * Windows of the stream may begin at any token, and the target of a token is the one after it; documents follow each
 * other, each closed by an end token. Windows of packed documents are those of dataset/packing.h, windows of sources
 * and targets those of dataset/pairs.h. */
#ifndef INKLING_DATASET_WINDOWS_H
#define INKLING_DATASET_WINDOWS_H

#include "util/error.h"
#include "dataset/token_file.h"

#include <stdint.h>

typedef struct Windows {
  TokenRange range;
  int ctx;
  /* of the same range and ctx, one of them at most; both NULL: the stream */
  const struct Packing *packing;
  const struct Pairs *pairs;
} Windows;

/* Where one window is written, each [ctx]. */
typedef struct Window {
  int32_t *tokens, *targets; /* targets that are left out of the loss are IGNORE_INDEX */
  int32_t *positions;        /* for packed documents and pairs only */
  /* for pairs only: a place of the sources sees their places [source_begin, source_end), and a place of the targets
   * the places [cross_begin, cross_end) of the sources */
  int32_t *source_tokens, *source_positions, *source_begin, *source_end;
  int32_t *cross_begin, *cross_end;
} Window;

/* A random window: that of sequence `sequence` of step `step`. Uniform, by a 64-bit fraction from philox(seed, 0,
 * SITE_WINDOW, step, sequence), over the packed windows, or over all runs of ctx + 1 tokens in the range, which must
 * have one. EXIT_CHECKPOINT for a damaged token file. */
bool windows_draw(const Windows *windows, uint64_t seed, uint32_t step, uint32_t sequence, const Window *out,
                  Error *error);
/* The same window will be drawn soon: what is not in memory is read from the disk meanwhile. */
void windows_prefetch(const Windows *windows, uint64_t seed, uint32_t step, uint32_t sequence);
/* The first token of it in the stream. */
int64_t windows_draw_begin(const TokenRange *range, uint64_t seed, uint32_t step, uint32_t sequence, int ctx);

/* All windows in order: packed ones, or those of the stream that begin every `stride` tokens (1..ctx). Of a window of
 * the stream only the last `stride` targets are kept (of the first one all), so that every token of the range but the
 * very first is a target once. */
int64_t windows_count(const Windows *windows, int stride);
/* From windows_count on windows are empty. */
bool windows_read(const Windows *windows, int stride, int64_t index, const Window *out, Error *error);

#endif
