/* The backward of attention in bf16: two kernels that recompute the probabilities from lse. The first has a block for
 * every tile of queries and computes dQ (and delta), the second a block for every tile of keys and computes dK and dV.
 * These are 7 tile products instead of 5, but every sum is computed by one block in a fixed order: no atomics, the same
 * bits every time. */
#ifndef INKLING_KERNELS_CUDA_ATTENTION_BACKWARD_CUH
#define INKLING_KERNELS_CUDA_ATTENTION_BACKWARD_CUH

#include "kernels/cuda/attention_tile.cuh"

namespace {

/* The base b of probabilities exp2(S * scale_log2 - b), which are 0 for a query without visible keys. */
__device__ __forceinline__ float lse_base(float lse) { return lse == -INFINITY ? INFINITY : lse * LOG2_E; }

/* dots[r] = dout * out of row first + 8r + g of one head, in the four lanes of the row. Rows from `rows` on repeat the
 * last row. It reads global memory without branches, so that all loads are in flight together. */
template <int HD, int R>
__device__ __forceinline__ void row_dots(float (&dots)[R], const Heads<bf16> &dout, const Heads<bf16> &out, int b,
                                         int first, int head, int rows, int dim) {
  const int c = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int i = min(first + 8 * r + lane_id() / 4, rows - 1);
    const bf16 *const x = dout.at(b, i, head), *const y = out.at(b, i, head);
    dots[r] = 0.0f;
#pragma unroll
    for (int d = c * 8; d < HD; d += 4 * 8) {
      float xs[8] = {}, ys[8] = {};
      if (d < dim) load<8>(xs, x + d), load<8>(ys, y + d);
#pragma unroll
      for (int j = 0; j < 8; j++) dots[r] = fmaf(xs[j], ys[j], dots[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    dots[r] += __shfl_xor_sync(0xFFFFFFFFu, dots[r], 1);
    dots[r] += __shfl_xor_sync(0xFFFFFFFFu, dots[r], 2);
  }
}

/* ---- dQ ---- */

/* Q and dout stay in registers; their tiles only pass through the memory of the stages. Up to 64 columns a warp has 32
 * queries, and each fragment of keys and values is used for two products; beyond that registers suffice for 16.
 * By wgmma the tiles have memory of their own, where the products read them. */
template <int HD, bool HOPPER> struct QueryGradientTiles : Products<HD, HOPPER> {
  static constexpr bool NARROW = HD <= 64;
  static constexpr int WARPS = HOPPER || NARROW ? 4 : 8, THREADS = 32 * WARPS;
  static constexpr int M = !HOPPER && NARROW ? 2 : 1, QUERIES = 16 * M * WARPS;
  static constexpr int KEYS = 64, STEP = 32, BLOCKS = (NARROW ? 2 : 1) + HOPPER; /* STEP: keys at a time */
  static constexpr int QUERY_TILE = QUERIES * HD, KEY_TILE = KEYS * HD;
  static constexpr int OWN = HOPPER ? 2 * QUERY_TILE : 0; /* elements before the stages */
  static constexpr size_t TILES = (OWN + 2 * 2 * KEY_TILE) * sizeof(bf16);
  static constexpr size_t ROWS = TILES + 2 * QUERIES * sizeof(float); /* lse, delta: no registers are left for them */
  static constexpr size_t STAGING = QUERY_TILE * sizeof(float);
  static constexpr size_t BYTES = (ROWS > STAGING ? ROWS : STAGING) + Products<HD, HOPPER>::SLACK;
  static_assert(BYTES <= SHARED_LIMIT && QUERIES <= 2 * KEYS, "shared memory");
};

/* Replaces the scores of the warp's queries by probabilities; bases: lse_base() of its queries. */
template <int M, int N>
__device__ __forceinline__ void probabilities(float (&p)[M][N][4], const float *bases, float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    const float base = bases[r * 8 + lane_id() / 4];
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
        p[r / 2][n][e] = exp2_approx(fmaf(p[r / 2][n][e], scale_log2, -base));
  }
}

/* Replaces dP by dS = P * (dP - delta). */
template <int M, int N>
__device__ __forceinline__ void score_gradients(float (&ds)[M][N][4], const float (&p)[M][N][4], const float *deltas) {
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    const float delta = deltas[r * 8 + lane_id() / 4];
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) ds[r / 2][n][e] = p[r / 2][n][e] * (ds[r / 2][n][e] - delta);
  }
}

/* Adds the contributions of tile t of keys to dQ of the warp's queries, from i0 on. bases, deltas: of its
 * queries; mine: their limits. */
