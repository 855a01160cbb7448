/* Math functions that compilers vectorize inside `#pragma omp simd` loops, without -ffast-math. */
#ifndef INKLING_KERNELS_CPU_SIMD_H
#define INKLING_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

/* Returns e^x to 2 ulp for x in [-87.3, 88.7]; below that 0, above it inf, NaN stays NaN.
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
  /* times 2^n: p < 1 if n is 128 and p > 1 if n is -126, so adding n to its exponent does not overflow */
  uint32_t bits, power;
  memcpy(&bits, &shifted, 4);
  memcpy(&power, &p, 4);
  power += bits << 23; /* the low bits of the magic number are zero */
  float y;
  memcpy(&y, &power, 4);
  y = x < -87.3f ? 0.0f : y;
  return x <= 88.7f ? y : x + __builtin_inff(); /* the steps above do not preserve NaN */
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

static inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

#endif
