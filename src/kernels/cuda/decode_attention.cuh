/* The key/value cache, and a token's attention to it.
 *
 *   out, q [rows][H*D]   cache k, v [slots][G][capacity][D]
 *
 * A sequence whose position is outside the cache attends to all positions of the cache. */
#ifndef INKLING_KERNELS_CUDA_DECODE_ATTENTION_CUH
#define INKLING_KERNELS_CUDA_DECODE_ATTENTION_CUH

#include "kernels/cuda/cuda.cuh"

namespace {

/* KvCache for kernels. */
template <class T> struct Cache {
  T *k, *v;
  int capacity, kv_heads, head_dim;
  __device__ int64_t at(int64_t slot, int position, int head) const {
    return ((slot * kv_heads + head) * capacity + position) * head_dim;
  }
};

template <class T> Cache<T> cache_of(const KvCache *cache) {
  return {static_cast<T *>(cache->k), static_cast<T *>(cache->v), cache->capacity, cache->kv_heads, cache->head_dim};
}

/* ---- attention ---- */

constexpr int ATTENTION_WARPS = 16;
constexpr int ATTENTION_BATCH = 4; /* keys, with their values, that a lane loads together */

/* The running state of a softmax over keys (Milakov & Gimelshein 2018): the weighted sum of values, of which a lane has
 * N numbers, the sum of the weights, and the largest score so far, to which both are relative. Scores are in units of
 * log2. */
template <int N> struct KeySoftmax {
  float value[N] = {}, weight = 0, max = -INFINITY;
};

/* The number to subtract from scores: 0 while all are -inf, so that the result is exp2(-inf) = 0 and not NaN. */
__device__ __forceinline__ float shift_of(float max) { return max == -INFINITY ? 0.0f : max; }

/* Makes the state relative to a maximum that is not smaller. */
template <int N> __device__ __forceinline__ void raise(KeySoftmax<N> &state, float max) {
  const float shrink = exp2_approx(state.max - shift_of(max));
  state.max = max;
  state.weight *= shrink;
#pragma unroll
  for (int i = 0; i < N; i++) state.value[i] *= shrink;
}

/* Merges the states of this lane and of the lane at distance `offset`. */
template <int N> __device__ __forceinline__ void merge(KeySoftmax<N> &a, int offset) {
  const float b_max = __shfl_xor_sync(0xFFFFFFFFu, a.max, offset), max = fmaxf(a.max, b_max), shift = shift_of(max);
  const float shrink_a = exp2_approx(a.max - shift), shrink_b = exp2_approx(b_max - shift);
  a.max = max;
  a.weight = fmaf(a.weight, shrink_a, __shfl_xor_sync(0xFFFFFFFFu, a.weight, offset) * shrink_b);
#pragma unroll
  for (int i = 0; i < N; i++)
    a.value[i] = fmaf(a.value[i], shrink_a, __shfl_xor_sync(0xFFFFFFFFu, a.value[i], offset) * shrink_b);
}

/* Returns the state over this lane's keys, every WORKERS-th of `count`. `from`: the offset of its pack of the first
 * key; not `inside`: the pack is beyond the head. */
template <int LANES, class T, int N>
__device__ __forceinline__ KeySoftmax<N> attend(const Cache<T> &cache, const Pack<T, N> &query, int64_t from,
                                                bool inside, int count, float scale) {
  constexpr int WORKERS = ATTENTION_WARPS * (32 / LANES);
  KeySoftmax<N> state;
  for (int first = 0; first < count; first += WORKERS * ATTENTION_BATCH) {
    const int mine = first + (int)threadIdx.x / LANES;
    Pack<T, N> k[ATTENTION_BATCH], v[ATTENTION_BATCH];
    float score[ATTENTION_BATCH], max = state.max;
#pragma unroll
    for (int b = 0; b < ATTENTION_BATCH; b++) {
      const int key = mine + b * WORKERS;
      k[b] = fetch<N, false>(cache.k + from + (int64_t)key * cache.head_dim, key < count && inside);
      v[b] = fetch<N, false>(cache.v + from + (int64_t)key * cache.head_dim, key < count && inside);
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

/* The number of keys that a sequence attends to: of `counts`, or up to its position. */
__device__ __forceinline__ int keys_of(int64_t row, const int32_t *counts, const int32_t *positions, int capacity) {
  const int count = counts ? counts[row] : positions[row] < capacity ? positions[row] + 1 : capacity;
  return min(count, capacity);
}

/* Memory that the kernels after this one read. */
struct Ahead {
  const char *data;
  int64_t bytes; /* 0: none */
};

constexpr int PREFETCH_LINE = 128; /* bytes */

/* Blocks `number` of `blocks` bring it into L2 together. */
__device__ __forceinline__ void prefetch(const Ahead &ahead, int number, int blocks) {
  const int64_t step = (int64_t)blocks * blockDim.x * PREFETCH_LINE;
  int64_t at = ((int64_t)number * blockDim.x + threadIdx.x) * PREFETCH_LINE;
  for (; at < ahead.bytes; at += step) prefetch_l2(ahead.data + at);
}

/* out[r][h] = softmax(scale * q K^T) V over the first keys_of(r) positions. A block for each sequence and query head;
 * the heads of a group read the same keys at the same time, from L2. LANES lanes work on a key, each with a pack of its
 * numbers; such a group of lanes takes every WORKERS-th key. The states are merged first within the warp, then over the
 * warps in rising order. Further blocks only prefetch. */
template <class T, int LANES>
__global__ void __launch_bounds__(32 * ATTENTION_WARPS, 2)
    decode_attention_kernel(T *out, const T *q, Cache<T> cache, const int32_t *counts, const int32_t *positions,
                            int heads, float scale, Ahead ahead, int pairs) {
  constexpr int N = VECTOR<T>;
  __shared__ float values[ATTENTION_WARPS][HEAD_DIM_MAX], weights[ATTENTION_WARPS], maxima[ATTENTION_WARPS];
  let_next_begin();
  if ((int)blockIdx.x >= pairs) return prefetch(ahead, (int)blockIdx.x - pairs, (int)gridDim.x - pairs);
  wait_for_previous();
  const int64_t row = (int)blockIdx.x / heads;
  const int head = (int)blockIdx.x % heads, group = head / (heads / cache.kv_heads), dim = cache.head_dim;
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, at = lane % LANES * N;
  const int count = keys_of(row, counts, positions, cache.capacity);
  const Pack<T, N> query = fetch<N, false>(q + (int64_t)blockIdx.x * dim + at, at < dim);
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

/* A View of one sequence, for kernels. */
template <class T> struct Rows {
  const T *data;
  int64_t row, head;
};

/* Copies `count` packs of keys, or in blocks with y = 1 of values, from views to the cache. */
template <class T>
__global__ void cache_store_kernel(Cache<T> cache, int64_t slot, Rows<T> k, Rows<T> v, int64_t count) {
  const int64_t pack = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const int packs = cache.head_dim / VECTOR<T>;
  const int i = (int)(pack % packs) * VECTOR<T>, head = (int)(pack / packs % cache.kv_heads);
  const int t = (int)(pack / packs / cache.kv_heads);
  if (pack >= count) return;
  const Rows<T> from = blockIdx.y ? v : k;
  T *to = (blockIdx.y ? cache.v : cache.k) + cache.at(slot, t, head) + i;
  store_pack(to, load_pack<VECTOR<T>>(from.data + t * from.row + head * from.head + i));
}

} // namespace

void cuda_decode_attention(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const int32_t *counts, const Upcoming *next, const Sequences *s) {
  const int dim = cache->head_dim, pairs = s->rows * heads;
  if (!check_head_size(c, dim)) return;
  require_alignment(c, "decode_attention", {dim}, {q, cache->k, cache->v});
  with_element(c, [&]<class T>(T) {
    const int packs = dim / VECTOR<T>;
    auto kernel = decode_attention_kernel<T, 8>;
    if (packs > 8) kernel = decode_attention_kernel<T, 16>;
    if constexpr (sizeof(T) == 4)
      if (packs > 16) kernel = decode_attention_kernel<T, 32>;
    Ahead ahead = {};
    if (next) {
      const T *const weights = static_cast<const T *>(next->params->compute) + next->offset;
      ahead = {reinterpret_cast<const char *>(weights), (int64_t)(next->count * sizeof(T))};
    }
    /* what does not fit would only replace what is needed sooner */
    const int idle = ahead.bytes > c->l2_bytes / 2 ? 0 : c->processors - pairs;
    const unsigned blocks = (unsigned)(pairs + (ahead.bytes && idle > 0 ? idle : 0));
    launch<EARLY>(c, "decode_attention", kernel, blocks, 32 * ATTENTION_WARPS, 0, out, q, cache_of<T>(cache), counts,
                  s->positions, heads, scale * LOG2_E, ahead, pairs);
  });
}

void cuda_cache_store(Context *c, const KvCache *cache, int slot, View k, View v, int length) {
  if (length > cache->capacity) length = cache->capacity;
  if (slot < 0 || length < 1) return;
  require_alignment(c, "cache_store", {cache->head_dim, k.row, k.head, v.row, v.head},
                    {cache->k, cache->v, k.data, v.data});
  with_element(c, [&]<class T>(T) {
    const Rows<T> keys = {static_cast<const T *>(k.data), k.row, k.head};
    const Rows<T> values = {static_cast<const T *>(v.data), v.row, v.head};
    const int64_t packs = (int64_t)length * cache->kv_heads * (cache->head_dim / VECTOR<T>);
    launch(c, "cache_store", cache_store_kernel<T>, dim3((unsigned)divide_up(packs, 256), 2), 256, 0,
           cache_of<T>(cache), slot, keys, values, packs);
  });
}

#endif
