/* Math functions that compilers vectorize inside `#pragma omp simd` loops, without -ffast-math. */
#ifndef INKLING_KERNELS_CPU_SIMD_H
#define INKLING_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

/* Returns e^x for x <= 88: to 2 ulp from -87.3 on, 0 below -87.7; NaN stays NaN. Above 88 the result is
 * meaningless; callers pass x <= 0, apart from rounding errors.
 * x = n ln 2 + r with |r| <= ln 2 / 2. The polynomial is e^r within 4e-9 (minimax; 1 at r = 0). */
static inline float exp_f32(float x) {
  float clamped = x < -88.0f ? -88.0f : x; /* n >= -127; NaN passes, because comparisons with it are false */
  const float magic = 0x1.8p23f + 127.0f;  /* adding it rounds to an integer, and puts n + 127 into the low bits */
  float shifted = clamped * 1.44269504f + magic;
  float n = shifted - magic;
  float r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 0.00138145406f;
  p = p * r + 0.00836874545f;
  p = p * r + 0.041668389f;
  p = p * r + 0.166665211f;
  p = p * r + 0.49999994f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t bits;
  float power; /* 2^n from its exponent n + 127, which is that of 0 at -127 */
  memcpy(&bits, &shifted, 4);
  bits <<= 23;
  memcpy(&power, &bits, 4);
  return p * power;
}

/* The standard normal distribution: `cdf` = Phi(x), `pdf` its derivative. Phi(-|x|) = exp(-x^2 / 2) t P(t) with
 * t = 1 / (1 + 0.3 |x| / sqrt 2); P was fitted to 2e-8 relative. NaN stays NaN. */
typedef struct NormalF32 {
  float cdf, pdf;
} NormalF32;

static inline NormalF32 normal_f32(float x) {
  float size = x < 0 ? -x : x, density = exp_f32(-0.5f * x * x);
  float t = 1.0f / (1.0f + size * 0.212132034f);
  float p = -0.0647037996f;
  p = p * t + 0.242478453f;
  p = p * t - 0.255455538f;
  p = p * t + 0.272998194f;
  p = p * t - 0.0466617013f;
  p = p * t + 0.1071439f;
  p = p * t + 0.0742630228f;
  p = p * t + 0.0853424053f;
  p = p * t + 0.0845950548f;
  float tail = density * (t * p);
  return (NormalF32){x < 0 ? tail : 1.0f - tail, 0.398942280f * density};
}

static inline float sigmoid_f32(float x) {
  float e = exp_f32(x < 0 ? x : -x);
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

#endif
