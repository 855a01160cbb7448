/* Sums of the columns of an array: gradients of norm weights and of biases. Two steps in a fixed order: blocks sum
 * their rows into partial sums [parts][cols], fp32, whose columns are then summed. The number of parts depends on the
 * shape and the device. */
#ifndef INKLING_KERNELS_CUDA_COLUMNS_CUH
#define INKLING_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/cuda.cuh"

namespace {

constexpr int COLUMNS_BLOCK = 256, COLUMNS_WARPS = COLUMNS_BLOCK / 32;

/* partial [gridDim.y][cols]: sums over the rows of from [rows][cols], `rows_of_part` in every part. A lane takes N
 * neighbors, which it loads at once, a block 32 N; the rows are divided among its warps. */
template <class T, int N>
__global__ void __launch_bounds__(COLUMNS_BLOCK)
    sum_rows(float *partial, const T *from, int rows, int cols, int rows_of_part) {
  constexpr int WIDTH = 32 * N;
  __shared__ float part[COLUMNS_WARPS][WIDTH];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, left = (int)blockIdx.x * WIDTH;
  const int first = (int)blockIdx.y * rows_of_part, last = min(first + rows_of_part, rows), col = left + lane * N;
  float sum[N] = {};
  if (col < cols) {
#pragma unroll 4
    for (int row = first + warp; row < last; row += COLUMNS_WARPS) {
      float x[N];
      const T *const at = from + (int64_t)row * cols + col;
      if constexpr (N == 1) x[0] = to_float(*at);
      else load<N>(x, at);
#pragma unroll
      for (int j = 0; j < N; j++) sum[j] += x[j];
    }
  }
#pragma unroll
  for (int j = 0; j < N; j++) part[warp][lane * N + j] = sum[j];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < WIDTH && left + i < cols; i += COLUMNS_BLOCK) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < COLUMNS_WARPS; w++) total += part[w][i];
    partial[(int64_t)blockIdx.y * cols + left + i] = total;
  }
}

/* out [cols] (+)= the sums of the columns of partial [rows][cols]; with gridDim.y = 2, `second` (+)= those of a second
 * array that follows. A block takes 32 columns; each warp sums every 32nd row, and the first warp adds these sums. */
__global__ void __launch_bounds__(1024)
    sum_columns(float *out, float *second, const float *partial, int rows, int cols, bool accumulate) {
  __shared__ float part[32][33];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, col = (int)blockIdx.x * 32 + lane;
  if (blockIdx.y) out = second, partial += (int64_t)rows * cols;
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

/* out (+)= the column sums of partial [parts][cols]; `second` not NULL: likewise of the array that follows. */
static void add_parts(Context *c, const char *what, float *out, float *second, const float *partial, int parts,
                      int cols, bool accumulate) {
  launch(c, what, sum_columns, dim3((unsigned)divide_up(cols, 32), second ? 2 : 1), 1024, 0, out, second, partial,
         parts, cols, accumulate);
}

/* out fp32 [cols] (+)= the sum of the rows of from [rows][cols] dt, of any shape; rows > 0. */
static void add_rows(Context *c, const char *what, float *out, const void *from, int rows, int cols, bool accumulate) {
  /* a warp adds at least 4 rows, to be worth its block */
  const int64_t most = divide_up(rows, 4 * COLUMNS_WARPS);
  with_element(c, [&](auto element) {
    using T = decltype(element);
    const bool vectors = cols % VECTOR<T> == 0 && (uintptr_t)from % 16 == 0;
    const int64_t tiles = divide_up(cols, vectors ? 32 * VECTOR<T> : 32);
    const int64_t wanted = divide_up(8 * (int64_t)c->processors, tiles);
    const int rows_of_part = (int)divide_up(rows, wanted < most ? wanted : most),
              parts = (int)divide_up(rows, rows_of_part);
    float *partial = (float *)scratch(c, (size_t)parts * (size_t)cols * sizeof(float));
    launch(c, what, vectors ? sum_rows<T, VECTOR<T>> : sum_rows<T, 1>, dim3((unsigned)tiles, (unsigned)parts),
           COLUMNS_BLOCK, 0, partial, (const T *)from, rows, cols, rows_of_part);
    add_parts(c, what, out, NULL, partial, parts, cols, accumulate);
  });
}

#endif
