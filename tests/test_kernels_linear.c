/* Matrix products and biases (kernels.h). As tests/test_kernels.c. */
#include "tests/formulas.h"

#include <math.h>
#include <string.h>

/* ---- goldens ---- */

enum { WEIGHT_GROUP = 1, BIAS_GROUP = 2, NEIGHBOR = 4 };

typedef struct LinearCase {
  const Golden *golden;
  int index, rows, outputs, inputs, width; /* width: outputs and pads */
  bool bias;
  Parameters params; /* an unrelated vector, W, b or nothing, an unrelated vector */
  Linear layer;
} LinearCase;

static double *linear_values(Fixture *f, const LinearCase *l, const char *name) {
  return golden_values(f, l->golden, l->index, name, NULL);
}

/* Pads [rows][outputs] to [rows][width] with zeros. */
static double *padded(Fixture *f, const LinearCase *l, const char *name, int rows) {
  return with_pads(f, linear_values(f, l, name), rows, l->outputs, l->width, 0);
}

static LinearCase linear_case_of(Fixture *f, const Golden *g, int index) {
  const int32_t *dims = golden_ints(f, g, index, "dims");
  const int pads = index % 2 * 2;
  LinearCase l = {.golden = g, .index = index, .rows = dims[0], .outputs = dims[1], .inputs = dims[2]};
  l.bias = golden_has(g, index, "b");
  l.width = l.outputs + pads;
  const ParameterSpec other = matrix_spec(2, 2, 0, random_values(f, 3, NEIGHBOR));
  ParameterSpec specs[4] = {other, matrix_spec(l.outputs, l.inputs, pads, linear_values(f, &l, "w")), other, other};
  if (l.bias) specs[BIAS_GROUP] = bias_spec(l.width, padded(f, &l, "b", 1));
  l.params = parameters_new(f, specs, l.bias ? 4 : 3);
  l.layer = layer_of(l.params.groups[WEIGHT_GROUP].matrix);
  if (l.bias) l.layer.bias = l.params.groups[BIAS_GROUP].matrix;
  return l;
}

static void linear_forward(Fixture *f, const LinearCase *l) {
  OPS(f);
  size_t count = (size_t)l->rows * (size_t)l->width;
  Array x = array_compute(f, linear_values(f, l, "x"), (size_t)(l->rows * l->inputs));
  Array y = array_compute(f, NULL, count);
  ops->linear(c, y.data, x.data, &l->params, l->layer, l->rows);
  expect_close(f, "y", array_read(f, &y), padded(f, l, "y", l->rows), count, TOLERANCE_F32);
}

static void linear_backward(Fixture *f, const LinearCase *l) {
  OPS(f);
  size_t count = (size_t)l->rows * (size_t)l->inputs;
  const double *want = linear_values(f, l, "dx"), *before = random_values(f, 8, count);
  Array dy = array_compute(f, padded(f, l, "dy", l->rows), (size_t)(l->rows * l->width));
  Array dx = array_compute(f, NULL, count);
  ops->linear_backward_input(c, dx.data, dy.data, &l->params, l->layer, l->rows, false);
  expect_close(f, "dx", array_read(f, &dx), want, count, TOLERANCE_F32);
  array_write(f, &dx, before);
  ops->linear_backward_input(c, dx.data, dy.data, &l->params, l->layer, l->rows, true);
  expect_close(f, "accumulated dx", array_read(f, &dx), sum_of(f, before, want, count), count, TOLERANCE_F32);
}

/* Checks the gradient of W or b: `want`, added to `before` unless it is NULL, and zeros in the pads. */
static void expect_gradient(Fixture *f, const LinearCase *l, int group, const double *before, const double *want,
                            size_t logical) {
  const Matrix m = l->params.groups[group].matrix;
  const size_t count = (size_t)m.rows * (size_t)m.cols;
  const double *got = parameters_read(f, &l->params, ARENA_OF_GRAD, group);
  expect_close(f, group == BIAS_GROUP ? "db" : "dw", got, before ? sum_of(f, before, want, count) : want, count,
               TOLERANCE_F32);
  expect_same("pads of a gradient", got + logical, want + logical, count - logical);
}

