/* Residual add + RMSNorm (Zhang & Sennrich 2019), forward and backward, over rows [N][C].
 *
 *   forward    x_out = x_in + dropout(branch);  rstd = (mean(x_out^2) + eps)^(-1/2);  y = weight * x_out * rstd
 *   backward   g = weight * dy, xh = x * rstd:  dx = dres + rstd * (g - xh * mean(g * xh));  dbranch = dropout(dx);
 *              dweight (+)= sum over rows of dy * xh
 *
 * A row is the work of LANES threads, a warp or a block, each of which holds E of its numbers in registers between the
 * pass that sums and the pass that writes: each array goes through memory once (forward: 2 reads and 2 writes of N*C
 * numbers; backward: 3 reads, 1 or 2 writes). Rows of more than 8192 numbers are read again in the second pass, from
 * the cache.
 *
 * dweight is summed in two steps of fixed order: every block adds up its rows into a row of partial sums
 * [blocks][C], then columns of these are added. The number of blocks follows from the shape and the device. */
#ifndef INKLING_KERNELS_NORM_CUH
#define INKLING_KERNELS_NORM_CUH

#include "kernels/cuda.cuh"

namespace {

constexpr int NORM_BLOCK = 256;

/* How a row is spread over threads: LANES of them hold up to E numbers each, in vectors. */
template <int LANES_, int E_> struct RowShape {
  static constexpr int LANES = LANES_, E = E_, ROWS = NORM_BLOCK / LANES;
};

template <int LANES> __device__ __forceinline__ float row_sum(float x) {
  if constexpr (LANES == 32) return warp_sum(x);
  else return block_sum<NORM_BLOCK>(x);
}

struct NormForward {
  void *x_out, *y;
  float *rstd;
  const void *x_in, *branch; /* branch NULL: x_in is normalized, x_out not written */
  const float *weight;
  float eps;
  int rows, length, dim;
  bool drop;
  DropoutMask mask;
};

/* Numbers of x_out from `at` on, as stored: x, or x + dropout(branch), which is written. */
template <class T, int N>
__device__ __forceinline__ Pack<T, N> add_branch(const NormForward &p, const Pack<T, N> &x, const Pack<T, N> &branch,
                                                 int row, int at) {
  if (!p.branch) return x;
  float sum[N], b[N];
  unpack(sum, x);
  unpack(b, branch);
  if (p.drop) apply_dropout<N>(b, p.mask, row / p.length, (int64_t)(row % p.length) * p.dim + at);
#pragma unroll
  for (int j = 0; j < N; j++) sum[j] += b[j];
  const Pack<T, N> rounded = pack<T, N>(sum);
  store_pack(static_cast<T *>(p.x_out) + (int64_t)row * p.dim + at, rounded);
  return rounded;
}

/* What is normalized is what later operations will read. */
template <class T, int N> __device__ __forceinline__ float add_squares(float squares, const Pack<T, N> &x) {
#pragma unroll
  for (int j = 0; j < N; j++) squares += number(x, j) * number(x, j);
  return squares;
}

template <class T, int N>
__device__ __forceinline__ void normalize(const NormForward &p, const Pack<T, N> &x, float rstd, int row, int at) {
  float y[N], weight[N];
  unpack(y, x);
  load<N>(weight, p.weight + at);
#pragma unroll
  for (int j = 0; j < N; j++) y[j] = weight[j] * (y[j] * rstd);
  store<N>(static_cast<T *>(p.y) + (int64_t)row * p.dim + at, y);
}

template <class T, class Shape> __global__ void __launch_bounds__(NORM_BLOCK) norm_forward(NormForward p) {
  constexpr int N = VECTOR<T>, LANES = Shape::LANES, PACKS = Shape::E / N;
  const int lane = (int)threadIdx.x % LANES, row = (int)(blockIdx.x * Shape::ROWS + threadIdx.x / LANES);
  if (row >= p.rows) return; /* a whole warp or block */
  const int64_t start = (int64_t)row * p.dim;
  Pack<T, N> x[PACKS], added[PACKS];
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at >= p.dim) continue;
    x[i] = load_pack<N>(static_cast<const T *>(p.x_in) + start + at);
    if (p.branch) added[i] = load_pack<N>(static_cast<const T *>(p.branch) + start + at);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at >= p.dim) continue;
    x[i] = add_branch(p, x[i], added[i], row, at);
    squares = add_squares(squares, x[i]);
  }
  squares = row_sum<LANES>(squares);
  const float rstd = 1.0f / sqrtf(squares / (float)p.dim + p.eps);
  if (lane == 0) p.rstd[row] = rstd;
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at < p.dim) normalize(p, x[i], rstd, row, at);
  }
}

