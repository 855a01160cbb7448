/* The rows of kernels.h: embedding, residual + norm (the others have files of their own: test_kernels_*.c, decoding and
 * sampling test_decode.c and test_sample.c). On every backend, against float64 PyTorch (tests/golden), against plain
 * loops in double where a golden would be large, and against finite differences. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

/* ---- embedding ---- */

static void embedding_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims"), *tokens = golden_ints(f, g, index, "tokens");
  int vocab = dims[0], dim = fitting_width(f, dims[1]), batch = dims[2], length = dims[3], pads = 3;
  size_t n = (size_t)(batch * length * dim), table_count = (size_t)(vocab * dim), pad_count = (size_t)(pads * dim);
  double *table_values = with_pads(f, golden_values(f, g, index, "table", NULL), vocab, dims[1], dim, 0);
  double *want_out = with_pads(f, golden_values(f, g, index, "out", NULL), batch * length, dims[1], dim, 0);
  double *dx_values = with_pads(f, golden_values(f, g, index, "dx", NULL), batch * length, dims[1], dim, 0);
  double *dtable = with_pads(f, golden_values(f, g, index, "dtable", NULL), vocab, dims[1], dim, 0);
  ParameterSpec specs[] = {norm_spec(3, random_values(f, 1, 3)), matrix_spec(vocab, dim, pads, table_values)};
  Parameters p = parameters_new(f, specs, 2);
  Matrix table = p.groups[1].matrix;
  Array ids = array_ints(f, tokens, (size_t)(batch * length)), out = array_compute(f, NULL, n), offsets, order;
  ops->embedding(c, out.data, &p, table, ids.data, batch, length, NULL);
  expect_close(f, "embedding", array_read(f, &out), want_out, n, 1e-7);

  Array dx = array_compute(f, dx_values, n);
  token_order(f, tokens, batch * length, vocab, &offsets, &order);
  double *stale = random_values(f, 2, table_count + pad_count); /* must be overwritten, pads and absent tokens too */
  parameters_write(f, &p, ARENA_OF_GRAD, 1, stale);
  ops->embedding_backward(c, &p, table, dx.data, offsets.data, order.data, vocab, batch, length, NULL, false);
  double *want = concatenate(f, dtable, table_count, host_values(f, pad_count), pad_count);
  double *got = parameters_read(f, &p, ARENA_OF_GRAD, 1);
  expect_close(f, "gradient of the table", got, want, table_count + pad_count, TOLERANCE_F32);
  expect_same("pads of the gradient", got + table_count, want + table_count, pad_count);
  ops->embedding_backward(c, &p, table, dx.data, offsets.data, order.data, vocab, batch, length, NULL, true);
  expect_close(f, "accumulated gradient of the table", parameters_read(f, &p, ARENA_OF_GRAD, 1),
               sum_of(f, want, want, table_count), table_count, TOLERANCE_F32);
}

static void test_embedding(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "embedding");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) embedding_case(f, g, index);
  assert_int_equal(index, 3);
}

/* Half of all positions hold one token, the others are spread over some of the rest: sums of one place, of a few, and
 * of thousands, which backends cut into pieces. Sums of thousands cancel, and are measured by their terms. */
static void frequent_token_case(Fixture *f, int dim, float p, bool accumulate) {
  OPS(f);
  enum { VOCAB = 150, PADS = 2, BATCH = 3, LENGTH = 1111, N = BATCH * LENGTH };
  size_t count = (size_t)(N * dim), table_count = (size_t)((VOCAB + PADS) * dim);
  int32_t *tokens = some_tokens(f, N, VOCAB / 2);
  for (int i = 0; i < N; i++) tokens[i] = i % 2 ? VOCAB / 4 : tokens[i] * 2 + 1;
  double *dx = random_values(f, 2, count), *before = random_values(f, 3, table_count),
         *want = host_values(f, table_count);
  ParameterSpec spec = matrix_spec(VOCAB, dim, PADS, host_values(f, table_count));
  Parameters params = parameters_new(f, &spec, 1);
  Dropout dropout = dropout_at(f, p, 4, 3);
  const double *mask = p > 0 ? dropout_mask(f, &dropout, 5, 3, BATCH, LENGTH, dim) : NULL;
  if (accumulate) memcpy(want, before, table_count * sizeof *want);
  for (int i = 0; i < N * dim; i++) want[tokens[i / dim] * dim + i % dim] += (mask ? mask[i] : 1) * dx[i];
  Array upstream = array_compute(f, dx, count), offsets, order;
  token_order(f, tokens, N, VOCAB, &offsets, &order);
  double *first = NULL;
  for (int run = 0; run < 2; run++) {
    parameters_write(f, &params, ARENA_OF_GRAD, 0, before);
    ops->embedding_backward(c, &params, params.groups[0].matrix, upstream.data, offsets.data, order.data, VOCAB, BATCH,
                            LENGTH, p > 0 ? &dropout : NULL, accumulate);
    double *got = parameters_read(f, &params, ARENA_OF_GRAD, 0);
    expect_close(f, "gradient of a frequent token", got, want, table_count, TOLERANCE_F32);
    for (int v = 0; v < VOCAB + PADS; v++)
      expect_close_floor(f, "gradient of one token", got + v * dim, want + v * dim, (size_t)dim, TOLERANCE_F32, 1);
    if (first) expect_same("the same gradient again", got, first, table_count);
    first = got;
  }
}

