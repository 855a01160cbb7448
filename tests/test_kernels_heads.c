/* Norms of the heads of queries and keys (kernels.h); rope() is in tests/test_kernels_attention.c. As
 * tests/test_kernels.c. */
#include "tests/formulas.h"

#include <math.h>
#include <string.h>

/* Operands and results of one call; rows of packed values are [H + 2G][D], of out [H + G][D]. */
typedef struct HeadsCase {
  HeadNorm norm;           /* without its weight */
  int batch, length, base; /* base of the rotation; 0: none */
  int dims;                /* rotated numbers of a head */
  size_t rows, used, all;  /* heads of out and of a packed row */
  const double *qkv, *weight, *dy;
  const int32_t *positions; /* NULL: none */
  const double *out, *rstd, *dx, *dweight;
} HeadsCase;

enum { POSITIONS = 300 };

static HeadsCase case_of(int batch, int length, int heads, int kv_heads, int dim) {
  HeadsCase k = {.batch = batch, .length = length, .rows = (size_t)(batch * length)};
  k.norm = (HeadNorm){NULL, 1e-5f, heads, kv_heads, dim};
  k.dims = dim, k.used = (size_t)(heads + kv_heads), k.all = k.used + (size_t)kv_heads;
  return k;
}

static double *table_of_base(Fixture *f, int dim, double base) {
  double *table = host_values(f, (size_t)(POSITIONS * dim));
  for (int i = 0; i < POSITIONS * dim / 2; i++) {
    const double angle = (double)(i / (dim / 2)) * pow(base, -2.0 * (i % (dim / 2)) / dim);
    table[2 * i] = cos(angle), table[2 * i + 1] = sin(angle);
  }
  return table;
}

typedef struct HeadsArrays {
  HeadNorm norm;
  Array weight, qkv, out, rstd, dqkv, dweight;
} HeadsArrays;

static HeadsArrays arrays_of(Fixture *f, const HeadsCase *k) {
  const size_t dim = (size_t)k->norm.head_dim;
  HeadsArrays a = {.norm = k->norm,
                   .weight = array_floats(f, k->weight, 2 * dim),
                   .qkv = array_compute(f, k->qkv, k->rows * k->all * dim),
                   .out = array_compute(f, NULL, k->rows * k->used * dim),
                   .rstd = array_floats(f, NULL, k->rows * k->used),
                   .dqkv = array_compute(f, k->dy, k->rows * k->all * dim),
                   .dweight = array_floats(f, NULL, 2 * dim)};
  a.norm.weight = a.weight.data;
  return a;
}

/* Runs the forward, rotated if there is a base. */
static void forward(Fixture *f, const HeadsCase *k, const HeadsArrays *a) {
  Rope rope = {NULL, k->positions ? array_ints(f, k->positions, k->rows).data : NULL, k->dims};
  if (k->base) rope.table = array_floats(f, table_of_base(f, k->dims, k->base), (size_t)(POSITIONS * k->dims)).data;
  f->backend->head_norm(f->context, a->out.data, a->rstd.data, a->qkv.data, &a->norm, k->batch, k->length,
                        k->base ? &rope : NULL);
}

static void backward(Fixture *f, const HeadsCase *k, const HeadsArrays *a, bool accumulate) {
  f->backend->head_norm_backward(f->context, a->dqkv.data, a->dweight.data, a->qkv.data, a->rstd.data, &a->norm,
                                 (int)k->rows, accumulate);
}

static void check_forward(Fixture *f, const HeadsCase *k) {
  const HeadsArrays a = arrays_of(f, k), same = arrays_of(f, k);
  forward(f, k, &a);
  expect_close(f, "out", array_read(f, &a.out), k->out, a.out.count, TOLERANCE_F32);
  expect_close(f, "rstd", array_read(f, &a.rstd), k->rstd, a.rstd.count, TOLERANCE_F32);
  expect_same("qkv", array_read(f, &a.qkv), array_read(f, &same.qkv), a.qkv.count);
}

