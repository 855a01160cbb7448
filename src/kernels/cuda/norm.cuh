/* Residual add + norm, forward and backward, over rows [N][C]: RMSNorm (Zhang & Sennrich 2019) and, CENTER in
 * templates, LayerNorm (Ba et al. 2016).
 *
 *   forward    x_out = x_in + dropout(branch);  rstd = (mean((x_out - mean)^2) + eps)^(-1/2);
 *              y = weight * (x_out - mean) * rstd + bias
 *   backward   g = weight * dy, xh = (x - mean) * rstd:  dx = dres + rstd * (g - mean(g) - xh * mean(g * xh));
 *              dbranch = dropout(dx);  dweight (+)= sum over rows of dy * xh;  dbias (+)= sum over rows of dy
 *   RMSNorm    0 in place of mean and mean(g), and no bias
 *
 * LANES threads, a warp or a block, work on a row; each holds E of its numbers in registers between the passes that sum
 * and the pass that writes, so each array is read or written once (forward: 2 reads and 2 writes of N*C numbers;
 * backward: 3 reads, 1 or 2 writes), and has at most NORM_DIM_MAX numbers.
 *
 * dweight and dbias are summed in two steps of fixed order: every block sums its rows into a row of partial sums
 * [blocks][C], whose columns are summed later (columns.cuh). The number of blocks depends on the shape and the
 * device. */
#ifndef INKLING_KERNELS_CUDA_NORM_CUH
#define INKLING_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

namespace {

constexpr int NORM_BLOCK = 256;
static_assert(NORM_DIM_MAX == 32 * NORM_BLOCK, "the longest row that fits in the registers of a block");

/* The distribution of a row: LANES threads hold up to E numbers each, in vectors. */
template <int LANES_, int E_> struct RowShape {
  static constexpr int LANES = LANES_, E = E_, ROWS = NORM_BLOCK / LANES;
};

template <int LANES> __device__ __forceinline__ float row_sum(float x) {
  if constexpr (LANES == 32) return warp_sum(x);
  else return block_sum<NORM_BLOCK>(x);
}

/* Subtracts the mean, if the norm does. */
template <bool CENTER> __device__ __forceinline__ float centered(float x, float mean) { return CENTER ? x - mean : x; }

struct NormForward {
  void *x_out, *y;
  NormStats stats;           /* rstd NULL: not written */
  const void *x_in, *branch; /* branch NULL: x_in is normalized, x_out not written */
  const float *weight, *bias;
  float eps;
  int rows, length, dim;
  bool drop;
  DropoutMask mask;
};

/* Returns N numbers of x_out from `at` on, as stored: x, or x + dropout(branch), which it writes. */
template <class T, int N>
__device__ __forceinline__ Pack<T, N> add_branch(const NormForward &p, const Pack<T, N> &x, const Pack<T, N> &branch,
                                                 int row, int at) {
  if (!p.branch) return x;
  float sum[N], b[N];
  unpack(sum, x);
  unpack(b, branch);
  if (p.drop) apply_dropout<N>(b, p.mask, row, p.length, p.dim, at);
#pragma unroll
  for (int j = 0; j < N; j++) sum[j] += b[j];
  const Pack<T, N> rounded = pack<T, N>(sum);
  store_pack(static_cast<T *>(p.x_out) + (int64_t)row * p.dim + at, rounded);
  return rounded;
}

/* Adds the squares of numbers as stored, which later operations read. */
template <bool CENTER, class T, int N>
__device__ __forceinline__ float add_squares(float squares, const Pack<T, N> &x, float mean) {
#pragma unroll
  for (int j = 0; j < N; j++) squares += centered<CENTER>(number(x, j), mean) * centered<CENTER>(number(x, j), mean);
  return squares;
}

/* Adds the terms of the first pass: numbers for the mean, or squares for RMSNorm. */
template <bool CENTER, class T, int N> __device__ __forceinline__ float add_first(float sum, const Pack<T, N> &x) {
  if constexpr (CENTER) {
#pragma unroll
    for (int j = 0; j < N; j++) sum += number(x, j);
    return sum;
  } else return add_squares<false>(sum, x, 0);
}

/* Returns rstd of a row; one thread (`writes`) stores the statistics. */
template <bool CENTER>
__device__ __forceinline__ float finish_stats(const NormForward &p, float squares, float mean, int row, bool writes) {
  const float rstd = 1.0f / sqrtf(squares / (float)p.dim + p.eps);
  if (!writes || !p.stats.rstd) return rstd;
  p.stats.rstd[row] = rstd;
  if (CENTER) p.stats.mean[row] = mean;
  return rstd;
}

template <bool CENTER, class T, int N>
__device__ __forceinline__ void normalize(const NormForward &p, const Pack<T, N> &x, float mean, float rstd, int row,
                                          int at) {
  float y[N], weight[N], bias[N];
  unpack(y, x);
  load<N>(weight, p.weight + at);
  if (CENTER) load<N>(bias, p.bias + at);
#pragma unroll
  for (int j = 0; j < N; j++) {
    y[j] = weight[j] * (centered<CENTER>(y[j], mean) * rstd);
    if (CENTER) y[j] += bias[j];
  }
  store<N>(static_cast<T *>(p.y) + (int64_t)row * p.dim + at, y);
}

template <class T, class Shape, bool CENTER> __global__ void __launch_bounds__(NORM_BLOCK) norm_forward(NormForward p) {
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
  float sum = 0, mean = 0;
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at >= p.dim) continue;
    x[i] = add_branch(p, x[i], added[i], row, at);
    sum = add_first<CENTER>(sum, x[i]);
  }
  sum = row_sum<LANES>(sum);
  if constexpr (CENTER) {
    mean = sum / (float)p.dim;
    sum = 0;
#pragma unroll
    for (int i = 0; i < PACKS; i++)
      if ((lane + i * LANES) * N < p.dim) sum = add_squares<true>(sum, x[i], mean);
    sum = row_sum<LANES>(sum);
  }
  const float rstd = finish_stats<CENTER>(p, sum, mean, row, lane == 0);
