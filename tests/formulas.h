/* The formulas of kernels.h in double, for tests without goldens. Rows and matrices are host values. */
#ifndef INKLING_TESTS_FORMULAS_H
#define INKLING_TESTS_FORMULAS_H

#include "tests/backends.h"

/* A Norm on the host. */
typedef struct NormValues {
  NormKind kind;
  const double *weight, *bias; /* bias: NULL where the kind has none */
  double eps;
} NormValues;

typedef struct RowStats {
  double mean, rstd; /* mean: 0 where the kind has none */
} RowStats;

RowStats row_stats(NormKind kind, double eps, const double *x, size_t dim);
/* y [dim]; y may be x. */
void normalize_row(const NormValues *n, double *y, const double *x, size_t dim);
/* Computes dx [dim] without the residual gradient, and adds to dweight and dbias (norm_has_bias()). */
void normalize_row_backward(const NormValues *n, double *dx, double *dweight, double *dbias, const double *dy,
                            const double *x, size_t dim);

double activation_value(Activation a, double u);
double activation_slope(Activation a, double u); /* its derivative */
/* Number i < MLP_SHAPES: every activation, alone and with a gate. */
enum { MLP_SHAPES = 2 * ACTIVATION_KINDS };
MlpShape mlp_shape(int i, int ffn);
/* h [rows][ffn] of u [rows][ffn] or [rows][2 ffn]. */
double *activation_rows(Fixture *f, const MlpShape *mlp, const double *u, int rows);
/* du, of dh [rows][ffn]. */
double *activation_rows_backward(Fixture *f, const MlpShape *mlp, const double *dh, const double *u, int rows);

/* y [rows][outputs] = x [rows][inputs] w^T + b; b NULL: none. */
double *linear_rows(Fixture *f, const double *w, const double *b, const double *x, int rows, int outputs, int inputs);

/* Rotate-half with base 10000: the angle of pair i, cos and sin [positions][dims / 2][2], and the rotation of the first
 * `dims` numbers of adjacent heads. */
double rope_angle(int position, int i, int dims);
double *rope_table(Fixture *f, int positions, int dims);
void rotate_heads(double *x, int heads, int head_dim, int dims, int position);

typedef struct HeadShape {
  int heads, kv_heads, head_dim;
} HeadShape;
/* softmax(scale * q K^T) V over `count` keys: out, query [heads][head_dim], keys, values [count][kv_heads][head_dim] */
double *attention_row(Fixture *f, const HeadShape *s, double scale, const double *query, const double *keys,
                      const double *values, int count);

#endif
