/* The forward of attention in bf16 (Dao, "FlashAttention-2", 2023): one pass over the keys with a running maximum;
 * probabilities stay in registers. */
#ifndef INKLING_KERNELS_CUDA_ATTENTION_FORWARD_CUH
#define INKLING_KERNELS_CUDA_ATTENTION_FORWARD_CUH

#include "kernels/cuda/attention_tile.cuh"

namespace {

/* Tile sizes. A warp with 32 queries uses every fragment of keys and values that it reads from shared memory for two
 * products. With more than 64 columns the queries do not fit into registers together with the output, and are read
 * again. */
template <int HD, bool HOPPER> struct ForwardTiles : Products<HD, HOPPER> {
  static constexpr bool KEEP = HD <= 64 && !HOPPER;
  static constexpr int M = HOPPER ? 1 : 2, WARPS = 4, THREADS = 32 * WARPS, QUERIES = 16 * M * WARPS;
  static constexpr int BLOCKS = HOPPER && HD <= 64 ? 3 : 2;
  static constexpr int KEYS = 64, STEP = KEEP || HOPPER ? KEYS : 32; /* STEP: keys at a time */
  static constexpr int QUERY_TILE = QUERIES * HD, KEY_TILE = KEYS * HD;
  static constexpr size_t TILES = (QUERY_TILE + 2 * 2 * KEY_TILE) * sizeof(bf16);
  static constexpr size_t STAGING = QUERY_TILE * sizeof(float);
  static constexpr size_t BYTES = (TILES > STAGING ? TILES : STAGING) + Products<HD, HOPPER>::SLACK;
  static_assert(BYTES <= SHARED_LIMIT, "more shared memory than sm_86 has");
};

/* The running softmax of a thread's rows: row 16m + 8r + g is [2m + r]. `sum` covers the thread's own columns. The
 * probabilities in sum and output are relative to `max`, which is near the largest score. */
template <int M> struct Softmax { float max[2 * M], sum[2 * M]; };

/* Replaces scores by probabilities relative to softmax.max, and rescales sums and output when the maximum changes. */
template <int M, int N, int D>
__device__ __forceinline__ void softmax_step(float (&scores)[M][N][4], Softmax<M> &softmax, float (&out)[M][D][4],
                                             float scale_log2) {
  /* The maximum changes only when it grows by more than this (a factor of 256): most tiles do not rescale the
   * output. */
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
      const float shrink = max[r] == softmax.max[r] ? 1.0f : exp2_approx((softmax.max[r] - max[r]) * scale_log2);
      softmax.sum[r] *= shrink;
      softmax.max[r] = max[r];
#pragma unroll
      for (int n = 0; n < D; n++) out[r / 2][n][r % 2 * 2] *= shrink, out[r / 2][n][r % 2 * 2 + 1] *= shrink;
    }
  }
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    const float base =
        softmax.max[r] == -INFINITY ? 0.0f : softmax.max[r] * scale_log2; /* no visible key: exp2(-inf) */
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
        scores[r / 2][n][e] = exp2_approx(fmaf(scores[r / 2][n][e], scale_log2, -base));
        softmax.sum[r] += scores[r / 2][n][e];
      }
  }
}

/* Writes lse of the warp's queries, and divides their output by the sums, times `scale`. */
template <int M, int D>
__device__ __forceinline__ void finish_softmax(const Softmax<M> &softmax, float (&out)[M][D][4],
                                               const AttentionShape &a, const QueryBlock &at, int row, float scale) {
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    float sum = softmax.sum[r];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const int i = at.i0 + row + r * 8 + lane_id() / 4;
    const float lse = sum == 0.0f ? -INFINITY : softmax.max[r] * a.scale + logf(sum);
    if (a.lse && lane_id() % 4 == 0 && i < a.queries) a.lse[(int64_t)at.bh * a.queries + i] = lse;
    const float factor = sum == 0.0f ? 0.0f : scale / sum;
#pragma unroll
    for (int n = 0; n < D; n++) out[r / 2][n][r % 2 * 2] *= factor, out[r / 2][n][r % 2 * 2 + 1] *= factor;
  }
}

