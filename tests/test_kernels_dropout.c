/* Dropout of every operation that has it (kernels.h), against the documented map. As tests/test_kernels.c. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

/* ---- embedding ---- */

enum { EMBED_VOCAB = 13, EMBED_BATCH = 4, EMBED_LENGTH = 9 };

/* Sequences of step 5 that begin with number 3. */
static void test_embedding_dropout(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { N = EMBED_BATCH * EMBED_LENGTH };
  const int dim = fitting_width(f, 37);
  const size_t count = (size_t)(N * dim), table_count = (size_t)(EMBED_VOCAB * dim);
  const int32_t *tokens = some_tokens(f, N, EMBED_VOCAB);
  double *table = random_values(f, 1, table_count), *dx = random_values(f, 2, count);
  ParameterSpec spec = matrix_spec(EMBED_VOCAB, dim, 0, table);
  Parameters p = parameters_new(f, &spec, 1);
  Dropout dropout = dropout_at(f, 0.3f, 4, 3);
  double *mask = dropout_mask(f, &dropout, 5, 3, EMBED_BATCH, EMBED_LENGTH, dim), *want = host_values(f, count);
  double *dtable = host_values(f, table_count);
  for (int i = 0; i < N * dim; i++) {
    want[i] = mask[i] * table[tokens[i / dim] * dim + i % dim];
    dtable[tokens[i / dim] * dim + i % dim] += mask[i] * dx[i];
  }
  Array ids = array_ints(f, tokens, N), out = array_compute(f, NULL, count), upstream = array_compute(f, dx, count),
        offsets, order;
  ops->embedding(c, out.data, &p, p.groups[0].matrix, ids.data, EMBED_BATCH, EMBED_LENGTH, &dropout);
  expect_close(f, "dropped embedding", array_read(f, &out), want, count, 1e-6);
  token_order(f, tokens, N, EMBED_VOCAB, &offsets, &order);
  ops->embedding_backward(c, &p, p.groups[0].matrix, upstream.data, offsets.data, order.data, EMBED_VOCAB, EMBED_BATCH,
                          EMBED_LENGTH, &dropout, false);
  expect_close(f, "gradient through dropout", parameters_read(f, &p, ARENA_OF_GRAD, 0), dtable, table_count,
               TOLERANCE_F32);
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
  ops->residual_norm(c, x_out.data, y.data, rstd.data, x_in.data, in.data, weight.data, 1e-5f, B, T, dim, &dropout);
  expect_close(f, "x_out with dropout", array_read(f, &x_out), want, n, 1e-6);

  Array dy = array_compute(f, random_values(f, 3, n), n), dres = array_compute(f, random_values(f, 4, n), n);
  Array dx = array_compute(f, NULL, n), dbranch = array_compute(f, NULL, n), dweight = array_floats(f, NULL, width);
  ops->residual_norm_backward(c, dx.data, dbranch.data, dweight.data, dy.data, dres.data, x_out.data, rstd.data,
                              weight.data, B, T, dim, &dropout, false);
  const double *got = array_read(f, &dx);
  for (size_t i = 0; i < n; i++) want[i] = mask[i] * got[i];
  expect_close(f, "dbranch with dropout", array_read(f, &dbranch), want, n, 1e-6);
  Array alone = array_compute(f, NULL, n);
  ops->residual_norm_backward(c, alone.data, NULL, dweight.data, dy.data, dres.data, x_out.data, rstd.data, weight.data,
                              B, T, dim, NULL, false);
  expect_same("dx, which dropout does not touch", got, array_read(f, &alone), n);
}

/* ---- every operation: p = 0 is none, micro-batches are numbered through ---- */

typedef struct DropoutRun {
  double *embedded, *x_out, *attended;
} DropoutRun;

enum { SPLIT_B = 4, SPLIT_T = 6, SPLIT_C = 8, SPLIT_N = SPLIT_B * SPLIT_T * SPLIT_C };

/* The forward operations that drop, over sequences first..first+batch of the step; each is one head of SPLIT_C
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
  ops->embedding(c, embedded.data, &p, p.groups[0].matrix, ids.data, batch, SPLIT_T, dropout);
  ops->residual_norm(c, x_out.data, y.data, rstd.data, in.data, in.data, weight.data, 1e-5f, batch, SPLIT_T, SPLIT_C,
                     dropout);
  ops->attention(c, &a, array_view(f, &out, 0), view, view, view, NULL);
  memcpy(run->embedded + from, array_read(f, &embedded), n * sizeof(double));
  memcpy(run->x_out + from, array_read(f, &x_out), n * sizeof(double));
  memcpy(run->attended + from, array_read(f, &out), n * sizeof(double));
}

static DropoutRun dropout_run_new(Fixture *f) {
  return (DropoutRun){host_values(f, SPLIT_N), host_values(f, SPLIT_N), host_values(f, SPLIT_N)};
}

static void expect_same_run(const DropoutRun *got, const DropoutRun *want) {
  expect_same("embedding", got->embedded, want->embedded, SPLIT_N);
  expect_same("residual", got->x_out, want->x_out, SPLIT_N);
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
