/* Residual add + RMSNorm (Zhang & Sennrich 2019), forward and backward, over rows [N][C].
 *
 *   forward    x_out = x_in + dropout(branch);  rstd = (mean(x_out^2) + eps)^(-1/2);  y = weight * x_out * rstd
 *   backward   g = weight * dy, xh = x * rstd:  dx = dres + rstd * (g - xh * mean(g * xh));  dbranch = dropout(dx);
 *              dweight (+)= sum over rows of dy * xh
 *
 * A row is the work of LANES threads, a warp or a block, each of which holds E of its numbers in registers between the
 * pass that sums and the pass that writes: each array goes through memory once (forward: 2 reads and 2 writes of N*C
 * numbers; backward: 3 reads, 1 or 2 writes). Rows of more than 8192 numbers, or of more than 2048 that cannot be moved
 * as vectors, are read again in the second pass, from the cache.
 *
 * dweight is summed in two steps of fixed order: every block adds up its rows into a row of partial sums
 * [blocks][C], then columns of these are added. The number of blocks follows from the shape and the device. */
#ifndef INKLING_KERNELS_NORM_CUH
#define INKLING_KERNELS_NORM_CUH

#include "kernels/cuda.cuh"

namespace {

constexpr int NORM_BLOCK = 256;

/* How a row is spread over threads: LANES of them hold up to E numbers each, N neighbors at a time. */
template <int N_, int LANES_, int E_> struct RowShape {
  static constexpr int N = N_, LANES = LANES_, E = E_, PACKS = E / N, ROWS = NORM_BLOCK / LANES;
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

template <class T, class Shape> __global__ void __launch_bounds__(NORM_BLOCK) norm_forward(NormForward p) {
  constexpr int N = Shape::N, LANES = Shape::LANES, PACKS = Shape::PACKS;
  const int lane = (int)threadIdx.x % LANES, row = (int)(blockIdx.x * Shape::ROWS + threadIdx.x / LANES);
  if (row >= p.rows) return; /* a whole warp or block */
  const int64_t start = (int64_t)row * p.dim;
  Words<T, N> x[PACKS], added[PACKS];
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at >= p.dim) continue;
    x[i] = load_words<N>(static_cast<const T *>(p.x_in) + start + at);
    if (p.branch) added[i] = load_words<N>(static_cast<const T *>(p.branch) + start + at);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at >= p.dim) continue;
    float sum[N];
    unpack(sum, x[i]);
    if (p.branch) {
      float b[N];
      unpack(b, added[i]);
      if (p.drop) apply_dropout<N>(b, p.mask, row / p.length, (int64_t)(row % p.length) * p.dim + at);
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += b[j];
      x[i] = pack<T, N>(sum);
      *reinterpret_cast<Words<T, N> *>(static_cast<T *>(p.x_out) + start + at) = x[i];
      unpack(sum, x[i]); /* what is normalized is what later operations will read */
    }
#pragma unroll
    for (int j = 0; j < N; j++) squares += sum[j] * sum[j];
  }
  squares = row_sum<LANES>(squares);
  const float rstd = 1.0f / sqrtf(squares / (float)p.dim + p.eps);
  if (lane == 0) p.rstd[row] = rstd;
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at >= p.dim) continue;
    float y[N], weight[N];
    unpack(y, x[i]);
    load<N>(weight, p.weight + at);
#pragma unroll
    for (int j = 0; j < N; j++) y[j] = weight[j] * (y[j] * rstd);
    store<N>(static_cast<T *>(p.y) + start + at, y);
  }
}

/* Rows that do not fit in registers: a block for each, which reads the sum again. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_forward_long(NormForward p) {
  const int row = (int)blockIdx.x;
  const int64_t start = (int64_t)row * p.dim;
  const T *from = static_cast<const T *>(p.x_in) + start;
  float squares = 0;
  for (int at = (int)threadIdx.x; at < p.dim; at += NORM_BLOCK) {
    float x = to_float(from[at]);
    if (p.branch) {
      float b[1] = {to_float(static_cast<const T *>(p.branch)[start + at])};
      if (p.drop) apply_dropout<1>(b, p.mask, row / p.length, (int64_t)(row % p.length) * p.dim + at);
      const T sum = from_float<T>(x + b[0]);
      static_cast<T *>(p.x_out)[start + at] = sum;
      x = to_float(sum);
    }
    squares += x * x;
  }
  squares = block_sum<NORM_BLOCK>(squares);
  const float rstd = 1.0f / sqrtf(squares / (float)p.dim + p.eps);
  if (threadIdx.x == 0) p.rstd[row] = rstd;
  if (p.branch) from = static_cast<const T *>(p.x_out) + start; /* every thread reads what it wrote itself */
  for (int at = (int)threadIdx.x; at < p.dim; at += NORM_BLOCK)
    static_cast<T *>(p.y)[start + at] = from_float<T>(p.weight[at] * (to_float(from[at]) * rstd));
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

