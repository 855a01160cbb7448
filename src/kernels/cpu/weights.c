#include "kernels/cpu/weights.h"

/* params->compute, unless it is the masters: matrix i belongs to params->groups[i]; its `data` is NULL if no GEMM reads
 * it. */
typedef struct WeightCopy {
  const ParameterGroup *groups;
  int count;
  void *memory; /* of the backend; NULL: the copy is a part of an image */
  Weights matrix[];
} WeightCopy;

static void to_bf16(const float *restrict from, int64_t count, uint16_t *restrict to) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) to[i] = half_float_to_bf16(from[i]);
}

/* Rounds a group of numbers to multiples of a scale, the largest to 127. Returns the scale, which is not finite if a
 * number is not. */
static float to_int8(const float *restrict from, int count, int8_t *restrict to) {
  int32_t largest = 0, rounded[WEIGHT_GROUP];
#pragma omp simd reduction(max : largest)
  for (int i = 0; i < count; i++) {
    int32_t bits;
    memcpy(&bits, &from[i], 4);
    bits &= INT32_MAX; /* magnitudes have the order of their bits, with NaN largest */
    largest = bits > largest ? bits : largest;
  }
  float most;
  memcpy(&most, &largest, 4);
  float inverse = most > 0 ? 127.0f / most : 0.0f;
#pragma omp simd
  for (int i = 0; i < count; i++) rounded[i] = (int32_t)rintf(from[i] * inverse);
  for (int i = 0; i < count; i++) to[i] = (int8_t)rounded[i];
  return most / 127.0f;
}

/* The group with a row's column `col`. */
static const Int8Weights *int8_group(const Weights *w, int row, int col) {
  return (const Int8Weights *)w->data + (int64_t)(row / INT8_ROWS) * weight_groups(w->cols) + col / WEIGHT_GROUP;
}

typedef struct CopyJob {
  const Weights *to;
  const float *master;
} CopyJob;

static void copy_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Weights *w = ((const CopyJob *)job)->to;
  const float *from = ((const CopyJob *)job)->master + (int64_t)begin * w->cols;
  if (w->dtype == DTYPE_BF16) {
    to_bf16(from, (int64_t)(end - begin) * w->cols, (uint16_t *)w->data + (int64_t)begin * w->cols);
    return;
  }
  if (w->dtype == DTYPE_F32) {
    memcpy((float *)w->data + (int64_t)begin * w->cols, from, (size_t)(end - begin) * (size_t)w->cols * sizeof *from);
    return;
  }
  for (int row = begin; row < end; row++, from += w->cols)
    for (int first = 0; first < w->cols; first += WEIGHT_GROUP) {
      const int count = smaller(w->cols - first, WEIGHT_GROUP), lane = row % INT8_ROWS;
      Int8Weights *to = (Int8Weights *)int8_group(w, row, first);
      int8_t numbers[WEIGHT_GROUP];
      to->scale[lane] = to_int8(from + first, count, numbers);
      for (int i = 0; i < count; i++) to->number[i / 4][lane][i % 4] = numbers[i];
    }
}

static size_t round_up64(size_t bytes) { return (bytes + 63) / 64 * 64; }

static size_t copied_bytes(const Matrix *m, DType dtype) {
  const size_t blocks = ((size_t)m->rows + INT8_ROWS - 1) / INT8_ROWS;
  if (dtype == DTYPE_I8) return blocks * (size_t)weight_groups(m->cols) * sizeof(Int8Weights);
  return round_up64((size_t)m->rows * (size_t)m->cols * dtype_bytes(dtype));
}

/* Products add biases in fp32. A matrix of one row decays. */
static bool is_bias(const ParameterGroup *g) { return g->matrix.rows == 1 && !g->decay; }

/* Lays out matrices and biases; `copy` NULL: only measures. Returns the bytes. */
static size_t lay_out(const Parameters *params, DType dtype, WeightCopy *copy, char *memory) {
  size_t bytes = 0;
  for (int i = 0; i < params->group_count; i++) {
    const Matrix *m = &params->groups[i].matrix;
    const DType stored = is_bias(&params->groups[i]) ? DTYPE_F32 : dtype;
    if (!params->groups[i].gemm) continue;
    if (copy) copy->matrix[i] = (Weights){stored, m->rows, m->cols, memory + bytes};
    bytes += copied_bytes(m, stored);
  }
  return bytes;
}

