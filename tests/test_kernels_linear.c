/* Matrix products and SwiGLU (kernels.h). As tests/test_kernels.c. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

/* ---- linear ---- */

typedef struct LinearCase {
  const Golden *golden;
  int index, rows, outputs, inputs, pads;
  Parameters params;
  Matrix w;
} LinearCase;

static double *linear_values(Fixture *f, const LinearCase *l, const char *name) {
  return golden_values(f, l->golden, l->index, name, NULL);
}

/* y [rows][outputs] as [rows][outputs + pads], zero there. */
static double *padded(Fixture *f, const LinearCase *l, const double *y) {
  return with_pads(f, y, l->rows, l->outputs, l->outputs + l->pads, 0);
}

static void linear_forward(Fixture *f, const LinearCase *l) {
  OPS(f);
  int width = l->outputs + l->pads;
  size_t count = (size_t)l->rows * (size_t)width;
  Array x = array_compute(f, linear_values(f, l, "x"), (size_t)(l->rows * l->inputs));
  Array y = array_compute(f, NULL, count);
  ops->linear(c, y.data, x.data, &l->params, l->w, l->rows);
  expect_close(f, "y", array_read(f, &y), padded(f, l, linear_values(f, l, "y")), count, TOLERANCE_F32);
}

static void linear_backward(Fixture *f, const LinearCase *l) {
  OPS(f);
  int width = l->outputs + l->pads;
  size_t count = (size_t)l->rows * (size_t)l->inputs;
  Array dy = array_compute(f, padded(f, l, linear_values(f, l, "dy")), (size_t)(l->rows * width));
  Array dx = array_compute(f, NULL, count);
  ops->linear_backward_input(c, dx.data, dy.data, &l->params, l->w, l->rows);
  expect_close(f, "dx", array_read(f, &dx), linear_values(f, l, "dx"), count, TOLERANCE_F32);
}

static void linear_weight(Fixture *f, const LinearCase *l) {
  OPS(f);
  int width = l->outputs + l->pads;
  size_t count = (size_t)width * (size_t)l->inputs, logical = (size_t)l->outputs * (size_t)l->inputs;
  Array dy = array_compute(f, padded(f, l, linear_values(f, l, "dy")), (size_t)(l->rows * width));
  Array x = array_compute(f, linear_values(f, l, "x"), (size_t)(l->rows * l->inputs));
  double *want = concatenate(f, linear_values(f, l, "dw"), logical, host_values(f, count - logical), count - logical);
  double *before = random_values(f, 9, count);
  memset(before + logical, 0, (count - logical) * sizeof *before);
  parameters_write(f, &l->params, ARENA_OF_GRAD, 1, before);
  ops->linear_backward_weight(c, &l->params, l->w, dy.data, x.data, l->rows, true);
  expect_close(f, "accumulated dw", parameters_read(f, &l->params, ARENA_OF_GRAD, 1), sum_of(f, before, want, count),
               count, TOLERANCE_F32);
  ops->linear_backward_weight(c, &l->params, l->w, dy.data, x.data, l->rows, false);
  double *got = parameters_read(f, &l->params, ARENA_OF_GRAD, 1);
  expect_close(f, "dw", got, want, count, TOLERANCE_F32);
  expect_same("pads of dw", got + logical, want + logical, count - logical);
  expect_same("the neighbors' gradients", parameters_read(f, &l->params, ARENA_OF_GRAD, 2), host_values(f, 4), 4);
}

static void test_linear(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "linear");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims");
    LinearCase l = {
        .golden = g, .index = index, .rows = dims[0], .outputs = dims[1], .inputs = dims[2], .pads = index % 2 * 2};
    const double *other = random_values(f, 3, 4);
    ParameterSpec specs[] = {matrix_spec(2, 2, 0, other),
                             matrix_spec(l.outputs, l.inputs, l.pads, linear_values(f, &l, "w")),
                             matrix_spec(2, 2, 0, other)};
    l.params = parameters_new(f, specs, 3);
    l.w = l.params.groups[1].matrix;
    linear_forward(f, &l);
    linear_backward(f, &l);
    linear_weight(f, &l);
  }
  assert_int_equal(index, 6);
}

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

