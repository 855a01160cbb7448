/* What a model learns from and is judged by: windows of ctx tokens of a part of a token file.
 *
 * Windows of the stream may begin at any token, and the target of a token is the one after it; documents follow each
 * other, each closed by an end token. Windows of packed documents are those of dataset/packing.h. */
#ifndef INKLING_DATASET_WINDOWS_H
#define INKLING_DATASET_WINDOWS_H

#include "util/error.h"
#include "dataset/packing.h"

#include <stdint.h>

/* The first floor(n * (1 - fraction)) tokens of a file, or more when the tail would pass `max_tail` tokens, and the
 * tail. */
void token_range_split(const TokenFile *file, double fraction, int64_t max_tail, TokenRange *head, TokenRange *tail);

typedef struct Windows {
  TokenRange split;
  int ctx;
  const Packing *packing; /* of the same split and ctx; NULL: the stream */
} Windows;

/* A random window: that of sequence `sequence` of step `step`. Uniform, by a 64-bit fraction from philox(seed, 0,
 * SITE_WINDOW, step, sequence), over the packed windows, or over all ctx + 1 tokens that follow each other in the
 * split, which must have them. EXIT_CHECKPOINT for a damaged token file. */
bool windows_draw(const Windows *windows, uint64_t seed, uint32_t step, uint32_t sequence, const Sequence *out,
                  Error *error);
/* The same window will be drawn soon: what is not in memory is read from the disk meanwhile. */
void windows_expect(const Windows *windows, uint64_t seed, uint32_t step, uint32_t sequence);
/* The first token of it in the stream. */
int64_t windows_draw_begin(const TokenRange *split, uint64_t seed, uint32_t step, uint32_t sequence, int ctx);

/* All windows in order: packed ones, or those of the stream that begin every `stride` tokens (1..ctx). Of a window of
 * the stream the last `stride` targets are kept (of the first all), the others are IGNORE_INDEX: so every token of the
 * split but the very first is a target once. */
int64_t windows_count(const Windows *windows, int stride);
/* A window from the count on is empty. */
bool windows_read(const Windows *windows, int stride, int64_t window, const Sequence *out, Error *error);

#endif
