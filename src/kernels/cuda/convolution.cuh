/* Gated causal short convolution (LFM2, Liquid AI 2025), forward and backward, and what decoding keeps of a prompt.
 *
 *   bcx, dbcx [B*T][3C]: b, c, x   y, dy [B*T][C]   kernel, dkernel fp32 [C][3]
 *   forward    z = b * x;  s[t] = kernel[0] z[t-2] + kernel[1] z[t-1] + kernel[2] z[t];  y = c * s
 *   backward   ds = dy * c;  dz[t] = kernel[2] ds[t] + kernel[1] ds[t+1] + kernel[0] ds[t+2];
 *              db = dz * x, dc = dy * s, dx = dz * b;  dkernel[i] (+)= sum over rows of ds[t] z[t-2+i]
 *   Terms of other texts are left out: row n has rows_before(n) rows of its text before it.
 *
 * A lane takes N neighboring channels and a warp consecutive rows, one after the other. The lane holds in registers
 * what the next two rows need, and has the next row in flight, so every array is read and written once, except for two
 * rows where the rows of another warp begin. In the backward dz of a row is complete two rows later; the lane keeps b
 * and x until then.
 *
 * dkernel is summed in two steps of fixed order: the warps of a block add their sums into a row of partial sums
 * [parts][3C], whose columns are summed later (columns.cuh). */
#ifndef INKLING_KERNELS_CUDA_CONVOLUTION_CUH
#define INKLING_KERNELS_CUDA_CONVOLUTION_CUH

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/cuda.cuh"

