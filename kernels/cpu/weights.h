/* The compute copy of the weights: the fp32 masters themselves, or where they are only read (ContextOptions.weights)
 * bf16, or int8 in groups of WEIGHT_GROUP numbers of a row with one fp32 scale each. */
#ifndef INKLING_KERNELS_CPU_WEIGHTS_H
#define INKLING_KERNELS_CPU_WEIGHTS_H

#include "kernels/cpu/cpu.h"

enum { WEIGHT_GROUP = 32 }; /* a multiple of LANES */

/* A matrix [rows][cols] whose rows are `stride` elements apart. */
typedef struct Weights {
  DType dtype;
  int rows, cols;
  int64_t stride;
  const void *data;    /* float, uint16_t or int8_t */
  const float *scales; /* int8: [rows][weight_groups(cols)] */
} Weights;

static inline int weight_groups(int cols) { return (cols + WEIGHT_GROUP - 1) / WEIGHT_GROUP; }

Weights CPU(weights)(const Parameters *params, Matrix w);

/* Row `row`, columns first .. first+count, in fp32. */
void CPU(widen)(const Weights *w, int row, int first, int count, float *to);

static inline float bf16_to_f32(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, 4);
  return wide;
}

/* To the nearest, ties to even; NaN stays NaN. */
static inline uint16_t f32_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : rounded);
}

#endif
