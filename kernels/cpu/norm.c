/* Residual add + RMSNorm, forward and backward. Rows [N][C]; one thread works on a row, so a row is read once from
 * memory and its second pass comes from the cache. */
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/share.h"

/* Rows whose contributions to the weight's gradient are added up before blocks are added in order. */
enum { WEIGHT_BLOCK = 32 };

static float sum_of_squares(const float *x, int dim) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int j = 0; j < dim; j++) sum += x[j] * x[j];
  return sum;
}

void CPU(residual_norm)(Context *c, void *x_out, void *y, float *rstd, const void *x_in, const void *branch,
                        const float *weight, float eps, int batch, int length, int dim, const Dropout *dropout) {
  if (c->error.code) return;
  bool drop = branch && dropout_active(dropout);
  share_set(c, 0, batch * length);
#pragma omp parallel num_threads(c->threads)
  EACH_SHARED(c, n, SPAN_ROWS) {
    const float *x = (const float *)x_in + (int64_t)n * dim;
    float *out = (float *)y + (int64_t)n * dim;
    if (branch) {
      const float *added = (const float *)branch + (int64_t)n * dim;
      float *sum = (float *)x_out + (int64_t)n * dim;
      if (drop) {
        dropout_row(dropout, n / length, (int64_t)(n % length) * dim, dim, added, out);
        added = out; /* the dropped branch waits where y will stand */
      }
#pragma omp simd
      for (int j = 0; j < dim; j++) sum[j] = x[j] + added[j];
      x = sum;
    }
    float scale = 1.0f / sqrtf(sum_of_squares(x, dim) / (float)dim + eps);
    rstd[n] = scale;
#pragma omp simd
    for (int j = 0; j < dim; j++) out[j] = weight[j] * (x[j] * scale);
  }
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

void CPU(residual_norm_backward)(Context *c, void *dx, void *dbranch, float *dweight, const void *dy, const void *dres,
                                 const void *x, const float *rstd, const float *weight, int batch, int length, int dim,
                                 const Dropout *dropout, bool accumulate) {
  int rows = batch * length, blocks = (rows + WEIGHT_BLOCK - 1) / WEIGHT_BLOCK;
  float *partial = CPU(scratch)(c, (size_t)blocks * (size_t)dim);
  if (!partial) return;
  bool drop = dropout_active(dropout);
  share_set(c, 0, blocks);
#pragma omp parallel num_threads(c->threads)
  {
    EACH_SHARED(c, block, 1) {
      float *sum = partial + (int64_t)block * dim;
      memset(sum, 0, (size_t)dim * sizeof(float));
      int end = (block + 1) * WEIGHT_BLOCK < rows ? (block + 1) * WEIGHT_BLOCK : rows;
      for (int n = block * WEIGHT_BLOCK; n < end; n++) {
        int64_t at = (int64_t)n * dim;
        norm_backward_row((float *)dx + at, sum, (const float *)dy + at, dres ? (const float *)dres + at : NULL,
                          (const float *)x + at, rstd[n], weight, dim);
        if (!dbranch) continue;
        if (drop)
          dropout_row(dropout, n / length, (int64_t)(n % length) * dim, dim, (float *)dx + at, (float *)dbranch + at);
        else memcpy((float *)dbranch + at, (float *)dx + at, (size_t)dim * sizeof(float));
      }
    }
#pragma omp barrier
#pragma omp for schedule(static) nowait
    for (int j = 0; j < dim; j++) {
      float sum = accumulate ? dweight[j] : 0.0f;
      for (int block = 0; block < blocks; block++) sum += partial[(int64_t)block * dim + j];
      dweight[j] = sum;
    }
  }
}