/* The dtype of the copy; DTYPE_F32: there is none. */
static DType copied_dtype(const Context *c) { return c->weights ? c->weights : c->dtype; }

/* `memory` NULL: allocates it. */
static WeightCopy *make_copy(Context *c, const Parameters *params, char *memory) {
  const size_t size = sizeof(WeightCopy) + (size_t)params->group_count * sizeof(Weights);
  WeightCopy *copy = CPU(alloc)(c, "the table of the weights' copy", size);
  if (!copy) return NULL;
  copy->groups = params->groups;
  copy->count = params->group_count;
  if (!memory) {
    copy->memory = CPU(alloc)(c, "the copy of the weights", lay_out(params, copied_dtype(c), NULL, NULL));
    memory = copy->memory;
  }
  if (memory) lay_out(params, copied_dtype(c), copy, memory);
  return copy;
}

void CPU(refresh_parameters)(Context *c, Parameters *params) {
  if (c->error.code) return;
  CPU(reserve_muon)(c, params);
  if (copied_dtype(c) == DTYPE_F32) {
    params->compute = params->master;
    return;
  }
  if (!params->compute) params->compute = make_copy(c, params, NULL);
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
    CPU(release)(c, copy->memory);
    CPU(release)(c, copy);
  }
  if (params->backend_data) params->master = params->vectors = NULL; /* parts of an image */
  params->compute = params->backend_data = NULL;
}

/* ---- images ---- */

/* In an image, the vectors precede the copy. */
static size_t vector_bytes(const Parameters *params) { return round_up64(params->vector_count * sizeof(float)); }

size_t CPU(image_bytes)(Context *c, const Parameters *params) {
  if (copied_dtype(c) == DTYPE_F32) return params->count * sizeof(float);
  return vector_bytes(params) + lay_out(params, copied_dtype(c), NULL, NULL);
}

void CPU(write_image)(Context *c, const Parameters *params, void *image) {
  if (params->compute == params->master) {
    memcpy(image, params->master, params->count * sizeof(float));
    return;
  }
  const WeightCopy *copy = params->compute;
  memset(image, 0, vector_bytes(params));
  for (const ParameterGroup *g = params->groups; g < params->groups + params->group_count; g++)
    if (!g->gemm)
      memcpy((float *)image + g->vector, params->master + g->matrix.offset,
             (size_t)g->matrix.rows * (size_t)g->matrix.cols * sizeof(float));
  memcpy((char *)image + vector_bytes(params), copy->memory, lay_out(params, copied_dtype(c), NULL, NULL));
}

void CPU(use_image)(Context *c, Parameters *params, void *image) {
  params->backend_data = image;
  if (copied_dtype(c) == DTYPE_F32) params->compute = params->master = image;
  else {
    params->vectors = image;
    params->compute = make_copy(c, params, (char *)image + vector_bytes(params));
  }
}

/* ---- reading ---- */

void CPU(follow_masters)(const Parameters *params, int group, size_t first, size_t count) {
  if (params->compute == params->master) return;
  const Weights *w = &((const WeightCopy *)params->compute)->matrix[group];
  const float *from = params->master + params->groups[group].matrix.offset + first;
  if (!w->data) return;
  if (w->dtype == DTYPE_BF16) to_bf16(from, (int64_t)count, (uint16_t *)w->data + first);
  else memcpy((float *)w->data + first, from, count * sizeof(float)); /* a bias */
}

Weights CPU(weights)(const Parameters *params, Matrix w) {
  if (params->compute == params->master) return (Weights){DTYPE_F32, w.rows, w.cols, params->master + w.offset};
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
  int64_t at = (int64_t)row * w->cols + first;
  if (w->dtype == DTYPE_F32) {
    memcpy(to, (const float *)w->data + at, (size_t)count * sizeof(float));
  } else if (w->dtype == DTYPE_BF16) {
    const uint16_t *from = (const uint16_t *)w->data + at;
#pragma omp simd
    for (int i = 0; i < count; i++) to[i] = half_bf16_to_float(from[i]);
  } else {
    for (int i = 0, lane = row % INT8_ROWS; i < count; i++) {
      const Int8Weights *from = int8_group(w, row, first + i);
      const int at_group = (first + i) % WEIGHT_GROUP;
      to[i] = from->scale[lane] * (float)from->number[at_group / 4][lane][at_group % 4];
    }
  }
}

