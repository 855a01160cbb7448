/* Dropout of all operations (kernels.h), against the documented map. As tests/test_kernels.c. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

/* ---- embedding ---- */

enum { EMBED_VOCAB = 13, EMBED_BATCH = 4, EMBED_LENGTH = 9 };

/* Sequences of step 5 that begin with number 3; with learned positions in another order, or without. */
static void embedding_dropout(Fixture *f, bool learned) {
  OPS(f);
  enum { N = EMBED_BATCH * EMBED_LENGTH };
  const int dim = fitting_width(f, 37);
  const size_t count = (size_t)(N * dim), table_count = (size_t)(EMBED_VOCAB * dim);
  const int32_t *ids[2] = {some_tokens(f, N, EMBED_VOCAB), some_tokens(f, N + 1, EMBED_VOCAB) + 1};
  double *values[2] = {random_values(f, 1, table_count), random_values(f, 3, table_count)},
         *dx = random_values(f, 2, count);
  ParameterSpec specs[] = {matrix_spec(EMBED_VOCAB, dim, 0, values[0]), matrix_spec(EMBED_VOCAB, dim, 0, values[1])};
  Parameters p = parameters_new(f, specs, 2);
  Dropout dropout = dropout_at(f, 0.3f, 4, 3);
  double *mask = dropout_mask(f, &dropout, 5, 3, EMBED_BATCH, EMBED_LENGTH, dim), *want = host_values(f, count);
  Embedding e = table_of(p.groups[0].matrix);
  if (learned) e.position_embedding = p.groups[1].matrix, e.positions = array_ints(f, ids[1], N).data;
  for (int i = 0; i < N * dim; i++) {
    want[i] = mask[i] * values[0][ids[0][i / dim] * dim + i % dim];
    if (learned) want[i] += mask[i] * values[1][ids[1][i / dim] * dim + i % dim];
  }
  Array tokens = array_ints(f, ids[0], N), out = array_compute(f, NULL, count), upstream = array_compute(f, dx, count);
  ops->embedding(c, out.data, &p, &e, tokens.data, EMBED_BATCH, EMBED_LENGTH, &dropout);
  expect_close(f, "dropped embedding", array_read(f, &out), want, count, 1e-6);
  for (int group = 0; group < (learned ? 2 : 1); group++) {
    double *gradient = host_values(f, table_count);
    Array offsets, order;
    for (int i = 0; i < N * dim; i++) gradient[ids[group][i / dim] * dim + i % dim] += mask[i] * dx[i];
    token_order(f, ids[group], N, EMBED_VOCAB, &offsets, &order);
    ops->embedding_backward(c, &p, p.groups[group].matrix, upstream.data, offsets.data, order.data, EMBED_VOCAB,
                            EMBED_BATCH, EMBED_LENGTH, &dropout, false);
    expect_close(f, "gradient through dropout", parameters_read(f, &p, ARENA_OF_GRAD, group), gradient, table_count,
                 TOLERANCE_F32);
  }
}

static void test_embedding_dropout(void **state) {
  embedding_dropout(*state, false);
  embedding_dropout(*state, true);
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
    const Embedding e = table_of(p.groups[0].matrix);
    ops->embedding(c, out.data, &p, &e, ids.data, 4, N / 4, &dropout);
    const double *values = array_read(f, &out);
    int count = 0;
    for (int i = 0; i < N * C; i++) count += values[i] > 0;
    double rate = 1 - (double)rates[r], deviation = sqrt(rate * (1 - rate) * (double)(N * C));
    if (fabs(count - rate * (double)(N * C)) > 5 * deviation + 0.5)
      fail_msg("p = %g kept %d of %d", (double)rates[r], count, N * C);
  }
}

/* ---- residual + norm ---- */

