/* Residual add + norm, forward and backward, and norms of decoding. Rows [N][C]; one thread works on a row, so it reads
 * the row once from memory and again from the cache. `center` (norm_has_mean) is a compile-time constant, so that the
 * code for each kind of norm has no branches on it. */
#include "kernels/cpu/rows.h"

enum { LEAST_COLUMNS = 256 /* columns of partial sums that a thread takes at least */ };

typedef struct RowStats {
  float mean, rstd; /* mean only with `center` */
} RowStats;

/* `center` is a constant at every call. */
static inline __attribute__((always_inline)) RowStats row_stats(bool center, const Element *x, int dim, float eps) {
  float mean = 0, squares = 0;
  if (center) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < dim; j++) sum += widen(x[j]);
    mean = sum / (float)dim;
  }
#pragma omp simd reduction(+ : squares)
  for (int j = 0; j < dim; j++) {
    float off = center ? widen(x[j]) - mean : widen(x[j]);
    squares += off * off;
  }
  return (RowStats){mean, 1.0f / sqrtf(squares / (float)dim + eps)};
}

/* Returns an element of a normalized row, before rounding. */
static inline __attribute__((always_inline)) float normalized(bool center, float x, RowStats stats, float weight,
                                                              float bias) {
  return center ? weight * ((x - stats.mean) * stats.rstd) + bias : weight * (x * stats.rstd);
}

static inline __attribute__((always_inline)) void normalize_row(bool center, Element *y, const Element *x,
                                                                RowStats stats, const Norm *norm, int dim) {
  const float *weight = norm->weight, *bias = norm->bias;
#pragma omp simd
  for (int j = 0; j < dim; j++)
    y[j] = narrow(normalized(center, widen(x[j]), stats, weight[j], center ? bias[j] : 0.0f));
}

typedef struct Forward {
  Element *x_out, *y;
  NormStats stats;
  const Element *x_in, *branch;
  const Norm *norm;
  int length, dim;
  const Dropout *dropout;
} Forward;

/* sum = x + dropout(branch), row n. */
static void add_branch(const Forward *s, int n, Element *sum, const Element *x, const Element *branch) {
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

static inline __attribute__((always_inline)) void norm_rows_of(bool center, const Forward *s, int begin, int end) {
  const int dim = s->dim;
  for (int n = begin; n < end; n++) {
    const int64_t at = (int64_t)n * dim;
    const Element *x = s->x_in + at;
    if (s->branch) {
      add_branch(s, n, s->x_out + at, x, s->branch + at);
      x = s->x_out + at;
    }
    RowStats stats = row_stats(center, x, dim, s->norm->eps);
    s->stats.rstd[n] = stats.rstd;
    if (center) s->stats.mean[n] = stats.mean;
    normalize_row(center, s->y + at, x, stats, s->norm, dim);
  }
}

static void norm_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Forward *s = job;
  if (norm_has_mean(s->norm->kind)) norm_rows_of(true, s, begin, end);
  else norm_rows_of(false, s, begin, end);
}

void CPU(residual_norm)(Context *c, void *x_out, void *y, NormStats stats, const void *x_in, const void *branch,
                        const Norm *norm, int batch, int length, int dim, const Dropout *dropout) {
  if (c->error.code) return;
  const Forward forward = {x_out, y, stats, x_in, branch, norm, length, dim, dropout};
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, norm_rows, &forward);
}

static void add_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Forward *s = job;
  for (int n = begin; n < end; n++) {
    const int64_t at = (int64_t)n * s->dim;
    if (s->x_in) add_branch(s, n, s->x_out + at, s->x_in + at, s->branch + at);
    else if (dropout_active(s->dropout))
      dropout_elements(s->dropout, n / s->length, (int64_t)(n % s->length) * s->dim, s->dim, s->branch + at,
                       s->x_out + at);
    else memmove(s->x_out + at, s->branch + at, (size_t)s->dim * sizeof(Element));
  }
}

void CPU(residual_add)(Context *c, void *x_out, const void *x_in, const void *y, int batch, int length, int dim,
                       const Dropout *dropout) {
  if (c->error.code) return;
  const Forward forward = {.x_out = x_out, .x_in = x_in, .branch = y, .length = length, .dim = dim, .dropout = dropout};
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, add_rows, &forward);
}

typedef struct Backward {
  Element *dx, *dbranch;
  const Element *dy, *dres, *x;
  NormStats stats;
  const Norm *norm;
  int rows, length, dim;
  const Dropout *dropout;
  float *partial; /* [blocks][dim], with a bias [blocks][2][dim]: dweight, dbias */
} Backward;

/* Writes dx of one row, and adds the row's terms to `dweight` and `dbias`. */
static inline __attribute__((always_inline)) void norm_backward_row(bool center, Element *dx, float *dweight,
                                                                    float *dbias, const Element *dy,
                                                                    const Element *dres, const Element *x,
                                                                    RowStats stats, const float *weight, int dim) {
  const float mean = center ? stats.mean : 0.0f, rstd = stats.rstd;
  float dot = 0, sum = 0;
#pragma omp simd reduction(+ : dot, sum)
  for (int j = 0; j < dim; j++) {
    float along = widen(dy[j]) * (center ? widen(x[j]) - mean : widen(x[j]));
    dot += weight[j] * along;
    dweight[j] += along * rstd;
    if (center) {
      sum += weight[j] * widen(dy[j]);
      dbias[j] += widen(dy[j]);
    }
  }
  float pull = dot * rstd * rstd / (float)dim; /* mean(g * xh) * rstd */
  float level = sum / (float)dim;              /* mean(g) */
#pragma omp simd
  for (int j = 0; j < dim; j++) {
    float g = weight[j] * widen(dy[j]), off = center ? widen(x[j]) - mean : widen(x[j]);
    float along = rstd * ((center ? g - level : g) - pull * off);
    dx[j] = narrow(dres ? widen(dres[j]) + along : along);
  }
}

