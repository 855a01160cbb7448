/* Words and microkernels of matrix products. A word is the part of a row that one multiply-add reads: in fp32 one
 * element, in bf16 a pair of neighbors along the depth (as in VNNI's packing), the first in the low half, whose two
 * products are added to one fp32 sum. Only the microkernel, the innermost loops, differs between them. */
#ifndef INKLING_KERNELS_CPU_WORDS_H
#define INKLING_KERNELS_CPU_WORDS_H

#include "kernels/cpu/tile.h"

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

/* The Makefile checks that the assembler supports these instructions; kernels/backends.c checks the processor. */
#if CPU_BF16 && defined(INKLING_BF16_INSTRUCTIONS) && defined(__AVX512F__)
#define HAVE_BF16_PRODUCTS
#endif

extern const Microkernel CPU(microkernel); /* without special instructions */
#ifdef HAVE_BF16_PRODUCTS
extern const Microkernel CPU(avx512bf16), CPU(amx);
#endif

#endif