void CPU(embed)(Element *to, const Parameters *params, const Embedding *e, int token, int position) {
  enum { COLUMNS = 256 }; /* widened at a time */
  const Weights table = CPU(weights)(params, e->table), learned = CPU(weights)(params, e->position_embedding);
  for (int first = 0; first < table.cols; first += COLUMNS) {
    float wide[COLUMNS], other[COLUMNS];
    int count = table.cols - first < COLUMNS ? table.cols - first : COLUMNS;
    CPU(widen_weights)(&table, token, first, count, wide);
    if (position >= 0 && position < learned.rows) {
      CPU(widen_weights)(&learned, position, first, count, other);
#pragma omp simd
      for (int i = 0; i < count; i++) wide[i] += other[i];
    }
    narrow_row(to + first, wide, count);
  }
}

typedef struct RoundJob {
  const float *x;
  int cols;
  Int8Group *groups;
} RoundJob;

static void round_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const RoundJob *s = job;
  Int8Group *to = s->groups + (int64_t)begin * weight_groups(s->cols);
  for (int row = begin; row < end; row++)
    for (int first = 0; first < s->cols; first += WEIGHT_GROUP, to++) {
      *to = (Int8Group){0};
      to->scale = to_int8(s->x + (int64_t)row * s->cols + first, smaller(s->cols - first, WEIGHT_GROUP), to->number);
      for (int i = 0; i < WEIGHT_GROUP; i++) to->sum += to->number[i];
    }
}

const Int8Group *CPU(int8_rows)(Context *c, const float *x, int rows, int cols) {
  size_t groups = (size_t)rows * (size_t)weight_groups(cols);
  Int8Group *to = (void *)CPU(rounded)(c, groups * (sizeof *to / sizeof(float)));
  if (to) pool_run(c->pool, rows, 16, SPAN_ROWS, round_rows, &(RoundJob){x, cols, to});
  return to;
}

/* ---- exchange among processes that train together; device memory is host memory ---- */

void CPU(peers_reduce)(Context *c, const Parameters *params, int first, int count) {
  if (!c->error.code) collective_reduce(c->peers, params->grad, params->spans + first, count, &c->error);
}

/* Updates the compute copy of elements [begin, end) of the arena. */
static void follow(const Parameters *p, size_t begin, size_t end) {
  for (int g = 0; g < p->group_count; g++) {
    const Matrix *m = &p->groups[g].matrix;
    const size_t last = m->offset + (size_t)m->rows * (size_t)m->cols;
    const size_t from = begin > m->offset ? begin : m->offset, to = end < last ? end : last;
    if (from < to) CPU(follow_masters)(p, g, from - m->offset, to - from);
  }
}

void CPU(peers_gather)(Context *c, const Parameters *params, bool gradients) {
  if (c->error.code || !params->span_count) return;
  collective_all_gather_spans(c->peers, gradients ? params->grad : params->master, params->spans, params->span_count);
  if (gradients || params->compute == params->master) return;
  for (const Span *s = params->spans; s < params->spans + params->span_count; s++)
    if (s->owner != c->peers->rank) follow(params, s->offset, s->offset + s->count);
}

void CPU(peers_broadcast)(Context *c, void *device, size_t bytes) {
  if (!c->error.code && c->peers) collective_broadcast(c->peers, device, bytes);
}

void CPU(peers_collect)(Context *c, float *host, const float *device, const Span *spans, int count) {
  if (!c->error.code && c->peers) collective_gather_spans(c->peers, host, device, spans, count);
}

void CPU(peers_deal)(Context *c, float *device, const float *host, const Span *spans, int count) {
  if (!c->error.code && c->peers) collective_scatter_spans(c->peers, device, host, spans, count);
}
