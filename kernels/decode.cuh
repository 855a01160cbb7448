/* One decoded token: the operations of kernels.h whose rows are sequences, one launch each.
 *
 *   x [rows][C]   q, out [rows][H*D]   h [rows][F]   logits [rows][V]   w [M][K]   cache k, v [slots][capacity][G][D]
 *
 * A token costs one reading of all weights and 5 launches per layer, and for small models the launches are the larger
 * part. So a warp is on its own: it owns one or two rows of w, has its first weights on the way before it looks at
 * anything else, and needs neither shared memory nor a barrier. The norm in front of a product costs no pass of its
 * own, because its factor 1/rms comes out of the sum:
 *
 *   sum_k w[k] (norm_weight[k] x[k] rstd) = rstd * sum_k w[k] (norm_weight[k] x[k])
 *
 * and every warp adds up x^2 beside its product; x and norm_weight are small and stay in the caches.
 *
 * Lane l of a warp takes the packs l, l + 32, ... of N neighbors in rising order, by explicit fused multiply-adds, and
 * the lanes are added in a fixed tree. Neither the number of sequences nor their order enters into that, so row i of a
 * batch is the single run of its sequence, bit for bit.
 *
 * A sequence whose position lies outside the cache writes nothing and attends to what the cache holds. */
#ifndef INKLING_KERNELS_DECODE_CUH
#define INKLING_KERNELS_DECODE_CUH

#include "kernels/cuda.cuh"

#include <type_traits>

namespace {

constexpr int DECODE_WARPS = 4; /* of a block: few, so that the work of a small model reaches all processors */
constexpr int DECODE_ROWS = 4;  /* sequences that share a weight while it is in registers */
/* Weight packs that a lane asks for before it needs the first. */
template <int ROWS> constexpr int DECODE_IN_FLIGHT = ROWS == 1 ? 8 : 4;
/* Blocks that fit a processor at least. It allows 128 registers a thread: without it the compiler saves registers by
 * moving each load next to its use, and a lane has one pack on the way. (Look at the SASS after changes.) */
constexpr int DECODE_BLOCKS = 4;

/* ---- products ---- */

/* The input of a product: `rows` sequences of `depth` numbers, and the weight of the norm before it, or NULL. */
template <class T> struct DecodeInput {
  const T *x;
  const float *norm_weight;
  float eps;
  int rows, depth;
};

/* N neighbors that nobody writes while the kernel runs, or zeros. No branch, so that many can be on the way. */
template <int N, class T> __device__ __forceinline__ Pack<T, N> fetch(const T *from, bool present) {
  constexpr int LOADS = (int)sizeof(Pack<T, N>) / 16;
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const uint4 words = load16_ordered(reinterpret_cast<const uint4 *>(from) + i, present);
    pack.word[4 * i] = words.x, pack.word[4 * i + 1] = words.y;
    pack.word[4 * i + 2] = words.z, pack.word[4 * i + 3] = words.w;
  }
  return pack;
}

/* out[o][r] = sum_k w[o][k] y[first + r][k], known to the whole warp; y = x, or with NORM norm_weight * x * rstd(x).
 * Sequences behind the last one repeat it. */
