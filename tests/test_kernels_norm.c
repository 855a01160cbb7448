/* Residual add and norm, RMSNorm and LayerNorm (kernels.h). As tests/test_kernels.c. */
#include "tests/formulas.h"

#include <math.h>
#include <string.h>

#define NORM_WORDS(id, name, words) [NORM_##id] = words,
static const char *const kind_names[] = {NORMS(NORM_WORDS)};

/* A norm on the device, with the statistics of the forward and the gradients of the backward. */
typedef struct NormArrays {
  Norm norm;
  Array weight, bias, mean, rstd, dweight, dbias; /* bias, mean, dbias: of the kinds that have them */
} NormArrays;

static NormArrays norm_arrays(Fixture *f, NormKind kind, const double *weight, const double *bias, float eps, int rows,
                              int dim) {
  const size_t n = (size_t)rows, width = (size_t)dim;
  NormArrays a = {.weight = array_floats(f, weight, width),
                  .rstd = array_floats(f, NULL, n),
                  .dweight = array_floats(f, NULL, width)};
  if (norm_has_mean(kind)) a.mean = array_floats(f, NULL, n);
  if (norm_has_bias(kind)) a.bias = array_floats(f, bias, width), a.dbias = array_floats(f, NULL, width);
  a.norm = (Norm){kind, a.weight.data, a.bias.data, eps};
  return a;
}

static NormStats stats_of(const NormArrays *a) { return (NormStats){a->mean.data, a->rstd.data}; }
static NormGradient gradient_of(const NormArrays *a) { return (NormGradient){a->dweight.data, a->dbias.data}; }

/* ---- goldens ---- */

typedef struct NormCase {
  const Golden *golden;
  int index, batch, length, dim;
  size_t rows, n;
  double tolerance;
  NormArrays a;
} NormCase;

static double *norm_values(Fixture *f, const NormCase *k, const char *name) {
  return golden_values(f, k->golden, k->index, name, NULL);
}

static Array norm_array(Fixture *f, const NormCase *k, const char *name) {
  return array_compute(f, norm_values(f, k, name), k->n);
}

static NormCase norm_case_of(Fixture *f, const Golden *g, int index) {
  const int32_t *dims = golden_ints(f, g, index, "dims");
  const bool layer = golden_has(g, index, "shift");
  NormCase k = {.golden = g, .index = index, .batch = dims[0], .length = dims[1], .dim = dims[2]};
  k.rows = (size_t)(k.batch * k.length);
  k.n = k.rows * (size_t)k.dim;
  k.tolerance = layer ? golden_value(f, g, index, "tolerance") : TOLERANCE_F32;
  k.a = norm_arrays(f, layer ? NORM_LAYER : NORM_RMS, norm_values(f, &k, "gain"),
                    layer ? norm_values(f, &k, "shift") : NULL, (float)golden_value(f, g, index, "eps"), (int)k.rows,
                    k.dim);
  return k;
}

/* Means may be near 0: errors are relative to the size of x, at least 1. */
static void expect_stats(Fixture *f, const NormCase *k, const char *mean, const char *rstd) {
  expect_close(f, rstd, array_read(f, &k->a.rstd), norm_values(f, k, rstd), k->rows, k->tolerance);
  if (!norm_has_mean(k->a.norm.kind)) return;
  expect_close_floor(f, mean, array_read(f, &k->a.mean), norm_values(f, k, mean), k->rows, 1e-6, 1);
}