#pragma unroll
  for (int i = 0; i < PACKS; i++) {
    const int at = (lane + i * LANES) * N;
    if (at < p.dim) normalize<CENTER>(p, x[i], mean, rstd, row, at);
  }
}

/* x_out = x_in + dropout(branch); branch is not NULL; x_in NULL: zero. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) add_residual(NormForward p) {
  constexpr int N = VECTOR<T>;
  const T *const x = static_cast<const T *>(p.x_in), *const branch = static_cast<const T *>(p.branch);
  for (Walk at(blockIdx.x * NORM_BLOCK + threadIdx.x, gridDim.x * NORM_BLOCK, p.dim / N); at.row < p.rows; at.next()) {
    const int64_t offset = at.row * p.dim + at.col * N;
    const Pack<T, N> in = x ? load_pack<N>(x + offset) : Pack<T, N>{};
    add_branch(p, in, load_pack<N>(branch + offset), (int)at.row, at.col * N);
  }
}

struct NormBackward {
  void *dx, *dbranch;    /* dbranch NULL: not written */
  float *partial;        /* of dweight [gridDim.x][dim], then of dbias likewise */
  const void *dy, *dres; /* dres NULL: zero; dx may be dy or dres */
  const void *x;
  NormStats stats;
  const float *weight;
  int rows, length, dim;
  bool drop;
  DropoutMask mask;
};

/* The sums of a thread: over a row, of g * (x - mean) and of g; over all its rows, E numbers of dweight and of
 * dbias. */
template <int E, bool CENTER> struct NormSums {
  float along, g;
  float dweight[E], dbias[CENTER ? E : 1];
};

/* The numbers of a row in the backward: dx = dres + rstd * (g - mean_g - pull * (x - mean)). */
struct NormRow {
  float mean, rstd, mean_g, pull; /* pull: mean(g * xh) * rstd */
};