template <bool NORM, class T, int OUT, int ROWS>
__device__ __forceinline__ void warp_products(float (&out)[OUT][ROWS], const T *const (&w)[OUT],
                                              const DecodeInput<T> &in, int first) {
  constexpr int N = VECTOR<T>;
  constexpr int BATCH = DECODE_IN_FLIGHT<ROWS> / OUT; /* packs of each row of w that are asked for together */
  constexpr int AHEAD = ROWS == 1 ? BATCH : 1;        /* likewise of x and weight */
  const int packs = in.depth / N, lane = (int)threadIdx.x % 32;
  const T *x[ROWS];
  float square[ROWS] = {};
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    x[r] = in.x + (int64_t)(first + r < in.rows ? first + r : in.rows - 1) * in.depth;
#pragma unroll
    for (int o = 0; o < OUT; o++) out[o][r] = 0;
  }
  for (int start = lane; start < packs; start += 32 * BATCH) {
    Pack<T, N> weights[BATCH][OUT], inputs[AHEAD][ROWS];
    Pack<float, N> norm_weights[AHEAD];
#pragma unroll
    for (int b = 0; b < BATCH; b++)
#pragma unroll
      for (int o = 0; o < OUT; o++)
        weights[b][o] = fetch<N>(w[o] + (int64_t)(start + 32 * b) * N, start + 32 * b < packs);
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      if (b % AHEAD == 0) {
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
          const int pack = start + 32 * (b + a);
#pragma unroll
          for (int r = 0; r < ROWS; r++) inputs[a][r] = fetch<N>(x[r] + (int64_t)pack * N, pack < packs);
          if (NORM) norm_weights[a] = fetch<N>(in.norm_weight + (int64_t)pack * N, pack < packs);
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < N; i++) {
          float y = number(inputs[b % AHEAD][r], i);
          if (NORM) square[r] = fmaf(y, y, square[r]);
          if (NORM) y *= number(norm_weights[b % AHEAD], i);
#pragma unroll
          for (int o = 0; o < OUT; o++) out[o][r] = fmaf(number(weights[b][o], i), y, out[o][r]);
        }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const float rstd = NORM ? rsqrtf(warp_sum(square[r]) / (float)in.depth + in.eps) : 1.0f;
#pragma unroll
    for (int o = 0; o < OUT; o++) out[o][r] = warp_sum(out[o][r]) * rstd;
  }
}

/* Lane r's own: values[r]. */
template <int ROWS> __device__ __forceinline__ float of_lane(const float (&values)[ROWS]) {
  float mine = values[0];
#pragma unroll
  for (int r = 1; r < ROWS; r++)
    if ((int)threadIdx.x % 32 == r) mine = values[r];
  return mine;
}

/* Products of the rows `low` and `high` of w [..][depth] with all sequences, ROWS at a time; then
 * finish(row, low product, high product) on one lane per sequence. */
template <int ROWS, class T, class F>
__device__ __forceinline__ void normalized_pair(const T *w, int64_t low, int64_t high, const DecodeInput<T> &in,
                                                F finish) {
  const T *const pair[2] = {w + low * in.depth, w + high * in.depth};
  const int lane = (int)threadIdx.x % 32;
  for (int first = 0; first < in.rows; first += ROWS) {
    float products[2][ROWS];
    warp_products<true>(products, pair, in, first);
    const float a = of_lane(products[0]), b = of_lane(products[1]);
    if (lane < ROWS && first + lane < in.rows) finish(first + lane, a, b);
  }
}

__device__ __forceinline__ int warp_number() { return (int)blockIdx.x * DECODE_WARPS + (int)threadIdx.x / 32; }

/* ---- the operations ---- */

/* x[r] = table[last token of r], zeros where that is no row of the table. A block a sequence. */
template <class T>
__global__ void decode_embedding_kernel(T *x, const T *table, int vocab, int dim, const int32_t *tokens,
                                        const int32_t *lengths, int capacity) {
  const int64_t row = blockIdx.x;
  const int32_t length = lengths[row];
  const int32_t token = length > 0 ? tokens[row * capacity + (length - 1) % capacity] : -1;
  const bool known = token >= 0 && token < vocab;
  for (int i = (int)threadIdx.x * VECTOR<T>; i < dim; i += (int)blockDim.x * VECTOR<T>)
    store_pack(x + row * dim + i, fetch<VECTOR<T>>(table + (int64_t)(known ? token : 0) * dim + i, known));
}

/* A layer's cache as kernels take it. */
template <class T> struct Cache {
  T *k, *v;
  int capacity, kv_heads, head_dim;
  __device__ int64_t at(int64_t slot, int position, int head) const {
    return ((slot * capacity + position) * kv_heads + head) * head_dim;
  }
};

/* q, k, v = W (norm_weight * x * rstd(x)), q and k rotated. A warp owns the rows i and i + D/2 of a head, a rotation's
 * pair. Heads of w: H of queries, G of keys, G of values. */
