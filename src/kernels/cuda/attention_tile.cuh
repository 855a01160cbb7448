/* Functions of the attention kernels in bf16: tiles of rows in shared memory, products of tiles on the tensor cores,
 * masks and dropout of a tile of scores, and stores of accumulators.
 *
 * A tile is [rows][HD] bf16; HD is the head size, rounded up to a size of a compiled kernel; columns beyond the head
 * size are zero. A warp works on M blocks of 16 rows. Accumulators are fp32 in the layout of mma.m16n8k16: with g =
 * lane / 4 and c = lane % 4, acc[m][n] holds rows 16m + g and 16m + g + 8, columns 8n + 2c and 8n + 2c + 1, in the
 * order (g, 2c), (g, 2c+1), (g+8, 2c), (g+8, 2c+1). Two neighboring accumulators, rounded to bf16, have the layout of a
 * left factor of the next product, so scores and probabilities stay in registers. */
#ifndef INKLING_KERNELS_CUDA_ATTENTION_TILE_CUH
#define INKLING_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention_arguments.cuh"

#include <limits.h>

/* Shared memory of a block that every GPU since sm_80 has. */
constexpr size_t SHARED_LIMIT = 99 * 1024;

namespace {

typedef Arguments<bf16> TileArguments;

/* ---- tiles ---- */

/* The offset of chunk `chunk` (16 bytes, V elements) of row `row`. The chunks of rows are permuted, so that the same
 * chunk of eight neighboring rows is in eight different groups of four banks, and ldmatrix has no conflicts: the
 * permutation depends on the row with 8 chunks (128 bytes) in a row, on the pair of rows with 4 or 12. */
template <int HD, int V> __device__ __forceinline__ int tile_offset(int row, int chunk) {
  const int swizzle = HD / V % 8 == 0 ? row & 7 : row >> 1 & 3;
  return row * HD + (chunk ^ swizzle) * V;
}

/* The address of row row + lane_row, chunk 2 * pair + half, for ldmatrix: lane_row < 16 and half < 2 belong to the
 * lane, the others to the warp; row is a multiple of 8. The calls of a lane differ only in two bits and constants; with
 * `chunk ^ swizzle` the compiler would keep all addresses of a row in registers. */
template <int HD>
__device__ __forceinline__ const bf16 *fragment_at(const bf16 *tile, int row, int lane_row, int half, int pair) {
  constexpr int LOW = HD / 8 % 8 == 0 ? 7 : 3;
  return tile + row * HD + (tile_offset<HD, 8>(lane_row, half) ^ (2 * pair & LOW) * 8) + (2 * pair & ~LOW) * 8;
}

/* Begins to copy rows first .. first+ROWS of one head, zeros from row `rows` on: they are visible after cp_async_wait()
 * and a barrier. WIDTH threads copy a row. The tile is one panel of HD columns, or several of PANEL, one after the
 * other. */
template <int HD, int ROWS, int THREADS, int PANEL>
__device__ __forceinline__ void load_tile(bf16 *tile, const Heads<bf16> &from, int b, int first, int head, int rows,
                                          int dim) {
  constexpr int WIDTH = PANEL / 8 % 8 == 0 ? 8 : 4, STEP = THREADS / WIDTH;
  static_assert(STEP % 8 == 0, "all rows of a thread have the same permutation of chunks");
  static_assert(ROWS % STEP == 0 || ROWS < STEP, "whole passes, or a part of one");
  const int chunk = (int)(threadIdx.x % WIDTH), row = (int)(threadIdx.x / WIDTH);
  const bf16 *at = from.at(b, first + row, head) + chunk * 8;
  bf16 *const to = tile + tile_offset<PANEL, 8>(row, chunk);
  if (ROWS % STEP && row >= ROWS) return;
#pragma unroll
  for (int r = 0; r < ROWS; r += STEP, at += STEP * from.row)
#pragma unroll
    for (int d = 0; d < HD; d += WIDTH * 8)
      cp_async16(to + d / PANEL * ROWS * PANEL + r * PANEL + d % PANEL, at + d,
                 first + row + r < rows && chunk * 8 + d < dim);
}

/* The queries of a block in the forward or for dQ: QUERIES queries of one head, from i0 on. Blocks of a head follow
 * each other (its keys stay in the L2 cache), blocks with the most keys first (short blocks fill the end). */
struct QueryBlock {
  int bh, b, h, i0; /* bh: number of the head among all heads of all sequences */
};

template <int QUERIES> __device__ __forceinline__ QueryBlock query_block(const AttentionShape &a) {
  const int blocks = (a.queries + QUERIES - 1) / QUERIES, bh = (int)(blockIdx.x / (unsigned)blocks);
  return {bh, bh / a.heads, bh % a.heads, (blocks - 1 - (int)(blockIdx.x % (unsigned)blocks)) * QUERIES};
}

/* Tiles of keys and values of one head, alternating between two stages. S: the sizes of a kernel's tiles. */
template <class S> struct KeyStages {
  const TileArguments &a;
  bf16 *stages;
  int b, head;

  __device__ __forceinline__ bf16 *k_tile(int t) const { return stages + (t & 1) * 2 * S::KEY_TILE; }
  __device__ __forceinline__ bf16 *v_tile(int t) const { return k_tile(t) + S::KEY_TILE; }
  __device__ __forceinline__ void fetch(int t) const {
    load_tile<S::HD, S::KEYS, S::THREADS, S::PANEL>(k_tile(t), a.k, b, t * S::KEYS, head, a.keys, a.dim);
    load_tile<S::HD, S::KEYS, S::THREADS, S::PANEL>(v_tile(t), a.v, b, t * S::KEYS, head, a.keys, a.dim);
    cp_async_commit();
  }
};

/* Waits for this thread's copies, and makes them visible to the block; all warps have passed what came before. */
template <class S> __device__ __forceinline__ void receive_tiles() {
  cp_async_wait<0>();
  S::publish();
  __syncthreads();
}

/* ---- products ---- */

/* Another form of pack(), with which ptxas spills registers here; with this form it spills in norm_backward. */
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t *>(&two);
}

