/* One decoded token on the CPU: the operations of kernels.h whose rows are sequences.
 *
 *   x [rows][C]   q, out [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   cache k, v [slots][capacity][G][D]
 *
 * Decoding reads every weight once per token and is bound by memory: a block of weight rows is read once and used for
 * all sequences while it lies in L1. Narrow weights are widened in registers; what they are multiplied with is fp32.
 * Every product is summed in LANES partial sums. Lane l takes the elements l, l + LANES, ... in rising order, and the
 * lanes are added in a fixed tree. Neither the number of sequences, their order, nor the number of threads enters into
 * that, so row i of a batch is the single run of its sequence, bit for bit.
 *
 * A sequence whose position lies outside the cache writes nothing and attends to what the cache holds. */
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/weights.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
  WEIGHT_TILE = 4, /* weight rows and sequences whose sums are in registers together */
  SEQUENCE_TILE = 4,
  SPAN_BLOCKS = 256, /* weight tiles that a thread takes at a time, at most */
  KEY_BLOCK = 64,    /* keys whose scores are made before their values are read; a multiple of LANES */
  CACHE_LINE = 64,
  PREFETCH = 8192, /* bytes ahead that weights are asked for: rows follow one another in memory, and narrow ones are
                      widened more slowly than memory delivers when it is asked in time */
  SPAN_WORK = 8192 /* multiply-adds that a thread takes at a time, at least */
};

/* Row-major numbers of which `stride` lie between rows. */
typedef struct Rows {
  const float *data;
  int64_t stride;
} Rows;

/* LANES weights from element `at` on, without their scale. gcc 12 widens bytes one by one unless told how. */
static inline __attribute__((always_inline)) Vector load_weights(DType dtype, const void *data, int64_t at) {
  if (dtype == DTYPE_F32) return *(const UnalignedVector *)((const float *)data + at);
  const void *from = (const char *)data + at * (dtype == DTYPE_BF16 ? 2 : 1);
#if defined(__AVX512F__)
  if (dtype == DTYPE_BF16) return (Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16);
  return (Vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from)));
#elif defined(__AVX2__)
  if (dtype == DTYPE_BF16) return (Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16);
  return (Vector)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from)));
#else
  Vector wide = {0};
  for (int l = 0; l < LANES; l++)
    wide[l] = dtype == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)from)[l]) : (float)((const int8_t *)from)[l];
  return wide;
#endif
}

/* sum += one group of weights times the same elements of x. */
static inline __attribute__((always_inline)) Vector add_group(DType dtype, const void *data, int64_t at,
                                                              const float *scale, const float *x, Vector sum) {
  Vector part = {0};
  UNROLL for (int k = 0; k < WEIGHT_GROUP; k += LANES) {
    Vector product = load_weights(dtype, data, at + k) * *(const UnalignedVector *)(x + k);
    if (dtype == DTYPE_I8) part += product;
    else sum += product;
  }
  return dtype == DTYPE_I8 ? sum + *scale * part : sum;
}

typedef float Four __attribute__((vector_size(16)));
#ifdef __clang__
#define MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t FourNumbers __attribute__((vector_size(16)));
#define MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (FourNumbers){i, j, k, l})
#endif

static inline Four fold(Vector lanes) {
  Four part[LANES / 4];
  memcpy(part, &lanes, sizeof part);
  for (int half = LANES / 8; half > 0; half /= 2)
    for (int l = 0; l < half; l++) part[l] += part[l + half];
  return part[0];
}

/* The lanes of one vector, added up; and of four at once, in the same order. */
static inline float sum_lanes(Vector lanes) {
  Four part = fold(lanes);
  return (part[0] + part[2]) + (part[1] + part[3]);
}

static inline Four sum_four(Vector a, Vector b, Vector c, Vector d) {
  Four w = fold(a), x = fold(b), y = fold(c), z = fold(d);
  Four wx = MIX(w, x, 0, 4, 1, 5) + MIX(w, x, 2, 6, 3, 7), yz = MIX(y, z, 0, 4, 1, 5) + MIX(y, z, 2, 6, 3, 7);
  return MIX(wx, yz, 0, 1, 4, 5) + MIX(wx, yz, 2, 3, 6, 7);
}

