/* The compute copy of the weights: the fp32 masters themselves, or bf16, or for read-only weights
 * (ContextOptions.weights) int8 in groups of WEIGHT_GROUP elements of a row with one fp32 scale each. Activations that
 * are multiplied with int8 weights are rounded to int8 in the same way. Instructions for int8 add the products of four
 * neighbors, so the groups of INT8_ROWS rows are stored together, four neighbors of each row after the other. */
#ifndef INKLING_KERNELS_CPU_WEIGHTS_H
#define INKLING_KERNELS_CPU_WEIGHTS_H

#include "kernels/cpu/cpu.h"

enum { WEIGHT_GROUP = 32, INT8_ROWS = 16 }; /* multiples of LANES */

/* A group of INT8_ROWS rows: column i of a row is number[i / 4][row][i % 4] * scale[row]; zeros beyond the matrix. */
typedef struct Int8Weights {
  int8_t number[WEIGHT_GROUP / 4][INT8_ROWS][4];
  float scale[INT8_ROWS];
} Int8Weights;

/* A matrix [rows][cols]. In int8: Int8Weights [rows / INT8_ROWS, rounded up][weight_groups(cols)]. */
typedef struct Weights {
  DType dtype;
  int rows, cols;
  const void *data; /* float, uint16_t or Int8Weights */
} Weights;

/* A group of activations for int8 weights: number[i] * scale, with zeros after the end of a row. */
typedef struct Int8Group {
  float scale;
  int32_t sum; /* of the numbers */
  int8_t number[WEIGHT_GROUP];
} Int8Group;

static inline int weight_groups(int cols) { return (cols + WEIGHT_GROUP - 1) / WEIGHT_GROUP; }

Weights CPU(weights)(const Parameters *params, Matrix w);

/* Updates elements first .. first+count of group number `group` of a bf16 copy from the masters; does nothing where the
 * masters are read directly. */
void CPU(follow_masters)(const Parameters *params, int group, size_t first, size_t count);

/* Converts row `row`, columns first .. first+count, to fp32. */
void CPU(widen_weights)(const Weights *w, int row, int first, int count, float *to);

/* Rounds x [rows][cols] to [rows][weight_groups(cols)] groups, each scaled so that its largest magnitude becomes 127.
 * The result is in CPU(rounded)() memory. NULL when memory is out. */
const Int8Group *CPU(int8_rows)(Context *c, const float *x, int rows, int cols);

/* Computes to = table[token] + position_embedding[position]; a position outside that table adds nothing. */
void CPU(embed)(Element *to, const Parameters *params, const Embedding *e, int token, int position);

/* Returns a bias, fp32 [cols], or NULL where there is none; bf16 builds round the values after reading. */
static inline const float *bias_of(const Parameters *params, Matrix bias) {
  return bias.rows ? CPU(weights)(params, bias).data : NULL;
}

#endif
