/* Gated causal short convolution, forward and backward. Rows [B*T][3C] of b, c and x; one thread works on a row, and
 * reads the rows before and after it: they are in its cache, and nothing has to be stored for the backward. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

typedef struct ConvolutionJob {
  Element *out; /* y, or dbcx */
  const Element *bcx, *dy;
  const Convolution *v;
  int rows, length;
  float *partial;    /* [blocks][CONVOLUTION_TAPS][C] */
  const float *taps; /* [CONVOLUTION_TAPS][C]: the kernel, by channel */
} ConvolutionJob;

/* The number of rows of the same text before row n, up to CONVOLUTION_TAPS - 1. */
static int rows_before(const ConvolutionJob *s, int64_t n) {
  const int64_t t = s->v->positions ? s->v->positions[n] : n % s->length;
  return t < CONVOLUTION_TAPS - 1 ? (int)t : CONVOLUTION_TAPS - 1;
}

/* The number of rows of the same text after row n, up to CONVOLUTION_TAPS - 1: row n + k belongs to it if it has k rows
 * before it. */
static int rows_after(const ConvolutionJob *s, int64_t n) {
  const int64_t left = s->length - 1 - n % s->length;
  int after = 0;
  while (after < CONVOLUTION_TAPS - 1 && after < left && rows_before(s, n + after + 1) > after) after++;
  return after;
}

/* s at row n: the sum over the row itself and the `before` rows before it; `before` is a constant at every call. */
static inline __attribute__((always_inline)) float sum_at(const float *taps, const Element *row, int dim, int j,
                                                          int before) {
  const int64_t width = 3 * (int64_t)dim;
  float sum = 0;
  for (int k = before; k >= 0; k--) {
    const Element *at = row - k * width;
    sum += taps[(CONVOLUTION_TAPS - 1 - k) * dim + j] * (widen(at[j]) * widen(at[2 * dim + j]));
  }
  return sum;
}

static inline __attribute__((always_inline)) void forward_row(const ConvolutionJob *s, int64_t n, int before) {
  const int dim = s->v->dim;
  const Element *row = s->bcx + n * 3 * dim;
  Element *y = s->out + n * dim;
#pragma omp simd
  for (int j = 0; j < dim; j++) y[j] = narrow(widen(row[dim + j]) * sum_at(s->taps, row, dim, j, before));
}

static void forward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const ConvolutionJob *s = job;
  for (int64_t n = begin; n < end; n++) switch (rows_before(s, n)) {
    case 0: forward_row(s, n, 0); break;
    case 1: forward_row(s, n, 1); break;
    default: forward_row(s, n, 2);
    }
}

/* Writes the kernel by tap to `taps`. */
static void split_taps(float *taps, const Convolution *v) {
  for (int i = 0; i < CONVOLUTION_TAPS; i++)
    for (int j = 0; j < v->dim; j++) taps[i * v->dim + j] = v->kernel[j * CONVOLUTION_TAPS + i];
}

void CPU(convolution)(Context *c, void *y, const void *bcx, const Convolution *v, int batch, int length) {
  float *taps = CPU(scratch)(c, CONVOLUTION_TAPS * (size_t)v->dim);
  if (!taps) return;
  split_taps(taps, v);
  const ConvolutionJob forward = {.out = y, .bcx = bcx, .v = v, .length = length, .taps = taps};
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, forward_rows, &forward);
}

/* Adds the terms of row n to `dtaps` [CONVOLUTION_TAPS][C] too; `before` and `after` are constants at every call. */
static inline __attribute__((always_inline)) void backward_row(const ConvolutionJob *s, float *dtaps, int64_t n,
                                                               int before, int after) {
  const int dim = s->v->dim;
  const int64_t width = 3 * (int64_t)dim;
  const Element *row = s->bcx + n * width, *dy = s->dy + n * dim;
  const float *taps = s->taps;
  Element *d = s->out + n * width;
#pragma omp simd
  for (int j = 0; j < dim; j++) {
    const float ds = widen(dy[j]) * widen(row[dim + j]);
    float dz = 0;
    for (int k = 0; k <= before; k++)
      dtaps[(CONVOLUTION_TAPS - 1 - k) * dim + j] +=
          ds * (widen(row[j - k * width]) * widen(row[2 * dim + j - k * width]));
    for (int k = 0; k <= after; k++)
      dz += taps[(CONVOLUTION_TAPS - 1 - k) * dim + j] * (widen(dy[k * dim + j]) * widen(row[k * width + dim + j]));
    d[j] = narrow(dz * widen(row[2 * dim + j]));
    d[dim + j] = narrow(widen(dy[j]) * sum_at(taps, row, dim, j, before));
    d[2 * dim + j] = narrow(dz * widen(row[j]));
  }
}

/* Constants for all numbers of neighbors: in short documents most rows have fewer than two on a side, and with
 * variables their loops are not vectorized (4 to 7 times as slow with documents of 8 tokens). */
static void backward_neighbors(const ConvolutionJob *s, float *dtaps, int64_t n, int before, int after) {
  switch (before * CONVOLUTION_TAPS + after) {
  case 0: backward_row(s, dtaps, n, 0, 0); break;
  case 1: backward_row(s, dtaps, n, 0, 1); break;
  case 2: backward_row(s, dtaps, n, 0, 2); break;
  case 3: backward_row(s, dtaps, n, 1, 0); break;
  case 4: backward_row(s, dtaps, n, 1, 1); break;
  case 5: backward_row(s, dtaps, n, 1, 2); break;
  case 6: backward_row(s, dtaps, n, 2, 0); break;
  case 7: backward_row(s, dtaps, n, 2, 1); break;
  default: backward_row(s, dtaps, n, 2, 2);
  }
}

static void backward_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const ConvolutionJob *s = job;
  const int64_t width = CONVOLUTION_TAPS * (int64_t)s->v->dim;
  for (int block = begin; block < end; block++) {
    float *dtaps = s->partial + block * width;
    memset(dtaps, 0, (size_t)width * sizeof(float));
    const int64_t last = smaller((block + 1) * PARTIAL_ROWS, s->rows);
    for (int64_t n = (int64_t)block * PARTIAL_ROWS; n < last; n++)
      backward_neighbors(s, dtaps, n, rows_before(s, n), rows_after(s, n));
  }
}

void CPU(convolution_backward)(Context *c, void *dbcx, float *dkernel, const void *dy, const void *bcx,
                               const Convolution *v, int batch, int length, bool accumulate) {
  const int rows = batch * length, blocks = (rows + PARTIAL_ROWS - 1) / PARTIAL_ROWS, width = CONVOLUTION_TAPS * v->dim;
  float *partial = CPU(scratch)(c, ((size_t)blocks + 2) * (size_t)width);
  if (!partial) return;
  float *taps = partial + (int64_t)blocks * width, *sums = taps + width;
  split_taps(taps, v);
  const ConvolutionJob backward = {
      .out = dbcx, .bcx = bcx, .dy = dy, .v = v, .rows = rows, .length = length, .partial = partial, .taps = taps};
  pool_run(c->pool, blocks, 1, 1, backward_blocks, &backward);
  CPU(sum_partials)(c, sums, partial, blocks, width, width, false);
  for (int i = 0; i < CONVOLUTION_TAPS; i++)
    for (int j = 0; j < v->dim; j++) {
      float *to = &dkernel[j * CONVOLUTION_TAPS + i];
      *to = (accumulate ? *to : 0.0f) + sums[i * v->dim + j];
    }
}
