/* What happens to the heads of queries and keys before attention: rotary positions (Su et al. 2021), in place, and
 * RMSNorm of every head (Henry et al. 2020) with its backward.
 *
 *   rotation   (x[i], x[i + R/2]) = (x0 cos - x1 sin, x1 cos + x0 sin) of the first R numbers of a head
 *   forward    rstd = (mean(x^2) + eps)^(-1/2);  out = rotated(weight * x * rstd)
 *   backward   xh = x * rstd, g = weight * dy:  dx = rstd * (g - xh * mean(g * xh));
 *              dweight (+)= sum over rows and heads of dy * xh
 *
 * A lane holds N neighbors of each half of a head, which are rotated together, and 1 to 32 lanes of a warp a head:
 * every array is read and written once. dweight is summed in two steps of fixed order, as in norm.cuh. */
#ifndef INKLING_KERNELS_CUDA_HEADS_CUH
#define INKLING_KERNELS_CUDA_HEADS_CUH

#include "kernels/cuda/attention_arguments.cuh"
#include "kernels/cuda/columns.cuh"

namespace {

constexpr int HEADS_BLOCK = 256;
constexpr int HEADS_BLOCKS = 3; /* of the backward on a multiprocessor, which allows 85 registers for a thread */

/* Rotates pairs (first[j], second[j]) by `angles` [N][2] = {cos, sin}; direction -1 rotates back. */
template <int N>
__device__ __forceinline__ void rotate_pairs(float (&first)[N], float (&second)[N], const float *angles,
                                             float direction = 1.0f) {
#pragma unroll
  for (int j = 0; j < N; j++) {
    float angle[2], in[2] = {first[j], second[j]};
    load<2>(angle, angles + 2 * j);
    angle[1] *= direction;
    first[j] = in[0] * angle[0] - in[1] * angle[1];
    second[j] = in[1] * angle[0] + in[0] * angle[1];
  }
}

/* x [B][T][H][..]. A thread rotates N neighbors of each half of the first `dims` numbers of a head, a block
 * `rows_per_block` of the B*T rows. */
template <class T, int N>
__global__ void __launch_bounds__(HEADS_BLOCK)
    rope_kernel(const Heads<T> x, int rows, int rows_per_block, int length, int heads, int dims, const float *table,
                const int32_t *positions, float direction) {
  const int chunks = dims / 2 / N, items = heads * chunks;
  for (int e = (int)threadIdx.x; e < rows_per_block * items; e += HEADS_BLOCK) {
    const int n = (int)blockIdx.x * rows_per_block + e / items;
    if (n >= rows) return;
    const int item = e % items, i = item % chunks * N;
    const int t = n % length;
    const int64_t position = positions ? positions[n] : t;
    T *const at = x.at(n / length, t, item / chunks) + i;
    float first[N], second[N];
    load<N>(first, at);
    load<N>(second, at + dims / 2);
    rotate_pairs<N>(first, second, table + position * dims + 2 * i, direction);
    store<N>(at, first);
    store<N>(at + dims / 2, second);
  }
}

/* ---- norms ---- */

/* A lane's part of a head: pairs at .. at + N, numbers low .. low + N and high .. high + N (pair_of()). `lanes`
 * neighbors, a power of two, share the head; those beyond its end are not `inside`. */
template <int N> struct HeadLane {
  int lanes, half, at;
  HeadPair pair;
  bool inside, rotated; /* rotated: the pairs are among the first `dims` numbers */
  uint32_t mask;        /* the lanes of this head */
  __device__ __forceinline__ HeadLane(int lanes, int dim, int dims)
      : lanes(lanes), half(dim / 2), at(((int)threadIdx.x & (lanes - 1)) * N), pair(pair_of(at, dim, dims)),
        inside(at < half), rotated(2 * at < dims),
        mask((0xFFFFFFFFu >> (32 - lanes)) << ((threadIdx.x % 32) & ~(unsigned)(lanes - 1))) {}

  /* Loads both parts; zeros beyond the end. */
  template <class T>
  __device__ __forceinline__ void load_parts(float (&first)[N], float (&second)[N], const T *head) const {
#pragma unroll
    for (int j = 0; j < N; j++) first[j] = second[j] = 0;
    if (!inside) return;
    load<N>(first, head + pair.low);
    load<N>(second, head + pair.high);
  }

  template <class T>
  __device__ __forceinline__ void store_parts(T *head, const float (&first)[N], const float (&second)[N]) const {
    if (!inside) return;
    store<N>(head + pair.low, first);
    store<N>(head + pair.high, second);
  }

  /* Returns the sum over the lanes of the head to each of them. */
  __device__ __forceinline__ float sum(float x) const {
    for (int offset = lanes / 2; offset; offset /= 2) x += __shfl_xor_sync(mask, x, offset);
    return x;
  }

  /* Normalizes a head with `weight` [D]; returns rstd. */
  __device__ __forceinline__ float normalize(float (&first)[N], float (&second)[N], const float *weight,
                                             float eps) const {
    float squares = 0, low[N], high[N];
#pragma unroll
    for (int j = 0; j < N; j++) squares += first[j] * first[j] + second[j] * second[j];
    const float rstd = 1.0f / sqrtf(sum(squares) / (float)(2 * half) + eps);
    load_parts(low, high, weight);
#pragma unroll
    for (int j = 0; j < N; j++) first[j] = low[j] * (first[j] * rstd), second[j] = high[j] * (second[j] * rstd);
    return rstd;
  }
};

template <class T> struct HeadNormForward {
  T *out;
  float *rstd;
  const T *qkv;
  HeadNorm norm;
  int rows, length, lanes; /* lanes: of a head */
  const float *table;      /* NULL: not rotated */
  int dims;                /* rotated numbers of a head; D without rotation */
  const int32_t *positions;
};

/* Lanes of a warp for each head of queries and keys. */
template <class T, int N> __global__ void __launch_bounds__(HEADS_BLOCK) head_norm_forward(HeadNormForward<T> p) {
  const int dim = p.norm.head_dim, heads = p.norm.heads + p.norm.kv_heads;
  const HeadLane<N> lane(p.lanes, dim, p.dims);
  const unsigned item = blockIdx.x * (HEADS_BLOCK / p.lanes) + threadIdx.x / p.lanes;
  const int row = (int)(item / heads), head = (int)(item % heads);
  if (row >= p.rows) return; /* all lanes of a head */
  float first[N], second[N];
  lane.load_parts(first, second, p.qkv + ((int64_t)row * (heads + p.norm.kv_heads) + head) * dim);
  const float *const weight = p.norm.weight + (head < p.norm.heads ? 0 : dim);
  const float rstd = lane.normalize(first, second, weight, p.norm.eps);
  if (lane.at == 0) p.rstd[item] = rstd;
  if (p.table && lane.rotated) {
    const int64_t position = p.positions ? p.positions[row] : row % p.length;
    rotate_pairs<N>(first, second, p.table + position * p.dims + 2 * lane.at);
  }
  lane.store_parts(p.out + (int64_t)item * dim, first, second);
}

template <class T> struct HeadNormBackward {
  T *dqkv;
  float *partial; /* of dweight [gridDim.x][2][D] */
  const T *qkv;
  const float *rstd;
  HeadNorm norm;
  int rows, lanes;
};

/* Replaces dy of a head by dx and adds dy * xh to the lane's sums of dweight. */
template <class T, int N>
__device__ __forceinline__ void head_backward(const HeadLane<N> &lane, T *head, const T *x_head, float rstd,
                                              const float (&weight)[2][N], float (&sums)[2][N]) {
  Pack<T, N> dy[2] = {}, x[2] = {};
  float dot = 0;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (!lane.inside) continue;
    dy[i] = load_pack<N>(head + i * lane.half + lane.at);
    x[i] = load_pack<N>(x_head + i * lane.half + lane.at);
  }
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < N; j++) {
      const float along = number(dy[i], j) * (number(x[i], j) * rstd);
      sums[i][j] += along;
      dot += weight[i][j] * along;
    }
  const float mean = lane.sum(dot) / (float)(2 * lane.half); /* of g * xh */