namespace {

static_assert(CONVOLUTION_TAPS == 3, "the two rows before a row");
constexpr int CONVOLUTION_BLOCK = 256, CONVOLUTION_WARPS = CONVOLUTION_BLOCK / 32;

template <class T> struct ConvolutionArguments {
  T *y, *dbcx;    /* forward; backward */
  float *partial; /* backward: of dkernel [gridDim.y][3C] */
  const T *bcx, *dy;
  const float *kernel;
  const int32_t *positions; /* NULL: 0..T-1 in every sequence */
  int rows, length, dim, rows_of_warp;

  __device__ __forceinline__ int rows_before(int n) const {
    return min(positions ? positions[n] : n % length, CONVOLUTION_TAPS - 1);
  }
  /* Channel `at` of part 0 (b), 1 (c) or 2 (x) of row n. */
  __device__ __forceinline__ const T *in(int64_t n, int part, int at) const { return bcx + (3 * n + part) * dim + at; }
  __device__ __forceinline__ T *out(int64_t n, int part, int at) const { return dbcx + (3 * n + part) * dim + at; }
};

/* z = b * x of N channels of a row. */
template <class T, int N> struct Product {
  Pack<T, N> b, x;
  __device__ __forceinline__ float at(int j) const { return number(b, j) * number(x, j); }
};

/* Loads the product of row n, or zeros. */
template <int N, class T>
__device__ __forceinline__ Product<T, N> fetch_product(const ConvolutionArguments<T> &p, int n, int at, bool present) {
  return {fetch<N>(p.in(n, 0, at), present), fetch<N>(p.in(n, 2, at), present)};
}

/* What is read of a row; `before`: rows_before(). */
template <class T, int N> struct ConvolutionRow {
  Product<T, N> z;
  Pack<T, N> c, dy;
  int before;
};

/* Loads row n: all of it, without z (`gradient_only`), or zeros when not `present`. */
template <int N, bool BACKWARD, class T>
__device__ __forceinline__ ConvolutionRow<T, N> fetch_row(const ConvolutionArguments<T> &p, int n, int at, bool present,
                                                          bool gradient_only) {
  ConvolutionRow<T, N> row;
  row.before = present ? p.rows_before(n) : 0;
  if (BACKWARD) row.dy = fetch<N>(p.dy + (int64_t)n * p.dim + at, present);
  row.c = fetch<N>(p.in(n, 1, at), present);
  row.z = fetch_product<N>(p, n, at, present && !gradient_only);
  return row;
}

/* The first and the end of the rows of this warp, and the first channel of this lane. */
struct ConvolutionPlace {
  int first, end, at;
  template <class T>
  __device__ __forceinline__ ConvolutionPlace(const ConvolutionArguments<T> &p)
      : first(((int)blockIdx.y * CONVOLUTION_WARPS + (int)threadIdx.x / 32) * p.rows_of_warp),
        end(min(first + p.rows_of_warp, p.rows)), at(((int)blockIdx.x * 32 + (int)threadIdx.x % 32) * VECTOR<T>) {}
};

template <class T>
__global__ void __launch_bounds__(CONVOLUTION_BLOCK, 2) convolution_forward(ConvolutionArguments<T> p) {
  constexpr int N = VECTOR<T>;
  const ConvolutionPlace place(p);
  if (place.at >= p.dim || place.first >= place.end) return;
  float kernel[3 * N];
  load<3 * N>(kernel, p.kernel + 3 * place.at);
  ConvolutionRow<T, N> row = fetch_row<N, false>(p, place.first, place.at, true, false);
  Product<T, N> z1 = fetch_product<N>(p, place.first - 1, place.at, row.before > 0);
  Product<T, N> z2 = fetch_product<N>(p, place.first - 2, place.at, row.before > 1);
  for (int n = place.first; n < place.end; n++) {
    const ConvolutionRow<T, N> next = fetch_row<N, false>(p, n + 1, place.at, n + 1 < place.end, false);
    float y[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
      float s = kernel[3 * j + 2] * row.z.at(j);
      if (row.before > 0) s += kernel[3 * j + 1] * z1.at(j);
      if (row.before > 1) s += kernel[3 * j] * z2.at(j);
      y[j] = number(row.c, j) * s;
    }
    store<N>(p.y + (int64_t)n * p.dim + place.at, y);
    z2 = z1, z1 = row.z, row = next;
  }
}

/* The gradient of z in progress, and the lane's sums of dkernel. */
template <int N> struct ConvolutionSums {
  float dz1[N], dz2[N]; /* of the two rows before, without the terms of rows to come */
  float dkernel[3 * N];
};

/* Adds the terms of a row, whose products of the rows before are z1 and z2, to the sums; returns dc. dz receives the
 * row's own term. `inside`: the row is one of this warp's. */
template <class T, int N>
__device__ __forceinline__ Pack<T, N> add_row(ConvolutionSums<N> &sums, float (&dz)[N], const ConvolutionRow<T, N> &row,
                                              const Product<T, N> &z1, const Product<T, N> &z2, const float *kernel,
                                              bool inside) {
  float dc[N], taps[12]; /* of 4 channels, from the cache: registers are scarce */
#pragma unroll
  for (int j = 0; j < N; j++) {
    if (j % 4 == 0) load<12>(taps, kernel + 3 * j);
    const float dy = number(row.dy, j), ds = dy * number(row.c, j), z = row.z.at(j), *const tap = taps + j % 4 * 3;
    float s = tap[2] * z;
    dz[j] = tap[2] * ds;
    sums.dkernel[3 * j + 2] += ds * z; /* z is 0 where it is not `inside` */
    if (row.before > 0) {
      s += tap[1] * z1.at(j);
      sums.dz1[j] += tap[1] * ds;
      if (inside) sums.dkernel[3 * j + 1] += ds * z1.at(j);
    }
    if (row.before > 1) {
      s += tap[0] * z2.at(j);
      sums.dz2[j] += tap[0] * ds;
      if (inside) sums.dkernel[3 * j] += ds * z2.at(j);
    }
    dc[j] = dy * s;
  }
  return pack<T, N>(dc);
}

/* db and dx of a row from its dz. */
template <class T, int N>
__device__ __forceinline__ void write_gates(const ConvolutionArguments<T> &p, const Product<T, N> &z,
                                            const float (&dz)[N], int64_t n, int at) {
  float db[N], dx[N];
#pragma unroll
  for (int j = 0; j < N; j++) db[j] = dz[j] * number(z.x, j), dx[j] = dz[j] * number(z.b, j);
  store<N>(p.out(n, 0, at), db);
  store<N>(p.out(n, 2, at), dx);
}

/* The rows of a warp, and the two after them, which complete dz of its last two. */
template <class T>
__device__ __forceinline__ void backward_rows(const ConvolutionArguments<T> &p, const ConvolutionPlace &place,
                                              ConvolutionSums<VECTOR<T>> &sums) {
  constexpr int N = VECTOR<T>;
  const auto fetch_next = [&](int n) {
    return fetch_row<N, true>(p, n, place.at, n < p.rows && n < place.end + 2, n >= place.end);
  };
  ConvolutionRow<T, N> row = fetch_next(place.first);
  Product<T, N> z1 = fetch_product<N>(p, place.first - 1, place.at, row.before > 0);
  Product<T, N> z2 = fetch_product<N>(p, place.first - 2, place.at, row.before > 1);
  for (int n = place.first; n < place.end + 2; n++) {
    const ConvolutionRow<T, N> next = fetch_next(n + 1);
    float dz[N];
    const Pack<T, N> dc = add_row(sums, dz, row, z1, z2, p.kernel + 3 * place.at, n < place.end);
    if (n < place.end) store_pack(p.out(n, 1, place.at), dc);
    if (n >= place.first + 2) write_gates(p, z2, sums.dz2, n - 2, place.at);
#pragma unroll
    for (int j = 0; j < N; j++) sums.dz2[j] = sums.dz1[j], sums.dz1[j] = dz[j];
    z2 = z1, z1 = row.z, row = next;
  }
}

template <class T>
__global__ void __launch_bounds__(CONVOLUTION_BLOCK, 2) convolution_backward(ConvolutionArguments<T> p) {
  constexpr int N = VECTOR<T>, WIDTH = 32 * 3 * N;
  __shared__ float part[CONVOLUTION_WARPS][WIDTH];
  const ConvolutionPlace place(p);
  const int lane = (int)threadIdx.x % 32, left = (int)blockIdx.x * WIDTH;
  ConvolutionSums<N> sums = {};
  if (place.at < p.dim && place.first < place.end) backward_rows(p, place, sums);
#pragma unroll
  for (int j = 0; j < 3 * N; j++) part[threadIdx.x / 32][lane * 3 * N + j] = sums.dkernel[j];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < WIDTH && left + i < 3 * p.dim; i += CONVOLUTION_BLOCK) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < CONVOLUTION_WARPS; w++) total += part[w][i];
    p.partial[(int64_t)blockIdx.y * 3 * p.dim + left + i] = total;
  }
}