template <class S, bool DROPOUT, bool REGISTERS>
__device__ __forceinline__ void add_keys(float (&dq)[S::M][S::HD / 8][4], const LeftFactor<S::HD, S::M, REGISTERS> &q,
                                         const LeftFactor<S::HD, S::M, REGISTERS> &dout, const TileArguments &a,
                                         const QueryBlock &at, int i0, const KeyStages<S> &keys, int t,
                                         const float *bases, const float *deltas, const Limits &mine) {
  constexpr int HD = S::HD, M = S::M;
#pragma unroll
  for (int step = 0; step < S::KEYS; step += S::STEP) {
    const int j0 = t * S::KEYS + step;
    if (mine.none_reach(j0)) continue;
    float p[M][S::STEP / 8][4], ds[M][S::STEP / 8][4];
    multiply_transposed<HD>(ds, dout, keys.v_tile(t), step);
    if (DROPOUT) drop_scores(ds, dropout_stream(a, at.b, at.h), i0, j0, a.dropout.scale);
    multiply_transposed<HD>(p, q, keys.k_tile(t), step);
    probabilities(p, bases, a.scale_log2);
    if (!mine.all_see(j0, S::STEP)) mask_scores(p, a, at.b, i0, j0, 0.0f);
    score_gradients(ds, p, deltas);
    multiply<HD>(dq, ds, keys.k_tile(t), step);
  }
}

/* delta_i = sum_d dout*out;  P = exp(S - lse);  dS = P * (dropout(dout V^T) - delta);  dQ = scale * dS K, rotated back.
 * A block computes QUERIES queries of one head, over the tiles of keys that any of them attends to, in the order of the
 * forward. */
template <int HD, bool DROPOUT, bool HOPPER>
__global__ void __launch_bounds__(QueryGradientTiles<HD, HOPPER>::THREADS, QueryGradientTiles<HD, HOPPER>::BLOCKS)
    attention_backward_queries(const TileArguments a) {
  using S = QueryGradientTiles<HD, HOPPER>;
  constexpr int M = S::M;
  DYNAMIC_SHARED(memory);
  unsigned char *const shared = S::align(memory);
  bf16 *const q_tile = reinterpret_cast<bf16 *>(shared), *const dout_tile = q_tile + S::QUERY_TILE;
  float *const bases = reinterpret_cast<float *>(shared + S::TILES), *const deltas = bases + S::QUERIES;
  const QueryBlock at = query_block<S::QUERIES>(a);
  const int row = warp_id() * 16 * M, i0 = at.i0 + row, g = lane_id() / 4;
  const Limits block = limits_of(a, at.b, at.i0, S::QUERIES), mine = limits_of(a, at.b, i0, 16 * M);
  const int first = block.min_begin / S::KEYS, last = (block.max_end + S::KEYS - 1) / S::KEYS;
  const KeyStages<S> keys = {a, q_tile + S::OWN, at.b, at.h / a.group};
  load_tile<HD, S::QUERIES, S::THREADS, S::PANEL>(q_tile, a.q, at.b, at.i0, at.h, a.queries, a.dim);
  load_tile<HD, S::QUERIES, S::THREADS, S::PANEL>(dout_tile, a.dout, at.b, at.i0, at.h, a.queries, a.dim);
  if (S::OWN && first < last) keys.fetch(first);
  else cp_async_commit();

  float delta[2 * M]; /* computed while the tiles are copied */
  row_dots<HD>(delta, a.dout, a.out, at.b, i0, at.h, a.queries, a.dim);
  if (lane_id() % 4 == 0)
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
      const int local = row + r * 8 + g, i = at.i0 + local;
      const int64_t query = (int64_t)at.bh * a.queries + i;
      if (i < a.queries) a.delta[query] = delta[r];
      bases[local] = i < a.queries ? lse_base(a.lse[query]) : INFINITY;
      deltas[local] = delta[r];
    }
  typename S::template Left<M, true> q, dout;
  if (!S::OWN || first >= last) cp_async_wait<0>();
  if (!S::OWN) __syncthreads();
  q.take(q_tile, row);
  dout.take(dout_tile, row);
  if (!S::OWN) {
    __syncthreads(); /* the stages overwrite the tiles */
    if (first < last) keys.fetch(first);
  }

  float dq[M][HD / 8][4];
  clear(dq);
  for (int t = first; t < last; t++) {
    receive_tiles<S>(); /* tile t has arrived, and all warps have read tile t - 1 */
    if (t + 1 < last) keys.fetch(t + 1);
    add_keys<S, DROPOUT>(dq, q, dout, a, at, i0, keys, t, bases + row, deltas + row, mine);
  }
  __syncthreads(); /* the tiles are free */
  scale_all(dq, a.scale);
  float *const staging = reinterpret_cast<float *>(shared);
  store_rows<HD, M>(staging, dq, row, a.dq, at.b, at.i0, at.h, a.queries, a.dim, a.rope, a.positions);
}

