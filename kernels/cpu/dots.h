/* Products of weights with few rows of activations, as decoding has them: every weight is read once, and memory decides
 * how fast. Sums are made in an order that follows from their length alone. */
#ifndef INKLING_KERNELS_CPU_DOTS_H
#define INKLING_KERNELS_CPU_DOTS_H

#include "kernels/cpu/tile.h"
#include "kernels/cpu/weights.h"

enum { SPAN_WORK = 8192 /* multiply-adds that a thread takes at a time, at least */ };

/* Row-major numbers of which `stride` lie between rows. */
typedef struct Rows {
  const float *data;
  int64_t stride;
} Rows;

/* Where a product goes: out[r*stride + m]. */
typedef struct Target {
  float *data;
  int64_t stride;
} Target;

/* out[r][m] = sum_k w[m][k] x[r][k] + b[m] for m < outputs. Beside weights in int8, x is rounded as CPU(int8_rows)
 * does. */
void CPU(multiply_few)(Context *c, Target out, const Parameters *params, Linear layer, int outputs, Rows x, int rows);

/* out[m] = sum_k w[m][k] x[k] for all rows of w, which is not in int8. */
void CPU(dots)(float *out, const Weights *w, const float *x);

float CPU(dot)(const float *a, const float *b, int depth);
float CPU(sum)(const float *x, int count);

typedef float Four __attribute__((vector_size(16)));

/* The lanes, added up to four in a fixed tree. */
static inline Four fold(Vector lanes) {
  Four part[LANES / 4];
  memcpy(part, &lanes, sizeof part);
  for (int half = LANES / 8; half > 0; half /= 2)
    for (int l = 0; l < half; l++) part[l] += part[l + half];
  return part[0];
}

static inline float sum_lanes(Vector lanes) {
  Four part = fold(lanes);
  return (part[0] + part[2]) + (part[1] + part[3]);
}

#endif
