/* Token embedding on the CPU. Each row of the table's gradient has one owner, so that sums have one order. */
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/share.h"

enum {
  PARALLEL_ELEMENTS = 16384, /* less work than this does not pay for a parallel region */
  COLUMNS = 256,             /* masked elements made at a time */
  VOCAB_ROWS = 8             /* table rows handed to a thread at a time: frequent tokens cost more than rare ones */
};

/* sum += dropout(in), elements `first` onwards of a sequence */
static void add_dropped(float *sum, const float *in, int dim, const Dropout *dropout, int sequence, int64_t first) {
  float kept[COLUMNS];
  for (int c0 = 0; c0 < dim; c0 += COLUMNS) {
    int count = dim - c0 < COLUMNS ? dim - c0 : COLUMNS;
    dropout_row(dropout, sequence, first + c0, count, in + c0, kept);
#pragma omp simd
    for (int i = 0; i < count; i++) sum[c0 + i] += kept[i];
  }
}

static void add(float *restrict sum, const float *restrict in, int dim) {
#pragma omp simd
  for (int c = 0; c < dim; c++) sum[c] += in[c];
}

void CPU(embedding)(Context *c, void *out, const Parameters *params, Matrix table, const int32_t *tokens, int batch,
                    int length, const Dropout *dropout) {
  if (c->error.code) return;
  const float *weights = (const float *)params->compute + table.offset;
  float *to = out;
  int dim = table.cols;
  int64_t rows = (int64_t)batch * length;
  bool drop = dropout_active(dropout);
  share_set(c, 0, (int)rows);
#pragma omp parallel num_threads(c->threads) if (rows * dim > PARALLEL_ELEMENTS)
  EACH_SHARED(c, n, SPAN_ROWS) {
    const float *row = weights + (size_t)tokens[n] * (size_t)dim;
    if (drop) dropout_row(dropout, (int)(n / length), n % length * dim, dim, row, to + n * dim);
    else memcpy(to + n * dim, row, (size_t)dim * sizeof(float));
  }
}

void CPU(embedding_backward)(Context *c, const Parameters *params, Matrix table, const void *dx, const int32_t *offsets,
                             const int32_t *order, int vocab, int batch, int length, const Dropout *dropout,
                             bool accumulate) {
  if (c->error.code) return;
  const float *from = dx;
  float *grad = params->grad + table.offset;
  int dim = table.cols;
  int64_t rows = (int64_t)batch * length;
  bool drop = dropout_active(dropout);
#pragma omp parallel for schedule(dynamic, VOCAB_ROWS) num_threads(c->threads) if (rows * dim > PARALLEL_ELEMENTS)
  for (int v = 0; v < table.rows; v++) {
    float *sum = grad + (size_t)v * (size_t)dim;
    if (!accumulate) memset(sum, 0, (size_t)dim * sizeof(float));
    if (v >= vocab) continue; /* a pad */
    for (int32_t i = offsets[v]; i < offsets[v + 1]; i++) {
      int64_t n = order[i];
      if (drop) add_dropped(sum, from + n * dim, dim, dropout, (int)(n / length), n % length * dim);
      else add(sum, from + n * dim, dim);
    }
  }
}