/* The last group of row `row` where it is not whole. */
static __attribute__((noinline)) float dot_tail(const Weights *w, int row, const float *x) {
  float wide[WEIGHT_GROUP] = {0}, of_x[WEIGHT_GROUP] = {0};
  int first = w->cols / WEIGHT_GROUP * WEIGHT_GROUP, count = w->cols - first;
  CPU(widen_weights)(w, row, first, count, wide);
  memcpy(of_x, x + first, (size_t)count * sizeof(float));
  return sum_lanes(add_group(DTYPE_F32, wide, 0, NULL, of_x, (Vector){0}));
}

/* out[j][i] = sum_k w[row + i][k] x[j][k] for `weights` rows of w and `sequences` rows of x. dtype, weights and
 * sequences are constants at every call, so that each becomes straight code with its sums in registers. */
static inline __attribute__((always_inline)) void dot_tile(DType dtype, int weights, int sequences,
                                                           float out[SEQUENCE_TILE][WEIGHT_TILE], const Weights *w,
                                                           int row, Rows x) {
  Vector sum[WEIGHT_TILE][SEQUENCE_TILE];
  int groups = weight_groups(w->cols), whole = w->cols / WEIGHT_GROUP;
  const float *scales = dtype == DTYPE_I8 ? w->scales + (int64_t)row * groups : NULL;
  int64_t at = row * w->stride;
  UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] = (Vector){0};
  const int group_bytes = WEIGHT_GROUP * (dtype == DTYPE_F32 ? 4 : dtype == DTYPE_BF16 ? 2 : 1);
  const char *ahead = (const char *)w->data + at * (group_bytes / WEIGHT_GROUP) + PREFETCH;
  for (int g = 0; g < whole; g++, ahead += weights * group_bytes) {
    UNROLL for (int line = 0; line < weights * group_bytes; line += CACHE_LINE) __builtin_prefetch(ahead + line);
    UNROLL for (int i = 0; i < weights; i++) UNROLL for (int j = 0; j < sequences; j++) sum[i][j] =
        add_group(dtype, w->data, at + i * w->stride + g * WEIGHT_GROUP, scales ? scales + i * groups + g : NULL,
                  x.data + j * x.stride + g * WEIGHT_GROUP, sum[i][j]);
  }
  UNROLL for (int j = 0; j < sequences; j++) {
    if (weights == WEIGHT_TILE) {
      Four sums = sum_four(sum[0][j], sum[1][j], sum[2][j], sum[3][j]);
      memcpy(out[j], &sums, sizeof sums);
    } else out[j][0] = sum_lanes(sum[0][j]);
  }
  for (int i = 0; i < weights && whole < groups; i++)
    for (int j = 0; j < sequences; j++) out[j][i] += dot_tail(w, row + i, x.data + j * x.stride);
}

/* As dot_tile, for one row of w or WEIGHT_TILE of them. Returns the number of sequences done. */
static inline __attribute__((always_inline)) int dots_in(DType dtype, float out[SEQUENCE_TILE][WEIGHT_TILE],
                                                         const Weights *w, int row, int weights, Rows x,
                                                         int sequences) {
  if (weights < WEIGHT_TILE) return dot_tile(dtype, 1, 1, out, w, row, x), 1;
  if (sequences >= 4 && TILE_VECTORS == 4) return dot_tile(dtype, 4, 4, out, w, row, x), 4; /* 16 sums in registers */
  if (sequences >= 2) return dot_tile(dtype, 4, 2, out, w, row, x), 2;
  return dot_tile(dtype, 4, 1, out, w, row, x), 1;
}

static int dots_f32(float out[SEQUENCE_TILE][WEIGHT_TILE], const Weights *w, int row, int weights, Rows x, int n) {
  return dots_in(DTYPE_F32, out, w, row, weights, x, n);
}
static int dots_bf16(float out[SEQUENCE_TILE][WEIGHT_TILE], const Weights *w, int row, int weights, Rows x, int n) {
  return dots_in(DTYPE_BF16, out, w, row, weights, x, n);
}
static int dots_int8(float out[SEQUENCE_TILE][WEIGHT_TILE], const Weights *w, int row, int weights, Rows x, int n) {
  return dots_in(DTYPE_I8, out, w, row, weights, x, n);
}
static int (*const dots[])(float[SEQUENCE_TILE][WEIGHT_TILE], const Weights *, int, int, Rows,
                           int) = {dots_f32, dots_bf16, dots_int8};