/* Gradients of values, in the same rows, do not change. A second run gives the same bits, and adds to dweight. */
static void check_backward(Fixture *f, const HeadsCase *k) {
  const size_t dim = (size_t)k->norm.head_dim, row = k->all * dim;
  HeadsArrays a = arrays_of(f, k), again = arrays_of(f, k);
  double *rstd = host_values(f, a.rstd.count), *twice = sum_of(f, k->dweight, k->dweight, 2 * dim);
  const double *dy = array_read(f, &a.dqkv), *x = array_read(f, &a.qkv);
  for (size_t i = 0; i < a.rstd.count; i++) /* of x as it is stored */
    rstd[i] = row_stats(NORM_RMS, (double)k->norm.eps, x + i / k->used * row + i % k->used * dim, dim).rstd;
  array_write(f, &a.rstd, rstd);
  array_write(f, &again.rstd, rstd);
  backward(f, k, &a, false);
  const double *dx = array_read(f, &a.dqkv);
  /* in heads of two numbers nearly all of dy cancels */
  expect_close_floor(f, "dx", dx, k->dx, a.dqkv.count, TOLERANCE_F32, dim == 2 ? 1 : 0.1);
  expect_close(f, "dweight", array_read(f, &a.dweight), k->dweight, 2 * dim, TOLERANCE_F32);
  for (size_t n = 0; n < k->rows; n++)
    expect_same("gradients of values", dx + n * row + k->used * dim, dy + n * row + k->used * dim, row - k->used * dim);
  again.dweight = a.dweight;
  backward(f, k, &again, true);
  expect_same("dx again", array_read(f, &again.dqkv), dx, a.dqkv.count);
  expect_close(f, "dweight added", array_read(f, &a.dweight), twice, 2 * dim, TOLERANCE_F32);
}

/* ---- goldens ---- */

static void golden_case(Fixture *f, const Golden *g, int index) {
  const int32_t *dims = golden_ints(f, g, index, "dims");
  if (!has_head_size(f, dims[4])) return;
  HeadsCase k = case_of(dims[0], dims[1], dims[2], dims[3], dims[4]);
  k.norm.eps = (float)golden_value(f, g, index, "eps");
  const struct {
    const char *name;
    const double **values;
  } tensors[] = {{"qkv", &k.qkv},   {"weight", &k.weight}, {"dy", &k.dy},          {"out", &k.out},
                 {"rstd", &k.rstd}, {"dx", &k.dx},         {"dweight", &k.dweight}};
  for (int i = 0; i < 7; i++) *tensors[i].values = golden_values(f, g, index, tensors[i].name, NULL);
  check_forward(f, &k);
  check_backward(f, &k);
  if (!dims[5]) return;
  k.base = dims[5];
  k.out = golden_values(f, g, index, "out_natural", NULL);
  check_forward(f, &k);
  k.positions = golden_ints(f, g, index, "positions");
  k.out = golden_values(f, g, index, "out_rotated", NULL);
  check_forward(f, &k);
}

static void test_head_norm(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "head_norm");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) golden_case(f, g, index);
  assert_int_equal(index, 5);
}

/* ---- heads of all sizes that backends distinguish, by the formulas ---- */

/* Computes all results from qkv, weight and dy. */
static void compute(Fixture *f, HeadsCase *k) {
  const size_t dim = (size_t)k->norm.head_dim;
  double *out = host_values(f, k->rows * k->used * dim), *rstd = host_values(f, k->rows * k->used);
  double *dx = sum_of(f, k->dy, host_values(f, k->rows * k->all * dim), k->rows * k->all * dim);
  double *dweight = host_values(f, 2 * dim);
  for (size_t i = 0; i < k->rows * k->used; i++) {
    const size_t n = i / k->used, h = i % k->used, side = h < (size_t)k->norm.heads ? 0 : dim;
    const size_t at = (n * k->all + h) * dim;
    const NormValues norm = {NORM_RMS, k->weight + side, NULL, (double)k->norm.eps};
    rstd[i] = row_stats(NORM_RMS, norm.eps, k->qkv + at, dim).rstd;
    normalize_row(&norm, out + i * dim, k->qkv + at, dim);
    normalize_row_backward(&norm, dx + at, dweight + side, NULL, k->dy + at, k->qkv + at, dim);
    if (k->base) rotate_heads(out + i * dim, 1, (int)dim, k->dims, k->positions ? k->positions[n] : (int)n % k->length);
  }
  k->out = out, k->rstd = rstd, k->dx = dx, k->dweight = dweight;
}