static void test_embedding_frequent_token(void **state) {
  const int dims[] = {1, 24, 37, 264};
  for (int i = 0; i < 4; i++) {
    frequent_token_case(*state, fitting_width(*state, dims[i]), 0, false);
    frequent_token_case(*state, fitting_width(*state, dims[i]), 0.3f, true);
  }
}

/* ---- residual + norm ---- */

static void norm_forward_case(Fixture *f, const Golden *g, int index, int batch, int length, int dim) {
  OPS(f);
  size_t rows = (size_t)(batch * length), n = rows * (size_t)dim;
  float eps = (float)golden_value(f, g, index, "eps");
  Array x_in = array_compute(f, golden_values(f, g, index, "x_in", NULL), n);
  Array branch = array_compute(f, golden_values(f, g, index, "branch", NULL), n);
  Array weight = array_floats(f, golden_values(f, g, index, "gain", NULL), (size_t)dim);
  Array x_out = array_compute(f, NULL, n), y = array_compute(f, NULL, n), rstd = array_floats(f, NULL, rows);
  ops->residual_norm(c, x_out.data, y.data, rstd.data, x_in.data, NULL, weight.data, eps, batch, length, dim, NULL);
  const double *untouched = array_read(f, &x_out);
  for (size_t i = 0; i < n; i++) assert_true(isnan(untouched[i])); /* not written without a branch */
  expect_close(f, "y", array_read(f, &y), golden_values(f, g, index, "plain_y", NULL), n, TOLERANCE_F32);
  expect_close(f, "rstd", array_read(f, &rstd), golden_values(f, g, index, "plain_rstd", NULL), rows, TOLERANCE_F32);
  ops->residual_norm(c, x_out.data, y.data, rstd.data, x_in.data, branch.data, weight.data, eps, batch, length, dim,
                     NULL);
  expect_close(f, "x_out", array_read(f, &x_out), golden_values(f, g, index, "x_out", NULL), n, 1e-6);
  expect_close(f, "y of the sum", array_read(f, &y), golden_values(f, g, index, "y", NULL), n, TOLERANCE_F32);
  expect_close(f, "rstd of the sum", array_read(f, &rstd), golden_values(f, g, index, "rstd", NULL), rows,
               TOLERANCE_F32);
}

/* What the forward pass would have saved of x as it is stored: a rounded x does not go with the golden's 1/rms. */
static Array rstd_of(Fixture *f, const Array *x, size_t rows, int dim, double eps) {
  const double *values = array_read(f, x);
  double *rstd = host_values(f, rows);
  for (size_t n = 0; n < rows; n++) {
    double sum = 0;
    for (int j = 0; j < dim; j++) sum += values[n * (size_t)dim + (size_t)j] * values[n * (size_t)dim + (size_t)j];
    rstd[n] = 1 / sqrt(sum / dim + eps);
  }
  return array_floats(f, rstd, rows);
}

