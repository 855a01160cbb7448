/* Decoding of one token on the CPU: the operations of kernels.h whose rows are sequences.
 *   x [rows][C]   q, out [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   cache k, v [slots][G][capacity][D]
 *
 * Sums (dots.h) do not depend on the number of sequences, their order or the number of threads, so row i of a batch
 * equals a run of its sequence alone, bit for bit.
 * A sequence whose position is outside the cache writes nothing and attends only to positions inside the cache. */
#include "kernels/cpu/activation.h"
#include "kernels/cpu/dots.h"
#include "kernels/cpu/rows.h"

enum { KEY_BLOCK = 64 /* keys whose scores are computed before their values are read; a multiple of LANES */ };

/* Computes W n + b for the first `outputs` rows of W to `out` [rows][outputs], or scratch memory if out is NULL. NULL
 * when out of memory. */
static float *product(Context *c, float *out, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                      int outputs, int rows) {
  int dim = layer.weight.cols;
  size_t inputs = (size_t)rows * (size_t)dim;
  float *memory = CPU(scratch)(c, inputs + (out ? 0 : (size_t)rows * (size_t)outputs));
  if (!memory) return NULL;
  if (!out) out = memory + inputs;
  CPU(multiply_streamed)(c, out, params, layer, outputs, CPU(normalized)(memory, x, norm, rows, dim), rows);
  return c->error.code ? NULL : out;
}

void CPU(decode_linear)(Context *c, void *out, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                        const Sequences *s) {
  const float *sums = product(c, NULL, x, norm, params, layer, layer.weight.rows, s->rows);
  if (sums) narrow_row(out, sums, (int64_t)s->rows * layer.weight.rows);
}

void CPU(decode_embedding)(Context *c, void *x, const Parameters *params, const Embedding *e, const Sequences *s) {
  if (c->error.code) return;
  const int dim = e->table.cols;
  for (int r = 0; r < s->rows; r++) {
    int32_t length = s->lengths[r];
    int32_t token = length > 0 ? s->tokens[(int64_t)r * s->capacity + (length - 1) % s->capacity] : -1;
    Element *row = (Element *)x + (int64_t)r * dim;
    if (token >= 0 && token < e->table.rows) CPU(embed)(row, params, e, token, s->positions[r]);
    else memset(row, 0, (size_t)dim * sizeof(Element));
  }
}

/* Returns the place of a key or value in the cache. */
static int64_t cache_at(const KvCache *cache, int64_t slot, int group, int position) {
  return ((slot * cache->kv_heads + group) * cache->capacity + position) * cache->head_dim;
}

/* Normalizes (`norm` not NULL) and rotates (`rope` not NULL) the queries and keys of one sequence's packed q, k, v;
 * stores q, and k and v in the cache. */
static void store_qkv(Element *q, const KvCache *cache, const float *qkv, int heads, const HeadNorm *norm,
                      const Rope *rope, int row, int32_t position) {
  if (position < 0 || position >= cache->capacity) return;
  int dim = cache->head_dim, groups = cache->kv_heads;
  const float *angles = rope ? rope->table + (int64_t)position * rope_dims(rope, dim) : NULL;
  for (int h = 0; h < heads + groups; h++) {
    Element *to = h < heads ? q + h * dim : (Element *)cache->k + cache_at(cache, row, h - heads, position);
    const float *head = qkv + h * dim;
    float normed[HEAD_DIM_LIMIT];
    if (norm) head = normalize_head(normed, head, head_rstd(head, dim, norm->eps), norm, h);
    if (angles) rope_head(to, head, angles, rope_dims(rope, dim), dim, 1);
    else narrow_row(to, head, dim);
  }
  for (int g = 0; g < groups; g++)
    narrow_row((Element *)cache->v + cache_at(cache, row, g, position), qkv + (heads + groups + g) * dim, dim);
}

void CPU(decode_qkv)(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                     const Parameters *params, Linear layer, const HeadNorm *head_norm, const Rope *rope,
                     const Sequences *s) {
  int width = layer.weight.rows, heads = width / cache->head_dim - 2 * cache->kv_heads;
  const float *qkv = product(c, NULL, x, norm, params, layer, width, s->rows);
  for (int r = 0; r < s->rows && qkv; r++)
    store_qkv((Element *)q + (int64_t)r * heads * cache->head_dim, cache, qkv + (int64_t)r * width, heads, head_norm,
              rope, r, s->positions[r]);
}

