/* The rows of kernels.h: memory and reports, embedding, residual + norm, linear, SwiGLU (attention, loss and optimizer
 * have files of their own, decoding is tests/test_decode.c). On every backend, against float64 PyTorch (tests/golden),
 * against plain loops in double where a golden would be large, and against finite differences. */
#include "kernels/cpu/simd.h"
#include "kernels/philox.h"
#include "tests/backends.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- randomness ---- */

static void expect_words(PhiloxWords got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t want[4] = {a, b, c, d};
  assert_memory_equal(got.word, want, sizeof want);
}

/* Known answers of Random123's kat_vectors. */
static void test_philox_known_answers(void **state) {
  (void)state;
  uint32_t ones = 0xFFFFFFFFu;
  expect_words(philox(0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox(UINT64_MAX, ones, ones, ones, ones), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(philox(0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), 0xd16cfe09, 0x94fdcceb,
               0x5001e420, 0x24126ea1);
  assert_true(philox_uniform(0) > 0.0f);
  assert_true(philox_uniform(ones) < 1.0f);
}

/* What softmax and SiLU of the CPU stand on: 2 ulp, and the ends of its range. */
static void test_exponential(void **state) {
  (void)state;
  for (double x = -87.25; x < 88.65; x += 0.0137) {
    double single = (double)(float)x, error = (double)exp_f32((float)x) / exp(single) - 1;
    if (!(fabs(error) < 2.4e-7)) fail_msg("exp(%g) is off by %g", single, error);
  }
  assert_true(exp_f32(0.0f) == 1.0f);
  assert_true(exp_f32(-100.0f) == 0.0f && exp_f32(-INFINITY) == 0.0f);
  assert_true(isinf(exp_f32(100.0f)) && isinf(exp_f32(INFINITY)));
  assert_true(isnan(exp_f32(NAN)));
  assert_true(sigmoid_f32(-200.0f) == 0.0f && sigmoid_f32(200.0f) == 1.0f && sigmoid_f32(0.0f) == 0.5f);
}

/* ---- context ---- */

static void test_memory(void **state) {
  Fixture *f = *state;
  OPS(f);
  ContextInfo before, during, after;
  unsigned char host[1000], copied[1000], zeros[1000] = {0};
  ops->info(c, &before);
  unsigned char *a = ops->alloc(c, "first", sizeof host), *b = ops->alloc(c, "second", sizeof host);
  assert_non_null(a);
  assert_non_null(b);
  assert_int_equal((uintptr_t)a % 256, 0);
  assert_int_equal((uintptr_t)b % 256, 0);
  ops->info(c, &during);
  assert_true(during.bytes >= before.bytes + 2 * sizeof host);
  assert_true(during.peak_bytes >= during.bytes);
  ops->download(c, copied, b, sizeof copied);
  assert_memory_equal(copied, zeros, sizeof zeros);
  for (size_t i = 0; i < sizeof host; i++) host[i] = (unsigned char)(i * 7);
  ops->upload(c, a, host, sizeof host);
  memset(host, 0, sizeof host); /* the upload has its own copy by now */
  ops->copy(c, b, a, sizeof host);
  ops->download(c, copied, b, sizeof copied);
  for (size_t i = 0; i < sizeof host; i++) assert_int_equal(copied[i], (unsigned char)(i * 7));
  ops->release(c, a);
  ops->release(c, b);
  ops->release(c, NULL);
  ops->info(c, &after);
  assert_int_equal(after.bytes, before.bytes);
  assert_true(after.peak_bytes >= during.bytes);
  assert_true(strlen(after.device) > 0);
  ops->close(NULL);
}

static void test_out_of_memory(void **state) {
  Fixture *f = *state;
  OPS(f);
  Error error = {0};
  StepState reports[1];
  const double one = 1;
  Array in = array_compute(f, &one, 1), out = array_compute(f, &one, 1);
  f->expect_error = true;
  assert_null(ops->alloc(c, "the enormous tensor", (size_t)1 << 60));
  ops->alloc(c, "a later one", (size_t)1 << 59); /* the first error stays */
  ops->swiglu(c, out.data, in.data, 0, 0);
  assert_int_equal(ops->poll(c, reports, 1, true, &error), -1);
  assert_int_equal(error.code, EXIT_MEMORY);
  assert_non_null(strstr(error.text, "the enormous tensor"));
  error = (Error){0};
  assert_int_equal(ops->poll(c, reports, 1, true, &error), -1); /* sticky */
}

typedef struct ReportStep {
  const Backend *ops;
  StepState *state;
} ReportStep;

static void report_step(Context *c, void *argument) {
  const ReportStep *step = argument;
  step->ops->next_micro_batch(c, step->state, 1);
  step->ops->report(c, step->state);
}

static void test_reports(void **state) {
  Fixture *f = *state;
  OPS(f);
  StepState host = {.step = 77}, reports[8];
  Error error = {0};
  ReportStep step = {.ops = ops, .state = state_new(f, &host)};
  CapturedGraph *slot = NULL;
  for (int i = 0; i < 5; i++) ops->submit(c, &slot, report_step, &step); /* may be recorded once and replayed */
  ops->drop(c, &slot);
  assert_null(slot);
  int taken = 0;
  for (int got; (got = ops->poll(c, reports + taken, 2, true, &error)) > 0; taken += got) {
    assert_true(got <= 2);
    assert_true(taken + got <= 5);
  }
  assert_int_equal(taken, 5);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(reports[i].step, 77);
    assert_int_equal(reports[i].sequence, i + 1);
  }
}

/* ---- dropout of the residual stream ---- */

/* The documented map, evaluated directly. */
static bool kept(const Dropout *d, int64_t step, int sequence, uint32_t element) {
  PhiloxWords r = philox(d->seed, element / 4, d->site, (uint32_t)step, (uint32_t)sequence);
  return (double)r.word[element % 4] >= fmin(round((double)d->p * 0x1p32), 0xFFFFFFFFu);
}

/* Factors 0 or 1 / (1 - p) on [batch][length][dim], for sequences numbered from `first`. */
static double *mask_of(Fixture *f, const Dropout *d, int64_t step, int first, int batch, int length, int dim) {
  size_t n = (size_t)length * (size_t)dim;
  double *mask = host_values(f, (size_t)batch * n);
  for (int b = 0; b < batch; b++)
    for (size_t e = 0; e < n; e++)
      mask[(size_t)b * n + e] = kept(d, step, first + b, (uint32_t)e) ? 1 / (1 - (double)d->p) : 0;
  return mask;
}

/* ---- embedding ---- */

static void embedding_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims"), *tokens = golden_ints(f, g, index, "tokens");
  int vocab = dims[0], dim = dims[1], batch = dims[2], length = dims[3], pads = 3;
  size_t n = (size_t)(batch * length * dim), table_count = (size_t)(vocab * dim), pad_count = (size_t)(pads * dim);
  ParameterSpec specs[] = {gain_spec(3, random_values(f, 1, 3)),
                           matrix_spec(vocab, dim, pads, golden_values(f, g, index, "table", NULL))};
  Parameters p = parameters_new(f, specs, 2);
  Matrix table = p.groups[1].matrix;
  Array ids = array_ints(f, tokens, (size_t)(batch * length)), out = array_compute(f, NULL, n), offsets, order;
  ops->embedding(c, out.data, &p, table, ids.data, batch, length, NULL);
  expect_close(f, "embedding", array_read(f, &out), golden_values(f, g, index, "out", NULL), n, 1e-7);

  Array dx = array_compute(f, golden_values(f, g, index, "dx", NULL), n);
  token_order(f, tokens, batch * length, vocab, &offsets, &order);
  double *stale = random_values(f, 2, table_count + pad_count); /* must be overwritten, pads and absent tokens too */
  parameters_write(f, &p, ARENA_OF_GRAD, 1, stale);
  ops->embedding_backward(c, &p, table, dx.data, offsets.data, order.data, vocab, batch, length, NULL, false);
  double *want =
      concatenate(f, golden_values(f, g, index, "dtable", NULL), table_count, host_values(f, pad_count), pad_count);
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

enum { EMBED_VOCAB = 13, EMBED_DIM = 37, EMBED_BATCH = 4, EMBED_LENGTH = 9 };

/* Sequences of step 5 that begin with number 3. */
static void test_embedding_dropout(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { N = EMBED_BATCH * EMBED_LENGTH, C = EMBED_DIM };
  const int32_t *tokens = some_tokens(f, N, EMBED_VOCAB);
  double *table = random_values(f, 1, EMBED_VOCAB * C), *dx = random_values(f, 2, N * C);
  ParameterSpec spec = matrix_spec(EMBED_VOCAB, C, 0, table);
  Parameters p = parameters_new(f, &spec, 1);
  Dropout dropout = dropout_at(f, 0.3f, 4, 3);
  double *mask = mask_of(f, &dropout, 5, 3, EMBED_BATCH, EMBED_LENGTH, C), *want = host_values(f, N * C);
  double *dtable = host_values(f, EMBED_VOCAB * C);
  for (int i = 0; i < N * C; i++) {
    want[i] = mask[i] * table[tokens[i / C] * C + i % C];
    dtable[tokens[i / C] * C + i % C] += mask[i] * dx[i];
  }
  Array ids = array_ints(f, tokens, N), out = array_compute(f, NULL, N * C), upstream = array_compute(f, dx, N * C),
        offsets, order;
  ops->embedding(c, out.data, &p, p.groups[0].matrix, ids.data, EMBED_BATCH, EMBED_LENGTH, &dropout);
  expect_close(f, "dropped embedding", array_read(f, &out), want, N * C, 1e-6);
  token_order(f, tokens, N, EMBED_VOCAB, &offsets, &order);
  ops->embedding_backward(c, &p, p.groups[0].matrix, upstream.data, offsets.data, order.data, EMBED_VOCAB, EMBED_BATCH,
                          EMBED_LENGTH, &dropout, false);
  expect_close(f, "gradient through dropout", parameters_read(f, &p, ARENA_OF_GRAD, 0), dtable, EMBED_VOCAB * C,
               TOLERANCE_F32);
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
  const double *mask = p > 0 ? mask_of(f, &dropout, 5, 3, BATCH, LENGTH, dim) : NULL;
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
    frequent_token_case(*state, dims[i], 0, false);
    frequent_token_case(*state, dims[i], 0.3f, true);
  }
}

