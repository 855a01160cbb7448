/* ContextOptions.weights: products of a CPU with weights in bf16 and int8, against float64 products with weights that
 * are rounded here by the definition. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

enum { GROUP = 32 };

/* Rounds to 8 significant bits, ties to even; only for numbers in the normal range. */
static double to_bf16(double x) {
  int exponent;
  double fraction = frexp(x, &exponent);
  return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

/* Rounds every group of a row to multiples of its largest number / 127. */
static void to_int8(double *row, int cols) {
  for (int first = 0; first < cols; first += GROUP) {
    int end = first + GROUP < cols ? first + GROUP : cols;
    double most = 0;
    for (int i = first; i < end; i++) most = fmax(most, fabs(row[i]));
    for (int i = first; i < end && most > 0; i++) row[i] = nearbyint(row[i] * 127 / most) * most / 127;
  }
}

/* Numbers that are rarely halfway between two multiples, where both roundings are correct. */
static double *uneven_values(Fixture *f, uint32_t stream, int count) {
  double *values = host_values(f, (size_t)count);
  memcpy(values, random_values(f, stream, (size_t)count), (size_t)count * sizeof *values);
  for (int i = 0; i < count; i++) values[i] = (double)(float)(values[i] * (1 + 0.01 * sin(i)));
  return values;
}

/* int8 rounds the activations too. */
static double *rounded(Fixture *f, DType dtype, const double *values, int rows, int cols) {
  double *w = host_values(f, (size_t)(rows * cols));
  memcpy(w, values, (size_t)(rows * cols) * sizeof *w);
  for (int i = 0; dtype == DTYPE_BF16 && i < rows * cols; i++) w[i] = to_bf16(w[i]);
  for (int row = 0; dtype == DTYPE_I8 && row < rows; row++) to_int8(w + row * cols, cols);
  return w;
}

static double *product(Fixture *f, const double *x, const double *w, int rows, int outputs, int inputs) {
  double *y = host_values(f, (size_t)(rows * outputs));
  for (int n = 0; n < rows; n++)
    for (int m = 0; m < outputs; m++)
      for (int k = 0; k < inputs; k++) y[n * outputs + m] += x[n * inputs + k] * w[m * inputs + k];
  return y;
}

/* A GEMM, a product of few rows, and rows of the table. */
static void expect_products(Fixture *f, DType dtype, int outputs, int inputs) {
  OPS(f);
  const double *first = random_values(f, 1, (size_t)(outputs * inputs));
  const double *second = uneven_values(f, 2, outputs * inputs);
  double *bias = host_values(f, (size_t)outputs), *learned = host_values(f, (size_t)(2 * inputs));
  for (int i = 0; i < outputs; i++) bias[i] = i % 3 ? 1.5 : -1.5; /* the same in every dtype, as `learned` */
  for (int i = 0; i < 2 * inputs; i++) learned[i] = i % 5 ? -0.75 : 0.75;
  ParameterSpec specs[] = {
      matrix_spec(outputs, inputs, 0, first), norm_spec(inputs, random_values(f, 3, (size_t)inputs)),
      matrix_spec(outputs, inputs, 0, second), bias_spec(outputs, bias), matrix_spec(2, inputs, 0, learned)};
  Parameters params = parameters_new(f, specs, 5);
  const Matrix w = params.groups[2].matrix;
  const Linear biased = {w, params.groups[3].matrix};
  const double *exact = rounded(f, dtype, second, outputs, inputs);
  for (int rows = 1; rows <= 40; rows += 13) {
    const double *x = uneven_values(f, 5, rows * inputs);
    const double *want =
        product(f, dtype == DTYPE_I8 ? rounded(f, dtype, x, rows, inputs) : x, exact, rows, outputs, inputs);
    size_t count = (size_t)(rows * outputs);
    Array in = array_compute(f, x, (size_t)(rows * inputs)), out = array_compute(f, NULL, count);
    ops->linear(c, out.data, in.data, &params, layer_of(w), rows);
    expect_close(f, "linear", array_read(f, &out), want, count, TOLERANCE_F32);
    Array sum = array_compute(f, host_values(f, count), count);
    ops->decode_residual(c, sum.data, in.data, &params, layer_of(w), &(Sequences){.rows = rows});
    expect_close(f, "decode_residual", array_read(f, &sum), want, count, TOLERANCE_F32);
    double *with_bias = host_values(f, count);
    for (size_t i = 0; i < count; i++) with_bias[i] = want[i] + bias[i % (size_t)outputs];
    ops->linear(c, out.data, in.data, &params, biased, rows);
    expect_close(f, "linear with bias", array_read(f, &out), with_bias, count, TOLERANCE_F32);
    ops->decode_linear(c, out.data, in.data, NULL, &params, biased, &(Sequences){.rows = rows});
    expect_close(f, "decode_linear with bias", array_read(f, &out), with_bias, count, TOLERANCE_F32);
  }
  int32_t token = outputs - 1, position = 1;
  Array tokens = array_ints(f, &token, 1), row = array_compute(f, NULL, (size_t)inputs);
  const Embedding e = table_of(w);
  ops->embedding(c, row.data, &params, &e, tokens.data, 1, 1, NULL);
  expect_close(f, "embedding", array_read(f, &row), exact + token * inputs, (size_t)inputs, TOLERANCE_F32);
  const Embedding with_positions = {w, params.groups[4].matrix, array_ints(f, &position, 1).data};
  double *want = host_values(f, (size_t)inputs);
  for (int i = 0; i < inputs; i++) want[i] = exact[token * inputs + i] + learned[inputs + i];
  ops->embedding(c, row.data, &params, &with_positions, tokens.data, 1, 1, NULL);
  expect_close(f, "embedding with a position", array_read(f, &row), want, (size_t)inputs, TOLERANCE_F32);
  ops->release_parameters(c, &params);
}

/* A number that is not finite must not be rounded away. */
static void expect_not_finite(Fixture *f, double bad) {
  OPS(f);
  ParameterSpec spec = matrix_spec(5, 70, 0, random_values(f, 1, 350));
  Parameters params = parameters_new(f, &spec, 1);
  double *x = host_values(f, 70);
  x[66] = bad;
  Array in = array_compute(f, x, 70), out = array_compute(f, NULL, 5), sum = array_compute(f, host_values(f, 5), 5);
  ops->linear(c, out.data, in.data, &params, layer_of(params.groups[0].matrix), 1);
  ops->decode_residual(c, sum.data, in.data, &params, layer_of(params.groups[0].matrix), &(Sequences){.rows = 1});
  const double *of_linear = array_read(f, &out), *of_decoding = array_read(f, &sum);
  for (int i = 0; i < 5; i++) assert_false(isfinite(of_linear[i]) || isfinite(of_decoding[i]));
  ops->release_parameters(c, &params);
}

static void in_narrow_weights(Fixture *f, DType dtype) {
  Fixture own = {.backend = f->backend, .dtype = f->dtype, .test = f->test};
  const ContextOptions options = {.dtype = DTYPE_F32, .weights = dtype};
  Error error = {0};
  if (!f->backend->open(&own.context, &options, &error)) fail_msg("%s", error.text);
  const int shapes[][2] = {{1, 2}, {7, 5}, {64, 32}, {33, 70}, {200, 96}, {4, 700}};
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    expect_products(&own, dtype, shapes[i][0], shapes[i][1]);
  expect_not_finite(&own, NAN);
  expect_not_finite(&own, INFINITY);
  fixture_free(&own);
}

static void test_narrow_weights(void **state) {
  Fixture *f = *state;
  if (fixture_is_cuda(f)) return;
  in_narrow_weights(f, DTYPE_BF16);
  in_narrow_weights(f, DTYPE_I8);
}

/* Training refuses narrow weights, and a GPU does not support them. */
static void test_narrow_weights_are_read_only(void **state) {
  Fixture *f = *state;
  Fixture own = {.backend = f->backend, .dtype = f->dtype, .test = f->test, .expect_error = true};
  const ContextOptions options = {.dtype = f->dtype, .weights = DTYPE_I8};
  Error error = {0};
  StepReport report;
  if (fixture_is_cuda(f)) {
    assert_false(f->backend->open(&own.context, &options, &error));
    assert_int_equal(error.code, EXIT_USAGE);
    return;
  }
  if (!f->backend->open(&own.context, &options, &error)) fail_msg("%s", error.text);
  ParameterSpec spec = matrix_spec(4, 6, 0, random_values(f, 1, 24));
  Parameters params = parameters_new(&own, &spec, 1);
  Array dy = array_compute(&own, random_values(f, 2, 8), 8), dx = array_compute(&own, random_values(f, 3, 12), 12);
  f->backend->linear_backward_input(own.context, dx.data, dy.data, &params, layer_of(params.groups[0].matrix), 2,
                                    false);
  assert_int_equal(f->backend->poll(own.context, &report, 1, true, &error), -1);
  assert_int_equal(error.code, EXIT_INTERNAL);
  f->backend->release_parameters(own.context, &params);
  fixture_free(&own);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_narrow_weights),
                                     cmocka_unit_test(test_narrow_weights_are_read_only)};
  return run_on_backends_in_f32("weights", tests, sizeof tests / sizeof tests[0]);
}