/* The left factor of a warp's products, 16M rows of a tile: kept in registers, or read again (M times 4 registers) for
 * every product. */
template <int HD, int M, bool REGISTERS> struct LeftFactor {
  const bf16 *tile; /* from the first row on, a multiple of 8 */

  __device__ __forceinline__ void take(const bf16 *from, int first) { tile = from + first * HD; }
  __device__ __forceinline__ void fragment(uint32_t (&out)[4], int m, int k) const {
    const int lane = lane_id();
    ldmatrix_x4(out, fragment_at<HD>(tile, 16 * m, lane & 15, lane >> 4, k));
  }
};

template <int HD, int M> struct LeftFactor<HD, M, true> {
  uint32_t kept[M][HD / 16][4];

  __device__ __forceinline__ void take(const bf16 *from, int first) {
    LeftFactor<HD, M, false> tile;
    tile.take(from, first);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int k = 0; k < HD / 16; k++) tile.fragment(kept[m][k], m, k);
  }
  __device__ __forceinline__ void fragment(uint32_t (&out)[4], int m, int k) const {
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = kept[m][k][i];
  }
};

/* How kernels multiply tiles: each warp for itself, by mma, or the four warps of a block together, by wgmma
 * (attention_hopper.cu). PANEL: columns of a panel of a tile; align(): where the tiles begin, up to SLACK bytes behind
 * the start of shared memory; publish(): makes the thread's copies visible to products after a barrier; TOGETHER: all
 * warps of a block must reach every product. */
template <int HD_, bool HOPPER> struct Products;
template <int HD_> struct Products<HD_, false> {
  static constexpr int HD = HD_, PANEL = HD, SLACK = 0;
  static constexpr bool TOGETHER = false;
  template <int M, bool REGISTERS> using Left = LeftFactor<HD, M, REGISTERS>;
  typedef const bf16 *Tile;
  __device__ static __forceinline__ unsigned char *align(unsigned char *shared) { return shared; }
  __device__ static __forceinline__ void publish() {}
};

template <int M, int N> __device__ __forceinline__ void clear(float (&acc)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][n][e] = 0.0f;
}

template <int M, int N> __device__ __forceinline__ void scale_all(float (&acc)[M][N][4], float factor) {
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][n][e] *= factor;
}