static void linear_weight(Fixture *f, const LinearCase *l) {
  OPS(f);
  const size_t count = (size_t)l->width * (size_t)l->inputs, logical = (size_t)l->outputs * (size_t)l->inputs;
  Array dy = array_compute(f, padded(f, l, "dy", l->rows), (size_t)(l->rows * l->width));
  Array x = array_compute(f, linear_values(f, l, "x"), (size_t)(l->rows * l->inputs));
  const double *want = concatenate(f, linear_values(f, l, "dw"), logical, host_values(f, count), count - logical);
  const double *want_bias = l->bias ? padded(f, l, "db", 1) : NULL;
  double *before = random_values(f, 9, count), *bias_before = random_values(f, 10, (size_t)l->width);
  memset(before + logical, 0, (count - logical) * sizeof *before);
  memset(bias_before + l->outputs, 0, (size_t)(l->width - l->outputs) * sizeof *before);
  parameters_write(f, &l->params, ARENA_OF_GRAD, WEIGHT_GROUP, before);
  if (l->bias) parameters_write(f, &l->params, ARENA_OF_GRAD, BIAS_GROUP, bias_before);
  for (int accumulate = 1; accumulate >= 0; accumulate--) {
    ops->linear_backward_weight(c, &l->params, l->layer, dy.data, x.data, l->rows, accumulate != 0);
    expect_gradient(f, l, WEIGHT_GROUP, accumulate ? before : NULL, want, logical);
    if (l->bias) expect_gradient(f, l, BIAS_GROUP, accumulate ? bias_before : NULL, want_bias, (size_t)l->outputs);
    const double *zeros = host_values(f, NEIGHBOR);
    const int last = l->params.group_count - 1;
    expect_same("the neighbors' gradients", parameters_read(f, &l->params, ARENA_OF_GRAD, 0), zeros, NEIGHBOR);
    expect_same("the neighbors' gradients", parameters_read(f, &l->params, ARENA_OF_GRAD, last), zeros, NEIGHBOR);
  }
}

static int linear_cases(Fixture *f, const char *name) {
  const Golden *g = golden_open(f, name);
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    LinearCase l = linear_case_of(f, g, index);
    linear_forward(f, &l);
    linear_backward(f, &l);
    linear_weight(f, &l);
  }
  return index;
}

static void test_linear(void **state) { assert_int_equal(linear_cases(*state, "linear"), 6); }

static void test_linear_bias(void **state) { assert_int_equal(linear_cases(*state, "linear_bias"), 7); }

/* ---- large matrices ---- */

/* out[i][j] = sum_k a[i*ai + k*ak] * b[j*bj + k*bk] */
static double *product(Fixture *f, const double *a, int ai, int ak, const double *b, int bj, int bk, int rows, int cols,
                       int depth) {
  double *out = host_values(f, (size_t)rows * (size_t)cols);
  for (int i = 0; i < rows; i++) {
    for (int j = 0; j < cols; j++) {
      double sum = 0;
      for (int k = 0; k < depth; k++) sum += a[i * ai + k * ak] * b[j * bj + k * bk];
      out[i * cols + j] = sum;
    }
  }
  return out;
}

typedef struct Large {
  int rows, outputs, inputs;
  size_t x_count, y_count, w_count;
  const double *x, *w, *b, *dy;
  Array in, upstream;
  Parameters p;
  Linear layer;
} Large;

static Large large_of(Fixture *f, int rows, int outputs, int inputs, bool bias) {
  Large l = {.rows = rows, .outputs = outputs, .inputs = inputs};
  l.x_count = (size_t)(rows * inputs), l.y_count = (size_t)(rows * outputs), l.w_count = (size_t)(outputs * inputs);
  l.x = random_values(f, 1, l.x_count), l.w = random_values(f, 2, l.w_count), l.dy = random_values(f, 3, l.y_count);
  l.b = random_values(f, 4, (size_t)outputs);
  ParameterSpec specs[] = {matrix_spec(outputs, inputs, 0, l.w), bias_spec(outputs, l.b)};
  l.p = parameters_new(f, specs, 2);
  l.layer = layer_of(l.p.groups[0].matrix);
  if (bias) l.layer.bias = l.p.groups[1].matrix;
  else l.b = NULL;
  l.in = array_compute(f, l.x, l.x_count), l.upstream = array_compute(f, l.dy, l.y_count);
  return l;
}

static void large_forward(Fixture *f, const Large *l) {
  OPS(f);
  Array y = array_compute(f, NULL, l->y_count), again = array_compute(f, NULL, l->y_count);
  ops->linear(c, y.data, l->in.data, &l->p, l->layer, l->rows);
  ops->linear(c, again.data, l->in.data, &l->p, l->layer, l->rows);
  expect_close(f, "y", array_read(f, &y), linear_rows(f, l->w, l->b, l->x, l->rows, l->outputs, l->inputs), l->y_count,
               TOLERANCE_F32);
  expect_same("the same product again", array_read(f, &again), array_read(f, &y), l->y_count);
}