static void test_residual_norm_dropout(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { B = 3, T = 5 };
  const int dim = fitting_width(f, 19);
  const size_t width = (size_t)dim, n = B * T * width;
  double *x = random_values(f, 1, n), *branch = random_values(f, 2, n), *want = host_values(f, n),
         *ones = host_values(f, width);
  Dropout dropout = dropout_at(f, 0.4f, 9, 2);
  double *mask = dropout_mask(f, &dropout, 10, 2, B, T, dim);
  for (size_t i = 0; i < n; i++) want[i] = x[i] + mask[i] * branch[i];
  for (int i = 0; i < dim; i++) ones[i] = 1;
  Array x_in = array_compute(f, x, n), in = array_compute(f, branch, n), weight = array_floats(f, ones, width);
  Array x_out = array_compute(f, NULL, n), y = array_compute(f, NULL, n), rstd = array_floats(f, NULL, B * T);
  const Norm norm = rms_norm_of(weight.data, 1e-5f);
  const NormStats stats = {.rstd = rstd.data};
  ops->residual_norm(c, x_out.data, y.data, stats, x_in.data, in.data, &norm, B, T, dim, &dropout);
  expect_close(f, "x_out with dropout", array_read(f, &x_out), want, n, 1e-6);

  Array dy = array_compute(f, random_values(f, 3, n), n), dres = array_compute(f, random_values(f, 4, n), n);
  Array dx = array_compute(f, NULL, n), dbranch = array_compute(f, NULL, n), dweight = array_floats(f, NULL, width);
  const NormGradient gradient = {.weight = dweight.data};
  ops->residual_norm_backward(c, dx.data, dbranch.data, gradient, dy.data, dres.data, x_out.data, stats, &norm, B, T,
                              dim, &dropout, false);
  const double *got = array_read(f, &dx);
  for (size_t i = 0; i < n; i++) want[i] = mask[i] * got[i];
  expect_close(f, "dbranch with dropout", array_read(f, &dbranch), want, n, 1e-6);
  Array alone = array_compute(f, NULL, n);
  ops->residual_norm_backward(c, alone.data, NULL, gradient, dy.data, dres.data, x_out.data, stats, &norm, B, T, dim,
                              NULL, false);
  expect_same("dx, which dropout does not touch", got, array_read(f, &alone), n);
}

/* ---- every operation: p = 0 has no effect, and masks do not depend on the micro-batch size ---- */

typedef struct DropoutRun {
  double *embedded, *x_out, *added, *hidden, *attended;
} DropoutRun;

enum { SPLIT_B = 4, SPLIT_T = 6, SPLIT_C = 8, SPLIT_N = SPLIT_B * SPLIT_T * SPLIT_C };

/* Runs the forward operations with dropout over sequences first..first+batch of the step; each has one head of SPLIT_C
 * numbers. */
