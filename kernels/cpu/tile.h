/* A register-tiled product of small packed matrices, in the vector extension that gcc and clang share. Attention and
 * the GEMM used where oneDNN is missing are built on it.
 *
 * One tile is TILE_ROWS x (1 or 2) vectors of fp32 sums held in registers: enough independent chains to keep both
 * multiply-add units busy, few enough not to spill. */
#ifndef INKLING_KERNELS_CPU_TILE_H
#define INKLING_KERNELS_CPU_TILE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__AVX512F__)
enum { LANES = 16, TILE_ROWS = 8 };
#elif defined(__AVX__)
enum { LANES = 8, TILE_ROWS = 4 };
#else
enum { LANES = 4, TILE_ROWS = 4 };
#endif
enum { TILE_COLS = 2 * LANES };

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef float UnalignedVector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

static inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/* c[TILE_ROWS][vectors * LANES] (+)= a b, with a(i, k) = a[i * a_row + k * a_k] and b(k, j) = b[k * b_row + j].
 * `vectors` is a constant at every call, so each call becomes straight code. */
static inline __attribute__((always_inline)) void tile_kernel(int vectors, int64_t depth, const float *a, int64_t a_row,
                                                              int64_t a_k, const float *b, int64_t b_row, float *c,
                                                              int64_t c_row, bool add) {
  Vector sum[TILE_ROWS][2] = {{{0}}};
  if (add)
    UNROLL for (int i = 0; i < TILE_ROWS; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
        *(const UnalignedVector *)(c + i * c_row + j * LANES);
  for (int64_t k = 0; k < depth; k++) {
    Vector row[2] = {*(const UnalignedVector *)(b + k * b_row), {0}};
    if (vectors == 2) row[1] = *(const UnalignedVector *)(b + k * b_row + LANES);
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
      float factor = a[i * a_row + k * a_k];
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] += factor * row[j];
    }
  }
  UNROLL for (int i = 0; i < TILE_ROWS; i++) UNROLL for (int j = 0; j < vectors; j++) *
      (UnalignedVector *)(c + i * c_row + j * LANES) = sum[i][j];
}

/* c[rows][cols] (+)= a[rows][depth] b[depth][cols]; rows a multiple of TILE_ROWS, cols of LANES. */
static inline void tile_multiply(int rows, int cols, int64_t depth, const float *a, int64_t a_row, int64_t a_k,
                                 const float *b, int64_t b_row, float *c, int64_t c_row, bool add) {
  for (int j = 0; j + TILE_COLS <= cols; j += TILE_COLS)
    for (int i = 0; i < rows; i += TILE_ROWS)
      tile_kernel(2, depth, a + i * a_row, a_row, a_k, b + j, b_row, c + i * c_row + j, c_row, add);
  if (cols % TILE_COLS) {
    int j = cols / TILE_COLS * TILE_COLS;
    for (int i = 0; i < rows; i += TILE_ROWS)
      tile_kernel(1, depth, a + i * a_row, a_row, a_k, b + j, b_row, c + i * c_row + j, c_row, add);
  }
}

#endif