static void large_backward(Fixture *f, const Large *l) {
  OPS(f);
  const int rows = l->rows, outputs = l->outputs, inputs = l->inputs;
  const double *want = product(f, l->dy, outputs, 1, l->w, 1, inputs, rows, inputs, outputs);
  const double *before = random_values(f, 5, l->x_count);
  Array dx = array_compute(f, NULL, l->x_count);
  ops->linear_backward_input(c, dx.data, l->upstream.data, &l->p, l->layer, rows, false);
  expect_close(f, "dx", array_read(f, &dx), want, l->x_count, TOLERANCE_F32);
  double *first = NULL;
  for (int run = 0; run < 2; run++) {
    array_write(f, &dx, before);
    ops->linear_backward_input(c, dx.data, l->upstream.data, &l->p, l->layer, rows, true);
    double *got = array_read(f, &dx);
    expect_close(f, "accumulated dx", got, sum_of(f, before, want, l->x_count), l->x_count, TOLERANCE_F32);
    if (first) expect_same("the same accumulated dx again", got, first, l->x_count);
    first = got;
  }
}

static void large_weight(Fixture *f, const Large *l) {
  OPS(f);
  const int rows = l->rows, outputs = l->outputs, inputs = l->inputs;
  double *want_bias = host_values(f, (size_t)outputs), *first = NULL, *first_bias = NULL;
  for (size_t i = 0; l->b && i < l->y_count; i++) want_bias[i % (size_t)outputs] += l->dy[i];
  const double *want = product(f, l->dy, 1, outputs, l->x, 1, inputs, outputs, inputs, rows);
  for (int run = 0; run < 2; run++) {
    ops->linear_backward_weight(c, &l->p, l->layer, l->upstream.data, l->in.data, rows, false);
    double *dw = parameters_read(f, &l->p, ARENA_OF_GRAD, 0), *db = parameters_read(f, &l->p, ARENA_OF_GRAD, 1);
    expect_close(f, "dw", dw, want, l->w_count, TOLERANCE_F32);
    expect_close(f, "db", db, want_bias, (size_t)outputs, TOLERANCE_F32);
    if (first) expect_same("the same dw again", dw, first, l->w_count);
    if (first) expect_same("the same db again", db, first_bias, (size_t)outputs);
    first = dw, first_bias = db;
  }
}

/* Larger than the tiles and blocks of a GEMM, and a multiple of none. */
static void linear_large(Fixture *f, int rows, int outputs, int inputs) {
  for (int bias = 0; bias < 2; bias++) {
    Large l = large_of(f, rows, outputs, inputs, bias != 0);
    large_forward(f, &l);
    large_backward(f, &l);
    large_weight(f, &l);
  }
}

/* A single thread takes no more rows at a time than several do: its buffer has a fixed size. */
static void test_linear_one_thread(void **state) {
  Fixture *f = *state;
  if (fixture_is_cuda(f)) return;
  Fixture own = {.backend = f->backend, .dtype = f->dtype, .test = f->test};
  const ContextOptions options = {.dtype = f->dtype, .threads = 1};
  Error error = {0};
  if (!f->backend->open(&own.context, &options, &error)) fail_msg("%s", error.text);
  linear_large(&own, 5, 4000, 9);
  fixture_free(&own);
}

static void test_linear_large(void **state) {
  linear_large(*state, 70, 131, 523);
  linear_large(*state, 261, 67, 35);
  linear_large(*state, 1, 515, 130);
  if (fixture_is_cuda(*state)) return;
  linear_large(*state, 769, 67, 525); /* on CPUs: a weight gradient of two segments of several blocks, */
  linear_large(*state, 9, 4501, 291); /* an input gradient and a product whose depth is packed in several blocks */
  linear_large(*state, 131, 291, 4501);
  linear_large(*state, 3, 1100, 4501);
}

/* ---- the gradient of a bias over thousands of rows ---- */

/* Numbers whose sums are rounded, so that their order matters; the first and the last row are large. */
static double *uneven_rows(Fixture *f, int rows, int width) {
  double *values = random_values(f, 1, (size_t)(rows * width));
  for (int i = 0; i < rows * width; i++) {
    values[i] *= 1 + 0.01 * sin(i);
    if (i / width == 0 || i / width == rows - 1) values[i] = 64 + i % width % 7;
  }
  return values;
}

static void bias_gradient_case(Fixture *f, int rows, int outputs) {
  OPS(f);
  enum { INPUTS = 8 };
  const size_t width = (size_t)outputs;
  double *want = host_values(f, width), *before = random_values(f, 2, width), *first = NULL;
  ParameterSpec specs[] = {matrix_spec(outputs, INPUTS, 0, host_values(f, width * INPUTS)),
                           bias_spec(outputs, host_values(f, width))};
  Parameters p = parameters_new(f, specs, 2);
  const Linear layer = {p.groups[0].matrix, p.groups[1].matrix};
  Array x = array_compute(f, random_values(f, 3, (size_t)rows * INPUTS), (size_t)rows * INPUTS);
  Array dy = array_compute(f, uneven_rows(f, rows, outputs), (size_t)rows * width);
  const double *stored = array_read(f, &dy);
  for (size_t i = 0; i < (size_t)rows * width; i++) want[i % width] += stored[i];
  for (int run = 0; run < 3; run++) {
    parameters_write(f, &p, ARENA_OF_GRAD, 1, before);
    ops->linear_backward_weight(c, &p, layer, dy.data, x.data, rows, run == 2);
    double *got = parameters_read(f, &p, ARENA_OF_GRAD, 1);
    expect_close(f, "db", got, run == 2 ? sum_of(f, before, want, width) : want, width, TOLERANCE_F32);
    if (run == 1) expect_same("the same db again", got, first, width);
    first = got;
  }
  ops->release_parameters(c, &p);
}

