/* Mathematics that compilers turn into vector instructions inside `#pragma omp simd` loops, without -ffast-math. */
#ifndef INKLING_KERNELS_CPU_SIMD_H
#define INKLING_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

/* e^x to 2 ulp for x in [-87.3, 88.7]; below that 0, above it inf, NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7, 2^n through the exponent bits. */
static inline float exp_f32(float x) {
  float clamped = x < -87.3f ? -87.3f : x;
  clamped = clamped > 88.7f ? 88.7f : clamped; /* comparisons with NaN are false: NaN passes through */
  const float magic = 0x1.8p23f;               /* adding it rounds to an integer held in the low mantissa bits */
  float shifted = clamped * 1.44269504f + magic;
  float n = shifted - magic;
  float r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  uint32_t bits;
  memcpy(&bits, &shifted, 4);
  /* 2^n in two factors, because n = 128 does not fit one float */
  int32_t exponent = (int32_t)(bits - 0x4B400000u);
  int32_t half = exponent >> 1;
  uint32_t scale0 = (uint32_t)(half + 127) << 23, scale1 = (uint32_t)(exponent - half + 127) << 23;
  float s0, s1;
  memcpy(&s0, &scale0, 4);
  memcpy(&s1, &scale1, 4);
  float y = p * s0 * s1;
  y = x < -87.3f ? 0.0f : y;
  return x > 88.7f ? __builtin_inff() : y;
}

static inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

#endif
