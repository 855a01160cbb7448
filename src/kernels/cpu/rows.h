/* What is done to rows of activations: dropout masks of the residual stream, recomputed at every use (struct Dropout in
 * kernels.h), the norm and rotation of a head, and the exponentials of a softmax. */
#ifndef INKLING_KERNELS_CPU_ROWS_H
#define INKLING_KERNELS_CPU_ROWS_H

#include "kernels/cpu/element.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"
#include "kernels/philox.h"

#include <math.h>

/* Returns the number of the step in progress, a key of the random numbers. */
static inline uint32_t dropout_step(const Dropout *dropout) { return (uint32_t)(dropout->state->step + 1); }

/* out[j] = mask[first + j] * in[j] for `count` elements of sequence `sequence` of the micro-batch, from element `first`
 * on. */
static inline void dropout_row(const Dropout *dropout, int sequence, int64_t first, int count, const Element *in,
                               float *out) {
  uint32_t threshold = dropout_threshold(dropout->p, 32), step = dropout_step(dropout);
  uint32_t stream = (uint32_t)(dropout->state->sequence + sequence);
  float scale = 1.0f / (1.0f - dropout->p);
  for (int j = 0; j < count;) {
    int64_t element = first + j;
    PhiloxWords words = philox(dropout->seed, (uint32_t)(element / 4), dropout->site, step, stream);
    for (int lane = (int)(element % 4); lane < 4 && j < count; lane++, j++)
      out[j] = words.word[lane] >= threshold ? widen(in[j]) * scale : 0.0f;
  }
}

enum { DROPOUT_COLUMNS = 256 }; /* elements processed at a time */

/* Does the same with an output of Element; in and out may be the same. */
static inline void dropout_elements(const Dropout *dropout, int sequence, int64_t first, int count, const Element *in,
                                    Element *out) {
  float kept[DROPOUT_COLUMNS];
  for (int j = 0; j < count; j += DROPOUT_COLUMNS) {
    int some = count - j < DROPOUT_COLUMNS ? count - j : DROPOUT_COLUMNS;
    dropout_row(dropout, sequence, first + j, some, in + j, kept);
    narrow_row(out + j, kept, some);
  }
}

/* The running softmax of a query over blocks of keys (Milakov & Gimelshein 2018): the maximum of the scores so far, and
 * the sum of the weights relative to it. */
typedef struct Softmax {
  float max, total;
} Softmax;

/* Replaces the scores of one query over one block by unnormalized probabilities, zero outside keys [begin, end), and
 * rescales the running softmax and the weighted sum of values [dim] to the new maximum. It writes [0, width) of the
 * row; width is a multiple of LANES. */
static inline void softmax_row(float *scores, int begin, int end, int width, Softmax *state, float *sum, int dim) {
  if (begin >= end) {
    memset(scores, 0, (size_t)width * sizeof(float));
    return;
  }
  const int padded = round_up(end, LANES); /* whole vectors: invisible keys become e^-inf = 0 */
  for (int j = 0; j < begin; j++) scores[j] = -INFINITY;
  for (int j = end; j < padded; j++) scores[j] = -INFINITY;
  float max = state->max, lane[LANES]; /* a maximum for each lane: not every compiler vectorizes a max reduction */
  for (int l = 0; l < LANES; l++) lane[l] = max;
  for (int j = 0; j < padded; j += LANES) {
#pragma omp simd
    for (int l = 0; l < LANES; l++) lane[l] = scores[j + l] > lane[l] ? scores[j + l] : lane[l];
  }
  for (int l = 0; l < LANES; l++) max = lane[l] > max ? lane[l] : max;
  const float base = max == -INFINITY ? 0.0f : max; /* avoids e^(-inf + inf) */
  Vector total = {0};
#pragma omp simd
  for (int j = 0; j < padded; j++) scores[j] = exp_f32(scores[j] - base);
  for (int j = 0; j < padded; j += LANES) total += *(const UnalignedVector *)(scores + j);
  for (int j = padded; j < width; j++) scores[j] = 0.0f;
  if (max > state->max && state->total > 0) {
    const float shrink = exp_f32(state->max - max);
    state->total *= shrink;
#pragma omp simd
    for (int d = 0; d < dim; d++) sum[d] *= shrink;
  }
  state->max = max;
  state->total += sum_lanes(total);
}

static inline Element *view_row(View v, int b, int64_t row, int head) {
  return (Element *)v.data + b * v.batch + row * v.row + head * v.head;
}

/* Returns the row of the rotary table for position t of sequence b. */
static inline const float *rope_row(const Rope *rope, int b, int length, int64_t t, int head_dim) {
  int64_t position = rope->positions ? rope->positions[(int64_t)b * length + t] : t;
  return rope->table + position * rope_dims(rope, head_dim);
}

/* Returns 1/rms of a head. */
static inline float head_rstd(const float *head, int dim, float eps) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int i = 0; i < dim; i++) squares += head[i] * head[i];
  return 1.0f / sqrtf(squares / (float)dim + eps);
}

/* Normalizes head `h` of queries and keys into `out`, which it returns. */
static inline const float *normalize_head(float *out, const float *head, float rstd, const HeadNorm *norm, int h) {
  const int dim = norm->head_dim;
  const float *weight = norm->weight + (h < norm->heads ? 0 : dim);
#pragma omp simd
  for (int i = 0; i < dim; i++) out[i] = weight[i] * (head[i] * rstd);
  return out;
}

/* Rotates the first `dims` numbers of `in` by the angles of `table` ([dims/2][2] = cos, sin) into `out`, which gets the
 * others unchanged; direction -1 rotates back. in and out may be the same. */
static inline void rope_head(Element *out, const float *in, const float *table, int dims, int head_dim,
                             float direction) {
  int half = dims / 2;
#pragma omp simd
  for (int i = 0; i < half; i++) {
    float cosine = table[2 * i], sine = direction * table[2 * i + 1], x0 = in[i], x1 = in[i + half];
    out[i] = narrow(x0 * cosine - x1 * sine);
    out[i + half] = narrow(x1 * cosine + x0 * sine);
  }
  narrow_row(out + dims, in + dims, head_dim - dims);
}

#endif