/* Rows that do not fit in registers: a block for each, which reads the sum again. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_forward_long(NormForward p) {
  constexpr int N = VECTOR<T>;
  const int row = (int)blockIdx.x, first = (int)threadIdx.x * N;
  const T *from = static_cast<const T *>(p.x_in) + (int64_t)row * p.dim;
  float squares = 0;
  for (int at = first; at < p.dim; at += NORM_BLOCK * N) {
    Pack<T, N> x = load_pack<N>(from + at), added = {};
    if (p.branch) added = load_pack<N>(static_cast<const T *>(p.branch) + (int64_t)row * p.dim + at);
    squares = add_squares(squares, add_branch(p, x, added, row, at));
  }
  squares = block_sum<NORM_BLOCK>(squares);
  const float rstd = 1.0f / sqrtf(squares / (float)p.dim + p.eps);
  if (threadIdx.x == 0) p.rstd[row] = rstd;
  if (p.branch) from = static_cast<const T *>(p.x_out) + (int64_t)row * p.dim; /* a thread reads what it wrote itself */
  for (int at = first; at < p.dim; at += NORM_BLOCK * N) normalize(p, load_pack<N>(from + at), rstd, row, at);
}

struct NormBackward {
  void *dx, *dbranch;    /* dbranch NULL: not written */
  float *partial;        /* [gridDim.x][dim] */
  const void *dy, *dres; /* dres NULL: zero; it may be dx */
  const void *x;
  const float *rstd, *weight;
  int rows, length, dim;
  bool drop;
  DropoutMask mask;
};

/* Adds weight * dy * x to `dot`, and dy * x * rstd to dweight[first ..]. */
template <class T, int N, int E>
__device__ __forceinline__ void add_products(float &dot, float (&dweight)[E], int first, const NormBackward &p,
                                             const Pack<T, N> &dy, const Pack<T, N> &x, float rstd, int at) {
  float weight[N];
  load<N>(weight, p.weight + at);
#pragma unroll
  for (int j = 0; j < N; j++) {
    const float along = number(dy, j) * number(x, j);
    dot += weight[j] * along;
    dweight[first + j] += along * rstd;
  }
}

/* Numbers of a row of dx from `at` on, which are written; `dres`: called for what is added to them, if anything is. */
template <class T, int N, class F>
__device__ __forceinline__ Pack<T, N> write_dx(const NormBackward &p, const Pack<T, N> &dy, const Pack<T, N> &x,
                                               float rstd, float pull, int row, int at, F dres) {
  float dx[N], weight[N];
  load<N>(weight, p.weight + at);
#pragma unroll
  for (int j = 0; j < N; j++) dx[j] = rstd * (weight[j] * number(dy, j) - pull * number(x, j));
  if (p.dres) {
    const Pack<T, N> before = dres();
#pragma unroll
    for (int j = 0; j < N; j++) dx[j] += number(before, j);
  }
  const Pack<T, N> rounded = pack<T, N>(dx);
  store_pack(static_cast<T *>(p.dx) + (int64_t)row * p.dim + at, rounded);
  return rounded;
}

/* dbranch: numbers of a row of dx as stored, from `at` on. */
template <class T, int N>
__device__ __forceinline__ void write_dbranch(const NormBackward &p, Pack<T, N> numbers, int row, int at) {
  if (p.drop) {
    float dx[N];
    unpack(dx, numbers);
    apply_dropout<N>(dx, p.mask, row / p.length, (int64_t)(row % p.length) * p.dim + at);
    numbers = pack<T, N>(dx);
  }
  store_pack(static_cast<T *>(p.dbranch) + (int64_t)row * p.dim + at, numbers);
}

