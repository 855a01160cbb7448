/* One decoded token on the CPU: the operations of kernels.h whose rows are sequences.
 *
 *   x [rows][C]   q, out [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   cache k, v [slots][capacity][G][D]
 *
 * Neither the number of sequences, their order, nor the number of threads enters into a sum (dots.h), so row i of a
 * batch is the single run of its sequence, bit for bit.
 *
 * A sequence whose position lies outside the cache writes nothing and attends to what the cache holds. */
#include "kernels/cpu/dots.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd.h"

enum { KEY_BLOCK = 64 /* keys whose scores are made before their values are read; a multiple of LANES */ };

/* out[r] = norm_weight * x[r] * (mean(x[r]^2) + eps)^(-1/2) */
static void normalize(float *out, const Element *x, const float *norm_weight, float eps, int rows, int dim) {
  for (int r = 0; r < rows; r++, out += dim, x += dim) {
    const float *from = wide_row(x, out, dim);
    float rstd = 1.0f / sqrtf(CPU(dot)(from, from, dim) / (float)dim + eps);
#pragma omp simd
    for (int i = 0; i < dim; i++) out[i] = norm_weight[i] * from[i] * rstd;
  }
}

void CPU(decode_embedding)(Context *c, void *x, const Parameters *params, Matrix table, const Sequences *s) {
  if (c->error.code) return;
  Weights weights = CPU(weights)(params, table);
  for (int r = 0; r < s->rows; r++) {
    int32_t length = s->lengths[r];
    int32_t token = length > 0 ? s->tokens[(int64_t)r * s->capacity + (length - 1) % s->capacity] : -1;
    Element *row = (Element *)x + (int64_t)r * table.cols;
    if (token >= 0 && token < table.rows) CPU(weight_row)(&weights, token, row);
    else memset(row, 0, (size_t)table.cols * sizeof(Element));
  }
}

/* Rotates and hands out one sequence's packed q, k, v. */
static void place_qkv(Element *q, const KvCache *cache, float *qkv, int heads, const Rope *rope, int row,
                      int32_t position) {
  if (position < 0 || position >= cache->capacity) return;
  int dim = cache->head_dim, groups = cache->kv_heads;
  const float *angles = rope->table + (int64_t)position * dim;
  for (int h = 0; h < heads; h++) rope_head(q + h * dim, qkv + h * dim, angles, dim, 1);
  int64_t slot = ((int64_t)row * cache->capacity + position) * groups * dim;
  const float *k = qkv + heads * dim, *v = k + groups * dim;
  for (int g = 0; g < groups; g++) rope_head((Element *)cache->k + slot + g * dim, k + g * dim, angles, dim, 1);
  narrow_row((Element *)cache->v + slot, v, groups * dim);
}

void CPU(decode_qkv)(Context *c, void *q, const KvCache *cache, const void *x, const float *norm_weight, float eps,
                     const Parameters *params, Matrix w, const Rope *rope, const Sequences *s) {
  if (c->error.code) return;
  int64_t rows = s->rows;
  float *normal = CPU(scratch)(c, (size_t)(rows * (w.cols + w.rows)));
  if (!normal) return;
  float *qkv = normal + rows * w.cols;
  int heads = w.rows / cache->head_dim - 2 * cache->kv_heads;
  normalize(normal, x, norm_weight, eps, s->rows, w.cols);
  CPU(multiply_few)(c, (Target){qkv, w.rows}, params, w, w.rows, (Rows){normal, w.cols}, s->rows);
  for (int r = 0; r < s->rows; r++)
    place_qkv((Element *)q + (int64_t)r * heads * cache->head_dim, cache, qkv + (int64_t)r * w.rows, heads, rope, r,
              s->positions[r]);
}

/* The running state of a softmax over keys met block by block (Milakov & Gimelshein 2018): the values' sum, its weight,
 * and the maximum that both are relative to. */
typedef struct Softmax {
  float value[HEAD_DIM_LIMIT], weight, max;
} Softmax;

/* Keys or values of one head, of which `stride` elements lie between positions. */
typedef struct Cached {
  const Element *data;
  int64_t stride;
} Cached;

/* scores = scale * keys q, and -inf behind the last key, so that every block is handled alike */
static float score_block(float scores[KEY_BLOCK], const float *q, Cached keys, int count, int dim, float scale) {
  float max = -INFINITY;
  CPU(dots)(scores, &(Weights){ELEMENT_DTYPE, count, dim, keys.stride, keys.data, NULL}, q);
  for (int j = 0; j < count; j++) scores[j] *= scale;
  for (int j = count; j < KEY_BLOCK; j++) scores[j] = -INFINITY;
  for (int j = 0; j < count; j++) max = scores[j] > max ? scores[j] : max;
  return max;
}

static void attend_block(Softmax *s, const float *q, Cached keys, Cached values, int count, int dim, float scale) {
  _Alignas(64) float scores[KEY_BLOCK];
  Vector weight = {0};
  float block_max = score_block(scores, q, keys, count, dim, scale);
  float max = block_max > s->max ? block_max : s->max, shrink = exp_f32(s->max - max);
#pragma omp simd
  for (int j = 0; j < KEY_BLOCK; j++) scores[j] = exp_f32(scores[j] - max);
  for (int j = 0; j < KEY_BLOCK; j += LANES) weight += *(const Vector *)(scores + j);
  s->max = max;
  s->weight = s->weight * shrink + sum_lanes(weight);
#pragma omp simd
  for (int d = 0; d < dim; d++) s->value[d] *= shrink;
  for (int j = 0; j < count; j++) {
    const Element *value = values.data + j * values.stride;
    float p = scores[j];
#pragma omp simd
    for (int d = 0; d < dim; d++) s->value[d] += p * widen(value[d]);
  }
}

