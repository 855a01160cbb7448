/* Activations of an MLP, gated or not, with dropout (kernels.h). As tests/test_kernels.c. */
#include "tests/formulas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t u_count(const MlpShape *mlp, size_t h_count) { return mlp->gated ? 2 * h_count : h_count; }

static const char *title(const MlpShape *mlp, const char *what) {
  static char text[80];
#define NAME(id, name, ...) [ACTIVATION_##id] = name,
  static const char *const names[] = {ACTIVATIONS(NAME)};
  snprintf(text, sizeof text, "%s of %s%s", what, mlp->gated ? "gated " : "", names[mlp->activation]);
  return text;
}

/* ---- goldens ---- */

typedef struct GoldenCase {
  const Golden *golden;
  int index, rows, ffn; /* ffn: of the golden */
  MlpShape mlp;
} GoldenCase;

/* If the backend needs wider rows than the golden's, the additional columns are 0, and so are their results. */
static double *padded(Fixture *f, const GoldenCase *k, const char *name, bool of_u) {
  return with_pads(f, golden_values(f, k->golden, k->index, name, NULL), k->rows * (of_u && k->mlp.gated ? 2 : 1),
                   k->ffn, k->mlp.ffn, 0);
}

static void golden_case(Fixture *f, const GoldenCase *k, const char *u_name, const char *du_name) {
  OPS(f);
  const size_t n = (size_t)(k->rows * k->mlp.ffn), count = u_count(&k->mlp, n);
  Array u = array_compute(f, padded(f, k, u_name, true), count), h = array_compute(f, NULL, n);
  Array dh = array_compute(f, padded(f, k, "dh", false), n), du = array_compute(f, NULL, count);
  ops->activation(c, h.data, u.data, &k->mlp, 1, k->rows, NULL);
  expect_close(f, title(&k->mlp, "h"), array_read(f, &h), padded(f, k, "h", false), n, TOLERANCE_F32);
  ops->activation_backward(c, du.data, dh.data, u.data, &k->mlp, k->rows, 1, NULL);
  expect_close(f, title(&k->mlp, "du"), array_read(f, &du), padded(f, k, du_name, true), count, TOLERANCE_F32);
  ops->activation_backward(c, u.data, dh.data, u.data, &k->mlp, 1, k->rows, NULL);
  expect_same(title(&k->mlp, "du in place"), array_read(f, &u), array_read(f, &du), count);
}

static void test_swiglu(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "swiglu");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims");
    GoldenCase k = {g, index, dims[0], dims[1], {ACTIVATION_SILU, true, fitting_width(f, dims[1])}};
    golden_case(f, &k, "gate_up", "dgate_up");
  }
  assert_int_equal(index, 4);
}

static void test_activation(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "activation");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims");
    GoldenCase k = {g, index, dims[0], dims[1], {(Activation)dims[2], dims[3] != 0, fitting_width(f, dims[1])}};
    golden_case(f, &k, "u", "du");
  }
  assert_int_equal(index, 4 * MLP_SHAPES);
}

/* ---- against the formulas ---- */

/* Large arguments, for which sigmoid is 0 or 1 and exp overflows: the limits, and no NaN. Rows of all alignments. */
static void extremes_case(Fixture *f, const MlpShape *mlp) {
  OPS(f);
  enum { ROWS = 5, NUMBERS = 13 };
  static const double numbers[NUMBERS] = {-30000, -200, -90, -88, -20, -1, 0, 1, 20, 88, 90, 200, 30000};
  const size_t ffn = (size_t)mlp->ffn, n = ROWS * ffn, count = u_count(mlp, n);
  double *u = random_values(f, 1, count), *dh = random_values(f, 2, n);
  for (size_t i = 0; i < n; i++) u[mlp->gated ? i / ffn * 2 * ffn + i % ffn : i] = numbers[i % NUMBERS];
  Array in = array_compute(f, u, count), out = array_compute(f, NULL, n), upstream = array_compute(f, dh, n);
  ops->activation(c, out.data, in.data, mlp, ROWS, 1, NULL);
  ops->activation_backward(c, in.data, upstream.data, in.data, mlp, ROWS, 1, NULL);
  expect_close(f, title(mlp, "h far out"), array_read(f, &out), activation_rows(f, mlp, u, ROWS), n, TOLERANCE_F32);
  expect_close(f, title(mlp, "du far out"), array_read(f, &in), activation_rows_backward(f, mlp, dh, u, ROWS), count,
               TOLERANCE_F32);
}