/* The groups of a block add their sums in turn, into the block's row of partial sums. */
template <class Shape, int N>
__device__ __forceinline__ void add_groups(const NormBackward &p, const float (&dweight)[Shape::E]) {
  constexpr int LANES = Shape::LANES;
  __shared__ float total[LANES == 32 ? 32 * Shape::E : 1];
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  float *partial = p.partial + (int64_t)blockIdx.x * p.dim;
  for (int turn = 0; turn < Shape::ROWS; turn++) {
    if (turn == group) {
#pragma unroll
      for (int i = 0; i < Shape::E / N; i++) {
        const int at = (lane + i * LANES) * N;
        if (at >= p.dim) continue;
#pragma unroll
        for (int j = 0; j < N; j++) {
          const float sum = dweight[i * N + j] + (turn ? total[LANES == 32 ? at + j : 0] : 0.0f);
          if (turn + 1 < Shape::ROWS) total[LANES == 32 ? at + j : 0] = sum;
          else partial[at + j] = sum;
        }
      }
    }
    if (Shape::ROWS > 1) __syncthreads();
  }
}

/* Blocks for a multiprocessor: as many as its registers hold of dweight, dy, x and dres. */
template <class T, class Shape> constexpr int norm_blocks() {
  const int registers = Shape::E + 3 * Shape::E * (int)sizeof(T) / 4;
  return registers <= 32 ? 4 : registers <= 48 ? 3 : registers <= 96 ? 2 : 1;
}

template <class T, class Shape>
__global__ void __launch_bounds__(NORM_BLOCK, (norm_blocks<T, Shape>())) norm_backward(NormBackward p) {
  constexpr int N = VECTOR<T>, LANES = Shape::LANES, PACKS = Shape::E / N;
  constexpr bool EARLY = PACKS * sizeof(Pack<T, N>) <= 64; /* registers are left to fetch dres before it is needed */
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  float dweight[Shape::E];
#pragma unroll
  for (int i = 0; i < Shape::E; i++) dweight[i] = 0;
  for (int row = (int)blockIdx.x * Shape::ROWS + group; row < p.rows; row += (int)gridDim.x * Shape::ROWS) {
    const int64_t start = (int64_t)row * p.dim;
    const T *const dres = static_cast<const T *>(p.dres) + start;
    const float rstd = p.rstd[row];
    Pack<T, N> dy[PACKS], x[PACKS], passed[EARLY ? PACKS : 1];
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      dy[i] = load_pack<N>(static_cast<const T *>(p.dy) + start + at);
      x[i] = load_pack<N>(static_cast<const T *>(p.x) + start + at);
      if (EARLY && p.dres) passed[i] = load_pack<N>(dres + at);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at < p.dim) add_products(dot, dweight, i * N, p, dy[i], x[i], rstd, at);
    }
    const float pull = row_sum<LANES>(dot) * rstd * rstd / (float)p.dim; /* mean(g * xh) * rstd */
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      x[i] = write_dx(p, dy[i], x[i], rstd, pull, row, at,
                      [&] { return EARLY ? passed[EARLY ? i : 0] : load_pack<N>(dres + at); });
    }
    if (!p.dbranch) continue;
#pragma unroll
    for (int i = 0; i < PACKS; i++) { /* in a loop of its own, where only x is left in registers */
      const int at = (lane + i * LANES) * N;
      if (at < p.dim) write_dbranch(p, x[i], row, at);
    }
  }
  add_groups<Shape, N>(p, dweight);
}

/* Rows that do not fit in registers: a block for each, its part of dweight in memory. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_backward_long(NormBackward p) {
  constexpr int N = VECTOR<T>;
  float *partial = p.partial + (int64_t)blockIdx.x * p.dim; /* a thread sees its own columns only */
  const int first = (int)threadIdx.x * N;
  const float zero[N] = {};
  for (int at = first; at < p.dim; at += NORM_BLOCK * N) store<N>(partial + at, zero);
  for (int row = (int)blockIdx.x; row < p.rows; row += (int)gridDim.x) {
    const int64_t start = (int64_t)row * p.dim;
    const T *dy = static_cast<const T *>(p.dy) + start, *x = static_cast<const T *>(p.x) + start;
    const float rstd = p.rstd[row];
    float dot = 0;
    for (int at = first; at < p.dim; at += NORM_BLOCK * N) {
      float dweight[N];
      load<N>(dweight, partial + at);
      add_products(dot, dweight, 0, p, load_pack<N>(dy + at), load_pack<N>(x + at), rstd, at);
      store<N>(partial + at, dweight);
    }
    const float pull = block_sum<NORM_BLOCK>(dot) * rstd * rstd / (float)p.dim;
    for (int at = first; at < p.dim; at += NORM_BLOCK * N) {
      const Pack<T, N> dx = write_dx(p, load_pack<N>(dy + at), load_pack<N>(x + at), rstd, pull, row, at,
                                     [&] { return load_pack<N>(static_cast<const T *>(p.dres) + start + at); });
      if (p.dbranch) write_dbranch(p, dx, row, at);
    }
  }
}

