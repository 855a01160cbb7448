/* Rotary positions and the forward of attention (Dao, "FlashAttention-2", 2023): one pass over the keys with a running
 * maximum, no probability leaves the registers. */
#ifndef INKLING_KERNELS_ATTENTION_CUH
#define INKLING_KERNELS_ATTENTION_CUH

#include "kernels/attention_tile.cuh"

namespace {

/* ---- rope ---- */

/* (x[i], x[i + D/2]) = (x0 cos - x1 sin, x1 cos + x0 sin) of x [B][T][H][D], in place. A thread moves N neighbors of
 * each half; a block `rows_per_block` of the B*T rows. */
template <class T, int N>
__global__ void __launch_bounds__(256) rope_kernel(const Heads<T> x, int rows, int rows_per_block, int length,
                                                   int heads, int dim, const float *table, const int32_t *positions) {
  const int chunks = dim / 2 / N, items = heads * chunks;
  for (int e = (int)threadIdx.x; e < rows_per_block * items; e += 256) {
    const int n = (int)blockIdx.x * rows_per_block + e / items;
    if (n >= rows) return;
    const int item = e % items, i = item % chunks * N;
    const int t = n % length;
    const int64_t position = positions ? positions[n] : t;
    const float *const angles = table + position * dim + 2 * i;
    T *const at = x.at(n / length, t, item / chunks) + i;
    float first[N], second[N];
    load<N>(first, at);
    load<N>(second, at + dim / 2);
#pragma unroll
    for (int j = 0; j < N; j++) {
      float angle[2], in[2] = {first[j], second[j]};
      load<2>(angle, angles + 2 * j);
      first[j] = in[0] * angle[0] - in[1] * angle[1];
      second[j] = in[1] * angle[0] + in[0] * angle[1];
    }
    store<N>(at, first);
    store<N>(at + dim / 2, second);
  }
}

/* ---- forward ---- */

/* Tile sizes. A warp with 32 queries uses every fragment of keys and values, read from shared memory, for two products;
 * with more than 64 columns the queries do not fit into its registers beside the output and are read again. float:
 * small, because all of it has to fit into SHARED_LIMIT. */
template <class T, int HD> struct ForwardTiles {
  static constexpr bool TENSOR = sizeof(T) == 2, KEEP = TENSOR && HD <= 64;
  static constexpr int WARPS = TENSOR ? 4 : 2, THREADS = 32 * WARPS, M = TENSOR ? 2 : 1, QUERIES = 16 * M * WARPS;
  static constexpr int KEYS = TENSOR ? 64 : 32, STEP = KEEP ? KEYS : 32; /* STEP: keys at a time */
  static constexpr int STAGES = TENSOR ? 2 : 1, BLOCKS = TENSOR ? 2 : 1;
  static constexpr int QUERY_TILE = QUERIES * HD, KEY_TILE = KEYS * HD;
  static constexpr size_t TILES = (QUERY_TILE + STAGES * 2 * KEY_TILE) * sizeof(T);
  static constexpr size_t WORK = TILES + WARPS * EXCHANGE<T, STEP> * sizeof(float);
  static constexpr size_t STAGING = QUERY_TILE * sizeof(float);
  static constexpr size_t BYTES = WORK > STAGING ? WORK : STAGING;
  static_assert(BYTES <= SHARED_LIMIT, "more shared memory than sm_86 has");
};

/* Softmax so far of the rows of a thread: row 16m + 8r + g is [2m + r]. `sum` is of the thread's own columns. The
 * probabilities in sum and output are relative to `max`, which need not be the largest score but is not far from it. */
template <int M> struct Softmax { float max[2 * M], sum[2 * M]; };

/* Scores become probabilities relative to softmax.max; sums and the output so far are brought to a new maximum. */
template <class T, int M, int N, int D>
__device__ __forceinline__ void softmax_step(float (&scores)[M][N][4], Softmax<M> &softmax, float (&out)[M][D][4],
                                             float scale_log2) {
  /* A maximum that grew by less than this (a factor of 256) is left as it is: most tiles need not touch the output. */
  constexpr float SLACK = 8.0f;
  float max[2 * M];
  bool grow = false;
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    max[r] = softmax.max[r];
#pragma unroll
    for (int n = 0; n < N; n++)
      max[r] = fmaxf(max[r], fmaxf(scores[r / 2][n][r % 2 * 2], scores[r / 2][n][r % 2 * 2 + 1]));
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFu, max[r], 1));
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFu, max[r], 2));
    if (!((max[r] - softmax.max[r]) * scale_log2 > SLACK)) max[r] = softmax.max[r]; /* also -inf and -inf */
    else grow = true;
  }
  if (__any_sync(0xFFFFFFFFu, grow)) {
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
      const float shrink = max[r] == softmax.max[r] ? 1.0f : exp2_for<T>((softmax.max[r] - max[r]) * scale_log2);
      softmax.sum[r] *= shrink;
      softmax.max[r] = max[r];
#pragma unroll
      for (int n = 0; n < D; n++) out[r / 2][n][r % 2 * 2] *= shrink, out[r / 2][n][r % 2 * 2 + 1] *= shrink;
    }
  }
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    const float base = softmax.max[r] == -INFINITY ? 0.0f : softmax.max[r] * scale_log2; /* nothing seen: exp2(-inf) */
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
        scores[r / 2][n][e] = exp2_for<T>(fmaf(scores[r / 2][n][e], scale_log2, -base));
        softmax.sum[r] += scores[r / 2][n][e];
      }
  }
}