static void norm_forward(Fixture *f, const NormCase *k) {
  OPS(f);
  Array x_in = norm_array(f, k, "x_in"), branch = norm_array(f, k, "branch");
  Array x_out = array_compute(f, NULL, k->n), y = array_compute(f, NULL, k->n);
  ops->residual_norm(c, x_out.data, y.data, stats_of(&k->a), x_in.data, NULL, &k->a.norm, k->batch, k->length, k->dim,
                     NULL);
  const double *untouched = array_read(f, &x_out);
  for (size_t i = 0; i < k->n; i++) assert_true(isnan(untouched[i])); /* not written without a branch */
  expect_close(f, "y", array_read(f, &y), norm_values(f, k, "plain_y"), k->n, k->tolerance);
  expect_stats(f, k, "plain_mean", "plain_rstd");
  ops->residual_norm(c, x_out.data, y.data, stats_of(&k->a), x_in.data, branch.data, &k->a.norm, k->batch, k->length,
                     k->dim, NULL);
  expect_close(f, "x_out", array_read(f, &x_out), norm_values(f, k, "x_out"), k->n, 1e-6);
  expect_close(f, "y of the sum", array_read(f, &y), norm_values(f, k, "y"), k->n, k->tolerance);
  expect_stats(f, k, "mean", "rstd");
}

/* The statistics of x as it is stored: the golden's 1/rms does not fit a rounded x. */
static void save_stats(Fixture *f, const NormCase *k, const Array *x) {
  const double *values = array_read(f, x);
  double *mean = host_values(f, k->rows), *rstd = host_values(f, k->rows);
  for (size_t n = 0; n < k->rows; n++) {
    const RowStats s = row_stats(k->a.norm.kind, (double)k->a.norm.eps, values + n * (size_t)k->dim, (size_t)k->dim);
    mean[n] = s.mean, rstd[n] = s.rstd;
  }
  array_write(f, &k->a.rstd, rstd);
  if (norm_has_mean(k->a.norm.kind)) array_write(f, &k->a.mean, mean);
}

static void backward(Fixture *f, const NormCase *k, const Array *dx, const Array *dbranch, const Array *dy,
                     const Array *dres, const Array *x, bool accumulate) {
  f->backend->residual_norm_backward(f->context, dx->data, dbranch ? dbranch->data : NULL, gradient_of(&k->a), dy->data,
                                     dres ? dres->data : NULL, x->data, stats_of(&k->a), &k->a.norm, k->batch,
                                     k->length, k->dim, NULL, accumulate);
}

/* Checks dweight and dbias: of `plain`, of the sum, or both added. */
static void expect_gradients(Fixture *f, const NormCase *k, bool plain, bool of_sum) {
  const size_t width = (size_t)k->dim;
  for (int bias = 0; bias < (norm_has_bias(k->a.norm.kind) ? 2 : 1); bias++) {
    double *want = host_values(f, width);
    if (plain) want = sum_of(f, want, norm_values(f, k, bias ? "plain_dshift" : "plain_dgain"), width);
    if (of_sum) want = sum_of(f, want, norm_values(f, k, bias ? "dshift" : "dgain"), width);
    expect_close(f, bias ? "dbias" : "dweight", array_read(f, bias ? &k->a.dbias : &k->a.dweight), want, width,
                 bias ? TOLERANCE_F32 : k->tolerance);
  }
}

/* In dx of one element nearly all of dy cancels: errors are relative to numbers of size 1. */
static void norm_backward(Fixture *f, const NormCase *k) {
  Array dy = norm_array(f, k, "dy"), dres = norm_array(f, k, "dres");
  Array x_in = norm_array(f, k, "x_in"), x_out = norm_array(f, k, "x_out");
  Array dx = array_compute(f, NULL, k->n), dbranch = array_compute(f, NULL, k->n);
  const double *want = norm_values(f, k, "dx");
  save_stats(f, k, &x_in);
  backward(f, k, &dx, NULL, &dy, NULL, &x_in, false);
  expect_close_floor(f, "dx without residual", array_read(f, &dx), norm_values(f, k, "plain_dx"), k->n, k->tolerance,
                     k->dim == 1 ? 1 : 0.1);
  expect_gradients(f, k, true, false);
  save_stats(f, k, &x_out);
  backward(f, k, &dx, &dbranch, &dy, &dres, &x_out, true);
  expect_close(f, "dx", array_read(f, &dx), want, k->n, k->tolerance);
  expect_close(f, "dbranch", array_read(f, &dbranch), want, k->n, k->tolerance);
  expect_gradients(f, k, true, true);
  backward(f, k, &dres, NULL, &dy, &dres, &x_out, false);
  expect_same("dx in place of dres", array_read(f, &dres), array_read(f, &dx), k->n);
  expect_gradients(f, k, false, true);
  dres = norm_array(f, k, "dres");
  backward(f, k, &dy, NULL, &dy, &dres, &x_out, false);
  expect_same("dx in place of dy", array_read(f, &dy), array_read(f, &dx), k->n);
  expect_gradients(f, k, false, true);
}