/* One query head of one sequence over the first `count` positions. */
static void attend(Element *out, const Element *q, Cached keys, Cached values, int count, int dim, float scale) {
  Softmax s = {.max = -INFINITY};
  float room[HEAD_DIM_LIMIT];
  const float *query = wide_row(q, room, dim);
  for (int j = 0; j < count; j += KEY_BLOCK) {
    int n = count - j < KEY_BLOCK ? count - j : KEY_BLOCK;
    attend_block(&s, query, (Cached){keys.data + j * keys.stride, keys.stride},
                 (Cached){values.data + j * values.stride, values.stride}, n, dim, scale);
  }
  for (int d = 0; d < dim; d++) out[d] = narrow(count > 0 ? s.value[d] / s.weight : 0.0f);
}

typedef struct AttendJob {
  Element *out;
  const Element *q;
  const KvCache *cache;
  int heads;
  float scale;
  const Sequences *sequences;
} AttendJob;

/* Query heads of all sequences. */
static void attend_heads(const void *job, int begin, int end, int thread) {
  (void)thread;
  const AttendJob *s = job;
  const KvCache *cache = s->cache;
  int dim = cache->head_dim, groups = cache->kv_heads, per_group = s->heads / groups;
  int64_t stride = (int64_t)groups * dim;
  for (int i = begin; i < end; i++) {
    int r = i / s->heads, group = i % s->heads / per_group, count = s->sequences->positions[r] + 1;
    int64_t first = (int64_t)r * cache->capacity * stride + group * dim;
    attend(s->out + (int64_t)i * dim, s->q + (int64_t)i * dim, (Cached){(Element *)cache->k + first, stride},
           (Cached){(Element *)cache->v + first, stride}, count < cache->capacity ? count : cache->capacity, dim,
           s->scale);
  }
}

void CPU(decode_attention)(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const Sequences *s) {
  if (c->error.code) return;
  int64_t work = 0, pieces = (int64_t)s->rows * heads;
  for (int r = 0; r < s->rows; r++) work += 2 * (int64_t)heads * cache->head_dim * s->positions[r];
  int least = work < SPAN_WORK ? (int)pieces : (int)(pieces * SPAN_WORK / work) + 1;
  pool_run(c->pool, (int)pieces, least, 4, attend_heads, &(AttendJob){out, q, cache, heads, scale, s});
}

void CPU(decode_residual)(Context *c, void *x, const void *in, const Parameters *params, Matrix w, const Sequences *s) {
  int64_t rows = s->rows, outputs = rows * w.rows;
  float *product = CPU(scratch)(c, (size_t)(outputs + (CPU_BF16 ? rows * w.cols : 0)));
  if (!product) return;
  Element *sum = x;
  CPU(multiply_few)
  (c, (Target){product, w.rows}, params, w, w.rows, (Rows){wide_row(in, product + outputs, rows * w.cols), w.cols},
   s->rows);
#pragma omp simd
  for (int64_t i = 0; i < outputs; i++) sum[i] = narrow(widen(sum[i]) + product[i]);
}

void CPU(decode_mlp)(Context *c, void *h, const void *x, const float *norm_weight, float eps, const Parameters *params,
                     Matrix w, const Sequences *s) {
  if (c->error.code) return;
  int64_t rows = s->rows;
  int ffn = w.rows / 2;
  float *normal = CPU(scratch)(c, (size_t)(rows * (w.cols + w.rows)));
  if (!normal) return;
  float *gate_up = normal + rows * w.cols;
  normalize(normal, x, norm_weight, eps, s->rows, w.cols);
  CPU(multiply_few)(c, (Target){gate_up, w.rows}, params, w, w.rows, (Rows){normal, w.cols}, s->rows);
  for (int r = 0; r < s->rows; r++) {
    const float *gate = gate_up + (int64_t)r * w.rows, *up = gate + ffn;
    Element *to = (Element *)h + (int64_t)r * ffn;
#pragma omp simd
    for (int f = 0; f < ffn; f++) to[f] = narrow(gate[f] * sigmoid_f32(gate[f]) * up[f]);
  }
}

void CPU(decode_logits)(Context *c, float *logits, const void *x, const float *norm_weight, float eps,
                        const Parameters *params, Matrix w, int vocab, int rows) {
  if (c->error.code) return;
  float *normal = CPU(scratch)(c, (size_t)rows * (size_t)w.cols);
  if (!normal) return;
  normalize(normal, x, norm_weight, eps, rows, w.cols);
  CPU(multiply_few)(c, (Target){logits, vocab}, params, w, vocab, (Rows){normal, w.cols}, rows);
}

void CPU(cache_store)(Context *c, const KvCache *cache, int slot, int position, View k, View v, int length) {
  if (c->error.code || slot < 0 || position < 0) return;
  int dim = cache->head_dim, groups = cache->kv_heads;
  size_t bytes = (size_t)dim * sizeof(Element);
  int room = cache->capacity - position, rows = length < room ? length : room;
  for (int t = 0; t < rows; t++)
    for (int g = 0; g < groups; g++) {
      int64_t to = (((int64_t)slot * cache->capacity + position + t) * groups + g) * dim;
      memcpy((Element *)cache->k + to, (const Element *)k.data + t * k.row + g * k.head, bytes);
      memcpy((Element *)cache->v + to, (const Element *)v.data + t * v.row + g * v.head, bytes);
    }
}