/* Adds N numbers of a row, from `at` on, to the sums; those of dweight and dbias from number `first` on. */
template <bool CENTER, class T, int N, int E>
__device__ __forceinline__ void add_products(NormSums<E, CENTER> &sums, int first, const NormBackward &p,
                                             const Pack<T, N> &dy, const Pack<T, N> &x, const NormRow &r, int at) {
  float weight[N];
  load<N>(weight, p.weight + at);
#pragma unroll
  for (int j = 0; j < N; j++) {
    const float along = number(dy, j) * centered<CENTER>(number(x, j), r.mean);
    sums.along += weight[j] * along;
    sums.dweight[first + j] += along * r.rstd;
    if (CENTER) sums.g += weight[j] * number(dy, j);
    if (CENTER) sums.dbias[CENTER ? first + j : 0] += number(dy, j);
  }
}

template <int LANES, bool CENTER, int E>
__device__ __forceinline__ void finish_row(NormRow &r, const NormSums<E, CENTER> &sums, int dim) {
  r.pull = row_sum<LANES>(sums.along) * r.rstd * r.rstd / (float)dim;
  r.mean_g = CENTER ? row_sum<LANES>(sums.g) / (float)dim : 0.0f;
}

/* Writes and returns N numbers of a row of dx, from `at` on; dres() returns the numbers of dres. */
template <bool CENTER, class T, int N, class F>
__device__ __forceinline__ Pack<T, N> write_dx(const NormBackward &p, const Pack<T, N> &dy, const Pack<T, N> &x,
                                               const NormRow &r, int row, int at, F dres) {
  float dx[N], weight[N];
  load<N>(weight, p.weight + at);
#pragma unroll
  for (int j = 0; j < N; j++) {
    const float g = weight[j] * number(dy, j);
    dx[j] = r.rstd * ((CENTER ? g - r.mean_g : g) - r.pull * centered<CENTER>(number(x, j), r.mean));
  }
  if (p.dres) {
    const Pack<T, N> before = dres();
#pragma unroll
    for (int j = 0; j < N; j++) dx[j] += number(before, j);
  }
  const Pack<T, N> rounded = pack<T, N>(dx);
  store_pack(static_cast<T *>(p.dx) + (int64_t)row * p.dim + at, rounded);
  return rounded;
}

/* Writes dbranch from N numbers of a row of dx as stored, from `at` on. */
template <class T, int N>
__device__ __forceinline__ void write_dbranch(const NormBackward &p, Pack<T, N> numbers, int row, int at) {
  if (p.drop) {
    float dx[N];
    unpack(dx, numbers);
    apply_dropout<N>(dx, p.mask, row, p.length, p.dim, at);
    numbers = pack<T, N>(dx);
  }
  store_pack(static_cast<T *>(p.dbranch) + (int64_t)row * p.dim + at, numbers);
}

/* The groups of a block add their sums, one after the other, to the block's row of partial sums. */
template <class Shape, int N>
__device__ __forceinline__ void add_groups(float *partial, int dim, const float (&sums)[Shape::E]) {
  constexpr int LANES = Shape::LANES;
  __shared__ float total[LANES == 32 ? 32 * Shape::E : 1];
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  for (int turn = 0; turn < Shape::ROWS; turn++) {
    if (turn == group) {
#pragma unroll
      for (int i = 0; i < Shape::E / N; i++) {
        const int at = (lane + i * LANES) * N;
        if (at >= dim) continue;
#pragma unroll
        for (int j = 0; j < N; j++) {
          const float sum = sums[i * N + j] + (turn ? total[LANES == 32 ? at + j : 0] : 0.0f);
          if (turn + 1 < Shape::ROWS) total[LANES == 32 ? at + j : 0] = sum;
          else partial[at + j] = sum;
        }
      }
    }
    if (Shape::ROWS > 1) __syncthreads();
  }
}