/* ---- dK and dV ---- */

/* Scores and their gradients are computed transposed, with keys as rows, so that they stay in registers as left factors
 * of dV and dK. Up to 64 columns keys and values stay in registers too; they pass through the memory of the second
 * stage. By wgmma they stay in memory of their own, where products read them. */
template <int HD, bool HOPPER> struct KeyGradientTiles : Products<HD, HOPPER> {
  static constexpr bool NARROW = HD <= 64, KEEP = NARROW && !HOPPER;
  static constexpr int WARPS = HOPPER || NARROW ? 4 : 8, THREADS = 32 * WARPS, BLOCKS = NARROW ? 3 : 1 + HOPPER;
  static constexpr int KEYS = 16 * WARPS, GROUPS = KEYS / 32, QUERIES = HOPPER || NARROW ? 64 : 32;
  static constexpr int ALIKE = HOPPER ? KEYS : 16; /* keys that are masked or not masked together */
  static constexpr int STEP = HD == 64 ? 16 : 32;  /* queries at a time */
  static constexpr int KEY_TILE = KEYS * HD, QUERY_TILE = QUERIES * HD, STAGE = 2 * QUERY_TILE;
  static constexpr int OWN = KEEP ? 0 : 2 * KEY_TILE; /* elements before the stages */
  static constexpr size_t TILES = (OWN + 2 * STAGE) * sizeof(bf16);
  static constexpr size_t ROWS = TILES + 2 * 2 * QUERIES * sizeof(float);        /* lse, delta */
  static constexpr size_t KEPT = ROWS + 2 * GROUPS * QUERIES * sizeof(uint32_t); /* dropout */
  static constexpr size_t STAGING = KEY_TILE * sizeof(float);
  static constexpr size_t BYTES = (KEPT > STAGING ? KEPT : STAGING) + Products<HD, HOPPER>::SLACK;
  static_assert(BYTES <= SHARED_LIMIT && (!KEEP || KEYS <= QUERIES), "shared memory");
  static_assert(THREADS >= 2 * QUERIES, "a thread for lse and for delta of each query");
};

/* A tile of queries of a head of the group. */
struct QueryTile {
  int head, tile;
};

/* Returns the next tile, of a head before `heads_end`, that attends to any of the KEYS keys from j0 on; head
 * `heads_end` when there is none. */
template <class S>
__device__ __forceinline__ QueryTile next_tile(const AttentionShape &a, int b, QueryTile at, int heads_end, int tiles,
                                               int j0) {
  do
    if (++at.tile == tiles) at.tile = 0, at.head++;
  while (at.head < heads_end && limits_of(a, b, at.tile * S::QUERIES, S::QUERIES).none_see(j0, S::KEYS));
  return at;
}

/* Loads a tile of queries and their dout, and computes the keys that dropout keeps, kept [group of 32 keys][query].
 * `stream`: of the sequence. */
template <class S, bool DROPOUT>
__device__ __forceinline__ void fetch_tile(bf16 *q_tile, uint32_t *kept, const TileArguments &a, int b, QueryTile at,
                                           int j0, DropoutStream &stream) {
  const int i0 = at.tile * S::QUERIES;
  load_tile<S::HD, S::QUERIES, S::THREADS, S::PANEL>(q_tile, a.q, b, i0, at.head, a.queries, a.dim);
  load_tile<S::HD, S::QUERIES, S::THREADS, S::PANEL>(q_tile + S::QUERY_TILE, a.dout, b, i0, at.head, a.queries, a.dim);
  cp_async_commit();
  if (!DROPOUT) return;
  stream.first = (uint32_t)at.head * (uint32_t)a.queries * stream.groups;
  for (int i = (int)threadIdx.x; i < S::GROUPS * S::QUERIES; i += S::THREADS)
    kept[i] = kept_keys(stream, i0 + i % S::QUERIES, j0 / 32 + i / S::QUERIES);
}

/* Returns lse_base() of query i on thread i, and delta of query i on thread i + QUERIES. */
template <class S> __device__ __forceinline__ float row_value(const AttentionShape &a, int b, QueryTile at) {
  constexpr int QUERIES = S::QUERIES;
  const int thread = (int)threadIdx.x, i = at.tile * QUERIES + thread % QUERIES;
  const bool is_lse = thread < QUERIES;
  if (thread >= 2 * QUERIES || i >= a.queries) return is_lse ? INFINITY : 0.0f;
  const int64_t query = ((int64_t)b * a.heads + at.head) * a.queries + i;
  return is_lse ? lse_base(a.lse[query]) : a.delta[query];
}