/* Not in bf16, whose numbers are too far apart in rows far from 0. */
static int norm_goldens(Fixture *f, const char *name) {
  const Golden *g = golden_open(f, name);
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int dim = golden_ints(f, g, index, "dims")[2];
    NormCase k = norm_case_of(f, g, index);
    if (fitting_width(f, dim) != dim || (k.tolerance > TOLERANCE_F32 && f->dtype == DTYPE_BF16)) continue;
    norm_forward(f, &k);
    norm_backward(f, &k);
  }
  return index;
}

static void test_residual_norm(void **state) { assert_int_equal(norm_goldens(*state, "norm"), 6); }

static void test_residual_layer_norm(void **state) { assert_int_equal(norm_goldens(*state, "layer_norm"), 9); }

/* ---- rows of all lengths that backends distinguish, by the formulas for the values as stored ---- */

typedef struct SizeCase {
  int batch, length, dim;
  size_t rows, width, n;
  const Dropout *drop;
  const double *mask; /* NULL: none */
  NormValues values;
  double *dweight, *dbias; /* gradients are added to these */
  NormArrays a;
  Array x_in, branch, x_out, y, dy, dres, dx, dbranch;
} SizeCase;

static SizeCase size_case_of(Fixture *f, NormKind kind, int batch, int length, int dim, const Dropout *drop) {
  SizeCase k = {.batch = batch, .length = length, .dim = dim, .drop = drop};
  k.rows = (size_t)(batch * length), k.width = (size_t)dim, k.n = k.rows * k.width;
  if (drop) k.mask = dropout_mask(f, drop, 10, 2, batch, length, dim);
  k.values = (NormValues){kind, random_values(f, 3, k.width), random_values(f, 7, k.width), 1e-5};
  k.dweight = random_values(f, 4, k.width), k.dbias = random_values(f, 8, k.width);
  k.a = norm_arrays(f, kind, k.values.weight, k.values.bias, 1e-5f, (int)k.rows, dim);
  k.x_in = array_compute(f, random_values(f, 1, k.n), k.n);
  k.branch = array_compute(f, random_values(f, 2, k.n), k.n);
  k.dy = array_compute(f, random_values(f, 5, k.n), k.n);
  k.dres = array_compute(f, random_values(f, 6, k.n), k.n);
  Array *const outputs[] = {&k.x_out, &k.y, &k.dx, &k.dbranch};
  for (int i = 0; i < 4; i++) *outputs[i] = array_compute(f, NULL, k.n);
  return k;
}

static void size_case_run(Fixture *f, const SizeCase *k) {
  OPS(f);
  array_write(f, &k->a.dweight, k->dweight);
  if (norm_has_bias(k->values.kind)) array_write(f, &k->a.dbias, k->dbias);
  ops->residual_norm(c, k->x_out.data, k->y.data, stats_of(&k->a), k->x_in.data, k->branch.data, &k->a.norm, k->batch,
                     k->length, k->dim, k->drop);
  ops->residual_norm_backward(c, k->dx.data, k->dbranch.data, gradient_of(&k->a), k->dy.data, k->dres.data,
                              k->x_out.data, stats_of(&k->a), &k->a.norm, k->batch, k->length, k->dim, k->drop, true);
}

