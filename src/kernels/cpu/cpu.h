/* Internals of the CPU backend: the context and functions that its files share. */
#ifndef INKLING_KERNELS_CPU_CPU_H
#define INKLING_KERNELS_CPU_CPU_H

#include "kernels.h"
#include "kernels/cpu/element.h"
#include "kernels/philox.h"
#include "base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The Makefile compiles every file once for each instruction set of the build, CPU_ISA (for example v3), and element
 * type (CPU_BF16). Every external name contains both, as CPU_BUILD: CPU(attention) is cpu_v3_attention or
 * cpu_v3_bf16_attention. */
#define CPU_JOIN(build, name) cpu_##build##_##name
#define CPU_EXPAND(build, name) CPU_JOIN(build, name)
#define CPU(name) CPU_EXPAND(CPU_BUILD, name)

typedef struct Allocation Allocation;
typedef struct Microkernel Microkernel; /* kernels/cpu/tile.h */

typedef struct Scratch {
  float *data;
  size_t count;
} Scratch;

struct Context {
  Collective *peers; /* NULL: none */
  DType dtype, weights;
  int threads;
  Error error; /* the first error; operations do nothing once error.code is set */
  Allocation *allocations;
  size_t bytes, peak_bytes;
  double granted;           /* bytes that were free when the context was opened */
  Scratch scratch, rounded; /* shared by the operations, one at a time; see CPU(scratch)() and CPU(rounded)() */
  Pool *pool;
  const Microkernel *microkernel;
  StepReport reports[REPORT_RING];
  int64_t began; /* StepReport.began of the step in progress */
  int report_first, report_count;
};

/* Returns at least `count` floats, 64-byte aligned, valid until the next call. NULL (with the context's error set) when
 * memory is out. The buffer grows rarely: the second run of a step never allocates. */
float *CPU(scratch)(Context *c, size_t count);
/* Allocates scratch space for the iteration of muon() in advance; none where Muon updates no matrix. */
void CPU(reserve_muon)(Context *c, const Parameters *params);
/* Returns scratch space, as CPU(scratch)() does, for activations that are rounded to multiply int8 weights. */
float *CPU(rounded)(Context *c, size_t count);

/* Returns the rows of x [rows][dim] in fp32 for decoding, normalized unless `norm` is NULL: in `memory` [rows][dim], or
 * x itself where nothing changes (kernels/cpu/norm.c). */
const float *CPU(normalized)(float *memory, const Element *x, const Norm *norm, int rows, int dim);

/* Elements per block of a reduction that several threads share. Each block has a partial sum, so results do not depend
 * on the number of threads. */
enum { REDUCTION_BLOCK = 4096 };

/* Rows whose terms of the gradient of a vector are added before the sums of such blocks are, in order. */
enum { PARTIAL_ROWS = 32 };
/* Computes out[j] (+)= sum of from[row * stride + j] over `rows` rows, in ascending order, for j < cols
 * (kernels/cpu/norm.c). */
void CPU(sum_partials)(Context *c, float *out, const float *from, int rows, int64_t stride, int cols, bool accumulate);

enum { SPAN_ROWS = 64 }; /* the most rows of a micro-batch that a thread takes at a time (pool_run) */

/* The functions of the table: kernels/cpu/context.c has context and memory, the other files one family of operations
 * each. */
#define DECLARE(name) __typeof__(*((Backend *)0)->name) CPU(name);
BACKEND_FUNCTIONS(DECLARE)
BACKEND_IMAGE_FUNCTIONS(DECLARE)
#undef DECLARE

#endif