/* Within five standard deviations, and nothing wraps near 0. */
static void test_keep_rate(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { N = 64, C = 256 };
  const float rates[] = {1e-10f, 0.1f, 0.5f, 0.9f};
  double *table = host_values(f, C);
  for (int i = 0; i < C; i++) table[i] = 1;
  ParameterSpec spec = matrix_spec(1, C, 0, table);
  Parameters p = parameters_new(f, &spec, 1);
  Array ids = array_ints(f, host_memory(f, N * sizeof(int32_t)), N);
  for (int r = 0; r < 4; r++) {
    Array out = array_compute(f, NULL, N * C);
    Dropout dropout = dropout_at(f, rates[r], 0, 0);
    ops->embedding(c, out.data, &p, p.groups[0].matrix, ids.data, 4, N / 4, &dropout);
    const double *values = array_read(f, &out);
    int count = 0;
    for (int i = 0; i < N * C; i++) count += values[i] > 0;
    double rate = 1 - (double)rates[r], deviation = sqrt(rate * (1 - rate) * N * C);
    if (fabs(count - rate * N * C) > 5 * deviation + 0.5)
      fail_msg("p = %g kept %d of %d", (double)rates[r], count, N * C);
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
    norm_forward_case(f, g, index, dims[0], dims[1], dims[2]);
    norm_backward_case(f, g, index, dims[0], dims[1], dims[2]);
  }
  assert_int_equal(index, 6);
}

