/* One decoded token on the CPU: the operations of kernels.h whose rows are sequences.
 *
 *   x [rows][C]   q, out [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   cache k, v [slots][capacity][G][D]
 *
 * Decoding reads every weight once per token and is bound by memory: a block of weight rows is read once and used for
 * all sequences while it lies in L1. Every product is summed in DOT_LANES partial sums. Lane l takes the elements l,
 * l + DOT_LANES, ... in rising order with one rounding per step (fused where the machine can), and the lanes are added
 * in a fixed tree. Neither the number of sequences, their order, nor the number of threads enters into that, so row i
 * of a batch is the single run of its sequence, bit for bit.
 *
 * A sequence whose position lies outside the cache writes nothing and attends to what the cache holds. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd.h"

enum {
  DOT_LANES = 8,   /* partial sums of one product */
  WEIGHT_TILE = 4, /* weight rows and sequences whose sums are in registers together */
  SEQUENCE_TILE = 4,
  KEY_BLOCK = 64,       /* keys whose scores are made before their values are read; a multiple of DOT_LANES */
  PARALLEL_WORK = 16384 /* multiply-adds; less does not pay for a parallel region */
};

/* a*b + c, rounded the same way in every loop. Plain C would leave that to what the compiler contracts where. */
static inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return fmaf(a, b, c);
#else
  return a * b + c; /* no such instruction: nothing to contract to */
#endif
}