/* S = scale * Q K^T where visible;  lse = log sum exp S;  out = dropout(exp(S - lse)) V.
 * One block: QUERIES queries of one head, over the tiles of KEYS keys that any of them sees. Blocks of a head follow
 * each other (its keys stay in the L2 cache), those with the most keys first (short ones fill the end). */
template <class T, int HD, bool DROPOUT>
__global__ void __launch_bounds__(ForwardTiles<T, HD>::THREADS, ForwardTiles<T, HD>::BLOCKS)
    attention_forward(const Arguments<T> a) {
  using S = ForwardTiles<T, HD>;
  constexpr int M = S::M;
  DYNAMIC_SHARED(shared);
  T *const q_tile = reinterpret_cast<T *>(shared), *const stages = q_tile + S::QUERY_TILE;
  float *const exchange = reinterpret_cast<float *>(shared + S::TILES) + warp_id() * EXCHANGE<T, S::STEP>;
  const int blocks = (a.queries + S::QUERIES - 1) / S::QUERIES, bh = (int)(blockIdx.x / (unsigned)blocks);
  const int b = bh / a.heads, h = bh % a.heads, kv_head = h / a.group;
  const int i0 = (blocks - 1 - (int)(blockIdx.x % (unsigned)blocks)) * S::QUERIES, row = warp_id() * 16 * M;
  const Limits block = limits_of(a, b, i0, S::QUERIES), mine = limits_of(a, b, i0 + row, 16 * M);
  const int first = block.min_begin / S::KEYS, last = (block.max_end + S::KEYS - 1) / S::KEYS;
  const auto k_tile = [&](int t) { return stages + t % S::STAGES * 2 * S::KEY_TILE; };
  const auto v_tile = [&](int t) { return k_tile(t) + S::KEY_TILE; };
  const auto fetch = [&](int t) {
    load_tile<HD, S::KEYS, S::THREADS>(k_tile(t), a.k, b, t * S::KEYS, kv_head, a.keys, a.dim);
    load_tile<HD, S::KEYS, S::THREADS>(v_tile(t), a.v, b, t * S::KEYS, kv_head, a.keys, a.dim);
    cp_async_commit();
  };
  load_tile<HD, S::QUERIES, S::THREADS>(q_tile, a.q, b, i0, h, a.queries, a.dim);
  if (first < last) fetch(first);
  else cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  LeftFactor<T, HD, M, S::KEEP> q;
  q.take(q_tile, row);
  Softmax<M> softmax;
#pragma unroll
  for (int r = 0; r < 2 * M; r++) softmax.max[r] = -INFINITY, softmax.sum[r] = 0.0f;
  float out[M][HD / 8][4];
  clear(out);
  for (int t = first; t < last; t++) {
    cp_async_wait<0>();
    __syncthreads(); /* tile t is there, and nobody reads tile t - 1 any more */
    if (S::STAGES == 2 && t + 1 < last) fetch(t + 1);
#pragma unroll 1
    for (int step = 0; step < S::KEYS; step += S::STEP) {
      const int j0 = t * S::KEYS + step;
      if (mine.none_reach(j0)) continue;
      float scores[M][S::STEP / 8][4];
      multiply_transposed<HD>(scores, q, k_tile(t), step, a.dim);
      if (a.scale < 0.0f) scale_all(scores, -1.0f); /* the softmax is of |scale| */
      if (!mine.all_see(j0, S::STEP)) mask_scores(scores, a, b, i0 + row, j0, -INFINITY);
      softmax_step<T>(scores, softmax, out, a.magnitude_log2);
      if (DROPOUT) drop_scores(scores, dropout_stream(a, b, h), i0 + row, j0, 1.0f);
      multiply<HD>(out, scores, v_tile(t), step, exchange, a.dim);
    }
    if (S::STAGES == 1 && t + 1 < last) {
      __syncthreads();
      fetch(t + 1);
    }
  }
  __syncthreads(); /* the tiles are free */
  const int g = lane_id() / 4;
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    float sum = softmax.sum[r];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const int i = i0 + row + r * 8 + g;
    const float lse = sum == 0.0f ? -INFINITY : softmax.max[r] * fabsf(a.scale) + logf(sum);
    if (a.lse && lane_id() % 4 == 0 && i < a.queries) a.lse[(int64_t)bh * a.queries + i] = lse;
    const float factor = sum == 0.0f ? 0.0f : (DROPOUT ? a.dropout.scale : 1.0f) / sum;
#pragma unroll
    for (int n = 0; n < HD / 8; n++) out[r / 2][n][r % 2 * 2] *= factor, out[r / 2][n][r % 2 * 2 + 1] *= factor;
  }
  store_rows<HD, M>(reinterpret_cast<float *>(shared), out, row, a.out, b, i0, h, a.queries, a.dim, NULL, NULL);
}

} // namespace

