/* Sums over rows, for gradients of biases and norm weights. */
#ifndef INKLING_KERNELS_CPU_SUMS_H
#define INKLING_KERNELS_CPU_SUMS_H

#include "kernels/cpu/cpu.h"

/* Computes out[j] (+)= sum of from[row * stride + j] over `rows` rows, in ascending order, for j < cols. fp32. */
void CPU(sum_partials)(Context *c, float *out, const float *from, int rows, int64_t stride, int cols, bool accumulate);

/* Sums the rows of activations [rows][cols]: first within blocks of rows, then over the blocks. */
void CPU(sum_rows)(Context *c, float *out, const Element *from, int rows, int cols, bool accumulate);

#endif