static void expect_size_case(Fixture *f, const SizeCase *k) {
  const double *a = array_read(f, &k->x_in), *b = array_read(f, &k->branch), *x = array_read(f, &k->x_out);
  const double *up = array_read(f, &k->dy), *res = array_read(f, &k->dres), *passed = array_read(f, &k->dx);
  double *y = host_values(f, k->n), *dx = host_values(f, k->n), *sum = host_values(f, k->n),
         *dbranch = host_values(f, k->n);
  double *dweight = sum_of(f, k->dweight, host_values(f, k->width), k->width),
         *dbias = sum_of(f, k->dbias, host_values(f, k->width), k->width);
  for (size_t at = 0; at < k->n; at += k->width) {
    normalize_row(&k->values, y + at, x + at, k->width);
    normalize_row_backward(&k->values, dx + at, dweight, dbias, up + at, x + at, k->width);
  }
  for (size_t i = 0; i < k->n; i++) {
    const double factor = k->mask ? k->mask[i] : 1;
    dx[i] += res[i], dbranch[i] = factor * passed[i], sum[i] = a[i] + factor * b[i];
  }
  expect_close(f, "x_out", x, sum, k->n, 1e-6); /* exact in bf16 too, without the scale of dropout */
  expect_close(f, "y", array_read(f, &k->y), y, k->n, TOLERANCE_F32);
  expect_close(f, "dx", passed, dx, k->n, TOLERANCE_F32);
  expect_close(f, "dbranch", array_read(f, &k->dbranch), dbranch, k->n, 1e-6);
  expect_close(f, "dweight", array_read(f, &k->a.dweight), dweight, k->width, TOLERANCE_F32);
  if (norm_has_bias(k->values.kind))
    expect_close(f, "dbias", array_read(f, &k->a.dbias), dbias, k->width, TOLERANCE_F32);
  if (!k->drop) expect_same("dbranch, which is dx", array_read(f, &k->dbranch), passed, k->n);
}

/* A second run gives the same bits; dx in place of dy, with dropout. */
static void expect_same_again(Fixture *f, const SizeCase *k) {
  const Array list[] = {k->y, k->dx, k->dbranch, k->a.dweight, k->a.dbias};
  double *first[5];
  const int count = norm_has_bias(k->values.kind) ? 5 : 4;
  for (int i = 0; i < count; i++) first[i] = array_read(f, &list[i]);
  size_case_run(f, k);
  for (int i = 0; i < count; i++) expect_same("the same again", array_read(f, &list[i]), first[i], list[i].count);
  SizeCase in_place = *k;
  in_place.dx = k->dy;
  size_case_run(f, &in_place);
  expect_same("dx in place of dy", array_read(f, &k->dy), first[1], k->n);
  for (int i = 2; i < count; i++) expect_same("beside it", array_read(f, &list[i]), first[i], list[i].count);
}

static void size_case(Fixture *f, int batch, int length, int dim, float p) {
  for (int kind = 0; kind < NORM_KINDS; kind++) {
    Dropout dropout = dropout_at(f, p, 9, 2);
    SizeCase k = size_case_of(f, (NormKind)kind, batch, length, dim, p > 0 ? &dropout : NULL);
    size_case_run(f, &k);
    expect_size_case(f, &k);
    expect_same_again(f, &k);
  }
}

static void test_residual_norm_sizes(void **state) {
  const int dims[] = {1, 7, 8, 256, 257, 384, 520, 1000, 1024, 2056, 4097, 8192, 8200};
  for (int i = 0; i < (int)(sizeof dims / sizeof *dims); i++) {
    size_case(*state, 2, 3, fitting_width(*state, dims[i]), 0);
    size_case(*state, 3, 2, fitting_width(*state, dims[i]), 0.4f);
  }
  size_case(*state, 5, 97, 24, 0); /* more rows than a backend works on at a time */
  size_case(*state, 5, 97, fitting_width(*state, 11), 0.1f);
  size_case(*state, 2, 37, 1032, 0.1f);
  size_case(*state, 3, fixture_is_cuda(*state) ? 400 : 1367, 8, 0);
}

/* Rows far from 0, of every length: a variance computed as E[x^2] - mean^2 would be noise. In fp32 a mean of thousands
 * depends on the order of the sum. */