/* dbranch: numbers of a row of dx as stored, from `at` on. */
template <class T, int N>
__device__ __forceinline__ void write_dbranch(const NormBackward &p, Words<T, N> words, int row, int at) {
  if (p.drop) {
    float dx[N];
    unpack(dx, words);
    apply_dropout<N>(dx, p.mask, row / p.length, (int64_t)(row % p.length) * p.dim + at);
    words = pack<T, N>(dx);
  }
  *reinterpret_cast<Words<T, N> *>(static_cast<T *>(p.dbranch) + (int64_t)row * p.dim + at) = words;
}

/* Blocks for a multiprocessor: as many as its registers hold of dweight, dy, x and dres. */
template <class T, class Shape> constexpr int norm_blocks() {
  const int registers = Shape::E + 3 * Shape::E * (int)sizeof(T) / 4;
  return Shape::N == 1 ? 2 : registers <= 32 ? 4 : registers <= 48 ? 3 : registers <= 96 ? 2 : 1;
}

template <class T, class Shape>
__global__ void __launch_bounds__(NORM_BLOCK, (norm_blocks<T, Shape>())) norm_backward(NormBackward p) {
  constexpr int N = Shape::N, LANES = Shape::LANES, PACKS = Shape::PACKS;
  constexpr bool EARLY = PACKS * sizeof(Words<T, N>) <= 64; /* registers are left to fetch dres before it is needed */
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  float dweight[Shape::E];
#pragma unroll
  for (int i = 0; i < Shape::E; i++) dweight[i] = 0;
  for (int row = (int)blockIdx.x * Shape::ROWS + group; row < p.rows; row += (int)gridDim.x * Shape::ROWS) {
    const int64_t start = (int64_t)row * p.dim;
    const float rstd = p.rstd[row];
    Words<T, N> dy[PACKS], x[PACKS], passed[EARLY ? PACKS : 1];
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      dy[i] = load_words<N>(static_cast<const T *>(p.dy) + start + at);
      x[i] = load_words<N>(static_cast<const T *>(p.x) + start + at);
      if (EARLY && p.dres) passed[i] = load_words<N>(static_cast<const T *>(p.dres) + start + at);
    }
    float dot = 0;
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      float weight[N], upstream[N], input[N];
      load<N>(weight, p.weight + at);
      unpack(upstream, dy[i]);
      unpack(input, x[i]);
#pragma unroll
      for (int j = 0; j < N; j++) {
        const float along = upstream[j] * input[j];
        dot += weight[j] * along;
        dweight[i * N + j] += along * rstd;
      }
    }
    const float pull = row_sum<LANES>(dot) * rstd * rstd / (float)p.dim; /* mean(g * xh) * rstd */
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      float dx[N], input[N];
      unpack(dx, dy[i]);
      unpack(input, x[i]);
      {
        float weight[N];
        load<N>(weight, p.weight + at);
#pragma unroll
        for (int j = 0; j < N; j++) dx[j] = rstd * (weight[j] * dx[j] - pull * input[j]);
      }
      if (p.dres) {
        float before[N];
        if (EARLY) unpack(before, passed[i]);
        else load<N>(before, static_cast<const T *>(p.dres) + start + at);
#pragma unroll
        for (int j = 0; j < N; j++) dx[j] += before[j];
      }
      x[i] = pack<T, N>(dx);
      *reinterpret_cast<Words<T, N> *>(static_cast<T *>(p.dx) + start + at) = x[i];
    }
    if (!p.dbranch) continue;