#pragma unroll
  for (int i = 0; i < 2; i++) {
    float dx[N];
#pragma unroll
    for (int j = 0; j < N; j++) dx[j] = rstd * (weight[i][j] * number(dy[i], j) - number(x[i], j) * rstd * mean);
    if (lane.inside) store<N>(head + i * lane.half + lane.at, dx);
  }
}

/* Lanes of a warp take every so many heads, first of queries, then of keys; then the block adds their sums. */
template <class T, int N>
__global__ void __launch_bounds__(HEADS_BLOCK, HEADS_BLOCKS) head_norm_backward(HeadNormBackward<T> p) {
  constexpr int WARPS = HEADS_BLOCK / 32;
  __shared__ __align__(16) float part[WARPS][HEAD_DIM_MAX];
  const int dim = p.norm.head_dim, warp = (int)threadIdx.x / 32, groups = HEADS_BLOCK / p.lanes;
  const int64_t all = p.norm.heads + p.norm.kv_heads;
  const HeadLane<N> lane(p.lanes, dim, dim);
  for (int side = 0; side < 2; side++) {
    const int before = side ? p.norm.heads : 0, heads = side ? p.norm.kv_heads : p.norm.heads;
    float weight[2][N], sums[2][N] = {};
    lane.load_parts(weight[0], weight[1], p.norm.weight + side * dim);
    for (Walk at(blockIdx.x * groups + threadIdx.x / p.lanes, gridDim.x * groups, heads); at.row < p.rows; at.next()) {
      const int head = before + at.col;
      const int64_t offset = (at.row * (all + p.norm.kv_heads) + head) * dim;
      head_backward(lane, p.dqkv + offset, p.qkv + offset, p.rstd[at.row * all + head], weight, sums);
    }
    for (int offset = p.lanes; offset < 32; offset *= 2) /* the heads of the warp */
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < N; j++) sums[i][j] += __shfl_xor_sync(0xFFFFFFFFu, sums[i][j], offset);
    if ((int)threadIdx.x % 32 < p.lanes) lane.store_parts(part[warp], sums[0], sums[1]);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < dim; i += HEADS_BLOCK) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < WARPS; w++) total += part[w][i];
      p.partial[((int64_t)blockIdx.x * 2 + side) * dim + i] = total;
    }
    __syncthreads();
  }
}