static float dot(const float *a, const float *b, int depth) {
  float out[SEQUENCE_TILE][WEIGHT_TILE];
  dots_f32(out, &(Weights){.dtype = DTYPE_F32, .rows = 1, .cols = depth, .data = a}, 0, 1, (Rows){b, 0}, 1);
  return out[0][0];
}

/* Where a product goes: out[r*stride + m]. */
typedef struct Target {
  float *data;
  int64_t stride;
} Target;

/* Weight rows m .. m + weights - 1 times all sequences. */
static void multiply_block(Target out, const Weights *w, int m, int weights, Rows x, int rows) {
  float tile[SEQUENCE_TILE][WEIGHT_TILE];
  int tiled = weights == WEIGHT_TILE ? WEIGHT_TILE : 1;
  for (int first = m; first < m + weights; first += tiled)
    for (int r = 0; r < rows;) {
      int done = dots[w->dtype](tile, w, first, tiled, (Rows){x.data + r * x.stride, x.stride}, rows - r);
      for (int j = 0; j < done; j++) {
        float *to = out.data + (r + j) * out.stride + first;
        for (int i = 0; i < tiled; i++) to[i] = tile[j][i];
      }
      r += done;
    }
}

typedef struct FewRows {
  Target out;
  Weights w;
  int outputs;
  Rows x;
  int rows;
} FewRows;

/* Blocks of WEIGHT_TILE outputs. */
static void multiply_blocks(const void *job, int begin, int end, int thread) {
  (void)thread;
  const FewRows *s = job;
  for (int m = begin * WEIGHT_TILE; m < end * WEIGHT_TILE && m < s->outputs; m += WEIGHT_TILE)
    multiply_block(s->out, &s->w, m, s->outputs - m < WEIGHT_TILE ? s->outputs - m : WEIGHT_TILE, s->x, s->rows);
}

/* out[r][m] = sum_k w[m][k] x[r][k] for m < outputs */
static void multiply(Context *c, Target out, const Parameters *params, Matrix w, int outputs, Rows x, int rows) {
  const FewRows job = {out, CPU(weights)(params, w), outputs, x, rows};
  int64_t work = (int64_t)WEIGHT_TILE * w.cols * rows, least = 1 + SPAN_WORK / work;
  pool_run(c->pool, (outputs + WEIGHT_TILE - 1) / WEIGHT_TILE, (int)least, SPAN_BLOCKS, multiply_blocks, &job);
}

/* out[r] = norm_weight * x[r] * (mean(x[r]^2) + eps)^(-1/2) */
static void normalize(float *out, const Element *x, const float *norm_weight, float eps, int rows, int dim) {
  for (int r = 0; r < rows; r++, out += dim, x += dim) {
    const float *from = wide_row(x, out, dim);
    float rstd = 1.0f / sqrtf(dot(from, from, dim) / (float)dim + eps);
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
  multiply(c, (Target){qkv, w.rows}, params, w, w.rows, (Rows){normal, w.cols}, s->rows);
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
  float tile[SEQUENCE_TILE][WEIGHT_TILE], max = -INFINITY;
  const Weights rows = {ELEMENT_DTYPE, count, dim, keys.stride, keys.data, NULL};
  for (int j = 0; j < count;) {
    int together = count - j < WEIGHT_TILE ? 1 : WEIGHT_TILE;
    dots[ELEMENT_DTYPE](tile, &rows, j, together, (Rows){q, 0}, 1);
    for (int i = 0; i < together; i++, j++) scores[j] = scale * tile[0][i];
  }
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
  multiply(c, (Target){product, w.rows}, params, w, w.rows,
           (Rows){wide_row(in, product + outputs, rows * w.cols), w.cols}, s->rows);
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
  multiply(c, (Target){gate_up, w.rows}, params, w, w.rows, (Rows){normal, w.cols}, s->rows);
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
  multiply(c, (Target){logits, vocab}, params, w, vocab, (Rows){normal, w.cols}, rows);
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