/* S = scale * Q K^T where visible;  lse = log sum exp S;  out = dropout(exp(S - lse)) V.
 * A block computes QUERIES queries of one head, over the tiles of KEYS keys that any of them attends to. */
template <int HD, bool DROPOUT, bool HOPPER>
__global__ void __launch_bounds__(ForwardTiles<HD, HOPPER>::THREADS, ForwardTiles<HD, HOPPER>::BLOCKS)
    attention_forward(const TileArguments a) {
  using S = ForwardTiles<HD, HOPPER>;
  constexpr int M = S::M;
  DYNAMIC_SHARED(memory);
  unsigned char *const shared = S::align(memory);
  bf16 *const q_tile = reinterpret_cast<bf16 *>(shared);
  const QueryBlock at = query_block<S::QUERIES>(a);
  const int row = warp_id() * 16 * M, i0 = at.i0 + row;
  const Limits block = limits_of(a, at.b, at.i0, S::QUERIES), mine = limits_of(a, at.b, i0, 16 * M);
  const int first = block.min_begin / S::KEYS, last = (block.max_end + S::KEYS - 1) / S::KEYS;
  const KeyStages<S> keys = {a, q_tile + S::QUERY_TILE, at.b, at.h / a.group};
  load_tile<HD, S::QUERIES, S::THREADS, S::PANEL>(q_tile, a.q, at.b, at.i0, at.h, a.queries, a.dim);
  if (first < last) keys.fetch(first);
  else cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  typename S::template Left<M, S::KEEP> q;
  q.take(q_tile, row);
  Softmax<M> softmax;
#pragma unroll
  for (int r = 0; r < 2 * M; r++) softmax.max[r] = -INFINITY, softmax.sum[r] = 0.0f;
  float out[M][HD / 8][4];
  clear(out);
  for (int t = first; t < last; t++) {
    receive_tiles<S>(); /* tile t has arrived, and all warps have read tile t - 1 */
    if (t + 1 < last) keys.fetch(t + 1);
#pragma unroll 1
    for (int step = 0; step < S::KEYS; step += S::STEP) {
      const int j0 = t * S::KEYS + step;
      if (!S::TOGETHER && mine.none_reach(j0)) continue;
      float scores[M][S::STEP / 8][4];
      multiply_transposed<HD>(scores, q, typename S::Tile(keys.k_tile(t)), step);
      if (!mine.all_see(j0, S::STEP)) mask_scores(scores, a, at.b, i0, j0, -INFINITY);
      softmax_step(scores, softmax, out, a.scale_log2);
      if (DROPOUT) drop_scores(scores, dropout_stream(a, at.b, at.h), i0, j0, 1.0f);
      multiply<HD>(out, scores, typename S::Tile(keys.v_tile(t)), step);
    }
  }
  __syncthreads(); /* the tiles are free */

  const QueryBlock same = query_block<S::QUERIES>(a); /* computed again, which saves registers in the loop */
  float *const staging = reinterpret_cast<float *>(shared);
  finish_softmax(softmax, out, a, same, row, DROPOUT ? a.dropout.scale : 1.0f);
  store_rows<HD, M>(staging, out, row, a.out, same.b, same.i0, same.h, a.queries, a.dim, NULL, NULL);
}

} // namespace

/* ---- host ---- */

template <int HD, bool DROPOUT, bool HOPPER>
static void launch_forward_kernel(Context *c, const Attention *a, const TileArguments &arguments) {
  using S = ForwardTiles<HD, HOPPER>;
  const int64_t blocks = divide_up(a->queries, S::QUERIES) * a->heads * a->batch;
  launch(c, "attention", attention_forward<HD, DROPOUT, HOPPER>, dim3((unsigned)blocks), S::THREADS, S::BYTES,
         arguments);
}

#endif