static void test_activation_extremes(void **state) {
  const int widths[] = {1, 8, 13, 264};
  for (int w = 0; w < 4; w++)
    for (int i = 0; i < MLP_SHAPES; i++) {
      const MlpShape mlp = mlp_shape(i, fitting_width(*state, widths[w]));
      extremes_case(*state, &mlp);
    }
}

/* Compares each number over the curved range of an activation: large numbers of a row must not hide errors. */
static void test_activation_numbers(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { COUNT = 1600 };
  double *dh = host_values(f, COUNT), *wanted = host_values(f, COUNT);
  for (int i = 0; i < COUNT; i++) dh[i] = 1, wanted[i] = (i - COUNT / 2) / 64.0;
  for (int a = 0; a < ACTIVATION_KINDS; a++) {
    const MlpShape mlp = {(Activation)a, false, COUNT};
    Array u = array_compute(f, wanted, COUNT), h = array_compute(f, NULL, COUNT), up = array_compute(f, dh, COUNT);
    const double *stored = array_read(f, &u), *value = activation_rows(f, &mlp, stored, 1),
                 *slope = activation_rows_backward(f, &mlp, dh, stored, 1);
    ops->activation(c, h.data, u.data, &mlp, 1, 1, NULL);
    ops->activation_backward(c, u.data, up.data, u.data, &mlp, 1, 1, NULL);
    const double *got = array_read(f, &h), *du = array_read(f, &u);
    for (int i = 0; i < COUNT; i++) {
      expect_close_floor(f, title(&mlp, "a value"), got + i, value + i, 1, TOLERANCE_F32, 0.1);
      expect_close_floor(f, title(&mlp, "a slope"), du + i, slope + i, 1, TOLERANCE_F32, 0.1);
    }
  }
}

/* ---- dropout ---- */

/* Sequences of step 10 that begin with number 2; the map counts numbers of h, not of u. */
static void dropout_case(Fixture *f, const MlpShape *mlp) {
  OPS(f);
  enum { B = 3, T = 5 };
  const size_t n = B * T * (size_t)mlp->ffn, count = u_count(mlp, n);
  const double *u = random_values(f, 1, count), *dh = random_values(f, 2, n);
  Dropout dropout = dropout_at(f, 0.4f, 9, 2);
  const double *mask = dropout_mask(f, &dropout, 10, 2, B, T, mlp->ffn);
  double *h = activation_rows(f, mlp, u, B * T), *d = host_values(f, n);
  for (size_t i = 0; i < n; i++) h[i] *= mask[i], d[i] = mask[i] * dh[i];
  Array in = array_compute(f, u, count), out = array_compute(f, NULL, n), up = array_compute(f, dh, n);
  Array du = array_compute(f, NULL, count);
  ops->activation(c, out.data, in.data, mlp, B, T, &dropout);
  const double *got = array_read(f, &out);
  expect_close(f, title(mlp, "h with dropout"), got, h, n, TOLERANCE_F32);
  for (size_t i = 0; i < n; i++)
    if (mask[i] == 0 && got[i] != 0) fail_msg("%s, number %zu: %g was not dropped", title(mlp, "h"), i, got[i]);
  ops->activation_backward(c, du.data, up.data, in.data, mlp, B, T, &dropout);
  expect_close(f, title(mlp, "du with dropout"), array_read(f, &du), activation_rows_backward(f, mlp, d, u, B * T),
               count, TOLERANCE_F32);
  ops->activation_backward(c, in.data, up.data, in.data, mlp, B, T, &dropout);
  expect_same(title(mlp, "du in place"), array_read(f, &in), array_read(f, &du), count);
  expect_same("dh", array_read(f, &up), dh, n);
}