static void test_residual_norm_dropout(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { B = 3, T = 5, C = 19, N = B * T * C };
  double *x = random_values(f, 1, N), *branch = random_values(f, 2, N), *want = host_values(f, N),
         *ones = host_values(f, C);
  Dropout dropout = dropout_at(f, 0.4f, 9, 2);
  double *mask = mask_of(f, &dropout, 10, 2, B, T, C);
  for (int i = 0; i < N; i++) want[i] = x[i] + mask[i] * branch[i];
  for (int i = 0; i < C; i++) ones[i] = 1;
  Array x_in = array_compute(f, x, N), in = array_compute(f, branch, N), weight = array_floats(f, ones, C);
  Array x_out = array_compute(f, NULL, N), y = array_compute(f, NULL, N), rstd = array_floats(f, NULL, B * T);
  ops->residual_norm(c, x_out.data, y.data, rstd.data, x_in.data, in.data, weight.data, 1e-5f, B, T, C, &dropout);
  expect_close(f, "x_out with dropout", array_read(f, &x_out), want, N, 1e-6);

  Array dy = array_compute(f, random_values(f, 3, N), N), dres = array_compute(f, random_values(f, 4, N), N);
  Array dx = array_compute(f, NULL, N), dbranch = array_compute(f, NULL, N), dweight = array_floats(f, NULL, C);
  ops->residual_norm_backward(c, dx.data, dbranch.data, dweight.data, dy.data, dres.data, x_out.data, rstd.data,
                              weight.data, B, T, C, &dropout, false);
  const double *got = array_read(f, &dx);
  for (int i = 0; i < N; i++) want[i] = mask[i] * got[i];
  expect_close(f, "dbranch with dropout", array_read(f, &dbranch), want, N, 1e-6);
  Array alone = array_compute(f, NULL, N);
  ops->residual_norm_backward(c, alone.data, NULL, dweight.data, dy.data, dres.data, x_out.data, rstd.data, weight.data,
                              B, T, C, NULL, false);
  expect_same("dx, which dropout does not touch", got, array_read(f, &alone), N);
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
  const double *mask = drop ? mask_of(f, drop, 10, 2, batch, length, dim) : NULL;
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
    norm_case(*state, 2, 3, dims[i], 0);
    norm_case(*state, 3, 2, dims[i], 0.4f);
  }
  norm_case(*state, 5, 97, 24, 0); /* more rows than a backend works on at a time */
  norm_case(*state, 5, 97, 11, 0.1f);
  norm_case(*state, 2, 37, 1032, 0.1f);
}

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
  size_t width = (size_t)(l->outputs + l->pads);
  double *wide = host_values(f, (size_t)l->rows * width);
  for (int n = 0; n < l->rows; n++)
    memcpy(wide + (size_t)n * width, y + n * l->outputs, (size_t)l->outputs * sizeof *y);
  return wide;
}