/* dx of one element is what is left of dy after nearly all has canceled: measured against numbers of size 1. */
static void norm_backward_case(Fixture *f, const Golden *g, int index, int batch, int length, int dim) {
  OPS(f);
  size_t rows = (size_t)(batch * length), n = rows * (size_t)dim, width = (size_t)dim;
  Array dy = array_compute(f, golden_values(f, g, index, "dy", NULL), n);
  Array dres = array_compute(f, golden_values(f, g, index, "dres", NULL), n);
  Array weight = array_floats(f, golden_values(f, g, index, "gain", NULL), width);
  Array x_in = array_compute(f, golden_values(f, g, index, "x_in", NULL), n);
  Array x_out = array_compute(f, golden_values(f, g, index, "x_out", NULL), n);
  Array plain_rstd = rstd_of(f, &x_in, rows, dim, golden_value(f, g, index, "eps"));
  Array rstd = rstd_of(f, &x_out, rows, dim, golden_value(f, g, index, "eps"));
  Array dx = array_compute(f, NULL, n), dbranch = array_compute(f, NULL, n), dweight = array_floats(f, NULL, width);
  double *want_dgain = golden_values(f, g, index, "dgain", NULL),
         *plain_dgain = golden_values(f, g, index, "plain_dgain", NULL);
  double *want = golden_values(f, g, index, "dx", NULL);
  ops->residual_norm_backward(c, dx.data, NULL, dweight.data, dy.data, NULL, x_in.data, plain_rstd.data, weight.data,
                              batch, length, dim, NULL, false);
  expect_close_floor(f, "dx without residual", array_read(f, &dx), golden_values(f, g, index, "plain_dx", NULL), n,
                     TOLERANCE_F32, dim == 1 ? 1 : 0.1);
  expect_close(f, "dgain", array_read(f, &dweight), plain_dgain, width, TOLERANCE_F32);
  ops->residual_norm_backward(c, dx.data, dbranch.data, dweight.data, dy.data, dres.data, x_out.data, rstd.data,
                              weight.data, batch, length, dim, NULL, true);
  expect_close(f, "dx", array_read(f, &dx), want, n, TOLERANCE_F32);
  expect_close(f, "dbranch", array_read(f, &dbranch), want, n, TOLERANCE_F32);
  expect_close(f, "accumulated dweight", array_read(f, &dweight), sum_of(f, plain_dgain, want_dgain, width), width,
               TOLERANCE_F32);
  ops->residual_norm_backward(c, dres.data, NULL, dweight.data, dy.data, dres.data, x_out.data, rstd.data, weight.data,
                              batch, length, dim, NULL, false);
  expect_same("dx in place of dres", array_read(f, &dres), array_read(f, &dx), n);
  expect_close(f, "dweight of the sum", array_read(f, &dweight), want_dgain, width, TOLERANCE_F32);
}

static void test_residual_norm(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "norm");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims");
    if (fitting_width(f, dims[2]) != dims[2]) continue;
    norm_forward_case(f, g, index, dims[0], dims[1], dims[2]);
    norm_backward_case(f, g, index, dims[0], dims[1], dims[2]);
  }
  assert_int_equal(index, 6);
}

/* Rows of every kind that backends tell apart by their length, against the formulas in double on the values as stored;
 * x_out is exact in bf16 too, where no dropout scales. */
static void norm_case(Fixture *f, int batch, int length, int dim, float p) {
  OPS(f);
  size_t rows = (size_t)(batch * length), width = (size_t)dim, n = rows * width;
  double *branch = random_values(f, 2, n), *weight = random_values(f, 3, width), *dweight = random_values(f, 4, width);
  double *y = host_values(f, n), *dx = host_values(f, n), *dbranch = host_values(f, n);
  Dropout dropout = dropout_at(f, p, 9, 2);
  const Dropout *drop = p > 0 ? &dropout : NULL;
  const double *mask = drop ? dropout_mask(f, drop, 10, 2, batch, length, dim) : NULL;
  Array x_in = array_compute(f, random_values(f, 1, n), n), in = array_compute(f, branch, n);
  Array weights = array_floats(f, weight, width), x_out = array_compute(f, NULL, n), got_y = array_compute(f, NULL, n);
  Array rstd = array_floats(f, NULL, rows), dy = array_compute(f, random_values(f, 5, n), n);
  Array dres = array_compute(f, random_values(f, 6, n), n), got_dx = array_compute(f, NULL, n);
  Array got_dbranch = array_compute(f, NULL, n), got_dgain = array_floats(f, dweight, width);
  ops->residual_norm(c, x_out.data, got_y.data, rstd.data, x_in.data, in.data, weights.data, 1e-5f, batch, length, dim,
                     drop);
  ops->residual_norm_backward(c, got_dx.data, got_dbranch.data, got_dgain.data, dy.data, dres.data, x_out.data,
                              rstd.data, weights.data, batch, length, dim, drop, true);
  const double *a = array_read(f, &x_in), *x = array_read(f, &x_out), *up = array_read(f, &dy),
               *res = array_read(f, &dres), *passed = array_read(f, &got_dx);
  for (size_t r = 0; r < rows; r++) {
    double sum = 0, mean = 0;
    for (size_t i = r * width; i < (r + 1) * width; i++) sum += x[i] * x[i];
    double scale = 1 / sqrt(sum / dim + 1e-5);
    for (size_t i = r * width; i < (r + 1) * width; i++) mean += weight[i % width] * up[i] * x[i] * scale / dim;
    for (size_t i = r * width; i < (r + 1) * width; i++) {
      y[i] = weight[i % width] * x[i] * scale;
      dx[i] = res[i] + scale * (weight[i % width] * up[i] - x[i] * scale * mean);
      dweight[i % width] += up[i] * x[i] * scale;
      dbranch[i] = (mask ? mask[i] : 1) * passed[i];
      branch[i] = a[i] + (mask ? mask[i] : 1) * branch[i];
    }
  }
  expect_close(f, "x_out", x, branch, n, 1e-6);
  expect_close(f, "y", array_read(f, &got_y), y, n, TOLERANCE_F32);
  expect_close(f, "dx", passed, dx, n, TOLERANCE_F32);
  expect_close(f, "dbranch", array_read(f, &got_dbranch), dbranch, n, 1e-6);
  expect_close(f, "dgain", array_read(f, &got_dgain), dweight, width, TOLERANCE_F32);
  if (!drop) expect_same("dbranch, which is dx", array_read(f, &got_dbranch), passed, n);
}

