/* Residual add + RMSNorm, forward and backward. Rows [N][C]; one thread works on a row, so a row is read once from
 * memory and its second pass comes from the cache. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"

/* Rows whose contributions to the weight's gradient are added up before blocks are added in order. */
enum { WEIGHT_BLOCK = 32 };

static float sum_of_squares(const Element *x, int dim) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int j = 0; j < dim; j++) sum += widen(x[j]) * widen(x[j]);
  return sum;
}

typedef struct Norm {
  Element *x_out, *y;
  float *rstd;
  const Element *x_in, *branch;
  const float *weight;
  float eps;
  int length, dim;
  const Dropout *dropout;
} Norm;

/* sum = x + dropout(branch), row n */
static void add_branch(const Norm *s, int n, Element *sum, const Element *x, const Element *branch) {
  if (!dropout_active(s->dropout)) {
#pragma omp simd
    for (int j = 0; j < s->dim; j++) sum[j] = narrow(widen(x[j]) + widen(branch[j]));
    return;
  }
  float kept[DROPOUT_COLUMNS];
  int64_t first = (int64_t)(n % s->length) * s->dim;
  for (int at = 0; at < s->dim; at += DROPOUT_COLUMNS) {
    int count = s->dim - at < DROPOUT_COLUMNS ? s->dim - at : DROPOUT_COLUMNS;
    dropout_row(s->dropout, n / s->length, first + at, count, branch + at, kept);
#pragma omp simd
    for (int j = 0; j < count; j++) sum[at + j] = narrow(widen(x[at + j]) + kept[j]);
  }
}

static void norm_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Norm *s = job;
  const int dim = s->dim;
  for (int n = begin; n < end; n++) {
    const int64_t at = (int64_t)n * dim;
    const Element *x = s->x_in + at;
    Element *out = s->y + at;
    if (s->branch) {
      add_branch(s, n, s->x_out + at, x, s->branch + at);
      x = s->x_out + at;
    }
    float scale = 1.0f / sqrtf(sum_of_squares(x, dim) / (float)dim + s->eps);
    s->rstd[n] = scale;
#pragma omp simd
    for (int j = 0; j < dim; j++) out[j] = narrow(s->weight[j] * (widen(x[j]) * scale));
  }
}

void CPU(residual_norm)(Context *c, void *x_out, void *y, float *rstd, const void *x_in, const void *branch,
                        const float *weight, float eps, int batch, int length, int dim, const Dropout *dropout) {
  if (c->error.code) return;
  const Norm norm = {x_out, y, rstd, x_in, branch, weight, eps, length, dim, dropout};
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, norm_rows, &norm);
}

/* One row: writes dx, adds the row's part of the weight's gradient to `dweight`. */
static void norm_backward_row(Element *dx, float *dweight, const Element *dy, const Element *dres, const Element *x,
                              float rstd, const float *weight, int dim) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int j = 0; j < dim; j++) {
    float along = widen(dy[j]) * widen(x[j]);
    dot += weight[j] * along;
    dweight[j] += along * rstd;
  }
  float pull = dot * rstd * rstd / (float)dim; /* mean(g * xh) * rstd */
  if (dres) {
#pragma omp simd
    for (int j = 0; j < dim; j++)
      dx[j] = narrow(widen(dres[j]) + rstd * (weight[j] * widen(dy[j]) - pull * widen(x[j])));
  } else {
#pragma omp simd
    for (int j = 0; j < dim; j++) dx[j] = narrow(rstd * (weight[j] * widen(dy[j]) - pull * widen(x[j])));
  }
}

typedef struct NormBackward {
  Element *dx, *dbranch;
  float *dweight;
  const Element *dy, *dres, *x;
  const float *rstd, *weight;
  int rows, length, dim, blocks;
  const Dropout *dropout;
  bool accumulate;
  float *partial; /* [blocks][dim] */
} NormBackward;

static void norm_backward_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const NormBackward *s = job;
  const int dim = s->dim;
  for (int block = begin; block < end; block++) {
    float *sum = s->partial + (int64_t)block * dim;
    memset(sum, 0, (size_t)dim * sizeof(float));
    int last = (block + 1) * WEIGHT_BLOCK < s->rows ? (block + 1) * WEIGHT_BLOCK : s->rows;
    for (int n = block * WEIGHT_BLOCK; n < last; n++) {
      int64_t at = (int64_t)n * dim;
      norm_backward_row(s->dx + at, sum, s->dy + at, s->dres ? s->dres + at : NULL, s->x + at, s->rstd[n], s->weight,
                        dim);
      if (!s->dbranch) continue;
      if (dropout_active(s->dropout))
        dropout_elements(s->dropout, n / s->length, (int64_t)(n % s->length) * dim, dim, s->dx + at, s->dbranch + at);
      else memcpy(s->dbranch + at, s->dx + at, (size_t)dim * sizeof(Element));
    }
  }
}

static void add_weight_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const NormBackward *s = job;
  if (!s->accumulate) memset(s->dweight + begin, 0, (size_t)(end - begin) * sizeof(float));
  for (int block = 0; block < s->blocks; block++) {
    const float *partial = s->partial + (int64_t)block * s->dim;
#pragma omp simd
    for (int j = begin; j < end; j++) s->dweight[j] += partial[j];
  }
}

void CPU(residual_norm_backward)(Context *c, void *dx, void *dbranch, float *dweight, const void *dy, const void *dres,
                                 const void *x, const float *rstd, const float *weight, int batch, int length, int dim,
                                 const Dropout *dropout, bool accumulate) {
  int rows = batch * length, blocks = (rows + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK;
  float *partial = CPU(scratch)(c, (size_t)blocks * (size_t)dim);
  if (!partial) return;
  const NormBackward norm = {dx,   dbranch, dweight, dy,     dres,    x,          rstd,   weight,
                             rows, length,  dim,     blocks, dropout, accumulate, partial};
  pool_run(c->pool, blocks, 1, 1, norm_backward_blocks, &norm);
  pool_run(c->pool, dim, 256, dim, add_weight_blocks, &norm);
}
