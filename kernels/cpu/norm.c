/* Residual add + RMSNorm, forward and backward. Rows [N][C]; one thread works on a row, so a row is read once from
 * memory and its second pass comes from the cache. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dropout.h"

/* Rows whose contributions to the weight's gradient are added up before blocks are added in order. */
enum { WEIGHT_BLOCK = 32 };

static float sum_of_squares(const float *x, int dim) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int j = 0; j < dim; j++) sum += x[j] * x[j];
  return sum;
}

typedef struct Norm {
  float *x_out, *y, *rstd;
  const float *x_in, *branch, *weight;
  float eps;
  int length, dim;
  const Dropout *dropout;
} Norm;

static void norm_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Norm *s = job;
  const int dim = s->dim;
  for (int n = begin; n < end; n++) {
    const int64_t at = (int64_t)n * dim;
    const float *x = s->x_in + at;
    float *out = s->y + at;
    if (s->branch) {
      const float *added = s->branch + at;
      float *sum = s->x_out + at;
      if (dropout_active(s->dropout)) {
        dropout_row(s->dropout, n / s->length, (int64_t)(n % s->length) * dim, dim, added, out);
        added = out; /* the dropped branch waits where y will stand */
      }
#pragma omp simd
      for (int j = 0; j < dim; j++) sum[j] = x[j] + added[j];
      x = sum;
    }
    float scale = 1.0f / sqrtf(sum_of_squares(x, dim) / (float)dim + s->eps);
    s->rstd[n] = scale;
#pragma omp simd
    for (int j = 0; j < dim; j++) out[j] = s->weight[j] * (x[j] * scale);
  }
}

void CPU(residual_norm)(Context *c, void *x_out, void *y, float *rstd, const void *x_in, const void *branch,
                        const float *weight, float eps, int batch, int length, int dim, const Dropout *dropout) {
  if (c->error.code) return;
  const Norm norm = {x_out, y, rstd, x_in, branch, weight, eps, length, dim, dropout};
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, norm_rows, &norm);
}

/* One row: writes dx, adds the row's part of the weight's gradient to `dweight`. */
static void norm_backward_row(float *dx, float *dweight, const float *dy, const float *dres, const float *x, float rstd,
                              const float *weight, int dim) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int j = 0; j < dim; j++) {
    float along = dy[j] * x[j];
    dot += weight[j] * along;
    dweight[j] += along * rstd;
  }
  float pull = dot * rstd * rstd / (float)dim; /* mean(g * xh) * rstd */
  if (dres) {
#pragma omp simd
    for (int j = 0; j < dim; j++) dx[j] = dres[j] + rstd * (weight[j] * dy[j] - pull * x[j]);
  } else {
#pragma omp simd
    for (int j = 0; j < dim; j++) dx[j] = rstd * (weight[j] * dy[j] - pull * x[j]);
  }
}

typedef struct NormBackward {
  float *dx, *dbranch, *dweight;
  const float *dy, *dres, *x, *rstd, *weight;
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
        dropout_row(s->dropout, n / s->length, (int64_t)(n % s->length) * dim, dim, s->dx + at, s->dbranch + at);
      else memcpy(s->dbranch + at, s->dx + at, (size_t)dim * sizeof(float));
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