static void test_layer_norm_far_from_zero(void **state) {
  Fixture *f = *state;
  OPS(f);
  const int dims[] = {8, 64, 257, 1000, 4097, 8200};
  if (f->dtype == DTYPE_BF16) return; /* its numbers are too far apart there */
  for (int i = 0; i < (int)(sizeof dims / sizeof *dims); i++) {
    const int rows = 3, dim = fitting_width(f, dims[i]);
    const size_t width = (size_t)dim, n = (size_t)rows * width;
    double *x = random_values(f, 1, n), *want = host_values(f, n);
    for (size_t j = 0; j < n; j++) x[j] += j < width ? 1000 : -1000;
    const NormValues values = {NORM_LAYER, random_values(f, 2, width), random_values(f, 3, width), 1e-5};
    NormArrays a = norm_arrays(f, NORM_LAYER, values.weight, values.bias, 1e-5f, rows, dim);
    Array in = array_compute(f, x, n), y = array_compute(f, NULL, n);
    for (size_t at = 0; at < n; at += width) normalize_row(&values, want + at, x + at, width);
    ops->residual_norm(c, NULL, y.data, stats_of(&a), in.data, NULL, &a.norm, 1, rows, dim, NULL);
    expect_close(f, "y of rows far from 0", array_read(f, &y), want, n, dim > 1000 ? 1e-2 : 1e-3);
  }
}

/* ---- finite differences, NaN ---- */

static void forward_norm(Fixture *f, Forward *t) {
  const NormStats stats = {t->fixed[0].data, t->fixed[1].data};
  const Norm norm = {(NormKind)t->dims[3], t->fixed[2].data, t->fixed[3].data, 1e-5f};
  f->backend->residual_norm(f->context, NULL, t->out.data, stats, t->in.data, NULL, &norm, t->dims[0], t->dims[1],
                            t->dims[2], NULL);
}

static void test_derivatives_norm(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 2 };
  const int dim = fitting_width(f, 9);
  const size_t width = (size_t)dim, n = ROWS * width;
  const double *x = random_values(f, 1, n), *up = random_values(f, 2, n), *weight = random_values(f, 3, width);
  for (int kind = 0; kind < NORM_KINDS; kind++) {
    NormArrays a = norm_arrays(f, (NormKind)kind, weight, random_values(f, 4, width), 1e-5f, ROWS, dim);
    Forward norm = {.run = forward_norm,
                    .in = array_compute(f, x, n),
                    .out = array_compute(f, NULL, n),
                    .upstream = up,
                    .fixed = {a.mean, a.rstd, a.weight, a.bias},
                    .dims = {1, ROWS, dim, kind}};
    Array dy = array_compute(f, up, n), dx = array_compute(f, NULL, n);
    forward_norm(f, &norm);
    ops->residual_norm_backward(c, dx.data, NULL, gradient_of(&a), dy.data, NULL, norm.in.data, stats_of(&a), &a.norm,
                                1, ROWS, dim, NULL, false);
    expect_derivative(f, &norm, x, array_read(f, &dx));
  }
}

/* One NaN reaches its row and its column, forward and backward, and nothing else. */
static void test_norm_nan(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 3, DIM = 40, N = ROWS * DIM, BAD = DIM + 5 };
  for (int kind = 0; kind < NORM_KINDS; kind++) {
    double *x = random_values(f, 1, N);
    x[BAD] = NAN;
    NormArrays a = norm_arrays(f, (NormKind)kind, random_values(f, 2, DIM), random_values(f, 3, DIM), 1e-5f, ROWS, DIM);
    Array in = array_compute(f, x, N), y = array_compute(f, NULL, N), dx = array_compute(f, NULL, N);
    Array dy = array_compute(f, random_values(f, 4, N), N);
    ops->residual_norm(c, NULL, y.data, stats_of(&a), in.data, NULL, &a.norm, 1, ROWS, DIM, NULL);
    ops->residual_norm_backward(c, dx.data, NULL, gradient_of(&a), dy.data, NULL, in.data, stats_of(&a), &a.norm, 1,
                                ROWS, DIM, NULL, false);
    const double *got = array_read(f, &y), *got_dx = array_read(f, &dx), *dweight = array_read(f, &a.dweight);
    for (int j = 0; j < N; j++)
      if (!isnan(got[j]) != (j / DIM != 1) || !isnan(got_dx[j]) != (j / DIM != 1))
        fail_msg("%s: value %d is %g, its gradient %g", kind_names[kind], j, got[j], got_dx[j]);
    for (int j = 0; j < DIM; j++) assert_true(isnan(dweight[j]));
  }
}