static void linear_forward(Fixture *f, const LinearCase *l) {
  OPS(f);
  int width = l->outputs + l->pads;
  size_t count = (size_t)l->rows * (size_t)width;
  Array x = array_new(f, KIND_COMPUTE, layout_rows(l->rows, l->inputs, l->inputs + 5), linear_values(f, l, "x"));
  Array y = array_new(f, KIND_COMPUTE, layout_rows(l->rows, width, width + 3), NULL);
  ops->linear(c, y.data, y.layout.row, x.data, x.layout.row, &l->params, l->w, l->rows);
  expect_close(f, "y", array_read(f, &y), padded(f, l, linear_values(f, l, "y")), count, TOLERANCE_F32);
}

static void linear_backward(Fixture *f, const LinearCase *l) {
  OPS(f);
  int width = l->outputs + l->pads;
  size_t count = (size_t)l->rows * (size_t)l->inputs;
  Array dy =
      array_new(f, KIND_COMPUTE, layout_rows(l->rows, width, width + 3), padded(f, l, linear_values(f, l, "dy")));
  Array dx = array_new(f, KIND_COMPUTE, layout_rows(l->rows, l->inputs, l->inputs + 5), NULL);
  ops->linear_backward_input(c, dx.data, dx.layout.row, dy.data, dy.layout.row, &l->params, l->w, l->rows);
  expect_close(f, "dx", array_read(f, &dx), linear_values(f, l, "dx"), count, TOLERANCE_F32);
}

static void linear_weight(Fixture *f, const LinearCase *l) {
  OPS(f);
  int width = l->outputs + l->pads;
  size_t count = (size_t)width * (size_t)l->inputs, logical = (size_t)l->outputs * (size_t)l->inputs;
  Array dy =
      array_new(f, KIND_COMPUTE, layout_rows(l->rows, width, width + 3), padded(f, l, linear_values(f, l, "dy")));
  Array x = array_new(f, KIND_COMPUTE, layout_rows(l->rows, l->inputs, l->inputs + 5), linear_values(f, l, "x"));
  double *want = concatenate(f, linear_values(f, l, "dw"), logical, host_values(f, count - logical), count - logical);
  double *before = random_values(f, 9, count);
  memset(before + logical, 0, (count - logical) * sizeof *before);
  parameters_write(f, &l->params, ARENA_OF_GRAD, 1, before);
  ops->linear_backward_weight(c, &l->params, l->w, dy.data, dy.layout.row, x.data, x.layout.row, l->rows, true);
  expect_close(f, "accumulated dw", parameters_read(f, &l->params, ARENA_OF_GRAD, 1), sum_of(f, before, want, count),
               count, TOLERANCE_F32);
  ops->linear_backward_weight(c, &l->params, l->w, dy.data, dy.layout.row, x.data, x.layout.row, l->rows, false);
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
  ops->linear(c, y.data, outputs, in.data, inputs, &p, matrix, rows);
  ops->linear(c, again.data, outputs, in.data, inputs, &p, matrix, rows);
  ops->linear_backward_input(c, dx.data, inputs, upstream.data, outputs, &p, matrix, rows);
  ops->linear_backward_weight(c, &p, matrix, upstream.data, outputs, in.data, inputs, rows, false);
  double *dw = parameters_read(f, &p, ARENA_OF_GRAD, 0);
  expect_close(f, "y", array_read(f, &y), product(f, x, inputs, 1, w, inputs, 1, rows, outputs, inputs), y_count,
               TOLERANCE_F32);
  expect_same("the same product again", array_read(f, &again), array_read(f, &y), y_count);
  expect_close(f, "dx", array_read(f, &dx), product(f, dy, outputs, 1, w, 1, inputs, rows, inputs, outputs), x_count,
               TOLERANCE_F32);
  expect_close(f, "dw", dw, product(f, dy, 1, outputs, x, 1, inputs, outputs, inputs, rows), w_count, TOLERANCE_F32);
  ops->linear_backward_weight(c, &p, matrix, upstream.data, outputs, in.data, inputs, rows, false);
  expect_same("the same dw again", parameters_read(f, &p, ARENA_OF_GRAD, 0), dw, w_count);
}