/* out [cols] (+)= the columns' sums of partial [rows][cols]. A block takes 32 columns; its warps share the rows, each
 * every 32nd, and the first one adds what they found. */
__global__ void __launch_bounds__(1024)
    sum_columns(float *out, const float *partial, int rows, int cols, bool accumulate) {
  __shared__ float part[32][33];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, col = (int)blockIdx.x * 32 + lane;
  float sum = 0;
  if (col < cols) {
#pragma unroll 4
    for (int row = warp; row < rows; row += 32) sum += partial[(int64_t)row * cols + col];
  }
  part[warp][lane] = sum;
  __syncthreads();
  if (warp || col >= cols) return;
  sum = accumulate ? out[col] : 0.0f;
#pragma unroll
  for (int i = 0; i < 32; i++) sum += part[i][lane];
  out[col] = sum;
}

} // namespace

/* Calls f with the RowShape for rows of `dim`; false when they do not fit in registers. */
template <class F> static bool with_row_shape(int dim, F f) {
  if (dim <= 32 * 8) f(RowShape<32, 8>());
  else if (dim <= 32 * 16) f(RowShape<32, 16>());
  else if (dim <= 32 * 32) f(RowShape<32, 32>());
  else if (dim <= NORM_BLOCK * 8) f(RowShape<NORM_BLOCK, 8>());
  else if (dim <= NORM_BLOCK * 16) f(RowShape<NORM_BLOCK, 16>());
  else if (dim <= NORM_BLOCK * 32) f(RowShape<NORM_BLOCK, 32>());
  else return false;
  return true;
}

void cuda_residual_norm(Context *c, void *x_out, void *y, float *rstd, const void *x_in, const void *branch,
                        const float *weight, float eps, int batch, int length, int dim, const Dropout *dropout) {
  NormForward p = {};
  p.x_out = x_out, p.y = y, p.rstd = rstd;
  p.x_in = x_in, p.branch = branch, p.weight = weight, p.eps = eps;
  p.rows = batch * length, p.length = length, p.dim = dim;
  p.drop = dropout_active(dropout), p.mask = dropout_mask(dropout);
  require_alignment(c, "residual_norm", {dim}, {branch ? x_out : NULL, y, x_in, branch, weight});
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const bool short_rows = with_row_shape(dim, [&](auto s) {
      using Shape = decltype(s);
      launch(c, "residual_norm", norm_forward<T, Shape>, (unsigned)divide_up(p.rows, Shape::ROWS), NORM_BLOCK, 0, p);
    });
    if (!short_rows) launch(c, "residual_norm", norm_forward_long<T>, (unsigned)p.rows, NORM_BLOCK, 0, p);
  });
}

void cuda_residual_norm_backward(Context *c, void *dx, void *dbranch, float *dweight, const void *dy, const void *dres,
                                 const void *x, const float *rstd, const float *weight, int batch, int length, int dim,
                                 const Dropout *dropout, bool accumulate) {
  NormBackward p = {};
  p.dx = dx, p.dbranch = dbranch;
  p.dy = dy, p.dres = dres, p.x = x, p.rstd = rstd, p.weight = weight;
  p.rows = batch * length, p.length = length, p.dim = dim;
  p.drop = dropout_active(dropout), p.mask = dropout_mask(dropout);
  require_alignment(c, "residual_norm_backward", {dim}, {dx, dbranch, dy, dres, x, weight});
  int blocks = 0;
  const auto run = [&](void (*kernel)(NormBackward), int rows_of_block, int each) {
    const dim3 grid = loop_grid(c, divide_up(p.rows, rows_of_block), each);
    blocks = (int)grid.x;
    p.partial = (float *)scratch(c, (size_t)blocks * (size_t)dim * sizeof(float));
    launch(c, "residual_norm_backward", kernel, grid, NORM_BLOCK, 0, p);
  };
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const bool short_rows = with_row_shape(dim, [&](auto s) {
      using Shape = decltype(s);
      run(norm_backward<T, Shape>, Shape::ROWS, norm_blocks<T, Shape>());
    });
    if (!short_rows) run(norm_backward_long<T>, 1, 4);
  });
  launch(c, "gradient of the weight", sum_columns, (unsigned)divide_up(dim, 32), 1024, 0, dweight, p.partial, blocks,
         dim, accumulate);
}

#endif
