/* Products of weights with few rows of activations, for decoding, and of int8 weights with any number of rows. Decoding
 * reads every weight once, so memory bandwidth limits its speed. The order of a sum depends only on its length. */
#ifndef INKLING_KERNELS_CPU_DOTS_H
#define INKLING_KERNELS_CPU_DOTS_H

#include "kernels/cpu/tile.h"
#include "kernels/cpu/weights.h"

#if defined(__SSSE3__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

enum { SPAN_WORK = 8192 /* the fewest multiply-adds that a thread takes at a time */ };

/* out[r][m] = sum_k w[m][k] x[r][k] + b[m] for m < outputs; x is [rows][inputs], out [rows][outputs]. With int8
 * weights, it rounds x as CPU(int8_rows) does. */
void CPU(multiply_streamed)(Context *c, float *out, const Parameters *params, Linear layer, int outputs, const float *x,
                            int rows);

/* out[m] = sum_k w[m][k] x[k] for all rows of w, which must not be int8. */
void CPU(dots)(float *out, const Weights *w, const float *x);

/* Loads LANES numbers from element `at` on and converts them to fp32. */
static inline __attribute__((always_inline)) Vector load_wide(DType dtype, const void *data, int64_t at) {
  if (dtype == DTYPE_F32) return *(const UnalignedVector *)((const float *)data + at);
  const uint16_t *from = (const uint16_t *)data + at;
#if defined(__AVX512F__)
  return (Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16);
#elif defined(__AVX2__)
  return (Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from)), 16);
#else
  Vector wide = {0};
  for (int l = 0; l < LANES; l++) wide[l] = half_bf16_to_float(from[l]);
  return wide;
#endif
}

#endif
