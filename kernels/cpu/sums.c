/* Sums over rows, for gradients of biases and norm weights. */
#include "kernels/cpu/cpu.h"

enum {
  GROUP = 16,  /* columns of a group */
  GROUPS = 16, /* groups that a thread takes at a time, at most */
  COLUMNS = GROUP * GROUPS,
  LEAST_COLUMNS = 256, /* columns of partial sums that a thread takes at least */
  BLOCK = 32           /* rows that are added first */
};

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

typedef struct RowSums {
  float *out;
  const Element *from;
  int rows, cols;
  bool accumulate;
} RowSums;

static void sum_column_groups(const void *job, int begin, int end, int thread) {
  (void)thread;
  const RowSums *s = job;
  int first = GROUP * begin, count = smaller(GROUP * end, s->cols) - first;
  float total[COLUMNS] = {0};
  for (int block = 0; block < s->rows; block += BLOCK) {
    float sum[COLUMNS] = {0};
    int last = smaller(block + BLOCK, s->rows);
    for (int row = block; row < last; row++) {
      const Element *from = s->from + (int64_t)row * s->cols + first;
#pragma omp simd
      for (int j = 0; j < count; j++) sum[j] += widen(from[j]);
    }
#pragma omp simd
    for (int j = 0; j < count; j++) total[j] += sum[j];
  }
  for (int j = 0; j < count; j++) s->out[first + j] = total[j] + (s->accumulate ? s->out[first + j] : 0.0f);
}

void CPU(sum_rows)(Context *c, float *out, const Element *from, int rows, int cols, bool accumulate) {
  pool_run(c->pool, (cols + GROUP - 1) / GROUP, 2, GROUPS, sum_column_groups,
           &(RowSums){out, from, rows, cols, accumulate});
}