/* ---- host ---- */

template <class T> static Heads<T> heads_of(View v) {
  const bool strides = v.batch % VECTOR<T> == 0 && v.row % VECTOR<T> == 0 && v.head % VECTOR<T> == 0;
  return {static_cast<T *>(v.data), v.batch, v.row, v.head, strides && aligned16(v.data)};
}

template <class T> static Arguments<T> attention_arguments(const Attention *a) {
  Arguments<T> arguments = {};
  arguments.heads = a->heads;
  arguments.group = a->heads / a->kv_heads;
  arguments.dim = a->head_dim;
  arguments.queries = a->queries;
  arguments.keys = a->keys;
  arguments.scale = a->scale;
  arguments.scale_log2 = a->scale * LOG2_E;
  arguments.magnitude_log2 = fmaxf(fabsf(arguments.scale_log2), 1e-30f); /* times -inf, a masked score, it is no NaN */
  arguments.causal = a->causal;
  arguments.key_begin = a->key_begin;
  arguments.key_end = a->key_end;
  arguments.dropout = dropout_mask(a->dropout);
  if (dropout_active(a->dropout)) {
    const double threshold = (double)a->dropout->p * 65536.0 + 0.5;
    arguments.dropout.threshold = threshold > 65535.0 ? 65535u : (uint32_t)threshold;
  }
  return arguments;
}

/* Calls f with the head size that the kernels are compiled for, which is at least `dim`. */
template <class T, class F> static void with_head_size(Context *c, int dim, F f) {
  if (dim < 8 || dim > 128 || dim % 8)
    fail(&c->error, EXIT_USAGE, "head size %d: CUDA has multiples of 8 up to 128 (choose other --heads)", dim);
  else if constexpr (sizeof(T) == 4) /* exact, not fast: no kernels for sizes between */
    if (dim <= 64) f(std::integral_constant<int, 64>());
    else f(std::integral_constant<int, 128>());
  else if (dim <= 32) f(std::integral_constant<int, 32>());
  else if (dim <= 64) f(std::integral_constant<int, 64>());
  else if (dim <= 96) f(std::integral_constant<int, 96>());
  else f(std::integral_constant<int, 128>());
}

void cuda_rope(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope) {
  if (c->error.code || !heads || head_dim < 2) return;
  const int64_t rows = (int64_t)batch * length;
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const Heads<T> view = heads_of<T>(x);
    const bool vectors = view.aligned && aligned16(rope->table) && head_dim / 2 % VECTOR<T> == 0;
    const int items = heads * (head_dim / 2 / (vectors ? VECTOR<T> : 1));
    const int rows_per_block = items < 256 ? 256 / items : 1;
    launch(c, "rope", vectors ? rope_kernel<T, VECTOR<T>> : rope_kernel<T, 1>,
           dim3((unsigned)divide_up(rows, rows_per_block)), 256, 0, view, rows, rows_per_block, length, heads, head_dim,
           rope->table, rope->positions);
  });
}

template <class T, int HD> static void launch_forward(Context *c, const Attention *a, const Arguments<T> &arguments) {
  using S = ForwardTiles<T, HD>;
  const int64_t blocks = divide_up(a->queries, S::QUERIES) * a->heads * a->batch;
  launch(c, "attention", dropout_active(a->dropout) ? attention_forward<T, HD, true> : attention_forward<T, HD, false>,
         dim3((unsigned)blocks), S::THREADS, S::BYTES, arguments);
}

void cuda_attention(Context *c, const Attention *a, View out, View q, View k, View v, float *lse) {
  if (c->error.code) return;
  with_element(c, [&](auto element) {
    using T = decltype(element);
    Arguments<T> arguments = attention_arguments<T>(a);
    arguments.q = heads_of<T>(q), arguments.k = heads_of<T>(k), arguments.v = heads_of<T>(v);
    arguments.out = heads_of<T>(out);
    arguments.lse = lse;
    with_head_size<T>(c, a->head_dim, [&](auto size) { launch_forward<T, decltype(size)::value>(c, a, arguments); });
  });
}

#endif
