/* Products of small packed matrices in registers, written with the vector extension of gcc and clang: for attention and
 * Muon in fp32, for GEMM in words.
 * A tile has TILE_ROWS x TILE_VECTORS vectors of fp32 sums. This leaves registers for a row of b and one element of a,
 * and gives both multiply-add units enough independent chains. */
#ifndef INKLING_KERNELS_CPU_TILE_H
#define INKLING_KERNELS_CPU_TILE_H

#include "kernels/cpu/cpu.h"

#if defined(__AVX512F__)
enum { LANES = 16, TILE_VECTORS = 4 };
#elif defined(__AVX__)
enum { LANES = 8, TILE_VECTORS = 2 };
#elif defined(__aarch64__)
enum { LANES = 4, TILE_VECTORS = 4 };
#else
enum { LANES = 4, TILE_VECTORS = 2 };
#endif
enum { TILE_ROWS = 6, TILE_COLS = TILE_VECTORS * LANES };

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef float UnalignedVector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float Four __attribute__((vector_size(16)));

/* The elements of a and b, numbered in this order, that the numbers after them select. Numbers: a vector of int32_t of
 * the same size. */
#ifdef __clang__
#define SHUFFLE(Numbers, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(Numbers, a, b, ...) __builtin_shuffle(a, b, (Numbers){__VA_ARGS__})
#endif
typedef int32_t FourNumbers __attribute__((vector_size(16)));
typedef int32_t LaneNumbers __attribute__((vector_size(4 * LANES)));

/* Adds lanes in a fixed tree until four sums are left. */
static inline Four fold(Vector lanes) {
  Four part[LANES / 4];
  memcpy(part, &lanes, sizeof part);
  for (int half = LANES / 8; half > 0; half /= 2)
    for (int l = 0; l < half; l++) part[l] += part[l + half];
  return part[0];
}

static inline float sum_lanes(Vector lanes) {
  Four part = fold(lanes);
  return (part[0] + part[2]) + (part[1] + part[3]);
}

static inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/* c[rows][cols] (+)= a[rows][depth] b[depth][cols] with a(i, k) = a[i * a_row + k * a_k], b(k, j) = b[k * b_row + j].
 * It reads rows of b up to the next multiple of LANES. Every sum adds in ascending k, for all sizes. */
void CPU(tile_multiply)(int rows, int cols, int64_t depth, const float *a, int64_t a_row, int64_t a_k, const float *b,
                        int64_t b_row, float *c, int64_t c_row, bool add);

/* to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < cols; for any 4-byte type. */
void CPU(transpose)(int rows, int cols, const float *from, int64_t from_stride, float *to, int64_t to_stride);

/* ---- words and microkernels of matrix products ---- */

/* The part of a row that one multiply-add reads: in fp32 one element, in bf16 a pair of neighbors along the depth (as
 * in VNNI's packing), the first in the low half, whose two products are added to one fp32 sum. Only the microkernel,
 * the innermost loops, differs between them. */
#if CPU_BF16
typedef uint32_t Word;
enum { PER_WORD = 2 };
#else
typedef float Word;
enum { PER_WORD = 1 };
#endif

struct Microkernel {
  const char *name; /* of special instructions, for messages; NULL: none */
  int rows;         /* rows of a register block; multiples of it waste no work */
  /* c[rows][cols] (+)= a[rows][depth] b[depth][cols], depth in words. Word k of row i of a is element i * a_row +
   * k * a_k * PER_WORD of it (in bf16 a_k is 1); b(k, j) = b[k * b_row + j]. Rows of b are read up to the next multiple
   * of LANES. */
  void (*multiply)(int rows, int cols, int64_t depth, const Element *a, int64_t a_row, int64_t a_k, const Word *b,
                   int64_t b_row, float *c, int64_t c_row, bool add);
  /* Called before and after a thread multiplies; NULL: nothing to do. */
  void (*begin)(void), (*end)(void);
};

extern const Microkernel CPU(microkernel); /* without special instructions */
/* tools/make/compiler.mk defines HAVE_BF16_PRODUCTS if the assembler knows these instructions; kernels/processor.c
 * checks the processor. */
#ifdef HAVE_BF16_PRODUCTS
extern const Microkernel CPU(pair_dots);
#ifdef __x86_64__
extern const Microkernel CPU(amx);
#endif
#endif

#endif
