/* What happens to the heads of queries and keys before attention: rotary positions, and norms with their backward.
 * Heads [B*T][H + G][D] within packed rows [B*T][H + 2G][D]; one thread works on a row. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

/* ---- rotary positions ---- */

typedef struct RopeJob {
  View x;
  int length, heads, head_dim;
  const Rope *rope;
} RopeJob;

static void rope_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const RopeJob *s = job;
  const int dims = rope_dims(s->rope, s->head_dim);
  for (int n = begin; n < end; n++) {
    int b = n / s->length, t = n % s->length;
    const float *table = rope_row(s->rope, b, s->length, t, s->head_dim);
    for (int h = 0; h < s->heads; h++) {
      float wide[HEAD_DIM_LIMIT];
      Element *x = view_row(s->x, b, t, h);
      rope_head(x, wide_row(x, wide, s->head_dim), table, dims, s->head_dim, 1.0f);
    }
  }
}

void CPU(rope)(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope) {
  if (c->error.code) return;
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, rope_rows, &(RopeJob){x, length, heads, head_dim, rope});
}

/* ---- norms ---- */

typedef struct HeadNormJob {
  Element *out; /* forward: normalized heads; backward: dqkv */
  float *rstd;
  const Element *qkv;
  const HeadNorm *norm;
  int rows, length;
  const Rope *rope; /* NULL: not rotated */
  float *partial;   /* backward: [blocks][2][D] */
} HeadNormJob;

/* The elements of a row of qkv. */
static int64_t packed_width(const HeadNorm *norm) {
  return (int64_t)(norm->heads + 2 * norm->kv_heads) * norm->head_dim;
}

static void norm_rows(const void *job, int begin, int end, int thread) {
  (void)thread;
  const HeadNormJob *s = job;
  const int heads = s->norm->heads + s->norm->kv_heads, dim = s->norm->head_dim;
  for (int64_t n = begin; n < end; n++) {
    const float *angles = s->rope ? rope_row(s->rope, (int)n / s->length, s->length, n % s->length, dim) : NULL;
    for (int h = 0; h < heads; h++) {
      float wide[HEAD_DIM_LIMIT], normed[HEAD_DIM_LIMIT];
      const float *head = wide_row(s->qkv + n * packed_width(s->norm) + h * dim, wide, dim);
      Element *out = s->out + (n * heads + h) * dim;
      const float rstd = s->rstd[n * heads + h] = head_rstd(head, dim, s->norm->eps);
      normalize_head(normed, head, rstd, s->norm, h);
      if (angles) rope_head(out, normed, angles, rope_dims(s->rope, dim), dim, 1.0f);
      else narrow_row(out, normed, dim);
    }
  }
}

void CPU(head_norm)(Context *c, void *out, float *rstd, const void *qkv, const HeadNorm *norm, int batch, int length,
                    const Rope *rope) {
  if (c->error.code) return;
  const HeadNormJob forward = {
      .out = out, .rstd = rstd, .qkv = qkv, .norm = norm, .rows = batch * length, .length = length, .rope = rope};
  pool_run(c->pool, batch * length, 1, SPAN_ROWS, norm_rows, &forward);
}

/* Replaces dy, the gradient of a normalized head, by that of x, and adds the head's terms to `dweight`. */
static void norm_head_backward(Element *d, const Element *x, float rstd, const float *weight, float *dweight, int dim) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int i = 0; i < dim; i++) {
    const float along = widen(d[i]) * (widen(x[i]) * rstd);
    dweight[i] += along;
    dot += weight[i] * along;
  }
  const float mean = dot / (float)dim; /* of g * xh */
#pragma omp simd
  for (int i = 0; i < dim; i++) d[i] = narrow(rstd * (weight[i] * widen(d[i]) - widen(x[i]) * rstd * mean));
}

static void norm_backward_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const HeadNormJob *s = job;
  const int queries = s->norm->heads, heads = queries + s->norm->kv_heads, dim = s->norm->head_dim;
  for (int block = begin; block < end; block++) {
    float *partial = s->partial + (int64_t)block * 2 * dim;
    memset(partial, 0, 2 * (size_t)dim * sizeof(float));
    const int64_t last = smaller((block + 1) * PARTIAL_ROWS, s->rows);
    for (int64_t n = (int64_t)block * PARTIAL_ROWS; n < last; n++)
      for (int h = 0; h < heads; h++) {
        const int64_t at = n * packed_width(s->norm) + h * dim, side = h < queries ? 0 : dim;
        norm_head_backward(s->out + at, s->qkv + at, s->rstd[n * heads + h], s->norm->weight + side, partial + side,
                           dim);
      }
  }
}

void CPU(head_norm_backward)(Context *c, void *dqkv, float *dweight, const void *qkv, const float *rstd,
                             const HeadNorm *norm, int rows, bool accumulate) {
  const int blocks = (rows + PARTIAL_ROWS - 1) / PARTIAL_ROWS, width = 2 * norm->head_dim;
  float *partial = CPU(scratch)(c, (size_t)blocks * (size_t)width);
  if (!partial) return;
  const HeadNormJob backward = {
      .out = dqkv, .rstd = (float *)rstd, .qkv = qkv, .norm = norm, .rows = rows, .partial = partial};
  pool_run(c->pool, blocks, 1, 1, norm_backward_blocks, &backward);
  CPU(sum_partials)(c, dweight, partial, blocks, width, width, accumulate);
}