/* Adds the first `vectors` vectors of each position's value, times its weight, to the vectors at `sum`. */
static inline __attribute__((always_inline)) void add_vectors(int vectors, float *sum, const float *weight,
                                                              const Element *value, int dim, int count) {
  enum { MOST = 4 };
  Vector total[MOST];
  UNROLL for (int v = 0; v < vectors; v++) total[v] = *(const UnalignedVector *)(sum + v * LANES);
  for (int j = 0; j < count; j++, value += dim)
    UNROLL for (int v = 0; v < vectors; v++) total[v] += weight[j] * load_wide(ELEMENT_DTYPE, value, v * LANES);
  UNROLL for (int v = 0; v < vectors; v++) * (UnalignedVector *)(sum + v * LANES) = total[v];
}

/* sum[d] += sum_j weight[j] values[j][d], with the sums in registers. */
static void add_values(float *sum, const float *weight, const Element *values, int count, int dim) {
  int d = 0;
  for (; d + 4 * LANES <= dim; d += 4 * LANES) add_vectors(4, sum + d, weight, values + d, dim, count);
  for (; d + 2 * LANES <= dim; d += 2 * LANES) add_vectors(2, sum + d, weight, values + d, dim, count);
  for (; d + LANES <= dim; d += LANES) add_vectors(1, sum + d, weight, values + d, dim, count);
  for (; d < dim; d++)
    for (int j = 0; j < count; j++) sum[d] += weight[j] * widen(values[(int64_t)j * dim + d]);
}

/* Computes one query head of one sequence over the first `count` positions. */
static void attend(Element *out, const Element *q, const Element *keys, const Element *values, int count, int dim,
                   float scale) {
  Softmax softmax = {-INFINITY, 0};
  float wide[HEAD_DIM_LIMIT], sum[HEAD_DIM_LIMIT] = {0};
  const float *query = wide_row(q, wide, dim);
  for (int j = 0; j < count; j += KEY_BLOCK, keys += KEY_BLOCK * dim, values += KEY_BLOCK * dim) {
    _Alignas(64) float scores[KEY_BLOCK];
    const int some = smaller(count - j, KEY_BLOCK);
    CPU(dots)(scores, &(Weights){ELEMENT_DTYPE, some, dim, keys}, query);
    for (int i = 0; i < some; i++) scores[i] *= scale;
    softmax_row(scores, 0, some, round_up(some, LANES), &softmax, sum, dim);
    add_values(sum, scores, values, some, dim);
  }
  for (int d = 0; d < dim; d++) out[d] = narrow(count > 0 ? sum[d] / softmax.total : 0.0f);
}

typedef struct AttendJob {
  Element *out;
  const Element *q;
  const KvCache *cache;
  int heads;
  float scale;
  const int32_t *counts; /* of keys, or NULL */
  const Sequences *sequences;
} AttendJob;

/* Computes query heads begin .. end of all sequences. */
static void attend_heads(const void *job, int begin, int end, int thread) {
  (void)thread;
  const AttendJob *s = job;
  const KvCache *cache = s->cache;
  int dim = cache->head_dim, per_group = s->heads / cache->kv_heads;
  for (int i = begin; i < end; i++) {
    int r = i / s->heads, group = i % s->heads / per_group;
    int count = s->counts ? s->counts[r] : s->sequences->positions[r] + 1;
    int64_t first = cache_at(cache, r, group, 0);
    attend(s->out + (int64_t)i * dim, s->q + (int64_t)i * dim, (Element *)cache->k + first, (Element *)cache->v + first,
           smaller(count, cache->capacity), dim, s->scale);
  }
}

void CPU(decode_attention)(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const int32_t *counts, const Upcoming *next, const Sequences *s) {
  (void)next; /* the processor's own prefetching is enough */
  if (c->error.code) return;
  int64_t work = 0, pieces = (int64_t)s->rows * heads;
  for (int r = 0; r < s->rows; r++)
    work += 2 * (int64_t)heads * cache->head_dim * (counts ? counts[r] : s->positions[r]);
  int least = work < SPAN_WORK ? (int)pieces : (int)(pieces * SPAN_WORK / work) + 1;
  pool_run(c->pool, (int)pieces, least, 4, attend_heads, &(AttendJob){out, q, cache, heads, scale, counts, s});
}