/* Larger than the tiles and blocks of a GEMM, and a multiple of none. */
static void linear_large(Fixture *f, int rows, int outputs, int inputs) {
  OPS(f);
  size_t x_count = (size_t)(rows * inputs), y_count = (size_t)(rows * outputs), w_count = (size_t)(outputs * inputs);
  double *x = random_values(f, 1, x_count), *w = random_values(f, 2, w_count), *dy = random_values(f, 3, y_count);
  ParameterSpec spec = matrix_spec(outputs, inputs, 0, w);
  Parameters p = parameters_new(f, &spec, 1);
  Matrix matrix = p.groups[0].matrix;
  Array in = array_compute(f, x, x_count), y = array_compute(f, NULL, y_count), again = array_compute(f, NULL, y_count);
  Array upstream = array_compute(f, dy, y_count), dx = array_compute(f, NULL, x_count);
  ops->linear(c, y.data, in.data, &p, matrix, rows);
  ops->linear(c, again.data, in.data, &p, matrix, rows);
  ops->linear_backward_input(c, dx.data, upstream.data, &p, matrix, rows);
  ops->linear_backward_weight(c, &p, matrix, upstream.data, in.data, rows, false);
  double *dw = parameters_read(f, &p, ARENA_OF_GRAD, 0);
  expect_close(f, "y", array_read(f, &y), product(f, x, inputs, 1, w, inputs, 1, rows, outputs, inputs), y_count,
               TOLERANCE_F32);
  expect_same("the same product again", array_read(f, &again), array_read(f, &y), y_count);
  expect_close(f, "dx", array_read(f, &dx), product(f, dy, outputs, 1, w, 1, inputs, rows, inputs, outputs), x_count,
               TOLERANCE_F32);
  expect_close(f, "dw", dw, product(f, dy, 1, outputs, x, 1, inputs, outputs, inputs, rows), w_count, TOLERANCE_F32);
  ops->linear_backward_weight(c, &p, matrix, upstream.data, in.data, rows, false);
  expect_same("the same dw again", parameters_read(f, &p, ARENA_OF_GRAD, 0), dw, w_count);
}

/* One thread gets no more at a time than several do: what it packs has a room of fixed size. */
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
  if (!fixture_is_cuda(*state)) linear_large(*state, 769, 67, 525); /* two segments of several blocks, on CPUs */
}

/* ---- SwiGLU ---- */

/* Where a row may not be as wide as the golden's, the columns behind it are 0, and so are their results. */
static double *swiglu_values(Fixture *f, const Golden *g, int index, const char *name, int parts) {
  const int32_t *dims = golden_ints(f, g, index, "dims");
  return with_pads(f, golden_values(f, g, index, name, NULL), dims[0] * parts, dims[1], fitting_width(f, dims[1]), 0);
}

static void swiglu_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims");
  int rows = dims[0], ffn = fitting_width(f, dims[1]);
  size_t n = (size_t)(rows * ffn);
  Array gate_up = array_compute(f, swiglu_values(f, g, index, "gate_up", 2), 2 * n), h = array_compute(f, NULL, n);
  Array dh = array_compute(f, swiglu_values(f, g, index, "dh", 1), n), separate = array_compute(f, NULL, 2 * n);
  double *want = swiglu_values(f, g, index, "dgate_up", 2);
  ops->swiglu(c, h.data, gate_up.data, rows, ffn);
  expect_close(f, "h", array_read(f, &h), swiglu_values(f, g, index, "h", 1), n, TOLERANCE_F32);
  ops->swiglu_backward(c, separate.data, dh.data, gate_up.data, rows, ffn);
  expect_close(f, "dgate_up", array_read(f, &separate), want, 2 * n, TOLERANCE_F32);
  ops->swiglu_backward(c, gate_up.data, dh.data, gate_up.data, rows, ffn);
  expect_same("dgate_up in place", array_read(f, &gate_up), array_read(f, &separate), 2 * n);
}

static void test_swiglu(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "swiglu");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) swiglu_case(f, g, index);
  assert_int_equal(index, 4);
}

/* Gates far out, where sigmoid is 0 or 1 and exp overflows: no NaN, and the limits. Rows of all alignments. */
static void test_swiglu_extremes(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 5, MOST = 264 };
  const double gates[] = {-30000, -200, -90, -88, -20, -1, 0, 1, 20, 88, 90, 200, 30000};
  const int widths[] = {1, 8, 13, MOST};
  for (int w = 0; w < 4; w++) {
    int ffn = fitting_width(f, widths[w]);
    size_t n = (size_t)(ROWS * ffn);
    double *gate_up = random_values(f, 1, 2 * n), *dh = random_values(f, 2, n), *h = host_values(f, n),
           *want = host_values(f, 2 * n);
    for (int i = 0; i < ROWS * ffn; i++) {
      size_t at = (size_t)(i / ffn * 2 * ffn + i % ffn), up = at + (size_t)ffn;
      gate_up[at] = gates[i % 13];
      double s = 1 / (1 + exp(-gate_up[at]));
      h[i] = gate_up[at] * s * gate_up[up];
      want[at] = dh[i] * gate_up[up] * s * (1 + gate_up[at] * (1 - s));
      want[up] = dh[i] * gate_up[at] * s;
    }
    Array in = array_compute(f, gate_up, 2 * n), out = array_compute(f, NULL, n), upstream = array_compute(f, dh, n);
    ops->swiglu(c, out.data, in.data, ROWS, ffn);
    ops->swiglu_backward(c, in.data, upstream.data, in.data, ROWS, ffn);
    expect_close(f, "h of large gates", array_read(f, &out), h, n, TOLERANCE_F32);
    expect_close(f, "dgate_up of large gates", array_read(f, &in), want, 2 * n, TOLERANCE_F32);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_linear), cmocka_unit_test(test_linear_large),    cmocka_unit_test(test_linear_one_thread),
      cmocka_unit_test(test_swiglu), cmocka_unit_test(test_swiglu_extremes),
  };
  return run_on_backends("kernels: linear", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