template <class T, int ROWS>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_qkv_kernel(T *q, Cache<T> cache, DecodeInput<T> in, const T *w, int heads, const float *table,
                      const int32_t *positions) {
  const int half = cache.head_dim / 2, head = warp_number() / half, i = warp_number() % half;
  if (head >= heads + 2 * cache.kv_heads) return;
  const int64_t low = (int64_t)head * cache.head_dim + i;
  normalized_pair<ROWS>(w, low, low + half, in, [&](int row, float a, float b) {
    const int position = positions[row];
    if (position < 0 || position >= cache.capacity) return;
    T *to;
    if (head < heads) to = q + ((int64_t)row * heads + head) * cache.head_dim;
    else if (head < heads + cache.kv_heads) to = cache.k + cache.at(row, position, head - heads);
    else to = cache.v + cache.at(row, position, head - heads - cache.kv_heads);
    if (head < heads + cache.kv_heads) {
      const float *angle = table + ((int64_t)position * half + i) * 2;
      const float turned = fmaf(-b, angle[1], a * angle[0]);
      b = fmaf(a, angle[1], b * angle[0]);
      a = turned;
    }
    to[i] = from_float<T>(a);
    to[i + half] = from_float<T>(b);
  });
}

/* h = silu(gate) * up of W (norm_weight * x * rstd(x)). A warp owns the rows i (gate) and F + i (up). */
template <class T, int ROWS>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_mlp_kernel(T *h, DecodeInput<T> in, const T *w, int ffn) {
  const int i = warp_number();
  if (i >= ffn) return;
  normalized_pair<ROWS>(w, i, (int64_t)ffn + i, in, [&](int row, float gate, float up) {
    const float sigmoid = 1.0f / __fadd_rn(1.0f, expf(-gate));
    h[(int64_t)row * ffn + i] = from_float<T>(gate * sigmoid * up);
  });
}

/* logits[r][m] = W (norm_weight * x * rstd(x)). A warp owns the rows 2i and 2i + 1. */
template <class T, int ROWS>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_logits_kernel(float *logits, DecodeInput<T> in, const T *w, int vocab) {
  const int64_t low = 2 * (int64_t)warp_number(), high = low + 1 < vocab ? low + 1 : low;
  if (low >= vocab) return;
  normalized_pair<ROWS>(w, low, high, in, [&](int row, float a, float b) {
    logits[(int64_t)row * vocab + low] = a;
    if (high > low) logits[(int64_t)row * vocab + high] = b;
  });
}

/* x[r][m] += sum_k w[m][k] in[r][k]. A warp owns one row of w: there are few, of great length. */
template <class T, int ROWS>
__global__ void __launch_bounds__(32 * DECODE_WARPS, DECODE_BLOCKS)
    decode_residual_kernel(T *x, DecodeInput<T> in, const T *w, int outputs) {
  const int m = warp_number(), lane = (int)threadIdx.x % 32;
  if (m >= outputs) return;
  const T *const weights[1] = {w + (int64_t)m * in.depth};
  for (int first = 0; first < in.rows; first += ROWS) {
    float products[1][ROWS];
    warp_products<false>(products, weights, in, first);
    const float product = of_lane(products[0]);
    if (lane >= ROWS || first + lane >= in.rows) continue;
    T *to = x + (int64_t)(first + lane) * outputs + m;
    *to = from_float<T>(to_float(*to) + product);
  }
}

/* ---- attention ---- */

constexpr int ATTENTION_WARPS = 16;
constexpr int ATTENTION_BATCH = 4; /* keys, and values with them, that a lane asks for together */

/* The running state of a softmax over keys (Milakov & Gimelshein 2018): the weighted sum of values, of which a lane has
 * N numbers, its weight, and the largest score so far, which both are relative to. Scores are in units of log2. */
template <int N> struct KeySoftmax {
  float value[N] = {}, weight = 0, max = -INFINITY;
};

/* What to subtract from scores: 0 while none is above -inf, so that they give exp2(-inf) = 0 and not NaN. */
__device__ __forceinline__ float shift_of(float max) { return max == -INFINITY ? 0.0f : max; }