#pragma unroll
    for (int i = 0; i < PACKS; i++) { /* in a loop of its own, where only x is left in registers */
      const int at = (lane + i * LANES) * N;
      if (at < p.dim) write_dbranch(p, x[i], row, at);
    }
  }
  /* The groups of a block add their sums in turn. */
  __shared__ float total[LANES == 32 ? 32 * Shape::E : 1];
  float *partial = p.partial + (int64_t)blockIdx.x * p.dim;
  for (int turn = 0; turn < Shape::ROWS; turn++) {
    if (turn == group) {
#pragma unroll
      for (int i = 0; i < PACKS; i++) {
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

/* Rows that do not fit in registers: a block for each, its part of dweight in memory. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) norm_backward_long(NormBackward p) {
  float *partial = p.partial + (int64_t)blockIdx.x * p.dim; /* a thread sees its own columns only */
  for (int at = (int)threadIdx.x; at < p.dim; at += NORM_BLOCK) partial[at] = 0;
  for (int row = (int)blockIdx.x; row < p.rows; row += (int)gridDim.x) {
    const int64_t start = (int64_t)row * p.dim;
    const T *dy = static_cast<const T *>(p.dy) + start, *x = static_cast<const T *>(p.x) + start;
    const float rstd = p.rstd[row];
    float dot = 0;
    for (int at = (int)threadIdx.x; at < p.dim; at += NORM_BLOCK) {
      const float along = to_float(dy[at]) * to_float(x[at]);
      dot += p.weight[at] * along;
      partial[at] += along * rstd;
    }
    const float pull = block_sum<NORM_BLOCK>(dot) * rstd * rstd / (float)p.dim;
    for (int at = (int)threadIdx.x; at < p.dim; at += NORM_BLOCK) {
      float dx[1] = {rstd * (p.weight[at] * to_float(dy[at]) - pull * to_float(x[at]))};
      if (p.dres) dx[0] += to_float(static_cast<const T *>(p.dres)[start + at]);
      const Words<T, 1> words = pack<T, 1>(dx);
      *reinterpret_cast<Words<T, 1> *>(static_cast<T *>(p.dx) + start + at) = words;
      if (p.dbranch) write_dbranch(p, words, row, at);
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
template <class T, class F> static bool with_row_shape(int dim, bool vectors, F f) {
  constexpr int N = VECTOR<T>;
  if (!vectors && dim <= 32 * 8) f(RowShape<1, 32, 8>());
  else if (!vectors && dim <= NORM_BLOCK * 8) f(RowShape<1, NORM_BLOCK, 8>());
  else if (!vectors) return false;
  else if (dim <= 32 * 8) f(RowShape<N, 32, 8>());
  else if (dim <= 32 * 16) f(RowShape<N, 32, 16>());
  else if (dim <= 32 * 32) f(RowShape<N, 32, 32>());
  else if (dim <= NORM_BLOCK * 8) f(RowShape<N, NORM_BLOCK, 8>());
  else if (dim <= NORM_BLOCK * 16) f(RowShape<N, NORM_BLOCK, 16>());
  else if (dim <= NORM_BLOCK * 32) f(RowShape<N, NORM_BLOCK, 32>());
  else return false;
  return true;
}

void cuda_residual_norm(Context *c, void *x_out, void *y, float *rstd, const void *x_in, const void *branch,
                        const float *weight, float eps, int batch, int length, int dim, const Dropout *dropout) {
  const NormForward p = {x_out,
                         y,
                         rstd,
                         x_in,
                         branch,
                         weight,
                         eps,
                         batch * length,
                         length,
                         dim,
                         dropout_active(dropout),
                         dropout_mask(dropout)};
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(dim, branch ? x_out : NULL, y, x_in, branch, weight);
    const bool short_rows = with_row_shape<T>(dim, vectors, [&](auto s) {
      using Shape = decltype(s);
      launch(c, "residual_norm", norm_forward<T, Shape>, (unsigned)divide_up(p.rows, Shape::ROWS), NORM_BLOCK, 0, p);
    });
    if (!short_rows) launch(c, "residual_norm", norm_forward_long<T>, (unsigned)p.rows, NORM_BLOCK, 0, p);
  });
}

void cuda_residual_norm_backward(Context *c, void *dx, void *dbranch, float *dweight, const void *dy, const void *dres,
                                 const void *x, const float *rstd, const float *weight, int batch, int length, int dim,
                                 const Dropout *dropout, bool accumulate) {
  NormBackward p = {dx,
                    dbranch,
                    NULL,
                    dy,
                    dres,
                    x,
                    rstd,
                    weight,
                    batch * length,
                    length,
                    dim,
                    dropout_active(dropout),
                    dropout_mask(dropout)};
  int blocks = 0;
  const auto run = [&](void (*kernel)(NormBackward), int rows_of_block, int each) {
    const dim3 grid = loop_grid(c, divide_up(p.rows, rows_of_block), each);
    blocks = (int)grid.x;
    p.partial = (float *)scratch(c, (size_t)blocks * (size_t)dim * sizeof(float));
    launch(c, "residual_norm_backward", kernel, grid, NORM_BLOCK, 0, p);
  };
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const bool vectors = fits_vectors<T>(dim, dx, dbranch, dy, dres, x, weight);
    const bool short_rows = with_row_shape<T>(dim, vectors, [&](auto s) {
      using Shape = decltype(s);
      run(norm_backward<T, Shape>, Shape::ROWS, norm_blocks<T, Shape>());
    });
    if (!short_rows) run(norm_backward_long<T>, 1, 4);
  });
  launch(c, "gradient of the weight", sum_columns, (unsigned)divide_up(dim, 32), 1024, 0, dweight, p.partial, blocks,
         dim, accumulate);
}

#endif