/* Blocks for a multiprocessor, limited by its registers for dweight, dbias, dy, x and dres. */
template <class T, class Shape, bool CENTER> constexpr int norm_blocks() {
  const int registers = (CENTER ? 2 : 1) * Shape::E + 3 * Shape::E * (int)sizeof(T) / 4;
  return registers <= 32 ? 4 : registers <= 48 ? 3 : registers <= 96 ? 2 : 1;
}

template <class T, class Shape, bool CENTER>
__global__ void __launch_bounds__(NORM_BLOCK, (norm_blocks<T, Shape, CENTER>())) norm_backward(NormBackward p) {
  constexpr int N = VECTOR<T>, LANES = Shape::LANES, PACKS = Shape::E / N;
  constexpr bool EARLY = PACKS * sizeof(Pack<T, N>) <= 64; /* there are registers to load dres early */
  const int lane = (int)threadIdx.x % LANES, group = (int)threadIdx.x / LANES;
  NormSums<Shape::E, CENTER> sums = {};
  for (int row = (int)blockIdx.x * Shape::ROWS + group; row < p.rows; row += (int)gridDim.x * Shape::ROWS) {
    const int64_t start = (int64_t)row * p.dim;
    const T *const dres = static_cast<const T *>(p.dres) + start;
    NormRow r = {CENTER ? p.stats.mean[row] : 0.0f, p.stats.rstd[row], 0, 0};
    Pack<T, N> dy[PACKS], x[PACKS], passed[EARLY ? PACKS : 1];
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      dy[i] = load_pack<N>(static_cast<const T *>(p.dy) + start + at);
      x[i] = load_pack<N>(static_cast<const T *>(p.x) + start + at);
      if (EARLY && p.dres) passed[i] = load_pack<N>(dres + at);
    }
    sums.along = sums.g = 0;
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at < p.dim) add_products(sums, i * N, p, dy[i], x[i], r, at);
    }
    finish_row<LANES>(r, sums, p.dim);
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
      const int at = (lane + i * LANES) * N;
      if (at >= p.dim) continue;
      x[i] = write_dx<CENTER>(p, dy[i], x[i], r, row, at,
                              [&] { return EARLY ? passed[EARLY ? i : 0] : load_pack<N>(dres + at); });
    }
    if (!p.dbranch) continue;
#pragma unroll
    for (int i = 0; i < PACKS; i++) { /* a separate loop, which needs only x in registers */
      const int at = (lane + i * LANES) * N;
      if (at < p.dim) write_dbranch(p, x[i], row, at);
    }
  }
  float *partial = p.partial + (int64_t)blockIdx.x * p.dim;
  add_groups<Shape, N>(partial, p.dim, sums.dweight);
  if constexpr (CENTER) add_groups<Shape, N>(partial + (int64_t)gridDim.x * p.dim, p.dim, sums.dbias);
}

} // namespace

/* Calls f(T(), CENTER, the RowShape for rows of `dim`); sets the context's error when they do not fit in registers. */
template <class F> static void with_norm(Context *c, NormKind kind, int dim, F f) {
  with_element(
      c,
      [&](auto element) {
        with_constant(
            norm_has_mean(kind),
            [&](auto center) {
              if (dim <= 32 * 8) f(element, center, RowShape<32, 8>());
              else if (dim <= 32 * 16) f(element, center, RowShape<32, 16>());
              else if (dim <= 32 * 24) f(element, center, RowShape<32, 24>());
              else if (dim <= 32 * 32) f(element, center, RowShape<32, 32>());
              else if (dim <= NORM_BLOCK * 8) f(element, center, RowShape<NORM_BLOCK, 8>());
              else if (dim <= NORM_BLOCK * 16) f(element, center, RowShape<NORM_BLOCK, 16>());
              else if (dim <= NORM_DIM_MAX) f(element, center, RowShape<NORM_BLOCK, 32>());
              else if (!c->error.code) fail(&c->error, EXIT_USAGE, "dim %d: CUDA has up to %d", dim, NORM_DIM_MAX);
            });
      });
}

