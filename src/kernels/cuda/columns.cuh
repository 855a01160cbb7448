/* Sums of the columns of arrays: gradients of norm weights, convolutions and biases. Two steps in a fixed order: blocks
 * sum their rows into partial sums [parts][cols], fp32, in memory from partial_sums(). cuda_join() sums the columns of
 * all of them in one launch. The number of parts depends on the shape and the device. */
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

/* Sum number blockIdx.y. A block takes 32 columns; each warp sums every 32nd row, and the first warp adds these
 * sums. */
__global__ void __launch_bounds__(1024) sum_columns(const __grid_constant__ ColumnSums list) {
  __shared__ float part[32][33];
  const ColumnSum s = list.sums[blockIdx.y];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, col = (int)blockIdx.x * 32 + lane;
  if ((int)blockIdx.x * 32 >= s.cols) return;
  float sum = 0;
  if (col < s.cols) {
#pragma unroll 4
    for (int row = warp; row < s.rows; row += 32) sum += s.partial[(int64_t)row * s.cols + col];
  }
  part[warp][lane] = sum;
  __syncthreads();
  if (warp || col >= s.cols) return;
  sum = s.accumulate ? s.out[col] : 0.0f;
#pragma unroll
  for (int i = 0; i < 32; i++) sum += part[i][lane];
  s.out[col] = sum;
}

} // namespace

void cuda_join(Context *c, int running) {
  Branch *b = &c->branch;
  PartialSums *p = &c->partial;
  const int64_t over = b->begun - running;
  if (over > b->joined) {
    check(c, cudaStreamWaitEvent(c->stream, b->done[(over - 1) % 2], 0), "weight gradients");
    b->joined = over;
  }
  if (running || !p->count) return;
  int cols = 0;
  for (int i = 0; i < p->count; i++) cols = p->list.sums[i].cols > cols ? p->list.sums[i].cols : cols;
  launch(c, "sums of columns", sum_columns, dim3((unsigned)divide_up(cols, 32), (unsigned)p->count), 1024, 0, p->list);
  p->count = 0, p->used = 0;
}

/* Returns memory for partial sums [parts][cols], and if `second` is not NULL for as many more. The caller fills it with
 * its next launch. cuda_join(c, 0) writes the sums of the columns to `out` and `second`, or adds them. NULL, with the
 * context's error set, when out of memory. The memory grows as scratch() does. */
static float *partial_sums(Context *c, float *out, float *second, int parts, int cols, bool accumulate) {
  PartialSums *p = &c->partial;
  ColumnSum *const sums = p->list.sums;
  const size_t count = (size_t)parts * (size_t)cols, bytes = (second ? 2 : 1) * count * sizeof(float);
  bool fits = p->used + bytes <= p->bytes && p->count + 2 <= ColumnSums::CAPACITY;
  for (int i = 0; i < p->count; i++) fits = fits && sums[i].out != out; /* sums of several chunks of rows */
  if (!fits) cuda_join(c, 0);
  if (bytes > p->bytes) {
    p->bytes = bytes > PartialSums::LEAST ? bytes : (size_t)PartialSums::LEAST;
    p->memory = (char *)cuda_alloc(c, "partial sums of gradients", p->bytes);
  }
  if (c->error.code) return NULL;
  float *const memory = (float *)(p->memory + p->used);
  sums[p->count++] = {out, memory, parts, cols, accumulate};
  if (second) sums[p->count++] = {second, memory + count, parts, cols, accumulate};
  p->used += (bytes + 255) / 256 * 256;
  return memory;
}

/* out fp32 [cols] (+)= the sum of the rows of from [rows][cols] dt, of any shape; rows > 0. Runs beside later
 * operations. */
static void add_rows(Context *c, const char *what, float *out, const void *from, int rows, int cols, bool accumulate) {
  /* a warp adds at least 4 rows, to be worth its block */
  const int64_t most = divide_up(rows, 4 * COLUMNS_WARPS);
  with_element(c, [&]<class T>(T) {
    const bool vectors = cols % VECTOR<T> == 0 && (uintptr_t)from % 16 == 0;
    const int64_t tiles = divide_up(cols, vectors ? 32 * VECTOR<T> : 32);
    const int64_t wanted = divide_up(8 * (int64_t)c->processors, tiles);
    const int rows_of_part = (int)divide_up(rows, wanted < most ? wanted : most),
              parts = (int)divide_up(rows, rows_of_part);
    float *const partial = partial_sums(c, out, NULL, parts, cols, accumulate);
    beside(c, [&] {
      launch(c, what, vectors ? sum_rows<T, VECTOR<T>> : sum_rows<T, 1>, dim3((unsigned)tiles, (unsigned)parts),
             COLUMNS_BLOCK, 0, partial, (const T *)from, rows, cols, rows_of_part);
    });
  });
}

#endif