/* ---- residual_add ---- */

/* x_out is a new array, x or y (in place); without x only y, with dropout. */
static void add_case(Fixture *f, int batch, int length, int dim, float p) {
  OPS(f);
  const size_t n = (size_t)(batch * length * dim);
  const double *x = random_values(f, 1, n), *branch = random_values(f, 2, n);
  Dropout dropout = dropout_at(f, p, 9, 2);
  const Dropout *drop = p > 0 ? &dropout : NULL;
  const double *mask = drop ? dropout_mask(f, drop, 10, 2, batch, length, dim) : NULL;
  for (int with_x = 0; with_x < 2; with_x++) {
    double *want = host_values(f, n);
    for (size_t i = 0; i < n; i++) want[i] = (with_x ? x[i] : 0) + (mask ? mask[i] : 1) * branch[i];
    Array x_in = array_compute(f, x, n), y = array_compute(f, branch, n), x_out = array_compute(f, NULL, n);
    const void *in = with_x ? x_in.data : NULL;
    ops->residual_add(c, x_out.data, in, y.data, batch, length, dim, drop);
    const double *got = array_read(f, &x_out);
    if (mask) expect_close(f, "x_out with dropout", got, want, n, 1e-6);
    else expect_same("x_out", got, want, n);
    expect_same("x_in", array_read(f, &x_in), x, n);
    expect_same("y", array_read(f, &y), branch, n);
    if (with_x) {
      ops->residual_add(c, x_in.data, x_in.data, y.data, batch, length, dim, drop);
      expect_same("x_out in place of x_in", array_read(f, &x_in), got, n);
      array_write(f, &x_in, x);
    }
    ops->residual_add(c, y.data, in, y.data, batch, length, dim, drop);
    expect_same("x_out in place of y", array_read(f, &y), got, n);
  }
}

static void test_residual_add(void **state) {
  const int dims[] = {1, 8, 33, 264, 1032, 8200};
  for (int i = 0; i < (int)(sizeof dims / sizeof *dims); i++)
    for (int dropped = 0; dropped < 2; dropped++) {
      add_case(*state, 1, 1, fitting_width(*state, dims[i]), dropped ? 0.4f : 0);
      add_case(*state, 3, 5, fitting_width(*state, dims[i]), dropped ? 0.4f : 0);
    }
}

static void test_residual_add_nan(void **state) {
  Fixture *f = *state;
  enum { DIM = 24 };
  double *x = random_values(f, 1, DIM), *branch = random_values(f, 2, DIM);
  x[3] = branch[17] = NAN;
  Array x_in = array_compute(f, x, DIM), y = array_compute(f, branch, DIM);
  f->backend->residual_add(f->context, x_in.data, x_in.data, y.data, 1, 1, DIM, NULL);
  const double *got = array_read(f, &x_in);
  for (int i = 0; i < DIM; i++) assert_int_equal(isnan(got[i]) != 0, i == 3 || i == 17);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_residual_norm),       cmocka_unit_test(test_residual_layer_norm),
      cmocka_unit_test(test_residual_norm_sizes), cmocka_unit_test(test_layer_norm_far_from_zero),
      cmocka_unit_test(test_derivatives_norm),    cmocka_unit_test(test_norm_nan),
      cmocka_unit_test(test_residual_add),        cmocka_unit_test(test_residual_add_nan),
  };
  return run_on_backends("kernels: norm", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
