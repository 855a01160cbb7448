/* Inside the CPU backend: the context and what its families (one file each) share. */
#ifndef INKLING_KERNELS_CPU_H
#define INKLING_KERNELS_CPU_H

#include "kernels.h"
#include "kernels/cpu/element.h"
#include "kernels/philox.h"
#include "util/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every file is compiled once for each instruction set of the build, CPU_ISA (v3, say), and element (CPU_BF16), and
 * every name that leaves a file carries them, as CPU_BUILD: CPU(attention) is cpu_v3_attention or
 * cpu_v3_bf16_attention. */
#define CPU_JOIN(build, name) cpu_##build##_##name
#define CPU_EXPAND(build, name) CPU_JOIN(build, name)
#define CPU(name) CPU_EXPAND(CPU_BUILD, name)

typedef struct Allocation Allocation;
typedef struct Microkernel Microkernel; /* kernels/cpu/words.h */

typedef struct Scratch {
  float *data;
  size_t count;
} Scratch;

struct Context {
  Collective *peers; /* NULL: none */
  DType dtype, weights;
  int threads;
  Error error; /* the first one; operations do nothing once error.code is set */
  Allocation *allocations;
  size_t bytes, peak_bytes;
  double granted;           /* bytes that were free when it was opened */
  Scratch scratch, rounded; /* shared by the operations, one at a time; see CPU(scratch)() and CPU(rounded)() */
  Pool *pool;
  const Microkernel *microkernel;
  StepState reports[REPORT_RING];
  int report_first, report_count;
};

/* At least `count` floats, 64-byte aligned, that live until the next call. NULL (with the context's error set) when
 * memory is out. Grows rarely: the second run of a step never allocates. */
float *CPU(scratch)(Context *c, size_t count);
/* Scratch space for the iteration of muon(), before anything depends on it; none where no matrix is updated so. */
void CPU(reserve_muon)(Context *c, const Parameters *params);
/* The same for activations that are rounded beside weights in int8. */
float *CPU(rounded)(Context *c, size_t count);

/* Element ranges are cut into this many elements per block wherever a reduction is spread over threads: partial sums
 * belong to blocks, not to threads, so results do not depend on the number of threads. */
enum { REDUCTION_BLOCK = 4096 };

enum { SPAN_ROWS = 64 }; /* rows of a micro-batch that a thread takes at a time, at most (pool_run) */

/* Backend.open with the microkernel of its matrix products. */
bool CPU(open_with)(Context **out, const ContextOptions *options, const Microkernel *microkernel, Error *error);

/* The functions of the table: context and memory in kernels/cpu/context.c, the operations one family a file. */
#define DECLARE(name) __typeof__(*((Backend *)0)->name) CPU(name);
BACKEND_FUNCTIONS(DECLARE)
#undef DECLARE

#endif
