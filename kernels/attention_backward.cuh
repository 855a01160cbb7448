/* The backward of attention: two kernels that recompute the probabilities from lse. The first has a block for every
 * tile of queries and gives dQ (and delta), the second one for every tile of keys and gives dK and dV. That is 7 tile
 * products in place of 5, but every sum has one owner and a fixed order: no atomics, the same bits every time. */
#ifndef INKLING_KERNELS_ATTENTION_BACKWARD_CUH
#define INKLING_KERNELS_ATTENTION_BACKWARD_CUH

#include "kernels/attention.cuh"

namespace {

/* exp2(S * scale_log2 - this) is the probability; 0 for a query that sees nothing. */
__device__ __forceinline__ float lse_base(float lse) { return lse == -INFINITY ? INFINITY : lse * LOG2_E; }

/* dots[r] = dout * out of row first + 8r + g of one head, known to the four lanes of the row. Rows from `rows` on give
 * those of the last one. Straight from global memory and without branches, so that all loads are under way together. */
template <int HD, int R, class T>
__device__ __forceinline__ void row_dots(float (&dots)[R], const Heads<T> &dout, const Heads<T> &out, int b, int first,
                                         int head, int rows, int dim) {
  constexpr int V = VECTOR<T>;
  const int c = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < R; r++) {
    const int i = min(first + 8 * r + lane_id() / 4, rows - 1);
    const T *const x = dout.at(b, i, head), *const y = out.at(b, i, head);
    dots[r] = 0.0f;
    if (dout.aligned && out.aligned) {
#pragma unroll
      for (int d = c * V; d < HD; d += 4 * V) {
        float xs[V] = {}, ys[V] = {};
        if (d < dim) load<V>(xs, x + d), load<V>(ys, y + d);
#pragma unroll
        for (int j = 0; j < V; j++) dots[r] = fmaf(xs[j], ys[j], dots[r]);
      }
    } else {
#pragma unroll 1
      for (int d = c; d < dim; d += 4) dots[r] = fmaf(to_float(x[d]), to_float(y[d]), dots[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < R; r++) {
    dots[r] += __shfl_xor_sync(0xFFFFFFFFu, dots[r], 1);
    dots[r] += __shfl_xor_sync(0xFFFFFFFFu, dots[r], 2);
  }
}

/* ---- dQ ---- */

/* Q and dout stay in registers, so their tiles are only passed through the space of the stages. Up to 64 columns a warp
 * has 32 queries: each fragment of keys and values serves two products; beyond that registers are out at 16. */
template <class T, int HD> struct QueryGradientTiles {
  static constexpr bool TENSOR = sizeof(T) == 2, NARROW = HD <= 64, KEEP = TENSOR;
  static constexpr int WARPS = TENSOR ? NARROW ? 4 : 8 : 2, THREADS = 32 * WARPS, M = TENSOR && NARROW ? 2 : 1;
  static constexpr int QUERIES = 16 * M * WARPS, BLOCKS = TENSOR && NARROW ? 2 : 1;
  static constexpr int KEYS = TENSOR ? 64 : 32, STEP = 32, STAGES = TENSOR ? 2 : 1; /* STEP: keys at a time */
  static constexpr int QUERY_TILE = QUERIES * HD, KEY_TILE = KEYS * HD;
  static constexpr int OWN = KEEP ? 0 : 2 * QUERY_TILE; /* elements in front of the stages */
  static constexpr size_t TILES = (OWN + STAGES * 2 * KEY_TILE) * sizeof(T);
  static constexpr size_t ROWS = TILES + 2 * QUERIES * sizeof(float); /* lse, delta: no registers are left for them */
  static constexpr size_t WORK = ROWS + WARPS * EXCHANGE<T, STEP> * sizeof(float);
  static constexpr size_t STAGING = QUERY_TILE * sizeof(float);
  static constexpr size_t BYTES = WORK > STAGING ? WORK : STAGING;
  static_assert(BYTES <= SHARED_LIMIT && (!KEEP || QUERIES <= STAGES * KEYS), "shared memory");
};

/* delta_i = sum_d dout*out;  P = exp(S - lse);  dS = P * (dropout(dout V^T) - delta);  dQ = scale * dS K, rotated back.
 * One block: QUERIES queries of one head, over the tiles of keys that any of them sees, in the order of the forward. */
template <class T, int HD, bool DROPOUT>
__global__ void __launch_bounds__(QueryGradientTiles<T, HD>::THREADS, QueryGradientTiles<T, HD>::BLOCKS)
    attention_backward_queries(const Arguments<T> a) {
  using S = QueryGradientTiles<T, HD>;
  constexpr int M = S::M;
  DYNAMIC_SHARED(shared);
  T *const q_tile = reinterpret_cast<T *>(shared), *const dout_tile = q_tile + S::QUERY_TILE;
  T *const stages = q_tile + S::OWN;
  float *const bases = reinterpret_cast<float *>(shared + S::TILES), *const deltas = bases + S::QUERIES;
  float *const exchange = reinterpret_cast<float *>(shared + S::ROWS) + warp_id() * EXCHANGE<T, S::STEP>;
  const int blocks = (a.queries + S::QUERIES - 1) / S::QUERIES, bh = (int)(blockIdx.x / (unsigned)blocks);
  const int b = bh / a.heads, h = bh % a.heads, kv_head = h / a.group;
  const int i0 = (blocks - 1 - (int)(blockIdx.x % (unsigned)blocks)) * S::QUERIES, row = warp_id() * 16 * M,
            g = lane_id() / 4;
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
  load_tile<HD, S::QUERIES, S::THREADS>(dout_tile, a.dout, b, i0, h, a.queries, a.dim);
  cp_async_commit();

  float delta[2 * M]; /* while the tiles are on their way */
  row_dots<HD>(delta, a.dout, a.out, b, i0 + row, h, a.queries, a.dim);
  if (lane_id() % 4 == 0)
#pragma unroll
    for (int r = 0; r < 2 * M; r++) {
      const int local = row + r * 8 + g, i = i0 + local;
      const int64_t at = (int64_t)bh * a.queries + i;
      if (i < a.queries) a.delta[at] = delta[r];
      bases[local] = i < a.queries ? lse_base(a.lse[at]) : INFINITY;
      deltas[local] = delta[r];
    }
  cp_async_wait<0>();
  __syncthreads();
  LeftFactor<T, HD, M, S::KEEP> q, dout;
  q.take(q_tile, row);
  dout.take(dout_tile, row);
  if (S::KEEP) __syncthreads(); /* the stages take their place */
  if (first < last) fetch(first);

  float dq[M][HD / 8][4];
  clear(dq);
  for (int t = first; t < last; t++) {
    cp_async_wait<0>();
    __syncthreads(); /* tile t is there, and nobody reads tile t - 1 any more */
    if (S::STAGES == 2 && t + 1 < last) fetch(t + 1);
#pragma unroll
    for (int step = 0; step < S::KEYS; step += S::STEP) {
      const int j0 = t * S::KEYS + step;
      if (mine.none_reach(j0)) continue;
      float p[M][S::STEP / 8][4], ds[M][S::STEP / 8][4];
      multiply_transposed<HD>(ds, dout, v_tile(t), step, a.dim);
      if (DROPOUT) drop_scores(ds, dropout_stream(a, b, h), i0 + row, j0, a.dropout.scale);
      multiply_transposed<HD>(p, q, k_tile(t), step, a.dim);
#pragma unroll
      for (int r = 0; r < 2 * M; r++) {
        const float base = bases[row + r * 8 + g];
#pragma unroll
        for (int n = 0; n < S::STEP / 8; n++)
#pragma unroll
          for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            p[r / 2][n][e] = exp2_for<T>(fmaf(p[r / 2][n][e], a.scale_log2, -base));
      }
      if (!mine.all_see(j0, S::STEP)) mask_scores(p, a, b, i0 + row, j0, 0.0f);
#pragma unroll
      for (int r = 0; r < 2 * M; r++) {
        const float delta = deltas[row + r * 8 + g];
#pragma unroll
        for (int n = 0; n < S::STEP / 8; n++)
#pragma unroll
          for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) ds[r / 2][n][e] = p[r / 2][n][e] * (ds[r / 2][n][e] - delta);
      }
      multiply<HD>(dq, ds, k_tile(t), step, exchange, a.dim);
    }
    if (S::STAGES == 1 && t + 1 < last) {
      __syncthreads();
      fetch(t + 1);
    }
  }
  __syncthreads(); /* the tiles are free */
  scale_all(dq, a.scale);
  store_rows<HD, M>(reinterpret_cast<float *>(shared), dq, row, a.dq, b, i0, h, a.queries, a.dim, a.rope, a.positions);
}

/* ---- dK and dV ---- */

/* Scores and their gradients are computed transposed, keys as rows: as left factors of dV and dK they stay in
 * registers. Up to 64 columns keys and values do so too, and the second stage lends them its space until they are
 * there. */
template <class T, int HD> struct KeyGradientTiles {
  static constexpr bool TENSOR = sizeof(T) == 2, NARROW = HD <= 64, KEEP = TENSOR && NARROW;
  static constexpr int WARPS = TENSOR ? NARROW ? 4 : 8 : 2, THREADS = 32 * WARPS, M = 1, KEYS = 16 * M * WARPS;
  static constexpr int QUERIES = TENSOR && NARROW ? 64 : 32, STEP = HD == 64 ? 16 : 32; /* STEP: queries at a time */
  static constexpr int STAGES = TENSOR ? 2 : 1, BLOCKS = TENSOR && NARROW ? 3 : 1, GROUPS = KEYS / 32;
  static constexpr int KEY_TILE = KEYS * HD, QUERY_TILE = QUERIES * HD, STAGE = 2 * QUERY_TILE;
  static constexpr int OWN = KEEP ? 0 : 2 * KEY_TILE; /* elements in front of the stages */
  static constexpr size_t TILES = (OWN + STAGES * STAGE) * sizeof(T);
  static constexpr size_t ROWS = TILES + STAGES * 2 * QUERIES * sizeof(float);        /* lse, delta */
  static constexpr size_t KEPT = ROWS + STAGES * GROUPS * QUERIES * sizeof(uint32_t); /* dropout */
  static constexpr size_t WORK = KEPT + WARPS * EXCHANGE<T, STEP> * sizeof(float);
  static constexpr size_t STAGING = KEY_TILE * sizeof(float);
  static constexpr size_t BYTES = WORK > STAGING ? WORK : STAGING;
  static_assert(BYTES <= SHARED_LIMIT && (!KEEP || KEYS <= QUERIES), "shared memory");
  static_assert(THREADS >= 2 * QUERIES, "a thread for lse and for delta of each query");
};

/* A tile of queries of one of the heads of a group. */
struct QueryTile {
  int head, tile;
};

/* P = exp(S - lse);  dV = dropout(P)^T dout;  dS = P * (dropout(dout V^T) - delta);  dK = scale * dS^T Q, rotated back;
 * both summed over the query heads of the group.
 * One block: KEYS keys of one kv head, over the tiles of QUERIES queries of the group's heads that see any of them. */
template <class T, int HD, bool DROPOUT>
__global__ void __launch_bounds__(KeyGradientTiles<T, HD>::THREADS, KeyGradientTiles<T, HD>::BLOCKS)
    attention_backward_keys(const Arguments<T> a) {
  using S = KeyGradientTiles<T, HD>;
  constexpr int M = S::M;
  DYNAMIC_SHARED(shared);
  T *const stages = reinterpret_cast<T *>(shared) + S::OWN;
  T *const own = reinterpret_cast<T *>(shared) + (S::KEEP ? S::STAGE : 0);
  float *const row_values = reinterpret_cast<float *>(shared + S::TILES);      /* [stage][lse, delta][query] */
  uint32_t *const kept_masks = reinterpret_cast<uint32_t *>(shared + S::ROWS); /* [stage][group of 32 keys][query] */
  float *const exchange = reinterpret_cast<float *>(shared + S::KEPT) + warp_id() * EXCHANGE<T, S::STEP>;
  const int blocks = (a.keys + S::KEYS - 1) / S::KEYS, kv_heads = a.heads / a.group;
  const int b = (int)blockIdx.x / blocks / kv_heads, kv_head = (int)blockIdx.x / blocks % kv_heads;
  const int j0 = (int)blockIdx.x % blocks * S::KEYS, row = warp_id() * 16 * M, thread = (int)threadIdx.x;
  const int tiles = (a.queries + S::QUERIES - 1) / S::QUERIES, heads_end = (kv_head + 1) * a.group;
  const int g = lane_id() / 4, c = lane_id() % 4;
  DropoutStream stream = {};
  if (DROPOUT) stream = dropout_stream(a, b, 0);

  const auto next_tile = [&](QueryTile at) {
    do
      if (++at.tile == tiles) at.tile = 0, at.head++;
    while (at.head < heads_end && limits_of(a, b, at.tile * S::QUERIES, S::QUERIES).none_see(j0, S::KEYS));
    return at;
  };
  const auto fetch = [&](QueryTile at, int stage) {
    T *const q_tile = stages + stage * S::STAGE;
    const int i0 = at.tile * S::QUERIES;
    load_tile<HD, S::QUERIES, S::THREADS>(q_tile, a.q, b, i0, at.head, a.queries, a.dim);
    load_tile<HD, S::QUERIES, S::THREADS>(q_tile + S::QUERY_TILE, a.dout, b, i0, at.head, a.queries, a.dim);
    cp_async_commit();
    if (!DROPOUT) return;
    stream.first = (uint32_t)at.head * (uint32_t)a.queries * stream.groups;
    for (int i = thread; i < S::GROUPS * S::QUERIES; i += S::THREADS)
      kept_masks[stage * S::GROUPS * S::QUERIES + i] = kept_keys(stream, i0 + i % S::QUERIES, j0 / 32 + i / S::QUERIES);
  };
  /* What the thread puts into row_values: read early, written when the products of the tile before are done. */
  const auto row_value = [&](QueryTile at) {
    const int i = at.tile * S::QUERIES + thread % S::QUERIES;
    const bool is_lse = thread < S::QUERIES;
    if (thread >= 2 * S::QUERIES || i >= a.queries) return is_lse ? INFINITY : 0.0f;
    const int64_t index = ((int64_t)b * a.heads + at.head) * a.queries + i;
    return is_lse ? lse_base(a.lse[index]) : a.delta[index];
  };
  const auto put_row_value = [&](float value, int stage) {
    if (thread < 2 * S::QUERIES) row_values[stage * 2 * S::QUERIES + thread] = value;
  };

  QueryTile at = {heads_end, 0};
  if (tiles) at = next_tile({kv_head * a.group, -1});
  load_tile<HD, S::KEYS, S::THREADS>(own, a.k, b, j0, kv_head, a.keys, a.dim);
  load_tile<HD, S::KEYS, S::THREADS>(own + S::KEY_TILE, a.v, b, j0, kv_head, a.keys, a.dim);
  if (at.head < heads_end) {
    fetch(at, 0);
    put_row_value(row_value(at), 0);
  } else cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  LeftFactor<T, HD, M, S::KEEP> k, v;
  k.take(own, row);
  v.take(own + S::KEY_TILE, row);

  float dk[M][HD / 8][4], dv[M][HD / 8][4];
  clear(dk);
  clear(dv);
  for (int n = 0; at.head < heads_end; n++) {
    cp_async_wait<0>();
    __syncthreads(); /* tile n is there, and nobody reads tile n - 1 any more */
    const QueryTile next = next_tile(at);
    const bool more = next.head < heads_end;
    const int stage = n % S::STAGES, other = (n + 1) % S::STAGES;
    const T *const q_tile = stages + stage * S::STAGE, *const dout_tile = q_tile + S::QUERY_TILE;
    const bool whole = limits_of(a, b, at.tile * S::QUERIES, S::QUERIES).all_see(j0 + row, 16 * M);
    float next_value = 0.0f;
    if (S::STAGES == 2 && more) {
      next_value = row_value(next);
      fetch(next, other);
    }
#pragma unroll
    for (int step = 0; step < S::QUERIES; step += S::STEP) {
      const int i0 = at.tile * S::QUERIES + step;
      bool masked = false;
      if (!whole) {
        const Limits limits = limits_of(a, b, i0, S::STEP);
        if (limits.none_see(j0 + row, 16 * M)) continue;
        masked = !limits.all_see(j0 + row, 16 * M);
      }
      const float *const bases = row_values + stage * 2 * S::QUERIES + step, *const deltas = bases + S::QUERIES;
      float p[M][S::STEP / 8][4], ds[M][S::STEP / 8][4];
      multiply_transposed<HD>(p, k, q_tile, step, a.dim);
      multiply_transposed<HD>(ds, v, dout_tile, step, a.dim);
#pragma unroll
      for (int column = 0; column < S::STEP / 8; column++) {
        float base[2];
        load<2>(base, bases + 8 * column + 2 * c);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
          for (int e = 0; e < 4; e++) p[m][column][e] = exp2_for<T>(fmaf(p[m][column][e], a.scale_log2, -base[e % 2]));
      }
      if (masked) mask_scores_transposed(p, a, b, i0, j0 + row, 0.0f);
#pragma unroll
      for (int column = 0; column < S::STEP / 8; column++) {
        float delta[2];
        load<2>(delta, deltas + 8 * column + 2 * c);
#pragma unroll
        for (int m = 0; m < M; m++) {
          const int key = row + 16 * m; /* of the lane's keys, key + g and key + 8 + g, bits in the masks of key / 32 */
          const uint32_t *const masks =
              kept_masks + (stage * S::GROUPS + key / 32) * S::QUERIES + step + 8 * column + 2 * c;
#pragma unroll
          for (int e = 0; e < 4; e++) {
            float &pe = p[m][column][e], &dse = ds[m][column][e];
            const bool kept = !DROPOUT || (masks[e % 2] >> (key % 32 + e / 2 * 8 + g) & 1);
            const float dp = DROPOUT ? (kept ? dse * a.dropout.scale : 0.0f) : dse;
            dse = pe * (dp - delta[e % 2]);
            if (!kept) pe = 0.0f;
          }
        }
      }
      multiply<HD>(dv, p, dout_tile, step, exchange, a.dim);
      multiply<HD>(dk, ds, q_tile, step, exchange, a.dim);
    }
    if (S::STAGES == 1 && more) {
      __syncthreads();
      next_value = row_value(next);
      fetch(next, other);
    }
    if (more) put_row_value(next_value, other);
    at = next;
  }
  __syncthreads(); /* the tiles are free */
  scale_all(dk, a.scale);
  if (DROPOUT) scale_all(dv, a.dropout.scale);
  float *const staging = reinterpret_cast<float *>(shared);
  store_rows<HD, M>(staging, dk, row, a.dk, b, j0, kv_head, a.keys, a.dim, a.rope, a.positions);
  store_rows<HD, M>(staging, dv, row, a.dv, b, j0, kv_head, a.keys, a.dim, NULL, NULL);
}

} // namespace

/* ---- host ---- */

template <class T, int HD> static void launch_backward(Context *c, const Attention *a, const Arguments<T> &arguments) {
  using Queries = QueryGradientTiles<T, HD>;
  using Keys = KeyGradientTiles<T, HD>;
  const bool dropout = dropout_active(a->dropout);
  const int64_t query_blocks = divide_up(a->queries, Queries::QUERIES) * a->heads * a->batch;
  const int64_t key_blocks = divide_up(a->keys, Keys::KEYS) * a->kv_heads * a->batch;
  launch(c, "attention_backward",
         dropout ? attention_backward_queries<T, HD, true> : attention_backward_queries<T, HD, false>,
         dim3((unsigned)query_blocks), Queries::THREADS, Queries::BYTES, arguments);
  launch(c, "attention_backward",
         dropout ? attention_backward_keys<T, HD, true> : attention_backward_keys<T, HD, false>,
         dim3((unsigned)key_blocks), Keys::THREADS, Keys::BYTES, arguments);
}

void cuda_attention_backward(Context *c, const Attention *a, View dq, View dk, View dv, View dout, View q, View k,
                             View v, View out, const float *lse, const Rope *rope) {
  if (c->error.code) return;
  void *delta = scratch(c, (size_t)a->batch * (size_t)a->heads * (size_t)a->queries * sizeof(float));
  with_element(c, [&](auto element) {
    using T = decltype(element);
    Arguments<T> arguments = attention_arguments<T>(a);
    arguments.q = heads_of<T>(q), arguments.k = heads_of<T>(k), arguments.v = heads_of<T>(v);
    arguments.out = heads_of<T>(out), arguments.dout = heads_of<T>(dout);
    arguments.dq = heads_of<T>(dq), arguments.dk = heads_of<T>(dk), arguments.dv = heads_of<T>(dv);
    arguments.lse = const_cast<float *>(lse);
    arguments.delta = static_cast<float *>(delta);
    if (rope) arguments.rope = rope->table, arguments.positions = rope->positions;
    with_head_size<T>(c, a->head_dim, [&](auto size) { launch_backward<T, decltype(size)::value>(c, a, arguments); });
  });
}

#endif
