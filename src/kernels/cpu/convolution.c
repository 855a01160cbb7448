/* Gated causal short convolution, forward and backward. Rows [B*T][3C] of b, c and x; one thread works on a row, and
 * reads the rows before and after it: they are in its cache, and nothing has to be stored for the backward. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

typedef struct ConvolutionJob {
  Element *out; /* y, or dbcx */
  const Element *bcx, *dy;
  const Convolution *v;
  int rows, length;
  float *partial;       /* [blocks][CONVOLUTION_TAPS][C] */
  const float *taps;    /* [CONVOLUTION_TAPS][C]: the kernel, by channel */
  const Element *zeros; /* [3C]: the row before the beginning of a text, or after its end */
} ConvolutionJob;

/* Whether row n belongs to the same text as row n - k. */
static bool continues(const ConvolutionJob *s, int64_t n, int k) {
  return (s->v->positions ? s->v->positions[n] : n % s->length) >= k;
}

/* The rows n - k of bcx, for all k < CONVOLUTION_TAPS. */
static inline void find_before(const ConvolutionJob *s, int64_t n, const Element *row[CONVOLUTION_TAPS]) {
  for (int k = 0; k < CONVOLUTION_TAPS; k++) row[k] = continues(s, n, k) ? s->bcx + (n - k) * 3 * s->v->dim : s->zeros;
}

/* The rows n + k of bcx and dy, for all k < CONVOLUTION_TAPS. */
static inline void find_after(const ConvolutionJob *s, int64_t n, const Element *row[CONVOLUTION_TAPS],
                              const Element *dy[CONVOLUTION_TAPS]) {
  for (int k = 0; k < CONVOLUTION_TAPS; k++) {
    const bool there = n + k < s->rows && continues(s, n + k, k);
    row[k] = there ? s->bcx + (n + k) * 3 * s->v->dim : s->zeros;
    dy[k] = there ? s->dy + (n + k) * s->v->dim : s->zeros;
  }
}

/* s of channel j. */
static inline __attribute__((always_inline)) float sum_at(const float *taps, const Element *const row[CONVOLUTION_TAPS],
                                                          int dim, int j) {
  float sum = 0;
  for (int k = CONVOLUTION_TAPS - 1; k >= 0; k--)
    sum += taps[(CONVOLUTION_TAPS - 1 - k) * dim + j] * (widen(row[k][j]) * widen(row[k][2 * dim + j]));
  return sum;
}

static void forward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const ConvolutionJob *s = job;
  const int dim = s->v->dim;
  for (int64_t n = begin; n < end; n++) {
    const Element *row[CONVOLUTION_TAPS];
    Element *y = s->out + n * dim;
    find_before(s, n, row);
#pragma omp simd
    for (int j = 0; j < dim; j++) y[j] = narrow(widen(row[0][dim + j]) * sum_at(s->taps, row, dim, j));
  }
}

/* Returns scratch space for `count` floats after the kernel by tap and a row of zeros, which it fills. */
static float *start_job(Context *c, ConvolutionJob *s, size_t count) {
  const Convolution *v = s->v;
  const size_t dim = (size_t)v->dim;
  float *taps = CPU(scratch)(c, CONVOLUTION_TAPS * dim + 3 * dim + count);
  if (!taps) return NULL;
  for (int i = 0; i < CONVOLUTION_TAPS; i++)
    for (int j = 0; j < v->dim; j++) taps[i * v->dim + j] = v->kernel[j * CONVOLUTION_TAPS + i];
  float *zeros = taps + CONVOLUTION_TAPS * dim;
  memset(zeros, 0, 3 * dim * sizeof(Element));
  s->taps = taps;
  s->zeros = (const Element *)zeros;
  return zeros + 3 * dim;
}

void CPU(convolution)(Context *c, void *y, const void *bcx, const Convolution *v, int batch, int length) {
  ConvolutionJob forward = {.out = y, .bcx = bcx, .v = v, .rows = batch * length, .length = length};
  if (!start_job(c, &forward, 0)) return;
  pool_run(c->pool, forward.rows, 1, SPAN_ROWS, forward_rows, &forward);
}

/* Adds the terms of row n to `dtaps` [CONVOLUTION_TAPS][C], too. */
static void backward_row(const ConvolutionJob *s, float *dtaps, int64_t n) {
  const int dim = s->v->dim;
  const float *taps = s->taps;
  const Element *before[CONVOLUTION_TAPS], *after[CONVOLUTION_TAPS], *dy[CONVOLUTION_TAPS];
  Element *d = s->out + n * 3 * dim;
  find_before(s, n, before);
  find_after(s, n, after, dy);
  const Element *row = before[0];
#pragma omp simd
  for (int j = 0; j < dim; j++) {
    const float ds = widen(dy[0][j]) * widen(row[dim + j]);
    float dz = 0;
    for (int k = 0; k < CONVOLUTION_TAPS; k++) {
      const int tap = (CONVOLUTION_TAPS - 1 - k) * dim + j;
      dtaps[tap] += ds * (widen(before[k][j]) * widen(before[k][2 * dim + j]));
      dz += taps[tap] * (widen(dy[k][j]) * widen(after[k][dim + j]));
    }
    d[j] = narrow(dz * widen(row[2 * dim + j]));
    d[dim + j] = narrow(widen(dy[0][j]) * sum_at(taps, before, dim, j));
    d[2 * dim + j] = narrow(dz * widen(row[j]));
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
    for (int64_t n = (int64_t)block * PARTIAL_ROWS; n < last; n++) backward_row(s, dtaps, n);
  }
}

void CPU(convolution_backward)(Context *c, void *dbcx, float *dkernel, const void *dy, const void *bcx,
                               const Convolution *v, int batch, int length, bool accumulate) {
  const int rows = batch * length, blocks = (rows + PARTIAL_ROWS - 1) / PARTIAL_ROWS, width = CONVOLUTION_TAPS * v->dim;
  ConvolutionJob backward = {.out = dbcx, .bcx = bcx, .dy = dy, .v = v, .rows = rows, .length = length};
  float *sums = start_job(c, &backward, ((size_t)blocks + 1) * (size_t)width);
  if (!sums) return;
  backward.partial = sums + width;
  pool_run(c->pool, blocks, 1, 1, backward_blocks, &backward);
  CPU(sum_partials)(c, sums, backward.partial, blocks, width, width, false);
  for (int i = 0; i < CONVOLUTION_TAPS; i++)
    for (int j = 0; j < v->dim; j++) {
      float *to = &dkernel[j * CONVOLUTION_TAPS + i];
      *to = (accumulate ? *to : 0.0f) + sums[i * v->dim + j];
    }
}
