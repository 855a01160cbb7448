/* 16-bit floating-point numbers: IEEE 754 half precision (f16) and the upper half of an fp32 (bf16). */
#ifndef INKLING_BASE_HALF_H
#define INKLING_BASE_HALF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline float half_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t half_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Returns whether all values, which may be unaligned, are finite, without a branch per value. */
static inline bool half_all_finite(const void *values, size_t count) {
  const uint32_t exponent = 0x7F800000;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, (const uint8_t *)values + i * sizeof bits, sizeof bits);
    bad |= (bits & exponent) == exponent;
  }
  return !bad;
}

static inline float half_f16_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 0x3FFu;
  if (exponent == 0) {
    const float tiny = (float)fraction * 0x1p-24f; /* zero and subnormals, exact */
    return sign != 0 ? -tiny : tiny;
  }
  return half_from_bits(sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13);
}

/* Rounds to nearest, ties to even; infinity from 65520 on. NaN is not supported. */
static inline uint16_t half_float_to_f16(float value) {
  const uint32_t bits = half_to_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u);
  if (size < 0x38800000u) { /* below 2^-14: adding 0.5 rounds to units of 2^-24 */
    const float shifted = half_from_bits(size) + 0.5f;
    return (uint16_t)(sign | (half_to_bits(shifted) - half_to_bits(0.5f)));
  }
  const uint32_t odd = size >> 13 & 1u;
  return (uint16_t)(sign | (size - 0x38000000u + 0xFFFu + odd) >> 13);
}

static inline float half_bf16_to_float(uint16_t brain) { return half_from_bits((uint32_t)brain << 16); }

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t half_float_to_bf16(float value) {
  const uint32_t bits = half_to_bits(value), rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : rounded);
}

#endif
