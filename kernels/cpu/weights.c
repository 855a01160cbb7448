#include "kernels/cpu/weights.h"

/* params->compute, unless it is the masters: matrix i is that of params->groups[i]; `data` NULL where no GEMM reads
 * it. */
typedef struct WeightCopy {
  const ParameterGroup *groups;
  int count;
  void *memory[2]; /* of the backend: data, scales */
  Weights matrix[];
} WeightCopy;

static void to_bf16(const float *restrict from, int64_t count, uint16_t *restrict to) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) to[i] = f32_to_bf16(from[i]);
}

/* One row: every group is scaled so that its largest number becomes 127. */
static void to_int8(const float *from, int cols, int8_t *to, float *scales) {
  for (int first = 0; first < cols; first += WEIGHT_GROUP) {
    int count = cols - first < WEIGHT_GROUP ? cols - first : WEIGHT_GROUP;
    float most = 0;
    for (int i = first; i < first + count; i++) most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
    float scale = most / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (int i = first; i < first + count; i++) to[i] = (int8_t)lrintf(from[i] * inverse);
    scales[first / WEIGHT_GROUP] = scale;
  }
}

typedef struct CopyJob {
  const Weights *to;
  const float *master;
} CopyJob;

static void copy_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Weights *w = ((const CopyJob *)job)->to;
  const float *from = ((const CopyJob *)job)->master + begin * w->stride;
  if (w->dtype == DTYPE_BF16) {
    to_bf16(from, (end - begin) * w->stride, (uint16_t *)w->data + begin * w->stride);
    return;
  }
  for (int row = begin; row < end; row++, from += w->stride)
    to_int8(from, w->cols, (int8_t *)w->data + row * w->stride,
            (float *)w->scales + (int64_t)row * weight_groups(w->cols));
}

/* Places all matrices; with `copy` NULL it only measures. */
static void lay_out(const Parameters *params, DType dtype, WeightCopy *copy, size_t bytes[2]) {
  bytes[0] = bytes[1] = 0;
  for (int i = 0; i < params->group_count; i++) {
    const Matrix *m = &params->groups[i].matrix;
    if (!params->groups[i].gemm) continue;
    if (copy)
      copy->matrix[i] = (Weights){dtype,
                                  m->rows,
                                  m->cols,
                                  m->cols,
                                  (char *)copy->memory[0] + bytes[0],
                                  copy->memory[1] ? (float *)copy->memory[1] + bytes[1] / sizeof(float) : NULL};
    bytes[0] += ((size_t)m->rows * (size_t)m->cols * dtype_bytes(dtype) + 63) / 64 * 64;
    if (dtype == DTYPE_I8) bytes[1] += (size_t)m->rows * (size_t)weight_groups(m->cols) * sizeof(float);
  }
}

/* DTYPE_F32: there is no copy. */
static DType copied_dtype(const Context *c) { return c->weights ? c->weights : c->dtype; }

static WeightCopy *make_copy(Context *c, const Parameters *params) {
  const size_t size = sizeof(WeightCopy) + (size_t)params->group_count * sizeof(Weights);
  WeightCopy *copy = CPU(alloc)(c, "the table of the weights' copy", size);
  if (!copy) return NULL;
  size_t bytes[2];
  lay_out(params, copied_dtype(c), NULL, bytes);
  copy->groups = params->groups;
  copy->count = params->group_count;
  copy->memory[0] = CPU(alloc)(c, "the copy of the weights", bytes[0]);
  if (bytes[1]) copy->memory[1] = CPU(alloc)(c, "the scales of the weights", bytes[1]);
  if (!c->error.code) lay_out(params, copied_dtype(c), copy, bytes);
  return copy;
}

void CPU(refresh_parameters)(Context *c, Parameters *params) {
  if (c->error.code) return;
  if (copied_dtype(c) == DTYPE_F32) {
    params->compute = params->master;
    return;
  }
  if (!params->compute) params->compute = make_copy(c, params);
  const WeightCopy *copy = params->compute;
  for (int i = 0; i < params->group_count && !c->error.code; i++) {
    const Weights *w = &copy->matrix[i];
    if (!w->data) continue;
    pool_run(c->pool, w->rows, 1, SPAN_ROWS, copy_rows,
             &(CopyJob){w, params->master + params->groups[i].matrix.offset});
  }
}

void CPU(release_parameters)(Context *c, Parameters *params) {
  WeightCopy *copy = copied_dtype(c) == DTYPE_F32 ? NULL : params->compute;
  if (copy) {
    for (int i = 0; i < 2; i++) CPU(release)(c, copy->memory[i]);
    CPU(release)(c, copy);
  }
  params->compute = NULL;
}

void CPU(follow_masters)(const Parameters *params, int group, size_t first, size_t count) {
  if (params->compute == params->master) return;
  const Weights *w = &((const WeightCopy *)params->compute)->matrix[group];
  const float *from = params->master + params->groups[group].matrix.offset + first;
  if (w->data && w->dtype == DTYPE_BF16) to_bf16(from, (int64_t)count, (uint16_t *)w->data + first);
}

Weights CPU(weights)(const Parameters *params, Matrix w) {
  if (params->compute == params->master)
    return (Weights){DTYPE_F32, w.rows, w.cols, w.cols, params->master + w.offset, NULL};
  const WeightCopy *copy = params->compute;
  int low = 0, high = copy->count - 1; /* offsets ascend */
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (copy->groups[middle].matrix.offset <= w.offset) low = middle;
    else high = middle - 1;
  }
  Weights found = copy->matrix[low];
  found.rows = w.rows;
  return found;
}

void CPU(widen_weights)(const Weights *w, int row, int first, int count, float *to) {
  int64_t at = row * w->stride + first;
  if (w->dtype == DTYPE_F32) {
    memcpy(to, (const float *)w->data + at, (size_t)count * sizeof(float));
  } else if (w->dtype == DTYPE_BF16) {
    const uint16_t *from = (const uint16_t *)w->data + at;
#pragma omp simd
    for (int i = 0; i < count; i++) to[i] = bf16_to_f32(from[i]);
  } else {
    const int8_t *from = (const int8_t *)w->data + at;
    const float *scales = w->scales + (int64_t)row * weight_groups(w->cols);
    for (int i = 0; i < count;) {
      float scale = scales[(first + i) / WEIGHT_GROUP];
      int end = i + WEIGHT_GROUP - (first + i) % WEIGHT_GROUP;
      for (end = end < count ? end : count; i < end; i++) to[i] = scale * (float)from[i];
    }
  }
}

void CPU(weight_row)(const Weights *w, int row, Element *to) {
  enum { COLUMNS = 256 }; /* widened at a time */
  for (int first = 0; first < w->cols; first += COLUMNS) {
    float wide[COLUMNS];
    int count = w->cols - first < COLUMNS ? w->cols - first : COLUMNS;
    CPU(widen_weights)(w, row, first, count, wide);
    narrow_row(to + first, wide, count);
  }
}