static inline __attribute__((always_inline)) void backward_blocks(bool center, const Backward *s, int begin, int end) {
  const int dim = s->dim, width = center ? 2 * dim : dim;
  for (int block = begin; block < end; block++) {
    float *dweight = s->partial + (int64_t)block * width;
    memset(dweight, 0, (size_t)width * sizeof(float));
    int last = smaller((block + 1) * PARTIAL_ROWS, s->rows);
    for (int n = block * PARTIAL_ROWS; n < last; n++) {
      int64_t at = (int64_t)n * dim;
      RowStats stats = {center ? s->stats.mean[n] : 0.0f, s->stats.rstd[n]};
      norm_backward_row(center, s->dx + at, dweight, dweight + dim, s->dy + at, s->dres ? s->dres + at : NULL,
                        s->x + at, stats, s->norm->weight, dim);
      if (!s->dbranch) continue;
      if (dropout_active(s->dropout))
        dropout_elements(s->dropout, n / s->length, (int64_t)(n % s->length) * dim, dim, s->dx + at, s->dbranch + at);
      else memcpy(s->dbranch + at, s->dx + at, (size_t)dim * sizeof(Element));
    }
  }
}

static void norm_backward_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Backward *s = job;
  if (norm_has_mean(s->norm->kind)) backward_blocks(true, s, begin, end);
  else backward_blocks(false, s, begin, end);
}

typedef struct Partials {
  float *out;
  const float *from;
  int rows;
  int64_t stride;
  bool accumulate;
} Partials;

static void sum_columns(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Partials *s = job;
  if (!s->accumulate) memset(s->out + begin, 0, (size_t)(end - begin) * sizeof(float));
  for (int row = 0; row < s->rows; row++) {
    const float *from = s->from + row * s->stride;
#pragma omp simd
    for (int j = begin; j < end; j++) s->out[j] += from[j];
  }
}

void CPU(sum_partials)(Context *c, float *out, const float *from, int rows, int64_t stride, int cols, bool accumulate) {
  pool_run(c->pool, cols, LEAST_COLUMNS, cols, sum_columns, &(Partials){out, from, rows, stride, accumulate});
}

void CPU(residual_norm_backward)(Context *c, void *dx, void *dbranch, NormGradient gradient, const void *dy,
                                 const void *dres, const void *x, NormStats stats, const Norm *norm, int batch,
                                 int length, int dim, const Dropout *dropout, bool accumulate) {
  int rows = batch * length, blocks = (rows + PARTIAL_ROWS - 1) / PARTIAL_ROWS;
  int64_t width = norm_has_bias(norm->kind) ? 2 * (int64_t)dim : dim;
  float *partial = CPU(scratch)(c, (size_t)blocks * (size_t)width);
  if (!partial) return;
  const Backward backward = {dx, dbranch, dy, dres, x, stats, norm, rows, length, dim, dropout, partial};
  pool_run(c->pool, blocks, 1, 1, norm_backward_blocks, &backward);
  CPU(sum_partials)(c, gradient.weight, partial, blocks, width, dim, accumulate);
  if (norm_has_bias(norm->kind)) CPU(sum_partials)(c, gradient.bias, partial + dim, blocks, width, dim, accumulate);
}

/* ---- decoding ---- */

/* Only a norm with a mean is rounded to Element: GPUs compute RMSNorm within the product that reads it. */
static inline __attribute__((always_inline)) void normalize_wide(bool center, float *y, const Element *x,
                                                                 const Norm *norm, int rows, int dim) {
  const float *weight = norm->weight, *bias = norm->bias;
  for (int r = 0; r < rows; r++, x += dim, y += dim) {
    const RowStats stats = row_stats(center, x, dim, norm->eps);
#pragma omp simd
    for (int j = 0; j < dim; j++) {
      const float value = normalized(center, widen(x[j]), stats, weight[j], center ? bias[j] : 0.0f);
      y[j] = center ? widen(narrow(value)) : value;
    }
  }
}

const float *CPU(normalized)(float *memory, const Element *x, const Norm *norm, int rows, int dim) {
  if (!norm) return wide_row(x, memory, (int64_t)rows * dim);
  if (norm_has_mean(norm->kind)) normalize_wide(true, memory, x, norm, rows, dim);
  else normalize_wide(false, memory, x, norm, rows, dim);
  return memory;
}

void CPU(decode_norm)(Context *c, void *y, const void *x, const Norm *norm, int rows, int dim) {
  float *memory = CPU(scratch)(c, (size_t)rows * (size_t)dim);
  if (memory) narrow_row(y, CPU(normalized)(memory, x, norm, rows, dim), (int64_t)rows * dim);
}