/* acc[16M][8N] = left[16M][HD] (rows first .. first+8N of right)^T */
template <int HD, int M, int N, bool REGISTERS>
__device__ __forceinline__ void multiply_transposed(float (&acc)[M][N][4], const LeftFactor<HD, M, REGISTERS> &left,
                                                    const bf16 *right, int first) {
  const int lane = lane_id(), lane_row = (lane & 7) + (lane >> 4) * 8, half = lane >> 3 & 1;
  clear(acc);
#pragma unroll
  for (int k = 0; k < HD / 16; k++) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) left.fragment(a[m], m, k);
#pragma unroll
    for (int n = 0; n < N / 2; n++) {
      uint32_t b[4];
      ldmatrix_x4(b, fragment_at<HD>(right, first + 16 * n, lane_row, half, k));
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma_bf16(acc[m][2 * n], a[m], b[0], b[1]);
        mma_bf16(acc[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* Columns 16k .. 16k+15 of the rows of `from`, rounded to bf16, as a left factor. */
template <int N> __device__ __forceinline__ void round_left(uint32_t (&a)[4], const float (&from)[N][4], int k) {
#pragma unroll
  for (int i = 0; i < 4; i++) a[i] = pack_bf16(from[2 * k + i / 2][i % 2 * 2], from[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* acc[16M][HD] += left[16M][8K] (rows first .. first+8K of right), left rounded to bf16. */
template <int HD, int M, int K>
__device__ __forceinline__ void multiply(float (&acc)[M][HD / 8][4], const float (&left)[M][K][4], const bf16 *right,
                                         int first) {
  const int lane = lane_id();
#pragma unroll
  for (int k = 0; k < K / 2; k++) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) round_left(a[m], left[m], k);
#pragma unroll
    for (int n = 0; n < HD / 16; n++) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, fragment_at<HD>(right, first + 16 * k, lane & 15, lane >> 4, n));
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma_bf16(acc[m][2 * n], a[m], b[0], b[1]);
        mma_bf16(acc[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* ---- masks ---- */

/* The visible keys of a run of queries: finds tiles without visible keys, and tiles that need no mask. */
struct Limits {
  int min_begin, max_end; /* if any query attends to key j, min_begin <= j < max_end */
  int max_begin, min_end; /* if max_begin <= j < min_end, all queries attend to key j */

  __device__ __forceinline__ bool none_reach(int first) const { return first >= max_end; }
  __device__ __forceinline__ bool none_see(int first, int count) const {
    return first >= max_end || first + count <= min_begin;
  }
  __device__ __forceinline__ bool all_see(int first, int count) const {
    return first >= max_begin && first + count <= min_end;
  }
};

/* Returns the limits of queries first .. first+count, without those beyond the end. All lanes of the warp must call
 * it. */
__device__ __forceinline__ Limits limits_of(const AttentionShape &a, int b, int first, int count) {
  const int end = min(first + count, a.queries);
  Limits l = {INT_MAX, 0, 0, INT_MAX};
  if (first >= end) return l;
  if (!a.key_begin && !a.key_end) { /* the ends rise with the query */
    l.min_begin = 0;
    l.min_end = visible_keys(a, b, first).end;
    l.max_end = visible_keys(a, b, end - 1).end;
    return l;
  }
#pragma unroll 1
  for (int i = first + lane_id(); i < end; i += 32) {
    const Visible v = visible_keys(a, b, i);
    l.max_begin = max(l.max_begin, v.begin);
    l.min_end = min(l.min_end, v.end);
    if (v.begin >= v.end) continue;
    l.min_begin = min(l.min_begin, v.begin);
    l.max_end = max(l.max_end, v.end);
  }
  l.min_begin = __reduce_min_sync(0xFFFFFFFFu, l.min_begin);
  l.max_begin = __reduce_max_sync(0xFFFFFFFFu, l.max_begin);
  l.min_end = __reduce_min_sync(0xFFFFFFFFu, l.min_end);
  l.max_end = __reduce_max_sync(0xFFFFFFFFu, l.max_end);
  return l;
}

/* scores[query][key] = `value` for invisible keys; i0, j0: query and key of the warp's first row and column. */
template <int M, int N>
__device__ __forceinline__ void mask_scores(float (&scores)[M][N][4], const AttentionShape &a, int b, int i0, int j0,
                                            float value) {
  const int g = lane_id() / 4, c = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2 * M; r++) {
    const int i = i0 + r * 8 + g;
    const Visible v = visible_keys(a, b, i);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int j = j0 + 8 * n + 2 * c + e;
        if (j < v.begin || j >= v.end) scores[r / 2][n][r % 2 * 2 + e] = value;
      }
  }
}

/* The same for scores[key][query]. */
template <int M, int N>
__device__ __forceinline__ void mask_scores_transposed(float (&scores)[M][N][4], const AttentionShape &a, int b, int i0,
                                                       int j0, float value) {
  const int g = lane_id() / 4, c = lane_id() % 4;
#pragma unroll
  for (int n = 0; n < N; n++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int i = i0 + 8 * n + 2 * c + e;
      const Visible v = visible_keys(a, b, i);
#pragma unroll
      for (int r = 0; r < 2 * M; r++) {
        const int j = j0 + r * 8 + g;
        if (j < v.begin || j >= v.end) scores[r / 2][n][r % 2 * 2 + e] = value;
      }
    }
}

/* ---- dropout ---- */

/* Multiplies scores[query][key] by `scale` or 0; j0 is a multiple of 32. One call of the generator gives a thread the
 * numbers of its eight columns of 32. */
template <int M, int N>
__device__ __forceinline__ void drop_scores(float (&scores)[M][N][4], const DropoutStream &stream, int i0, int j0,
                                            float scale) {
  static_assert(N % 4 == 0, "whole groups of 32 keys");
  const int g = lane_id() / 4, c = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2 * M; r++)
#pragma unroll
    for (int group = 0; group < N / 4; group++) {
      const uint4 words = stream.words(i0 + r * 8 + g, j0 / 32 + group, c);
      const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int n = 0; n < 4; n++) {
        float *at = &scores[r / 2][4 * group + n][r % 2 * 2];
        at[0] = (word[n] & 0xFFFF) >= stream.threshold ? at[0] * scale : 0.0f;
        at[1] = word[n] >> 16 >= stream.threshold ? at[1] * scale : 0.0f;
      }
    }
}

/* ---- stores ---- */

/* Stores acc[16M][HD] of a warp as rows first + row .. of one head, up to row `rows`. They pass through rows row ..
 * row+16M of `staging`, an fp32 tile of the block that is no longer in use, so that whole sectors are written and a
 * thread has both halves of a head for the rotation (`rope` not NULL). */
template <int HD, int M>
__device__ __forceinline__ void store_rows(float *staging, const float (&acc)[M][HD / 8][4], int row,
                                           const Heads<bf16> &to, int b, int first, int head, int rows, int dim,
                                           const float *rope, const int32_t *positions) {
  const int lane = lane_id(), g = lane / 4, c = lane % 4, half = dim / 2;
#pragma unroll
  for (int r = 0; r < 2 * M; r++)
#pragma unroll
    for (int n = 0; n < HD / 8; n++)
      store<2>(staging + tile_offset<HD, 4>(row + r * 8 + g, 2 * n + c / 2) + c % 2 * 2,
               {acc[r / 2][n][r % 2 * 2], acc[r / 2][n][r % 2 * 2 + 1]});
  __syncwarp();
#pragma unroll 1
  for (int r = row + lane / 8; r < row + 16 * M && first + r < rows; r += 4) {
    bf16 *const at = to.at(b, first + r, head);
    const int64_t i = (int64_t)b * rows + first + r, position = positions ? positions[i] : first + r;
#pragma unroll 1
    for (int d = lane % 8 * 4; d < half; d += 32) {
      float x[4], y[4];
      load<4>(x, staging + tile_offset<HD, 4>(r, d / 4));
      load<4>(y, staging + tile_offset<HD, 4>(r, (d + half) / 4));
      if (rope) rotate_back(x, y, rope, position, d, dim);
      store<4>(at + d, x);
      store<4>(at + d + half, y);
    }
  }
  __syncwarp();
}

} // namespace

/* ---- host ---- */

/* Calls f(HD, DROPOUT): the head size of a compiled kernel, at least that of `a`, and whether there is dropout. */
template <class F> static void with_tile_kernel(const Attention *a, F f) {
  const auto call = [&](auto width) {
    with_constant(dropout_active(a->dropout), [&](auto dropout) { f(width, dropout); });
  };
  if (a->head_dim <= 32) call(std::integral_constant<int, 32>());
  else if (a->head_dim <= 64) call(std::integral_constant<int, 64>());
  else if (a->head_dim <= 96) call(std::integral_constant<int, 96>());
  else call(std::integral_constant<int, HEAD_DIM_MAX>());
}

#endif