void CPU(decode_residual)(Context *c, void *x, const void *in, const Parameters *params, Linear layer,
                          const Sequences *s) {
  int64_t count = (int64_t)s->rows * layer.weight.rows;
  const float *sums = product(c, NULL, in, NULL, params, layer, layer.weight.rows, s->rows);
  Element *to = x;
  if (!sums) return;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) to[i] = narrow(widen(to[i]) + sums[i]);
}

/* One sequence of a convolution: bcx [3C] of the token at `position`, `z` its state [CONVOLUTION_TAPS][C]. */
static void convolve(Element *y, Element *z, const float *bcx, const Convolution *v, int32_t position) {
  const int dim = v->dim;
  const Element *before_last = z + (position + 1) % CONVOLUTION_TAPS * dim;
  const Element *last = z + (position + 2) % CONVOLUTION_TAPS * dim;
  Element *newest = z + position % CONVOLUTION_TAPS * dim;
  for (int i = 0; i < dim; i++) {
    const float *kernel = v->kernel + CONVOLUTION_TAPS * i;
    const float z2 = position > 1 ? widen(before_last[i]) : 0.0f, z1 = position > 0 ? widen(last[i]) : 0.0f;
    newest[i] = narrow(bcx[i] * bcx[2 * dim + i]);
    y[i] = narrow(bcx[dim + i] * (kernel[0] * z2 + kernel[1] * z1 + kernel[2] * widen(newest[i])));
  }
}

void CPU(decode_convolution)(Context *c, void *y, const ConvolutionState *state, const void *x, const Norm *norm,
                             const Parameters *params, Linear layer, const Convolution *v, const Sequences *s) {
  const float *bcx = product(c, NULL, x, norm, params, layer, layer.weight.rows, s->rows);
  for (int64_t r = 0; r < s->rows && bcx; r++)
    if (s->positions[r] >= 0)
      convolve((Element *)y + r * v->dim, (Element *)state->z + r * state->slot, bcx + r * layer.weight.rows, v,
               s->positions[r]);
}

void CPU(convolution_store)(Context *c, const ConvolutionState *state, int slot, const void *bcx, int dim, int length) {
  if (c->error.code || slot < 0) return;
  for (int t = length > 1 ? length - 2 : 0; t < length; t++) {
    const Element *b = (const Element *)bcx + (int64_t)t * 3 * dim, *x = b + 2 * (int64_t)dim;
    Element *z = (Element *)state->z + slot * state->slot + t % CONVOLUTION_TAPS * dim;
    for (int i = 0; i < dim; i++) z[i] = narrow(widen(b[i]) * widen(x[i]));
  }
}

static inline __attribute__((always_inline)) void activate(Activation kind, bool gated, int ffn, Element *h,
                                                           const float *u) {
#pragma omp simd
  for (int f = 0; f < ffn; f++) {
    float value = times_value(kind, 1.0f, u[f], curve_at(kind, u[f]));
    h[f] = narrow(gated ? value * u[ffn + f] : value);
  }
}

void CPU(decode_mlp)(Context *c, void *h, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                     const MlpShape *mlp, const Sequences *s) {
  const float *u = product(c, NULL, x, norm, params, layer, layer.weight.rows, s->rows);
  for (int64_t r = 0; r < s->rows && u; r++)
    WITH_MLP(activate, mlp, (Element *)h + r * mlp->ffn, u + r * layer.weight.rows)
}

void CPU(decode_logits)(Context *c, float *logits, const void *x, const Norm *norm, const Parameters *params,
                        Linear layer, int vocab, int rows) {
  product(c, logits, x, norm, params, layer, vocab, rows);
}

void CPU(cache_store)(Context *c, const KvCache *cache, int slot, View k, View v, int length) {
  if (c->error.code || slot < 0) return;
  int dim = cache->head_dim, groups = cache->kv_heads;
  size_t bytes = (size_t)dim * sizeof(Element);
  int rows = smaller(length, cache->capacity);
  for (int t = 0; t < rows; t++)
    for (int g = 0; g < groups; g++) {
      int64_t to = cache_at(cache, slot, g, t);
      memcpy((Element *)cache->k + to, (const Element *)k.data + t * k.row + g * k.head, bytes);
      memcpy((Element *)cache->v + to, (const Element *)v.data + t * v.row + g * v.head, bytes);
    }
}