static void run_dropout(Fixture *f, DropoutRun *run, const double *x, int first, int batch, const Dropout *dropout) {
  OPS(f);
  size_t from = (size_t)(first * SPLIT_T * SPLIT_C), n = (size_t)(batch * SPLIT_T * SPLIT_C);
  double *ones = host_values(f, SPLIT_C);
  for (int i = 0; i < SPLIT_C; i++) ones[i] = 1;
  ParameterSpec spec = matrix_spec(SPLIT_B * SPLIT_T, SPLIT_C, 0, x);
  Parameters p = parameters_new(f, &spec, 1);
  int32_t *tokens = host_memory(f, (size_t)(batch * SPLIT_T) * sizeof *tokens);
  for (int i = 0; i < batch * SPLIT_T; i++) tokens[i] = first * SPLIT_T + i;
  Array ids = array_ints(f, tokens, (size_t)(batch * SPLIT_T)), in = array_compute(f, x + from, n),
        weight = array_floats(f, ones, SPLIT_C);
  Array embedded = array_compute(f, NULL, n), x_out = array_compute(f, NULL, n), y = array_compute(f, NULL, n);
  Array added = array_compute(f, NULL, n), hidden = array_compute(f, NULL, n);
  Array rstd = array_floats(f, NULL, (size_t)(batch * SPLIT_T));
  Layout layout = {batch, SPLIT_T, 1, SPLIT_C, SPLIT_T * SPLIT_C, SPLIT_C, SPLIT_C};
  Array q = array_new(f, KIND_COMPUTE, layout, x + from), out = array_new(f, KIND_COMPUTE, layout, NULL);
  Attention a = {.batch = batch,
                 .heads = 1,
                 .kv_heads = 1,
                 .head_dim = SPLIT_C,
                 .queries = SPLIT_T,
                 .keys = SPLIT_T,
                 .scale = 0.35f,
                 .dropout = dropout};
  View view = array_view(f, &q, 0);
  const Embedding e = table_of(p.groups[0].matrix);
  const Norm norm = rms_norm_of(weight.data, 1e-5f);
  const MlpShape mlp = {ACTIVATION_GELU, false, SPLIT_C};
  ops->embedding(c, embedded.data, &p, &e, ids.data, batch, SPLIT_T, dropout);
  ops->residual_norm(c, x_out.data, y.data, (NormStats){.rstd = rstd.data}, in.data, in.data, &norm, batch, SPLIT_T,
                     SPLIT_C, dropout);
  ops->residual_add(c, added.data, in.data, in.data, batch, SPLIT_T, SPLIT_C, dropout);
  ops->activation(c, hidden.data, in.data, &mlp, batch, SPLIT_T, dropout);
  ops->attention(c, &a, array_view(f, &out, 0), view, view, view, NULL);
  memcpy(run->embedded + from, array_read(f, &embedded), n * sizeof(double));
  memcpy(run->x_out + from, array_read(f, &x_out), n * sizeof(double));
  memcpy(run->added + from, array_read(f, &added), n * sizeof(double));
  memcpy(run->hidden + from, array_read(f, &hidden), n * sizeof(double));
  memcpy(run->attended + from, array_read(f, &out), n * sizeof(double));
}

static DropoutRun dropout_run_new(Fixture *f) {
  return (DropoutRun){host_values(f, SPLIT_N), host_values(f, SPLIT_N), host_values(f, SPLIT_N),
                      host_values(f, SPLIT_N), host_values(f, SPLIT_N)};
}

static void expect_same_run(const DropoutRun *got, const DropoutRun *want) {
  expect_same("embedding", got->embedded, want->embedded, SPLIT_N);
  expect_same("residual", got->x_out, want->x_out, SPLIT_N);
  expect_same("residual_add", got->added, want->added, SPLIT_N);
  expect_same("activation", got->hidden, want->hidden, SPLIT_N);
  expect_same("attention", got->attended, want->attended, SPLIT_N);
}

static void test_dropout_micro_batches(void **state) {
  Fixture *f = *state;
  OPS(f);
  const double *x = random_values(f, 1, SPLIT_N);
  DropoutRun whole = dropout_run_new(f), split = dropout_run_new(f), none = dropout_run_new(f),
             zero = dropout_run_new(f);
  Dropout dropout = dropout_at(f, 0.5f, 0, 0);
  run_dropout(f, &whole, x, 0, SPLIT_B, &dropout);
  run_dropout(f, &split, x, 0, 1, &dropout);
  ops->next_micro_batch(c, (StepState *)(uintptr_t)dropout.state, 1);
  run_dropout(f, &split, x, 1, SPLIT_B - 1, &dropout);
  expect_same_run(&split, &whole);
  dropout.p = 0;
  run_dropout(f, &zero, x, 0, SPLIT_B, &dropout);
  run_dropout(f, &none, x, 0, SPLIT_B, NULL);
  expect_same_run(&zero, &none);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embedding_dropout),
      cmocka_unit_test(test_keep_rate),
      cmocka_unit_test(test_residual_norm_dropout),
      cmocka_unit_test(test_dropout_micro_batches),
  };
  return run_on_backends("kernels: dropout", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