static void test_activation_dropout(void **state) {
  const int widths[] = {1, 19, 72, 264};
  for (int w = 0; w < 4; w++)
    for (int i = 0; i < MLP_SHAPES; i++) {
      const MlpShape mlp = mlp_shape(i, fitting_width(*state, widths[w]));
      dropout_case(*state, &mlp);
    }
}

/* ---- finite differences, NaN ---- */

static void forward_activation(Fixture *f, Forward *t) {
  const MlpShape mlp = mlp_shape(t->dims[2], t->dims[1]);
  f->backend->activation(f->context, t->out.data, t->in.data, &mlp, 1, t->dims[0], NULL);
}

static void test_derivatives_activation(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 2 };
  const int ffn = fitting_width(f, 9);
  const size_t n = ROWS * (size_t)ffn;
  for (int i = 0; i < MLP_SHAPES; i++) {
    const MlpShape mlp = mlp_shape(i, ffn);
    const size_t count = u_count(&mlp, n);
    double *x = random_values(f, 1, count), *up = random_values(f, 2, n);
    for (size_t j = 0; j < count; j++) x[j] += x[j] == 0; /* ReLU has no derivative at 0 */
    Forward forward = {.run = forward_activation,
                       .in = array_compute(f, x, count),
                       .out = array_compute(f, NULL, n),
                       .upstream = up,
                       .dims = {ROWS, ffn, i}};
    Array dh = array_compute(f, up, n), du = array_compute(f, NULL, count);
    ops->activation_backward(c, du.data, dh.data, forward.in.data, &mlp, 1, ROWS, NULL);
    expect_derivative(f, &forward, x, array_read(f, &du));
  }
}

/* A comparison may lose a NaN (ReLU): it must reach h and, through dh, du. */
static void test_activation_nan(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { FFN = 40, BAD = 21 };
  for (int i = 0; i < MLP_SHAPES; i++) {
    const MlpShape mlp = mlp_shape(i, FFN);
    const size_t count = u_count(&mlp, FFN);
    double *u = random_values(f, 1, count), *dh = random_values(f, 2, FFN);
    u[BAD] = NAN, u[BAD + 1] = 1, dh[BAD + 1] = NAN;
    Array in = array_compute(f, u, count), h = array_compute(f, NULL, FFN), up = array_compute(f, dh, FFN);
    ops->activation(c, h.data, in.data, &mlp, 1, 1, NULL);
    ops->activation_backward(c, in.data, up.data, in.data, &mlp, 1, 1, NULL);
    const double *got = array_read(f, &h), *du = array_read(f, &in);
    for (int j = 0; j < FFN; j++)
      if ((isnan(got[j]) != 0) != (j == BAD)) fail_msg("%s: number %d is %g", title(&mlp, "h"), j, got[j]);
    assert_true(isnan(du[BAD + 1]) && !isnan(du[BAD + 2]));
    if (mlp.gated) assert_true(isnan(du[FFN + BAD]) && isnan(du[FFN + BAD + 1]) && !isnan(du[FFN + BAD + 2]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_swiglu),
      cmocka_unit_test(test_activation),
      cmocka_unit_test(test_activation_extremes),
      cmocka_unit_test(test_activation_numbers),
      cmocka_unit_test(test_activation_dropout),
      cmocka_unit_test(test_derivatives_activation),
      cmocka_unit_test(test_activation_nan),
  };
  return run_on_backends("kernels: activation", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