static void test_residual_norm_sizes(void **state) {
  const int dims[] = {1, 7, 8, 256, 257, 384, 520, 1000, 1024, 2056, 4097, 8192, 8200};
  for (int i = 0; i < (int)(sizeof dims / sizeof *dims); i++) {
    norm_case(*state, 2, 3, fitting_width(*state, dims[i]), 0);
    norm_case(*state, 3, 2, fitting_width(*state, dims[i]), 0.4f);
  }
  norm_case(*state, 5, 97, 24, 0); /* more rows than a backend works on at a time */
  norm_case(*state, 5, 97, fitting_width(*state, 11), 0.1f);
  norm_case(*state, 2, 37, 1032, 0.1f);
}

/* ---- finite differences ---- */

static void forward_swiglu(Fixture *f, Forward *t) {
  f->backend->swiglu(f->context, t->out.data, t->in.data, t->dims[0], t->dims[1]);
}

static void forward_norm(Fixture *f, Forward *t) {
  f->backend->residual_norm(f->context, NULL, t->out.data, t->fixed[0].data, t->in.data, NULL, t->fixed[1].data, 1e-5f,
                            t->dims[0], t->dims[1], t->dims[2], NULL);
}

static void test_derivatives_elementwise(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 2 };
  const int width = fitting_width(f, 9);
  const size_t n = ROWS * (size_t)width;
  double *x = random_values(f, 1, 2 * n), *up = random_values(f, 2, n);
  Forward mlp = {.run = forward_swiglu,
                 .in = array_compute(f, x, 2 * n),
                 .out = array_compute(f, NULL, n),
                 .upstream = up,
                 .dims = {ROWS, width}};
  Array dh = array_compute(f, up, n), dgate_up = array_compute(f, NULL, 2 * n);
  ops->swiglu_backward(c, dgate_up.data, dh.data, mlp.in.data, ROWS, width);
  expect_derivative(f, &mlp, x, array_read(f, &dgate_up));

  double *weight = random_values(f, 3, (size_t)width);
  Forward norm = {.run = forward_norm,
                  .in = array_compute(f, x, n),
                  .out = array_compute(f, NULL, n),
                  .upstream = up,
                  .fixed = {array_floats(f, NULL, ROWS), array_floats(f, weight, (size_t)width)},
                  .dims = {1, ROWS, width}};
  Array dx = array_compute(f, NULL, n), dweight = array_floats(f, NULL, (size_t)width);
  forward_norm(f, &norm);
  ops->residual_norm_backward(c, dx.data, NULL, dweight.data, dh.data, NULL, norm.in.data, norm.fixed[0].data,
                              norm.fixed[1].data, 1, ROWS, width, NULL, false);
  expect_derivative(f, &norm, x, array_read(f, &dx));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_embedding_frequent_token),
      cmocka_unit_test(test_residual_norm),
      cmocka_unit_test(test_residual_norm_sizes),
      cmocka_unit_test(test_derivatives_elementwise),
  };
  return run_on_backends("kernels", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
