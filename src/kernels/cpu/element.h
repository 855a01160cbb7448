/* The storage type of activations: fp32, or bf16 where CPU_BF16 is 1. The Makefile compiles kernels/cpu for each. Sums
 * and element-wise arithmetic are fp32 in both. */
#ifndef INKLING_KERNELS_CPU_ELEMENT_H
#define INKLING_KERNELS_CPU_ELEMENT_H

#include "kernels.h"
#include "base/half.h"

#include <stdint.h>
#include <string.h>

static inline int smaller(int a, int b) { return a < b ? a : b; }

#if CPU_BF16
typedef uint16_t Element;
#define ELEMENT_DTYPE DTYPE_BF16
static inline float widen(Element x) { return half_bf16_to_float(x); }
static inline Element narrow(float x) { return half_float_to_bf16(x); }
#else
typedef float Element;
#define ELEMENT_DTYPE DTYPE_F32
static inline float widen(Element x) { return x; }
static inline Element narrow(float x) { return x; }
#endif

/* Returns `count` elements as fp32: converted into `buffer`, or `from` itself. */
static inline const float *wide_row(const Element *from, float *buffer, int64_t count) {
#if CPU_BF16
#pragma omp simd
  for (int64_t i = 0; i < count; i++) buffer[i] = widen(from[i]);
  return buffer;
#else
  (void)buffer, (void)count;
  return from;
#endif
}

/* Converts `count` fp32 values to elements; `from` and `to` may be the same. */
static inline void narrow_row(Element *to, const float *from, int64_t count) {
#if CPU_BF16
#pragma omp simd
  for (int64_t i = 0; i < count; i++) to[i] = narrow(from[i]);
#else
  if (to != from) memcpy(to, from, (size_t)count * sizeof *to);
#endif
}

#endif