static void test_linear_large(void **state) {
  linear_large(*state, 70, 131, 523);
  linear_large(*state, 261, 67, 35);
  linear_large(*state, 1, 515, 130);
}

/* ---- SwiGLU ---- */

static void swiglu_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims");
  size_t n = (size_t)(dims[0] * dims[1]);
  Array gate_up = array_compute(f, golden_values(f, g, index, "gate_up", NULL), 2 * n), h = array_compute(f, NULL, n);
  Array dh = array_compute(f, golden_values(f, g, index, "dh", NULL), n), separate = array_compute(f, NULL, 2 * n);
  double *want = golden_values(f, g, index, "dgate_up", NULL);
  ops->swiglu(c, h.data, gate_up.data, dims[0], dims[1]);
  expect_close(f, "h", array_read(f, &h), golden_values(f, g, index, "h", NULL), n, TOLERANCE_F32);
  ops->swiglu_backward(c, separate.data, dh.data, gate_up.data, dims[0], dims[1]);
  expect_close(f, "dgate_up", array_read(f, &separate), want, 2 * n, TOLERANCE_F32);
  ops->swiglu_backward(c, gate_up.data, dh.data, gate_up.data, dims[0], dims[1]);
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
    int ffn = widths[w];
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
  enum { ROWS = 2, F = 9, N = ROWS * F };
  double *x = random_values(f, 1, 2 * N), *up = random_values(f, 2, N);
  Forward mlp = {.run = forward_swiglu,
                 .in = array_compute(f, x, 2 * N),
                 .out = array_compute(f, NULL, N),
                 .upstream = up,
                 .dims = {ROWS, F}};
  Array dh = array_compute(f, up, N), dgate_up = array_compute(f, NULL, 2 * N);
  ops->swiglu_backward(c, dgate_up.data, dh.data, mlp.in.data, ROWS, F);
  expect_derivative(f, &mlp, x, array_read(f, &dgate_up));

  double *weight = random_values(f, 3, F);
  Forward norm = {.run = forward_norm,
                  .in = array_compute(f, x, N),
                  .out = array_compute(f, NULL, N),
                  .upstream = up,
                  .fixed = {array_floats(f, NULL, ROWS), array_floats(f, weight, F)},
                  .dims = {1, ROWS, F}};
  Array dx = array_compute(f, NULL, N), dweight = array_floats(f, NULL, F);
  forward_norm(f, &norm);
  ops->residual_norm_backward(c, dx.data, NULL, dweight.data, dh.data, NULL, norm.in.data, norm.fixed[0].data,
                              norm.fixed[1].data, 1, ROWS, F, NULL, false);
  expect_derivative(f, &norm, x, array_read(f, &dx));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox_known_answers),
      cmocka_unit_test(test_exponential),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_reports),
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_embedding_dropout),
      cmocka_unit_test(test_embedding_frequent_token),
      cmocka_unit_test(test_keep_rate),
      cmocka_unit_test(test_residual_norm),
      cmocka_unit_test(test_residual_norm_dropout),
      cmocka_unit_test(test_residual_norm_sizes),
      cmocka_unit_test(test_linear),
      cmocka_unit_test(test_linear_large),
      cmocka_unit_test(test_swiglu),
      cmocka_unit_test(test_swiglu_extremes),
      cmocka_unit_test(test_derivatives_elementwise),
  };
  return run_on_backends("kernels", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