/* z of the last two of `length` rows, to the state of a slot [CONVOLUTION_TAPS][C]. A block for each row. */
template <class T> __global__ void convolution_store_kernel(T *z, const T *bcx, int dim, int length) {
  constexpr int N = VECTOR<T>;
  const int t = length - 1 - (int)blockIdx.x;
  const T *const b = bcx + (int64_t)t * 3 * dim, *const x = b + 2 * dim;
  for (int i = (int)threadIdx.x * N; i < dim; i += (int)blockDim.x * N) {
    const Product<T, N> product = {load_pack<N>(b + i), load_pack<N>(x + i)};
    float now[N];
#pragma unroll
    for (int j = 0; j < N; j++) now[j] = product.at(j);
    store<N>(z + (t % CONVOLUTION_TAPS) * dim + i, now);
  }
}

} // namespace

/* Arguments for `least` rows for a warp at least, and for `warps` warps on every multiprocessor if there are rows. */
template <class T>
static ConvolutionArguments<T> convolution_arguments(const Context *c, const void *bcx, const Convolution *v, int batch,
                                                     int length, int least, int warps) {
  ConvolutionArguments<T> p = {};
  p.bcx = static_cast<const T *>(bcx), p.kernel = v->kernel, p.positions = v->positions;
  p.rows = batch * length, p.length = length, p.dim = v->dim;
  const int64_t tiles = divide_up(v->dim, 32 * VECTOR<T>);
  const int64_t each = divide_up(p.rows * tiles, (int64_t)warps * c->processors);
  p.rows_of_warp = (int)(each > least ? each : least);
  return p;
}

/* A block for CONVOLUTION_WARPS times rows_of_warp rows of 32 lanes. */
template <class T> static dim3 convolution_grid(const ConvolutionArguments<T> &p) {
  return dim3((unsigned)divide_up(p.dim, 32 * VECTOR<T>),
              (unsigned)divide_up(p.rows, CONVOLUTION_WARPS * (int64_t)p.rows_of_warp));
}

void cuda_convolution(Context *c, void *y, const void *bcx, const Convolution *v, int batch, int length) {
  require_alignment(c, "convolution", {v->dim}, {y, bcx, v->kernel});
  with_element(c, [&]<class T>(T) {
    ConvolutionArguments<T> p = convolution_arguments<T>(c, bcx, v, batch, length, 4, 64);
    p.y = static_cast<T *>(y);
    launch(c, "convolution", convolution_forward<T>, convolution_grid(p), CONVOLUTION_BLOCK, 0, p);
  });
}

void cuda_convolution_backward(Context *c, void *dbcx, float *dkernel, const void *dy, const void *bcx,
                               const Convolution *v, int batch, int length, bool accumulate) {
  require_alignment(c, "convolution_backward", {v->dim}, {dbcx, dy, bcx, v->kernel});
  with_element(c, [&]<class T>(T) {
    ConvolutionArguments<T> p = convolution_arguments<T>(c, bcx, v, batch, length, 8, 32);
    const dim3 grid = convolution_grid(p);
    const int width = CONVOLUTION_TAPS * v->dim;
    p.dbcx = static_cast<T *>(dbcx), p.dy = static_cast<const T *>(dy);
    p.partial = partial_sums(c, dkernel, NULL, (int)grid.y, width, accumulate);
    launch(c, "convolution_backward", convolution_backward<T>, grid, CONVOLUTION_BLOCK, 0, p);
  });
}

void cuda_convolution_store(Context *c, const ConvolutionState *state, int slot, const void *bcx, int dim, int length) {
  if (slot < 0) return;
  require_alignment(c, "convolution_store", {dim, state->slot}, {state->z, bcx});
  with_element(c, [&]<class T>(T) {
    launch(c, "convolution_store", convolution_store_kernel<T>, (unsigned)(length < 2 ? length : 2), 128, 0,
           static_cast<T *>(state->z) + slot * state->slot, bcx, dim, length);
  });
}

#endif
