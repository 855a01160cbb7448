/* Token embedding on the CPU. One thread computes each row of the table's gradient, so that sums have a fixed order. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/weights.h"

enum {
  PARALLEL_ELEMENTS = 2048, /* elements that a thread takes at least */
  VOCAB_ROWS = 8            /* table rows that a thread takes at a time: frequent tokens cost more than rare ones */
};

/* sum += dropout(in), elements `first` onwards of a sequence */
static void add_dropped(float *sum, const Element *in, int dim, const Dropout *dropout, int sequence, int64_t first) {
  float kept[DROPOUT_COLUMNS];
  for (int c0 = 0; c0 < dim; c0 += DROPOUT_COLUMNS) {
    int count = smaller(dim - c0, DROPOUT_COLUMNS);
    dropout_row(dropout, sequence, first + c0, count, in + c0, kept);
#pragma omp simd
    for (int i = 0; i < count; i++) sum[c0 + i] += kept[i];
  }
}

static void add(float *restrict sum, const Element *restrict in, int dim) {
#pragma omp simd
  for (int c = 0; c < dim; c++) sum[c] += widen(in[c]);
}

typedef struct EmbeddingJob {
  Element *out;
  const Parameters *params;
  const Embedding *embedding;
  const int32_t *tokens;
  int length;
  const Dropout *dropout;
} EmbeddingJob;

static void embedding_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const EmbeddingJob *s = job;
  const int dim = s->embedding->table.cols;
  const int32_t *positions = s->embedding->positions;
  for (int n = begin; n < end; n++) {
    Element *row = s->out + (int64_t)n * dim;
    CPU(embed)(row, s->params, s->embedding, s->tokens[n], positions ? positions[n] : n % s->length);
    if (dropout_active(s->dropout))
      dropout_elements(s->dropout, n / s->length, (int64_t)(n % s->length) * dim, dim, row, row);
  }
}

void CPU(embedding)(Context *c, void *out, const Parameters *params, const Embedding *e, const int32_t *tokens,
                    int batch, int length, const Dropout *dropout) {
  if (c->error.code) return;
  const EmbeddingJob job = {out, params, e, tokens, length, dropout};
  pool_run(c->pool, batch * length, 1 + PARALLEL_ELEMENTS / e->table.cols, SPAN_ROWS, embedding_rows, &job);
}

typedef struct EmbeddingBackward {
  const Element *dx;
  float *grad; /* of the table */
  const int32_t *offsets, *order;
  int vocab, dim, length;
  const Dropout *dropout;
  bool accumulate;
} EmbeddingBackward;

/* Computes rows begin .. end of the gradient. */
static void embedding_backward_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const EmbeddingBackward *s = job;
  const int dim = s->dim;
  for (int v = begin; v < end; v++) {
    float *sum = s->grad + (int64_t)v * dim;
    if (!s->accumulate) memset(sum, 0, (size_t)dim * sizeof(float));
    if (v >= s->vocab) continue; /* a pad */
    for (int32_t i = s->offsets[v]; i < s->offsets[v + 1]; i++) {
      int64_t n = s->order[i];
      if (dropout_active(s->dropout))
        add_dropped(sum, s->dx + n * dim, dim, s->dropout, (int)(n / s->length), n % s->length * dim);
      else add(sum, s->dx + n * dim, dim);
    }
  }
}

void CPU(embedding_backward)(Context *c, const Parameters *params, Matrix table, const void *dx, const int32_t *offsets,
                             const int32_t *order, int vocab, int batch, int length, const Dropout *dropout,
                             bool accumulate) {
  (void)batch; /* `offsets` and `order` list the rows */
  if (c->error.code) return;
  const EmbeddingBackward job = {
      dx, params->grad + table.offset, offsets, order, vocab, table.cols, length, dropout, accumulate};
  pool_run(c->pool, table.rows, 1, VOCAB_ROWS, embedding_backward_rows, &job);
}
