/* Attention in fp32, exact rather than fast. A warp computes one query (forward, dQ) or one key (dK, dV) from 32
 * visible rows at a time: first every lane computes the score of one row, then each lane adds its 4 columns of the 32
 * rows by their weights. Every sum is computed by one warp in a fixed order. */
#ifndef INKLING_KERNELS_CUDA_ATTENTION_F32_CUH
#define INKLING_KERNELS_CUDA_ATTENTION_F32_CUH

#include "kernels/cuda/attention_arguments.cuh"

namespace {

constexpr int F32_WARPS = 4;
static_assert(HEAD_DIM_MAX <= 32 * 4, "4 columns a lane");

/* The row of a warp: of a head of a sequence. */
struct WarpRow {
  int b, head, row;
  __device__ __forceinline__ WarpRow(int heads, int rows) {
    const int blocks = (rows + F32_WARPS - 1) / F32_WARPS, bh = (int)blockIdx.x / blocks;
    row = (int)blockIdx.x % blocks * F32_WARPS + warp_id(), head = bh % heads, b = bh / heads;
  }
};

template <class T> __device__ __forceinline__ float dot_product(const T *x, const T *y, int dim) {
  float sum = 0.0f;
#pragma unroll 2
  for (int d = 0; d < dim; d += 4) {
    float a[4], b[4];
    load<4>(a, x + d);
    load<4>(b, y + d);
#pragma unroll
    for (int j = 0; j < 4; j++) sum = fmaf(a[j], b[j], sum);
  }
  return sum;
}

/* Shares the weights of 32 rows, one for each lane, with the warp. Turns alternate between two buffers: before a buffer
 * is written again, the synchronization of the turn between ensures that all lanes have read it. */
__device__ __forceinline__ const float *share_weights(float weight, unsigned turn) {
  __shared__ float weights[F32_WARPS][2][32];
  float *const of_warp = weights[warp_id()][turn % 2];
  of_warp[lane_id()] = weight;
  __syncwarp();
  return of_warp;
}

/* Adds the lane's columns of row l times weights[l] for the rows in `seen`; other rows are not read. */
__device__ __forceinline__ void add_rows(float (&sum)[4], const float *weights, unsigned seen, const float *rows,
                                         int64_t stride, int dim) {
  for (const int column = 4 * lane_id(); column < dim && seen; seen &= seen - 1) {
    const int l = __ffs((int)seen) - 1;
    float x[4];
    load<4>(x, rows + l * stride + column);
#pragma unroll
    for (int j = 0; j < 4; j++) sum[j] = fmaf(weights[l], x[j], sum[j]);
  }
}

/* Returns a bit for each of the 32 rows from `first` on that is before `end`. */
__device__ __forceinline__ unsigned rows_before(int end, int first) {
  return end - first >= 32 ? 0xFFFFFFFFu : (1u << (end - first)) - 1u;
}

/* Returns the factor of dropout for the probability of key j and query i. */
__device__ __forceinline__ float dropout_factor(const AttentionShape &a, int b, int head, int i, int j) {
  if (!a.dropout.state) return 1.0f;
  return kept_keys(dropout_stream(a, b, head), i, j / 32) >> j % 32 & 1 ? a.dropout.scale : 0.0f;
}

/* Stores the lanes' columns as a row; with `rope` rotated back. */
__device__ __forceinline__ void store_row(float *to, float (&x)[4], int dim, const float *rope, int64_t position) {
  const int column = 4 * lane_id(), half = dim / 2;
  float other[4]; /* the other numbers of the rotated pairs */
  if (rope) {
#pragma unroll
    for (int j = 0; j < 4; j++)
      other[j] = __shfl_sync(0xFFFFFFFFu, x[j], (column < half ? column + half : column - half) / 4 % 32);
  }
  if (column >= dim) return;
  if (rope && column < half) rotate_back(x, other, rope, position, column, dim);
  else if (rope) rotate_back(other, x, rope, position, column - half, dim);
  store<4>(to + column, x);
}

/* Returns the score scale * q k of a visible key. */
template <class T> __device__ __forceinline__ float score_of(const Arguments<T> &a, int b, int h, int i, int j) {
  return a.scale * dot_product(a.q.at(b, i, h), a.k.at(b, j, h / a.group), a.dim);
}

/* S = scale * Q K^T where visible;  lse = log sum exp S;  out = dropout(exp(S - lse)) V. */
__global__ void __launch_bounds__(32 * F32_WARPS) attention_f32(const Arguments<float> a) {
  const WarpRow at(a.heads, a.queries);
  const int b = at.b, h = at.head, i = at.row, kv_head = h / a.group;
  if (i >= a.queries) return;
  const Visible visible = visible_keys(a, b, i);
  float max = -INFINITY, sum = 0.0f, out[4] = {};
  for (int j0 = visible.begin; j0 < visible.end; j0 += 32) {
    const int j = j0 + lane_id();
    const float score = j < visible.end ? score_of(a, b, h, i, j) : -INFINITY;
    const float top = fmaxf(max, warp_max(score)), shrink = max == top ? 1.0f : expf(max - top);
    float p = score == -INFINITY ? 0.0f : expf(score - top);
    max = top;
    sum = sum * shrink + p;
#pragma unroll
    for (int n = 0; n < 4; n++) out[n] *= shrink;
    p *= dropout_factor(a, b, h, i, j);
    add_rows(out, share_weights(p, (unsigned)j0 / 32), rows_before(visible.end, j0), a.v.at(b, j0, kv_head), a.v.row,
             a.dim);
  }
  sum = warp_sum(sum);
  if (a.lse && lane_id() == 0)
    a.lse[((int64_t)b * a.heads + h) * a.queries + i] = sum == 0.0f ? -INFINITY : max + logf(sum);
#pragma unroll
  for (int n = 0; n < 4; n++) out[n] = sum == 0.0f ? 0.0f : out[n] / sum;
  store_row(a.out.at(b, i, h), out, a.dim, NULL, 0);
}

/* Returns the weight of the key's row in dQ and of the query's row in dK; `p` becomes the weight of dout's row in
 * dV. */
__device__ __forceinline__ float score_gradient(const Arguments<float> &a, int b, int h, int i, int j, float lse,
                                                float delta, float &p) {
  const float score = score_of(a, b, h, i, j);
  const float dp = dot_product(a.dout.at(b, i, h), a.v.at(b, j, h / a.group), a.dim);
  const float factor = dropout_factor(a, b, h, i, j), whole = lse == -INFINITY ? 0.0f : expf(score - lse);
  p = whole * factor;
  return a.scale * whole * (dp * factor - delta);
}

/* delta_i = sum_d dout*out;  P = exp(S - lse);  dS = P * (dropout(dout V^T) - delta);  dQ = scale * dS K. */
__global__ void __launch_bounds__(32 * F32_WARPS) attention_f32_queries(const Arguments<float> a) {
  const WarpRow at(a.heads, a.queries);
  const int b = at.b, h = at.head, i = at.row, kv_head = h / a.group;
  if (i >= a.queries) return;
  const Visible visible = visible_keys(a, b, i);
  const int64_t query = ((int64_t)b * a.heads + h) * a.queries + i;
  const float lse = a.lse[query], delta = dot_product(a.dout.at(b, i, h), a.out.at(b, i, h), a.dim);
  if (lane_id() == 0) a.delta[query] = delta;
  float dq[4] = {};
  for (int j0 = visible.begin; j0 < visible.end; j0 += 32) {
    const int j = j0 + lane_id();
    float p, ds = 0.0f;
    if (j < visible.end) ds = score_gradient(a, b, h, i, j, lse, delta, p);
    add_rows(dq, share_weights(ds, (unsigned)j0 / 32), rows_before(visible.end, j0), a.k.at(b, j0, kv_head), a.k.row,
             a.dim);
  }
  store_row(a.dq.at(b, i, h), dq, a.dim, a.rope, a.positions ? a.positions[(int64_t)b * a.queries + i] : i);
}

/* dV = dropout(P)^T dout;  dK = scale * dS^T Q;  both summed over the query heads of the group. */
__global__ void __launch_bounds__(32 * F32_WARPS) attention_f32_keys(const Arguments<float> a) {
  const WarpRow at(a.heads / a.group, a.keys);
  const int b = at.b, kv_head = at.head, j = at.row;
  if (j >= a.keys) return;
  float dk[4] = {}, dv[4] = {};
  for (int h = kv_head * a.group; h < (kv_head + 1) * a.group; h++)
    for (int i0 = a.causal ? j : 0; i0 < a.queries; i0 += 32) {
      const int i = i0 + lane_id();
      const Visible visible = visible_keys(a, b, i);
      const bool sees = i < a.queries && j >= visible.begin && j < visible.end;
      const unsigned seen = __ballot_sync(0xFFFFFFFFu, sees);
      const int64_t query = ((int64_t)b * a.heads + h) * a.queries + i;
      float p = 0.0f, ds = 0.0f;
      if (sees) ds = score_gradient(a, b, h, i, j, a.lse[query], a.delta[query], p);
      add_rows(dv, share_weights(p, 0), seen, a.dout.at(b, i0, h), a.dout.row, a.dim);
      add_rows(dk, share_weights(ds, 1), seen, a.q.at(b, i0, h), a.q.row, a.dim);
    }
  store_row(a.dk.at(b, j, kv_head), dk, a.dim, a.rope, a.positions ? a.positions[(int64_t)b * a.keys + j] : j);
  store_row(a.dv.at(b, j, kv_head), dv, a.dim, NULL, 0);
}

/* map = exp(S - lse) where visible, 0 elsewhere; map [B][H][Tq][Tk]. This kernel is for bf16 too. */
template <class T> __global__ void __launch_bounds__(32 * F32_WARPS) attention_map(const Arguments<T> a, float *map) {
  const WarpRow at(a.heads, a.queries);
  if (at.row >= a.queries) return;
  const Visible visible = visible_keys(a, at.b, at.row);
  const int64_t query = ((int64_t)at.b * a.heads + at.head) * a.queries + at.row;
  const float lse = a.lse[query];
  for (int j = lane_id(); j < a.keys; j += 32) {
    const bool sees = j >= visible.begin && j < visible.end && lse != -INFINITY;
    map[query * a.keys + j] = sees ? expf(score_of(a, at.b, at.head, at.row, j) - lse) : 0.0f;
  }
}

} // namespace

/* ---- host ---- */

/* A warp for each of `rows` rows of each of `heads` heads. */
template <class... P, class... A>
static void launch_f32(Context *c, const char *operation, void (*kernel)(P...), int64_t heads, int rows,
                       const A &...arguments) {
  launch(c, operation, kernel, dim3((unsigned)(heads * divide_up(rows, F32_WARPS))), 32 * F32_WARPS, 0, arguments...);
}

static void launch_forward(Context *c, const Attention *a, const Arguments<float> &arguments) {
  launch_f32(c, "attention", attention_f32, (int64_t)a->batch * a->heads, a->queries, arguments);
}

static void launch_backward(Context *c, const Attention *a, const Arguments<float> &arguments) {
  const char *const name = "attention_backward";
  launch_f32(c, name, attention_f32_queries, (int64_t)a->batch * a->heads, a->queries, arguments);
  launch_f32(c, name, attention_f32_keys, (int64_t)a->batch * a->kv_heads, a->keys, arguments);
}

#endif