/* Adds the lanes in a fixed tree. */
static inline float sum_lanes(float *lanes) {
  for (int half = DOT_LANES / 2; half > 0; half /= 2)
    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

/* Row-major numbers of which `stride` lie between rows. */
typedef struct Rows {
  const float *data;
  int64_t stride;
} Rows;

/* out[j][i] = sum_k w[i][k] x[j][k] for `weights` rows of w and `sequences` rows of x; both are constants at every
 * call, so that each call becomes straight code with its sums in registers. */
static inline __attribute__((always_inline)) void
dot_tile(int weights, int sequences, float out[SEQUENCE_TILE][WEIGHT_TILE], Rows w, Rows x, int depth) {
  float sum[WEIGHT_TILE][SEQUENCE_TILE][DOT_LANES];
  for (int i = 0; i < weights; i++)
    for (int j = 0; j < sequences; j++)
      for (int l = 0; l < DOT_LANES; l++) sum[i][j][l] = 0;
  int k = 0;
  for (; k + DOT_LANES <= depth; k += DOT_LANES)
    for (int i = 0; i < weights; i++)
      for (int j = 0; j < sequences; j++)
#pragma omp simd
        for (int l = 0; l < DOT_LANES; l++)
          sum[i][j][l] = multiply_add(w.data[i * w.stride + k + l], x.data[j * x.stride + k + l], sum[i][j][l]);
  for (int i = 0; i < weights; i++)
    for (int j = 0; j < sequences; j++) {
      for (int l = 0; k + l < depth; l++)
        sum[i][j][l] = multiply_add(w.data[i * w.stride + k + l], x.data[j * x.stride + k + l], sum[i][j][l]);
      out[j][i] = sum_lanes(sum[i][j]);
    }
}

static void dot_4x4(float out[SEQUENCE_TILE][WEIGHT_TILE], Rows w, Rows x, int depth) {
  dot_tile(4, 4, out, w, x, depth);
}
static void dot_4x2(float out[SEQUENCE_TILE][WEIGHT_TILE], Rows w, Rows x, int depth) {
  dot_tile(4, 2, out, w, x, depth);
}
static void dot_4x1(float out[SEQUENCE_TILE][WEIGHT_TILE], Rows w, Rows x, int depth) {
  dot_tile(4, 1, out, w, x, depth);
}
static void dot_1x1(float out[SEQUENCE_TILE][WEIGHT_TILE], Rows w, Rows x, int depth) {
  dot_tile(1, 1, out, w, x, depth);
}

/* As dot_tile, for up to WEIGHT_TILE rows of w and SEQUENCE_TILE rows of x. Returns the number of sequences done. */
static int dots(float out[SEQUENCE_TILE][WEIGHT_TILE], Rows w, int weights, Rows x, int sequences, int depth) {
  if (weights == WEIGHT_TILE) {
    if (sequences >= 4) return dot_4x4(out, w, x, depth), 4;
    if (sequences >= 2) return dot_4x2(out, w, x, depth), 2;
    return dot_4x1(out, w, x, depth), 1;
  }
  float one[SEQUENCE_TILE][WEIGHT_TILE];
  for (int i = 0; i < weights; i++) {
    dot_1x1(one, (Rows){w.data + i * w.stride, w.stride}, x, depth);
    out[0][i] = one[0][0];
  }
  return 1;
}

static float dot(const float *a, const float *b, int depth) {
  float out[SEQUENCE_TILE][WEIGHT_TILE];
  dot_1x1(out, (Rows){a, 0}, (Rows){b, 0}, depth);
  return out[0][0];
}

/* Where a product goes: out[r*stride + m], written or added to. */
typedef struct Target {
  float *data;
  int64_t stride;
  bool add;
} Target;

/* Weight rows m .. m + weights - 1 times all sequences. */
static void multiply_block(Target out, Rows w, int m, int weights, Rows x, int rows, int depth) {
  float tile[SEQUENCE_TILE][WEIGHT_TILE];
  Rows block = {w.data + m * w.stride, w.stride};
  for (int r = 0; r < rows;) {
    int done = dots(tile, block, weights, (Rows){x.data + r * x.stride, x.stride}, rows - r, depth);
    for (int j = 0; j < done; j++) {
      float *to = out.data + (r + j) * out.stride + m;
      for (int i = 0; i < weights; i++) to[i] = out.add ? to[i] + tile[j][i] : tile[j][i];
    }
    r += done;
  }
}

/* out[r][m] (+)= sum_k w[m][k] x[r][k] for m < outputs */
static void multiply(Context *c, Target out, const float *w, int outputs, Rows x, int rows, int depth) {
  Rows weights = {w, depth};
  int blocks = (outputs + WEIGHT_TILE - 1) / WEIGHT_TILE;
#pragma omp parallel for schedule(static) num_threads(c->threads) if ((int64_t)outputs * depth * rows > PARALLEL_WORK)
  for (int b = 0; b < blocks; b++) {
    int m = b * WEIGHT_TILE, rest = outputs - m;
    multiply_block(out, weights, m, rest < WEIGHT_TILE ? rest : WEIGHT_TILE, x, rows, depth);
  }
}

/* out[r] = norm_weight * x[r] * (mean(x[r]^2) + eps)^(-1/2) */
static void normalize(Context *c, float *out, const float *x, const float *norm_weight, float eps, int rows, int dim) {
#pragma omp parallel for schedule(static) num_threads(c->threads) if ((int64_t)rows * dim > PARALLEL_WORK)
  for (int r = 0; r < rows; r++) {
    const float *from = x + (int64_t)r * dim;
    float *to = out + (int64_t)r * dim;
    float rstd = 1.0f / sqrtf(dot(from, from, dim) / (float)dim + eps);
#pragma omp simd
    for (int i = 0; i < dim; i++) to[i] = norm_weight[i] * from[i] * rstd;
  }
}

static const float *weights_of(const Parameters *params, Matrix w) { return (const float *)params->compute + w.offset; }

void CPU(decode_embedding)(Context *c, void *x, const Parameters *params, Matrix table, const Sequences *s) {
  if (c->error.code) return;
  const float *weights = weights_of(params, table);
  size_t bytes = (size_t)table.cols * sizeof(float);
  for (int r = 0; r < s->rows; r++) {
    int32_t length = s->lengths[r];
    int32_t token = length > 0 ? s->tokens[(int64_t)r * s->capacity + (length - 1) % s->capacity] : -1;
    float *row = (float *)x + (int64_t)r * table.cols;
    if (token >= 0 && token < table.rows) memcpy(row, weights + (size_t)token * (size_t)table.cols, bytes);
    else memset(row, 0, bytes);
  }
}

/* Rotates and hands out one sequence's packed q, k, v. */
static void place_qkv(float *q, const KvCache *cache, float *qkv, int heads, const Rope *rope, int row,
                      int32_t position) {
  if (position < 0 || position >= cache->capacity) return;
  int dim = cache->head_dim, groups = cache->kv_heads;
  const float *angles = rope->table + (int64_t)position * dim;
  for (int h = 0; h < heads; h++) rope_head(q + h * dim, qkv + h * dim, angles, dim, 1);
  int64_t slot = ((int64_t)row * cache->capacity + position) * groups * dim;
  const float *k = qkv + heads * dim, *v = k + groups * dim;
  for (int g = 0; g < groups; g++) rope_head((float *)cache->k + slot + g * dim, k + g * dim, angles, dim, 1);
  memcpy((float *)cache->v + slot, v, (size_t)(groups * dim) * sizeof(float));
}

void CPU(decode_qkv)(Context *c, void *q, const KvCache *cache, const void *x, const float *norm_weight, float eps,
                     const Parameters *params, Matrix w, const Rope *rope, const Sequences *s) {
  if (c->error.code) return;
  int64_t rows = s->rows;
  float *normal = CPU(scratch)(c, (size_t)(rows * (w.cols + w.rows)));
  if (!normal) return;
  float *qkv = normal + rows * w.cols;
  int heads = w.rows / cache->head_dim - 2 * cache->kv_heads;
  normalize(c, normal, x, norm_weight, eps, s->rows, w.cols);
  multiply(c, (Target){qkv, w.rows, false}, weights_of(params, w), w.rows, (Rows){normal, w.cols}, s->rows, w.cols);
#pragma omp parallel for schedule(static) num_threads(c->threads) if (rows * w.rows > PARALLEL_WORK)
  for (int r = 0; r < s->rows; r++)
    place_qkv((float *)q + (int64_t)r * heads * cache->head_dim, cache, qkv + (int64_t)r * w.rows, heads, rope, r,
              s->positions[r]);
}

/* The running state of a softmax over keys met block by block (Milakov & Gimelshein 2018): the values' sum, its weight,
 * and the maximum that both are relative to. */
typedef struct Softmax {
  float value[HEAD_DIM_LIMIT], weight, max;
} Softmax;

/* scores = scale * keys q, and -inf behind the last key, so that every block is handled alike */
static float score_block(float scores[KEY_BLOCK], const float *q, Rows keys, int count, int dim, float scale) {
  float tile[SEQUENCE_TILE][WEIGHT_TILE], max = -INFINITY;
  for (int j = 0; j < count; j += WEIGHT_TILE) {
    int tile_keys = count - j < WEIGHT_TILE ? count - j : WEIGHT_TILE;
    dots(tile, (Rows){keys.data + j * keys.stride, keys.stride}, tile_keys, (Rows){q, 0}, 1, dim);
    for (int i = 0; i < tile_keys; i++) scores[j + i] = scale * tile[0][i];
  }
  for (int j = count; j < KEY_BLOCK; j++) scores[j] = -INFINITY;
  for (int j = 0; j < count; j++) max = scores[j] > max ? scores[j] : max;
  return max;
}

static void attend_block(Softmax *s, const float *q, Rows keys, Rows values, int count, int dim, float scale) {
  float scores[KEY_BLOCK], lanes[DOT_LANES] = {0};
  float block_max = score_block(scores, q, keys, count, dim, scale);
  float max = block_max > s->max ? block_max : s->max, shrink = exp_f32(s->max - max);
#pragma omp simd
  for (int j = 0; j < KEY_BLOCK; j++) scores[j] = exp_f32(scores[j] - max);
  for (int j = 0; j < KEY_BLOCK; j += DOT_LANES)
    for (int l = 0; l < DOT_LANES; l++) lanes[l] += scores[j + l];
  s->max = max;
  s->weight = multiply_add(s->weight, shrink, sum_lanes(lanes));
#pragma omp simd
  for (int d = 0; d < dim; d++) s->value[d] *= shrink;
  for (int j = 0; j < count; j++) {
    const float *value = values.data + j * values.stride;
    float p = scores[j];
#pragma omp simd
    for (int d = 0; d < dim; d++) s->value[d] = multiply_add(p, value[d], s->value[d]);
  }
}

/* One query head of one sequence over the first `count` positions. */
static void attend(float *out, const float *q, Rows keys, Rows values, int count, int dim, float scale) {
  Softmax s = {.max = -INFINITY};
  for (int j = 0; j < count; j += KEY_BLOCK) {
    int n = count - j < KEY_BLOCK ? count - j : KEY_BLOCK;
    attend_block(&s, q, (Rows){keys.data + j * keys.stride, keys.stride},
                 (Rows){values.data + j * values.stride, values.stride}, n, dim, scale);
  }
  for (int d = 0; d < dim; d++) out[d] = count > 0 ? s.value[d] / s.weight : 0.0f;
}

void CPU(decode_attention)(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const Sequences *s) {
  if (c->error.code) return;
  int dim = cache->head_dim, groups = cache->kv_heads, per_group = heads / groups;
  int64_t stride = (int64_t)groups * dim, work = 0;
  for (int r = 0; r < s->rows; r++) work += 2 * (int64_t)heads * dim * s->positions[r];
#pragma omp parallel for schedule(static) num_threads(c->threads) if (work > PARALLEL_WORK)
  for (int i = 0; i < s->rows * heads; i++) {
    int r = i / heads, group = i % heads / per_group, count = s->positions[r] + 1;
    int64_t first = (int64_t)r * cache->capacity * stride + group * dim;
    attend((float *)out + (int64_t)i * dim, (const float *)q + (int64_t)i * dim,
           (Rows){(float *)cache->k + first, stride}, (Rows){(float *)cache->v + first, stride},
           count < cache->capacity ? count : cache->capacity, dim, scale);
  }
}

void CPU(decode_residual)(Context *c, void *x, const void *in, const Parameters *params, Matrix w, const Sequences *s) {
  if (c->error.code) return;
  multiply(c, (Target){x, w.rows, true}, weights_of(params, w), w.rows, (Rows){in, w.cols}, s->rows, w.cols);
}

void CPU(decode_mlp)(Context *c, void *h, const void *x, const float *norm_weight, float eps, const Parameters *params,
                     Matrix w, const Sequences *s) {
  if (c->error.code) return;
  int64_t rows = s->rows;
  int ffn = w.rows / 2;
  float *normal = CPU(scratch)(c, (size_t)(rows * (w.cols + w.rows)));
  if (!normal) return;
  float *gate_up = normal + rows * w.cols;
  normalize(c, normal, x, norm_weight, eps, s->rows, w.cols);
  multiply(c, (Target){gate_up, w.rows, false}, weights_of(params, w), w.rows, (Rows){normal, w.cols}, s->rows, w.cols);
#pragma omp parallel for schedule(static) num_threads(c->threads) if (rows * ffn > PARALLEL_WORK)
  for (int r = 0; r < s->rows; r++) {
    const float *gate = gate_up + (int64_t)r * w.rows, *up = gate + ffn;
    float *to = (float *)h + (int64_t)r * ffn;
#pragma omp simd
    for (int f = 0; f < ffn; f++) to[f] = gate[f] * sigmoid_f32(gate[f]) * up[f];
  }
}

void CPU(decode_logits)(Context *c, float *logits, const void *x, const float *norm_weight, float eps,
                        const Parameters *params, Matrix w, int vocab, int rows) {
  if (c->error.code) return;
  float *normal = CPU(scratch)(c, (size_t)rows * (size_t)w.cols);
  if (!normal) return;
  normalize(c, normal, x, norm_weight, eps, rows, w.cols);
  multiply(c, (Target){logits, vocab, false}, weights_of(params, w), vocab, (Rows){normal, w.cols}, rows, w.cols);
}

void CPU(cache_store)(Context *c, const KvCache *cache, int slot, int position, View k, View v, int length) {
  if (c->error.code || slot < 0 || position < 0) return;
  int dim = cache->head_dim, groups = cache->kv_heads;
  size_t bytes = (size_t)dim * sizeof(float);
  int room = cache->capacity - position, rows = length < room ? length : room;
  for (int t = 0; t < rows; t++)
    for (int g = 0; g < groups; g++) {
      int64_t to = (((int64_t)slot * cache->capacity + position + t) * groups + g) * dim;
      memcpy((float *)cache->k + to, (const float *)k.data + t * k.row + g * k.head, bytes);
      memcpy((float *)cache->v + to, (const float *)v.data + t * v.row + g * v.head, bytes);
    }
}