/* Brings the state to a maximum that is not smaller. */
template <int N> __device__ __forceinline__ void raise(KeySoftmax<N> &state, float max) {
  const float shrink = exp2_approx(state.max - shift_of(max));
  state.max = max;
  state.weight *= shrink;
#pragma unroll
  for (int i = 0; i < N; i++) state.value[i] *= shrink;
}

/* The state over the keys of this lane and of the one `offset` away. */
template <int N> __device__ __forceinline__ void merge(KeySoftmax<N> &a, int offset) {
  const float b_max = __shfl_xor_sync(0xFFFFFFFFu, a.max, offset), max = fmaxf(a.max, b_max), shift = shift_of(max);
  const float shrink_a = exp2_approx(a.max - shift), shrink_b = exp2_approx(b_max - shift);
  a.max = max;
  a.weight = fmaf(a.weight, shrink_a, __shfl_xor_sync(0xFFFFFFFFu, a.weight, offset) * shrink_b);
#pragma unroll
  for (int i = 0; i < N; i++)
    a.value[i] = fmaf(a.value[i], shrink_a, __shfl_xor_sync(0xFFFFFFFFu, a.value[i], offset) * shrink_b);
}

/* Of `count` keys, those that this lane takes part in: every WORKERS-th from its own on. `from`: where in the cache its
 * pack of the first key lies; not `inside`: behind the end of the head. */
template <int LANES, class T, int N>
__device__ __forceinline__ KeySoftmax<N> attend(const Cache<T> &cache, const Pack<T, N> &query, int64_t from,
                                                bool inside, int count, float scale) {
  constexpr int WORKERS = ATTENTION_WARPS * (32 / LANES);
  const int64_t stride = (int64_t)cache.kv_heads * cache.head_dim;
  KeySoftmax<N> state;
  for (int first = 0; first < count; first += WORKERS * ATTENTION_BATCH) {
    const int mine = first + (int)threadIdx.x / LANES;
    Pack<T, N> k[ATTENTION_BATCH], v[ATTENTION_BATCH];
    float score[ATTENTION_BATCH], max = state.max;
#pragma unroll
    for (int b = 0; b < ATTENTION_BATCH; b++) {
      const int key = mine + b * WORKERS;
      k[b] = fetch<N>(cache.k + from + key * stride, key < count && inside);
      v[b] = fetch<N>(cache.v + from + key * stride, key < count && inside);
    }
#pragma unroll
    for (int b = 0; b < ATTENTION_BATCH; b++) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < N; i++) sum = fmaf(number(query, i), number(k[b], i), sum);
#pragma unroll
      for (int offset = LANES / 2; offset; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
      score[b] = mine + b * WORKERS < count ? sum * scale : -INFINITY;
      max = fmaxf(max, score[b]);
    }
    raise(state, max);
#pragma unroll
    for (int b = 0; b < ATTENTION_BATCH; b++) {
      const float p = exp2_approx(score[b] - shift_of(max));
      state.weight += p;
#pragma unroll
      for (int i = 0; i < N; i++) state.value[i] = fmaf(p, number(v[b], i), state.value[i]);
    }
  }
  return state;
}

/* out[r][h] = softmax(scale * q K^T) V over the cache positions 0 .. position[r]. A block for each sequence and query
 * head; the heads of a group read the same keys at the same time, from L2. LANES lanes share a key, each with a pack of
 * its numbers; such a group of lanes takes every WORKERS-th key. The states are merged first inside the warp, then over
 * the warps in rising order. */