static void test_bias_gradient_of_many_rows(void **state) {
  Fixture *f = *state;
  const bool slow = fixture_is_cuda(f);
  const int rows[] = {1, 2, 1000, slow ? 1283 : 4099}, outputs[] = {1, 7, 33, slow ? 200 : 600};
  for (int threads = 1; threads <= (slow ? 1 : 3); threads++) {
    Fixture own = {.backend = f->backend, .dtype = f->dtype, .test = f->test};
    const ContextOptions options = {.dtype = f->dtype, .threads = threads};
    Error error = {0};
    StepReport report;
    if (!f->backend->open(&own.context, &options, &error)) fail_msg("%s", error.text);
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) bias_gradient_case(&own, rows[i], outputs[j]);
    f->backend->poll(own.context, &report, 1, true, &error);
    if (error.code != EXIT_DONE) fail_msg("the context holds an error: %s", error.text);
    fixture_free(&own);
  }
}

/* ---- NaN ---- */

/* NaN reaches its row of y and of dx, and the gradients of W and b. */
static void test_linear_nan(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 3, OUTPUTS = 24, INPUTS = 16 };
  Large l = large_of(f, ROWS, OUTPUTS, INPUTS, true);
  double *x = random_values(f, 1, l.x_count), *dy = random_values(f, 3, l.y_count), *b = random_values(f, 4, OUTPUTS);
  x[INPUTS + 3] = dy[OUTPUTS + 5] = b[9] = NAN;
  array_write(f, &l.in, x), array_write(f, &l.upstream, dy), parameters_write(f, &l.p, ARENA_OF_MASTER, 1, b);
  ops->refresh_parameters(c, &l.p);
  Array y = array_compute(f, NULL, l.y_count), dx = array_compute(f, NULL, l.x_count);
  ops->linear(c, y.data, l.in.data, &l.p, l.layer, ROWS);
  ops->linear_backward_input(c, dx.data, l.upstream.data, &l.p, l.layer, ROWS, false);
  ops->linear_backward_weight(c, &l.p, l.layer, l.upstream.data, l.in.data, ROWS, false);
  const double *got = array_read(f, &y), *got_dx = array_read(f, &dx);
  const double *db = parameters_read(f, &l.p, ARENA_OF_GRAD, 1);
  for (int i = 0; i < ROWS * OUTPUTS; i++) assert_int_equal(isnan(got[i]) != 0, i / OUTPUTS == 1 || i % OUTPUTS == 9);
  for (int i = 0; i < ROWS * INPUTS; i++) assert_int_equal(isnan(got_dx[i]) != 0, i / INPUTS == 1);
  for (int i = 0; i < OUTPUTS; i++) assert_int_equal(isnan(db[i]) != 0, i == 5);
}

/* The last weight of a matrix that ends with the arena, without pads. */
static void test_last_weight(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { SIZE = 8 };
  _Static_assert(SIZE * SIZE % TENSOR_ALIGNMENT == 0, "no pads");
  double *w = random_values(f, 1, SIZE * SIZE), *x = host_values(f, SIZE), *y = host_values(f, SIZE);
  ParameterSpec spec = matrix_spec(SIZE, SIZE, 0, w);
  Parameters p = parameters_new(f, &spec, 1);
  x[SIZE - 1] = 1; /* the product with a unit vector is a column */
  for (int i = 0; i < SIZE; i++) y[i] = w[i * SIZE + SIZE - 1];
  Array in = array_compute(f, x, SIZE), out = array_compute(f, NULL, SIZE);
  ops->linear(c, out.data, in.data, &p, layer_of(p.groups[0].matrix), 1);
  expect_same("last column", array_read(f, &out), y, SIZE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear),       cmocka_unit_test(test_linear_bias),
      cmocka_unit_test(test_linear_large), cmocka_unit_test(test_bias_gradient_of_many_rows),
      cmocka_unit_test(test_linear_nan),   cmocka_unit_test(test_linear_one_thread),
      cmocka_unit_test(test_last_weight),
  };
  return run_on_backends("kernels: linear", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