/* Replaces the scores of 16 keys by probabilities; bases: lse_base() of the 8N queries. */
template <int N>
__device__ __forceinline__ void probabilities_transposed(float (&p)[1][N][4], const float *bases, float scale_log2) {
#pragma unroll
  for (int n = 0; n < N; n++) {
    float base[2];
    load<2>(base, bases + 8 * n + lane_id() % 4 * 2);
#pragma unroll
    for (int e = 0; e < 4; e++) p[0][n][e] = exp2_approx(fmaf(p[0][n][e], scale_log2, -base[e % 2]));
  }
}

/* Replaces dout V^T by dS, and P by dropout(P) without the scale. kept: bits `bit` .. `bit` + 15 are for the 16
 * keys. */
template <bool DROPOUT, int N>
__device__ __forceinline__ void score_gradients_transposed(float (&ds)[1][N][4], float (&p)[1][N][4],
                                                           const float *deltas, const uint32_t *kept, int bit,
                                                           float scale) {
  const int c = lane_id() % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; n++) {
    float delta[2];
    load<2>(delta, deltas + 8 * n + c);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const bool stays = !DROPOUT || (kept[8 * n + c + e % 2] >> (bit + e / 2 * 8 + lane_id() / 4) & 1);
      const float dp = DROPOUT ? (stays ? ds[0][n][e] * scale : 0.0f) : ds[0][n][e];
      ds[0][n][e] = p[0][n][e] * (dp - delta[e % 2]);
      if (!stays) p[0][n][e] = 0.0f;
    }
  }
}

/* Adds the contributions of a tile of queries, from i0 on, to dK and dV of the warp's 16 keys, from j0 on. bases:
 * [lse_base(), delta][query]; kept: [query] of the 32 keys that include the 16; whole: all queries attend to all
 * keys. */
template <class S, bool DROPOUT, bool REGISTERS>
__device__ __forceinline__ void
add_tile(float (&dk)[1][S::HD / 8][4], float (&dv)[1][S::HD / 8][4], const LeftFactor<S::HD, 1, REGISTERS> &k,
         const LeftFactor<S::HD, 1, REGISTERS> &v, const TileArguments &a, int b, int i0, int j0, const bf16 *q_tile,
         const float *bases, const uint32_t *kept, bool whole) {
  constexpr int HD = S::HD;
  const bf16 *const dout_tile = q_tile + S::QUERY_TILE;
#pragma unroll
  for (int step = 0; step < S::QUERIES; step += S::STEP) {
    bool masked = false;
    if (!whole) {
      const Limits limits = limits_of(a, b, i0 + step, S::STEP);
      if (limits.none_see(j0, 16)) continue;
      masked = !limits.all_see(j0, 16);
    }
    float p[1][S::STEP / 8][4], ds[1][S::STEP / 8][4];
    multiply_transposed<HD>(p, k, q_tile, step);
    multiply_transposed<HD>(ds, v, dout_tile, step);
    probabilities_transposed(p, bases + step, a.scale_log2);
    if (masked) mask_scores_transposed(p, a, b, i0 + step, j0, 0.0f);
    score_gradients_transposed<DROPOUT>(ds, p, bases + S::QUERIES + step, kept + step, j0 % 32, a.dropout.scale);
    multiply<HD>(dv, p, dout_tile, step);
    multiply<HD>(dk, ds, q_tile, step);
  }
}

/* P = exp(S - lse);  dV = dropout(P)^T dout;  dS = P * (dropout(dout V^T) - delta);  dK = scale * dS^T Q, rotated back;
 * both summed over the query heads of the group. A block computes KEYS keys of one kv head, over the tiles of QUERIES
 * queries of the group's heads that attend to any of them. */