template <class T, int LANES>
__global__ void __launch_bounds__(32 * ATTENTION_WARPS, 2)
    decode_attention_kernel(T *out, const T *q, Cache<T> cache, const int32_t *positions, int heads, float scale) {
  constexpr int N = VECTOR<T>;
  __shared__ float values[ATTENTION_WARPS][HEAD_DIM_MAX], weights[ATTENTION_WARPS], maxima[ATTENTION_WARPS];
  const int64_t row = (int)blockIdx.x / heads;
  const int head = (int)blockIdx.x % heads, group = head / (heads / cache.kv_heads), dim = cache.head_dim;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, at = lane % LANES * N;
  const int position = positions[row], count = position < cache.capacity ? position + 1 : cache.capacity;
  const Pack<T, N> query = fetch<N>(q + (int64_t)blockIdx.x * dim + at, at < dim);
  KeySoftmax<N> state = attend<LANES>(cache, query, cache.at(row, 0, group) + at, at < dim, count, scale);
#pragma unroll
  for (int offset = LANES; offset < 32; offset *= 2) merge(state, offset);
  if (lane == 0) weights[warp] = state.weight, maxima[warp] = state.max;
  if (lane < LANES && at < dim) {
#pragma unroll
    for (int i = 0; i < N; i++) values[warp][at + i] = state.value[i];
  }
  __syncthreads();
  float max = -INFINITY;
#pragma unroll
  for (int j = 0; j < ATTENTION_WARPS; j++) max = fmaxf(max, maxima[j]);
  for (int d = (int)threadIdx.x; d < dim; d += (int)blockDim.x) {
    float value = 0, weight = 0;
#pragma unroll
    for (int j = 0; j < ATTENTION_WARPS; j++) {
      const float shrink = exp2_approx(maxima[j] - shift_of(max));
      weight = fmaf(weights[j], shrink, weight);
      value = fmaf(values[j][d], shrink, value);
    }
    out[(int64_t)blockIdx.x * dim + d] = from_float<T>(count > 0 ? value / weight : 0.0f);
  }
}

/* ---- prefill ---- */

/* A View of one sequence as kernels take it. */
template <class T> struct Rows {
  const T *data;
  int64_t row, head;
};

/* `count` packs of keys, or of values in the blocks with y = 1, from views into the cache. */
template <class T>
__global__ void cache_store_kernel(Cache<T> cache, int64_t slot, int position, Rows<T> k, Rows<T> v, int64_t count) {
  const int64_t pack = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int packs = cache.head_dim / VECTOR<T>;
  const int i = (int)(pack % packs) * VECTOR<T>, head = (int)(pack / packs % cache.kv_heads);
  const int t = (int)(pack / packs / cache.kv_heads);
  if (pack >= count) return;
  const Rows<T> from = blockIdx.y ? v : k;
  T *to = (blockIdx.y ? cache.v : cache.k) + cache.at(slot, position + t, head) + i;
  store_pack(to, load_pack<VECTOR<T>>(from.data + t * from.row + head * from.head + i));
}

template <class T> Cache<T> cache_of(const KvCache *cache) {
  return {static_cast<T *>(cache->k), static_cast<T *>(cache->v), cache->capacity, cache->kv_heads, cache->head_dim};
}

/* Calls f(T(), ROWS, input, weights) for products of `x` with rows of `w`; ROWS as a constant: one sequence or several
 * at once. */
template <class F>
void with_product(Context *c, const char *operation, const void *x, const float *norm_weight, float eps,
                  const Parameters *params, Matrix w, int rows, F f) {
  if (c->error.code || rows < 1) return;
  with_element(c, [&](auto e) {
    using T = decltype(e);
    const T *weights = compute_matrix<T>(params, w);
    const DecodeInput<T> input = {static_cast<const T *>(x), norm_weight, eps, rows, w.cols};
    require_alignment(c, operation, {w.cols}, {x, norm_weight, weights});
    if (rows == 1) f(e, std::integral_constant<int, 1>(), input, weights);
    else f(e, std::integral_constant<int, DECODE_ROWS>(), input, weights);
  });
}

/* A warp for each of `count` outputs. */
unsigned decode_blocks(int64_t count) { return (unsigned)divide_up(count, DECODE_WARPS); }

} // namespace

void cuda_decode_embedding(Context *c, void *x, const Parameters *params, Matrix table, const Sequences *s) {
  with_element(
      c,
      [&](auto e) {
        using T = decltype(e);
        const T *rows = compute_matrix<T>(params, table);
        require_alignment(c, "decode_embedding", {table.cols}, {x, rows});
        launch(c, "decode_embedding", decode_embedding_kernel<T>, (unsigned)s->rows, 128, 0, x, rows, table.rows,
               table.cols, s->tokens, s->lengths, s->capacity);
      });
}