/* Calls f(N): a constant number of neighbors that divides half of `dims`: of a head a multiple of 4, usually of 8, of
 * its rotated part of 2. */
template <class T, class F> void with_part(int dims, F f) {
  if (dims / 2 % VECTOR<T> == 0) f(std::integral_constant<int, VECTOR<T>>());
  else if (dims / 2 % 4 == 0) f(std::integral_constant<int, 4>());
  else f(std::integral_constant<int, 2>());
}

/* The lanes that share a head, of which each has `part` numbers of each half: a power of two. */
int lanes_of_head(int head_dim, int part) {
  int lanes = 1;
  while (lanes * part < head_dim / 2) lanes *= 2;
  return lanes;
}

} // namespace

void cuda_rotate(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope,
                 float direction) {
  const int64_t rows = (int64_t)batch * length;
  const int dims = rope_dims(rope, head_dim);
  if (!heads || !check_head_size(c, head_dim)) return;
  require_alignment(c, "rope", {}, {rope->table});
  with_element(c, [&]<class T>(T) {
    const Heads<T> view = heads_of<T>(c, "rope", x);
    with_part<T>(dims, [&](auto part) {
      const int items = heads * (dims / 2 / part), rows_per_block = items < HEADS_BLOCK ? HEADS_BLOCK / items : 1;
      launch(c, "rope", rope_kernel<T, part>, dim3((unsigned)divide_up(rows, rows_per_block)), HEADS_BLOCK, 0, view,
             rows, rows_per_block, length, heads, dims, rope->table, rope->positions, direction);
    });
  });
}

void cuda_rope(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope) {
  cuda_rotate(c, x, batch, length, heads, head_dim, rope, 1.0f);
}

void cuda_head_norm(Context *c, void *out, float *rstd, const void *qkv, const HeadNorm *norm, int batch, int length,
                    const Rope *rope) {
  const int64_t rows = (int64_t)batch * length;
  const int dims = rope ? rope_dims(rope, norm->head_dim) : norm->head_dim;
  if (!check_head_size(c, norm->head_dim)) return;
  require_alignment(c, "head_norm", {}, {out, qkv, norm->weight, rope ? rope->table : NULL});
  const int both = norm->head_dim | dims; /* its largest power of two divides both */
  with_element(c, [&]<class T>(T) {
    with_part<T>(both, [&](auto part) {
      HeadNormForward<T> p = {};
      p.out = static_cast<T *>(out), p.rstd = rstd, p.qkv = static_cast<const T *>(qkv), p.norm = *norm;
      p.rows = (int)rows, p.length = length, p.dims = dims, p.lanes = lanes_of_head(norm->head_dim, part);
      if (rope) p.table = rope->table, p.positions = rope->positions;
      const int64_t blocks = divide_up(rows * (norm->heads + norm->kv_heads), HEADS_BLOCK / p.lanes);
      launch(c, "head_norm", head_norm_forward<T, part>, dim3((unsigned)blocks), HEADS_BLOCK, 0, p);
    });
  });
}

void cuda_head_norm_backward(Context *c, void *dqkv, float *dweight, const void *qkv, const float *rstd,
                             const HeadNorm *norm, int rows, bool accumulate) {
  if (!check_head_size(c, norm->head_dim)) return;
  require_alignment(c, "head_norm_backward", {}, {dqkv, qkv, norm->weight});
  with_element(c, [&]<class T>(T) {
    with_part<T>(norm->head_dim, [&](auto part) {
      HeadNormBackward<T> p = {};
      p.dqkv = static_cast<T *>(dqkv), p.qkv = static_cast<const T *>(qkv), p.rstd = rstd, p.norm = *norm;
      p.rows = rows, p.lanes = lanes_of_head(norm->head_dim, part);
      const int width = 2 * norm->head_dim;
      const dim3 grid = loop_grid(c, divide_up((int64_t)rows * norm->heads, HEADS_BLOCK / p.lanes), HEADS_BLOCKS);
      p.partial = partial_sums(c, dweight, NULL, (int)grid.x, width, accumulate);
      launch(c, "head_norm_backward", head_norm_backward<T, part>, grid, HEADS_BLOCK, 0, p);
    });
  });
}

#endif