/* `rotated`: numbers of a head that are rotated. */
static void size_case(Fixture *f, int batch, int length, const HeadShape *s, int rotated, bool packed) {
  if (!has_head_size(f, s->head_dim)) return;
  HeadsCase k = case_of(batch, length, s->heads, s->kv_heads, s->head_dim);
  const size_t packed_count = k.rows * k.all * (size_t)s->head_dim;
  k.qkv = random_values(f, 1, packed_count), k.dy = random_values(f, 2, packed_count);
  k.weight = random_values(f, 3, 2 * (size_t)s->head_dim);
  k.base = rotated ? 10000 : 0, k.dims = rotated;
  int32_t *positions = host_memory(f, k.rows * sizeof *positions);
  for (size_t n = 0; n < k.rows; n++) positions[n] = (int32_t)(7 * n % POSITIONS);
  if (packed) k.positions = positions;
  compute(f, &k);
  check_forward(f, &k);
  if (!rotated) check_backward(f, &k);
}

static void test_head_norm_sizes(void **state) {
  Fixture *f = *state;
  static const int sizes[] = {4, 8, 10, 16, 24, 32, 40, 64, 72, 80, 96, 120, 128, 250};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
    for (int kind = 0; kind < 3; kind++) {
      size_case(f, 1, 1, &(HeadShape){1, 1, sizes[i]}, kind ? sizes[i] : 0, kind > 1);
      size_case(f, 2, 9, &(HeadShape){6, 2, sizes[i]}, kind ? sizes[i] : 0, kind > 1);
    }
  for (int dims = 4; dims < 80; dims += 4) size_case(f, 2, 9, &(HeadShape){3, 1, 80}, dims, true);
  size_case(f, 1, 9, &(HeadShape){3, 1, 128}, 4, false);
  size_case(f, 5, 97, &(HeadShape){3, 1, 16}, 0, false); /* more heads than a backend works on at a time */
  size_case(f, 2, 150, &(HeadShape){5, 5, 8}, 8, false);
}

/* One NaN reaches its head and nothing else of its row; in dweight, every number of its side. */
static void test_head_norm_nan(void **state) {
  Fixture *f = *state;
  enum { ROWS = 3, HEADS = 2, DIM = 24, USED = 3, ALL = 4 };
  for (int bad = 0; bad < USED; bad++) {
    HeadsCase k = case_of(1, ROWS, HEADS, 1, DIM);
    double *qkv = random_values(f, 1, ROWS * ALL * DIM);
    qkv[(ALL + bad) * DIM + 7] = NAN;
    k.qkv = qkv, k.dy = random_values(f, 2, ROWS * ALL * DIM), k.weight = random_values(f, 3, 2 * DIM);
    k.base = 10000;
    const HeadsArrays a = arrays_of(f, &k);
    forward(f, &k, &a);
    backward(f, &k, &a, false);
    const double *out = array_read(f, &a.out), *dx = array_read(f, &a.dqkv), *dweight = array_read(f, &a.dweight);
    for (int i = 0; i < ROWS * USED * DIM; i++) assert_int_equal(isnan(out[i]) != 0, i / DIM == USED + bad);
    for (int i = 0; i < ROWS * ALL * DIM; i++) assert_int_equal(isnan(dx[i]) != 0, i / DIM == ALL + bad);
    for (int i = 0; i < 2 * DIM; i++) assert_int_equal(isnan(dweight[i]) != 0, i / DIM == (bad < HEADS ? 0 : 1));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_head_norm), cmocka_unit_test(test_head_norm_sizes),
                                     cmocka_unit_test(test_head_norm_nan)};
  return run_on_backends("kernels: heads", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