void cuda_decode_qkv(Context *c, void *q, const KvCache *cache, const void *x, const float *norm_weight, float eps,
                     const Parameters *params, Matrix w, const Rope *rope, const Sequences *s) {
  const char *const name = "decode_qkv";
  const int heads = w.rows / cache->head_dim - 2 * cache->kv_heads;
  with_product(c, name, x, norm_weight, eps, params, w, s->rows, [&](auto e, auto rows, auto in, auto weights) {
    using T = decltype(e);
    launch(c, name, decode_qkv_kernel<T, rows>, decode_blocks(w.rows / 2), 32 * DECODE_WARPS, 0, q, cache_of<T>(cache),
           in, weights, heads, rope->table, s->positions);
  });
}

void cuda_decode_attention(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const Sequences *s) {
  const int dim = cache->head_dim;
  if (!check_head_size(c, dim)) return;
  require_alignment(c, "decode_attention", {dim}, {q, cache->k, cache->v});
  with_element(c, [&](auto e) {
    using T = decltype(e);
    const int packs = dim / VECTOR<T>;
    auto kernel = decode_attention_kernel<T, 8>;
    if (packs > 8) kernel = decode_attention_kernel<T, 16>;
    if constexpr (sizeof(T) == 4)
      if (packs > 16) kernel = decode_attention_kernel<T, 32>;
    launch(c, "decode_attention", kernel, (unsigned)(s->rows * heads), 32 * ATTENTION_WARPS, 0, out, q,
           cache_of<T>(cache), s->positions, heads, scale * LOG2_E);
  });
}

void cuda_decode_residual(Context *c, void *x, const void *in, const Parameters *params, Matrix w, const Sequences *s) {
  const char *const name = "decode_residual";
  with_product(c, name, in, NULL, 0, params, w, s->rows, [&](auto e, auto rows, auto input, auto weights) {
    launch(c, name, decode_residual_kernel<decltype(e), rows>, decode_blocks(w.rows), 32 * DECODE_WARPS, 0, x, input,
           weights, w.rows);
  });
}

void cuda_decode_mlp(Context *c, void *h, const void *x, const float *norm_weight, float eps, const Parameters *params,
                     Matrix w, const Sequences *s) {
  const char *const name = "decode_mlp";
  with_product(c, name, x, norm_weight, eps, params, w, s->rows, [&](auto e, auto rows, auto in, auto weights) {
    launch(c, name, decode_mlp_kernel<decltype(e), rows>, decode_blocks(w.rows / 2), 32 * DECODE_WARPS, 0, h, in,
           weights, w.rows / 2);
  });
}

void cuda_decode_logits(Context *c, float *logits, const void *x, const float *norm_weight, float eps,
                        const Parameters *params, Matrix w, int vocab, int rows) {
  const char *const name = "decode_logits";
  with_product(c, name, x, norm_weight, eps, params, w, rows, [&](auto e, auto several, auto in, auto weights) {
    launch(c, name, decode_logits_kernel<decltype(e), several>, decode_blocks(divide_up(vocab, 2)), 32 * DECODE_WARPS,
           0, logits, in, weights, vocab);
  });
}

void cuda_cache_store(Context *c, const KvCache *cache, int slot, int position, View k, View v, int length) {
  const int room = cache->capacity - position;
  if (length > room) length = room;
  if (slot < 0 || position < 0 || length < 1) return;
  require_alignment(c, "cache_store", {cache->head_dim, k.row, k.head, v.row, v.head},
                    {cache->k, cache->v, k.data, v.data});
  with_element(c, [&](auto e) {
    using T = decltype(e);
    const Rows<T> keys = {static_cast<const T *>(k.data), k.row, k.head};
    const Rows<T> values = {static_cast<const T *>(v.data), v.row, v.head};
    const int64_t packs = (int64_t)length * cache->kv_heads * (cache->head_dim / VECTOR<T>);
    launch(c, "cache_store", cache_store_kernel<T>, dim3((unsigned)divide_up(packs, 256), 2), 256, 0,
           cache_of<T>(cache), slot, position, keys, values, packs);
  });
}

#endif