/* Whether a product can include the norm: rstd is a factor of the sum (kernels/cuda/decode.cuh). */
static bool fits_product(const Norm *norm) { return norm->kind == NORM_RMS; }

/* Launches y = norm(x_in + branch) with the other arguments in `p`. */
static void launch_norm(Context *c, const char *operation, NormForward p, const Norm *norm) {
  p.weight = norm->weight, p.bias = norm->bias, p.eps = norm->eps;
  require_alignment(c, operation, {p.dim}, {p.x_out, p.y, p.x_in, p.branch, p.weight, p.bias});
  with_norm(c, norm->kind, p.dim, [&]<class T, class Shape>(T, auto center, Shape) {
    const unsigned blocks = (unsigned)divide_up(p.rows, Shape::ROWS);
    launch(c, operation, norm_forward<T, Shape, center>, blocks, NORM_BLOCK, 0, p);
  });
}

/* Returns the arguments of x_out = x_in + dropout(branch). */
static NormForward residual_arguments(void *x_out, const void *x_in, const void *branch, int batch, int length, int dim,
                                      const Dropout *dropout) {
  NormForward p = {};
  p.x_out = branch ? x_out : NULL, p.x_in = x_in, p.branch = branch;
  p.rows = batch * length, p.length = length, p.dim = dim;
  p.drop = dropout_active(dropout), p.mask = dropout_mask(dropout);
  return p;
}

void cuda_residual_norm(Context *c, void *x_out, void *y, NormStats stats, const void *x_in, const void *branch,
                        const Norm *norm, int batch, int length, int dim, const Dropout *dropout) {
  NormForward p = residual_arguments(x_out, x_in, branch, batch, length, dim, dropout);
  p.y = y, p.stats = stats;
  launch_norm(c, "residual_norm", p, norm);
}

void cuda_residual_add(Context *c, void *x_out, const void *x_in, const void *y, int batch, int length, int dim,
                       const Dropout *dropout) {
  const NormForward p = residual_arguments(x_out, x_in, y, batch, length, dim, dropout);
  require_alignment(c, "residual_add", {dim}, {x_out, x_in, y});
  with_element(c, [&]<class T>(T) {
    const dim3 grid = loop_grid(c, divide_up((int64_t)p.rows * (dim / VECTOR<T>), NORM_BLOCK), 16);
    launch(c, "residual_add", add_residual<T>, grid, NORM_BLOCK, 0, p);
  });
}

void cuda_residual_norm_backward(Context *c, void *dx, void *dbranch, NormGradient gradient, const void *dy,
                                 const void *dres, const void *x, NormStats stats, const Norm *norm, int batch,
                                 int length, int dim, const Dropout *dropout, bool accumulate) {
  NormBackward p = {};
  p.dx = dx, p.dbranch = dbranch;
  p.dy = dy, p.dres = dres, p.x = x, p.stats = stats, p.weight = norm->weight;
  p.rows = batch * length, p.length = length, p.dim = dim;
  p.drop = dropout_active(dropout), p.mask = dropout_mask(dropout);
  require_alignment(c, "residual_norm_backward", {dim}, {dx, dbranch, dy, dres, x, norm->weight});
  float *const dbias = norm_has_bias(norm->kind) ? gradient.bias : NULL;
  with_norm(c, norm->kind, dim, [&]<class T, class Shape>(T, auto center, Shape) {
    const dim3 grid = loop_grid(c, divide_up(p.rows, Shape::ROWS), norm_blocks<T, Shape, center>());
    p.partial = partial_sums(c, gradient.weight, dbias, (int)grid.x, dim, accumulate);
    launch(c, "residual_norm_backward", norm_backward<T, Shape, center>, grid, NORM_BLOCK, 0, p);
  });
}

void cuda_decode_norm(Context *c, void *y, const void *x, const Norm *norm, int rows, int dim) {
  NormForward p = residual_arguments(NULL, x, NULL, rows, 1, dim, NULL);
  p.y = y;
  launch_norm(c, "decode_norm", p, norm);
}

#endif