template <int HD, bool DROPOUT, bool HOPPER>
__global__ void __launch_bounds__(KeyGradientTiles<HD, HOPPER>::THREADS, KeyGradientTiles<HD, HOPPER>::BLOCKS)
    attention_backward_keys(const TileArguments a) {
  using S = KeyGradientTiles<HD, HOPPER>;
  DYNAMIC_SHARED(memory);
  unsigned char *const shared = S::align(memory);
  bf16 *const stages = reinterpret_cast<bf16 *>(shared) + S::OWN;
  bf16 *const own = reinterpret_cast<bf16 *>(shared) + (S::KEEP ? S::STAGE : 0);
  float *const values = reinterpret_cast<float *>(shared + S::TILES);    /* [stage][lse, delta][query] */
  uint32_t *const kept = reinterpret_cast<uint32_t *>(shared + S::ROWS); /* [stage][group of 32 keys][query] */
  const int blocks = (a.keys + S::KEYS - 1) / S::KEYS, kv_heads = a.heads / a.group;
  const int b = (int)blockIdx.x / blocks / kv_heads, kv_head = (int)blockIdx.x / blocks % kv_heads;
  const int j0 = (int)blockIdx.x % blocks * S::KEYS, row = warp_id() * 16;
  const int tiles = (a.queries + S::QUERIES - 1) / S::QUERIES, heads_end = (kv_head + 1) * a.group;
  DropoutStream stream = DROPOUT ? dropout_stream(a, b, 0) : DropoutStream();
  const auto fetch = [&](QueryTile at, int stage) {
    fetch_tile<S, DROPOUT>(stages + stage * S::STAGE, kept + stage * S::GROUPS * S::QUERIES, a, b, at, j0, stream);
  };
  const auto put_row_value = [&](float value, int stage) {
    if (threadIdx.x < 2 * S::QUERIES) values[stage * 2 * S::QUERIES + threadIdx.x] = value;
  };
  QueryTile at = {heads_end, 0};
  if (tiles) at = next_tile<S>(a, b, {kv_head * a.group, -1}, heads_end, tiles, j0);
  load_tile<HD, S::KEYS, S::THREADS, S::PANEL>(own, a.k, b, j0, kv_head, a.keys, a.dim);
  load_tile<HD, S::KEYS, S::THREADS, S::PANEL>(own + S::KEY_TILE, a.v, b, j0, kv_head, a.keys, a.dim);
  if (at.head < heads_end) {
    fetch(at, 0);
    put_row_value(row_value<S>(a, b, at), 0);
  } else cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  typename S::template Left<1, S::KEEP> k, v;
  k.take(own, row), v.take(own + S::KEY_TILE, row);

  float dk[1][HD / 8][4], dv[1][HD / 8][4];
  clear(dk), clear(dv);
  for (int n = 0; at.head < heads_end; n++) {
    receive_tiles<S>(); /* tile n has arrived, and all warps have read tile n - 1 */
    const QueryTile next = next_tile<S>(a, b, at, heads_end, tiles, j0);
    const bool more = next.head < heads_end;
    const int stage = n % 2, other = (n + 1) % 2;
    const bool whole = limits_of(a, b, at.tile * S::QUERIES, S::QUERIES).all_see(S::TOGETHER ? j0 : j0 + row, S::ALIKE);
    float next_value = 0.0f; /* loaded early, stored after the products of this tile */
    if (more) {
      next_value = row_value<S>(a, b, next);
      fetch(next, other);
    }
    add_tile<S, DROPOUT>(dk, dv, k, v, a, b, at.tile * S::QUERIES, j0 + row, stages + stage * S::STAGE,
                         values + stage * 2 * S::QUERIES, kept + (stage * S::GROUPS + row / 32) * S::QUERIES, whole);
    if (more) put_row_value(next_value, other);
    at = next;
  }
  __syncthreads(); /* the tiles are free */
  scale_all(dk, a.scale);
  if (DROPOUT) scale_all(dv, a.dropout.scale);
  float *const staging = reinterpret_cast<float *>(shared);
  store_rows<HD, 1>(staging, dk, row, a.dk, b, j0, kv_head, a.keys, a.dim, a.rope, a.positions);
  store_rows<HD, 1>(staging, dv, row, a.dv, b, j0, kv_head, a.keys, a.dim, NULL, NULL);
}

} // namespace

/* ---- host ---- */

template <int HD, bool DROPOUT, bool HOPPER>
static void launch_backward_kernels(Context *c, const Attention *a, const TileArguments &arguments) {
  using Queries = QueryGradientTiles<HD, HOPPER>;
  using Keys = KeyGradientTiles<HD, HOPPER>;
  const int64_t query_blocks = divide_up(a->queries, Queries::QUERIES) * a->heads * a->batch;
  const int64_t key_blocks = divide_up(a->keys, Keys::KEYS) * a->kv_heads * a->batch;
  launch(c, "attention_backward", attention_backward_queries<HD, DROPOUT, HOPPER>, dim3((unsigned)query_blocks),
         Queries::THREADS, Queries::BYTES, arguments);
  launch(c, "attention_backward", attention_backward_keys<HD, DROPOUT, HOPPER>, dim3((unsigned)key_blocks),
         Keys::THREADS, Keys::BYTES, arguments);
}

#endif
