/* The rest of a training step (kernels.h): counters, clipping, AdamW, halting, the fixed order of sums. As
 * tests/test_kernels.c. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

/* ---- the step ---- */

static void test_step_begin(void **state) {
  Fixture *f = *state;
  OPS(f);
  const double rates[] = {0, 0.25, 0.5, 0.75};
  const int32_t some = 40, none = 0;
  Array table = array_floats(f, rates, 4), targets = array_ints(f, &some, 1), no_targets = array_ints(f, &none, 1);
  StepState host = {.step = 2, .loss_sum = 5, .loss_count = 6, .sequence = 7};
  StepState *device = state_new(f, &host);
  ops->step_begin(c, device, table.data, targets.data);
  ops->next_micro_batch(c, device, 3);
  ops->next_micro_batch(c, device, 4);
  StepState got = state_read(f, device);
  assert_int_equal(got.step, 2);
  assert_true(got.lr == 0.75f);
  assert_true(got.inv_targets == 1.0f / 40);
  assert_true(got.loss_sum == 0 && got.loss_count == 0);
  assert_int_equal(got.sequence, 7);
  ops->step_begin(c, device, table.data, no_targets.data);
  assert_true(state_read(f, device).inv_targets == 0);
  assert_int_equal(state_read(f, device).sequence, 0);
  ops->next_micro_batch(c, device, 2);
  ops->step_begin(c, device, NULL, NULL); /* evaluation */
  assert_int_equal(state_read(f, device).sequence, 0);
}

/* ---- optimizer ---- */

static const AdamW golden_adamw = {
    .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-3f, .weight_decay = 0.1f}; /* as in the script */

/* A matrix with a pad row and a weight. */
static Parameters optimizer_parameters(Fixture *f, const Golden *g, int index, int rows, int cols, int width) {
  ParameterSpec specs[] = {matrix_spec(rows, cols, 1, golden_values(f, g, index, "matrix", NULL)),
                           norm_spec(width, golden_values(f, g, index, "gain", NULL))};
  return parameters_new(f, specs, 2);
}

static void test_clip(void **state) {
  Fixture *f = *state;
  OPS(f);
  const Golden *g = golden_open(f, "clip");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims");
    Parameters p = optimizer_parameters(f, g, index, dims[0], dims[1], dims[2]); /* only its shapes matter */
    double *padded_gradient = host_values(f, (size_t)((dims[0] + 1) * dims[1]));
    memcpy(padded_gradient, golden_values(f, g, index, "matrix", NULL), (size_t)(dims[0] * dims[1]) * sizeof(double));
    parameters_write(f, &p, ARENA_OF_GRAD, 0, padded_gradient);
    parameters_write(f, &p, ARENA_OF_GRAD, 1, golden_values(f, g, index, "gain", NULL));
    StepState host = {.step = 2, .loss_sum = 8, .inv_targets = 0.25f};
    StepState *device = state_new(f, &host);
    ops->clip(c, device, &p, 1.0f, &golden_adamw);
    StepState got = state_read(f, device);
    double values[] = {(double)got.grad_norm, (double)got.clip, (double)got.bias1, (double)got.bias2, (double)got.loss};
    double want[] = {golden_value(f, g, index, "grad_norm"), golden_value(f, g, index, "clip"),
                     1 - pow((double)0.9f, 3), 1 - pow((double)0.95f, 3), 2};
    for (int i = 0; i < 5; i++) expect_close(f, "norm, clip, bias1, bias2 or loss", &values[i], &want[i], 1, 1e-6);
    assert_int_equal(got.step, 2);
    assert_int_equal(got.halted, 0);
    ops->clip(c, device, &p, 0.0f, &golden_adamw); /* off */
    assert_true(state_read(f, device).clip == 1.0f);
    assert_true(state_read(f, device).grad_norm == got.grad_norm);
  }
  assert_int_equal(index, 4);
}

/* Several steps with given gradients; the change of a weight is checked too, because it shows a wrong decay. */
static void adamw_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims");
  size_t count = (size_t)(dims[0] * dims[1]), width = (size_t)dims[2];
  Parameters p = optimizer_parameters(f, g, index, dims[0], dims[1], dims[2]);
  const double *matrices = golden_values(f, g, index, "matrices", NULL),
               *weights = golden_values(f, g, index, "gains", NULL);
  const double *dmatrix = golden_values(f, g, index, "dmatrix", NULL),
               *dweight = golden_values(f, g, index, "dgain", NULL);
  double *padded_gradient = host_values(f, count + (size_t)dims[1]);
  StepState host = {.inv_targets = 1};
  StepState *device = state_new(f, &host);
  double *rates = concatenate(f, host_values(f, 1), 1, golden_values(f, g, index, "lr", NULL), (size_t)dims[3]);
  const int32_t one = 1;
  Array table = array_floats(f, rates, (size_t)dims[3] + 1), targets = array_ints(f, &one, 1);
  for (int t = 0; t < dims[3]; t++) {
    memcpy(padded_gradient, dmatrix + (size_t)t * count, count * sizeof *dmatrix);
    parameters_write(f, &p, ARENA_OF_GRAD, 0, padded_gradient);
    parameters_write(f, &p, ARENA_OF_GRAD, 1, dweight + (size_t)t * width);
    ops->step_begin(c, device, table.data, targets.data);
    ops->clip(c, device, &p, 0.0f, &golden_adamw);
    ops->adamw(c, device, &p, &golden_adamw);
    double *matrix = parameters_read(f, &p, ARENA_OF_MASTER, 0), *weight = parameters_read(f, &p, ARENA_OF_MASTER, 1);
    expect_close(f, "matrix", matrix, matrices + (size_t)t * count, count, 1e-6);
    expect_close(f, "gain", weight, weights + (size_t)t * width, width, 1e-6);
    for (int i = 0; i < dims[1]; i++) assert_true(matrix[count + (size_t)i] == 0); /* the pad row */
    assert_int_equal(state_read(f, device).step, t + 1);
  }
  expect_close(f, "m", parameters_read(f, &p, ARENA_OF_M, 0), golden_values(f, g, index, "m_matrix", NULL), count,
               1e-6);
  expect_close(f, "v", parameters_read(f, &p, ARENA_OF_V, 0), golden_values(f, g, index, "v_matrix", NULL), count,
               1e-6);
  expect_close(f, "m of the weight", parameters_read(f, &p, ARENA_OF_M, 1), golden_values(f, g, index, "m_gain", NULL),
               width, 1e-6);
  expect_close(f, "v of the weight", parameters_read(f, &p, ARENA_OF_V, 1), golden_values(f, g, index, "v_gain", NULL),
               width, 1e-6);
}

static void test_adamw(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "adamw");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) adamw_case(f, g, index);
  assert_int_equal(index, 2);
}

/* Large arenas, with many blocks of the reduction; checks the clipped gradient and the compute copy through GEMMs. */
static void test_update_large(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 131, COLS = 97, COUNT = ROWS * COLS };
  double *w = random_values(f, 1, COUNT), *g = random_values(f, 2, COUNT), *want = host_values(f, COUNT), norm = 0;
  double *bias = random_values(f, 3, ROWS), *bias_gradient = random_values(f, 4, ROWS);
  ParameterSpec specs[] = {matrix_spec(ROWS, COLS, 0, w), norm_spec(COLS, w), bias_spec(ROWS, bias)};
  Parameters p = parameters_new(f, specs, 3);
  const AdamW adamw = {.beta1 = 0, .beta2 = 0, .eps = 1, .weight_decay = 0.5f}; /* w (1 - lr wd) - lr g / (|g| + 1) */
  StepState host = {.lr = 0.125f};
  StepState *device = state_new(f, &host);
  parameters_write(f, &p, ARENA_OF_GRAD, 0, g);
  parameters_write(f, &p, ARENA_OF_GRAD, 2, bias_gradient);
  for (int i = 0; i < COUNT; i++) norm += g[i] * g[i];
  for (int i = 0; i < ROWS; i++) norm += bias_gradient[i] * bias_gradient[i];
  norm = sqrt(norm);
  for (int i = 0; i < ROWS; i++) { /* biases do not decay */
    double clipped = bias_gradient[i] * 20 / (norm + 1e-6);
    bias[i] -= 0.125 * clipped / (fabs(clipped) + 1);
  }
  for (int i = 0; i < COUNT; i++) {
    double clipped = g[i] * 20 / (norm + 1e-6);
    want[i] = w[i] * (1 - 0.125 * 0.5) - 0.125 * clipped / (fabs(clipped) + 1);
  }
  ops->clip(c, device, &p, 20.0f, &adamw);
  ops->adamw(c, device, &p, &adamw);
  double got_norm = (double)state_read(f, device).grad_norm;
  expect_close(f, "grad_norm", &got_norm, &norm, 1, 1e-6);
  expect_close(f, "updated weights", parameters_read(f, &p, ARENA_OF_MASTER, 0), want, COUNT, 1e-6);
  expect_close(f, "updated biases", parameters_read(f, &p, ARENA_OF_MASTER, 2), bias, ROWS, 1e-6);
  expect_same("weight without gradient or decay", parameters_read(f, &p, ARENA_OF_MASTER, 1), w, COLS);

  double *x = host_values(f, COLS), *y = host_values(f, ROWS); /* the product with a unit vector is a column */
  x[3] = 1;
  for (int i = 0; i < ROWS; i++) y[i] = want[i * COLS + 3];
  Array in = array_compute(f, x, COLS), out = array_compute(f, NULL, ROWS);
  ops->linear(c, out.data, in.data, &p, layer_of(p.groups[0].matrix), 1);
  expect_close(f, "column of the compute copy", array_read(f, &out), y, ROWS, TOLERANCE_F32);
  for (int i = 0; i < ROWS; i++) y[i] += bias[i];
  ops->linear(c, out.data, in.data, &p, (Linear){p.groups[0].matrix, p.groups[2].matrix}, 1);
  expect_close(f, "compute copy of the biases", array_read(f, &out), y, ROWS, TOLERANCE_F32);
}

/* With eps = 0 elements that never had a gradient, and gaps, do not change; a second refresh, as after a resume,
 * changes nothing. */
static void test_update_without_eps(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 3, COLS = 5, COUNT = ROWS * COLS };
  double *w = random_values(f, 1, COUNT), *g = host_values(f, COUNT), *want = host_values(f, COUNT);
  g[4] = 3, g[9] = -0.5;
  for (int i = 0; i < COUNT; i++) want[i] = w[i] * (1 - 0.125 * 0.5) - 0.125 * ((g[i] > 0) - (g[i] < 0));
  ParameterSpec specs[] = {norm_spec(COLS, w), matrix_spec(ROWS, COLS, 1, w), norm_spec(COLS, w)};
  Parameters p = parameters_new(f, specs, 3);
  const AdamW adamw = {.beta1 = 0.5f, .beta2 = 0.75f, .eps = 0, .weight_decay = 0.5f};
  StepState host = {.lr = 0.125f};
  StepState *device = state_new(f, &host);
  ops->refresh_parameters(c, &p);
  parameters_write(f, &p, ARENA_OF_GRAD, 1, concatenate(f, g, COUNT, host_values(f, COLS), COLS));
  ops->clip(c, device, &p, 0, &adamw);
  ops->adamw(c, device, &p, &adamw);
  expect_close(f, "weights", parameters_read(f, &p, ARENA_OF_MASTER, 1),
               concatenate(f, want, COUNT, host_values(f, COLS), COLS), COUNT + COLS, 1e-6);
  expect_same("weight before the matrix", parameters_read(f, &p, ARENA_OF_MASTER, 0), w, COLS);
  expect_same("weight behind the matrix", parameters_read(f, &p, ARENA_OF_MASTER, 2), w, COLS);
  ops->release_parameters(c, &p);
}

typedef struct Snapshot {
  double *master, *m, *v, *weight;
} Snapshot;

static Snapshot snapshot(Fixture *f, const Parameters *p) {
  return (Snapshot){parameters_read(f, p, ARENA_OF_MASTER, 0), parameters_read(f, p, ARENA_OF_M, 0),
                    parameters_read(f, p, ARENA_OF_V, 0), parameters_read(f, p, ARENA_OF_MASTER, 1)};
}

static bool is_unchanged(const Snapshot *a, const Snapshot *b, size_t count, size_t width) {
  return memcmp(a->master, b->master, count * sizeof(double)) == 0 && memcmp(a->m, b->m, count * sizeof(double)) == 0 &&
         memcmp(a->v, b->v, count * sizeof(double)) == 0 && memcmp(a->weight, b->weight, width * sizeof(double)) == 0;
}

/* One update with a given number in the gradient and a given sum of losses; a later finite update must have no
 * effect. */
static void halting_case(Fixture *f, double gradient, double loss_sum, bool halts) {
  OPS(f);
  enum { ROWS = 5, COLS = 3, COUNT = ROWS * COLS };
  double *g = random_values(f, 2, COUNT);
  ParameterSpec specs[] = {matrix_spec(ROWS, COLS, 0, random_values(f, 1, COUNT)),
                           norm_spec(COLS, random_values(f, 3, COLS))};
  Parameters p = parameters_new(f, specs, 2);
  StepState host = {.step = 3, .lr = 0.1f, .inv_targets = 1, .loss_sum = loss_sum};
  StepState *device = state_new(f, &host);
  Snapshot before = snapshot(f, &p);
  g[7] = gradient;
  parameters_write(f, &p, ARENA_OF_GRAD, 0, g);
  ops->clip(c, device, &p, 1.0f, &golden_adamw);
  ops->adamw(c, device, &p, &golden_adamw);
  Snapshot after = snapshot(f, &p);
  assert_int_equal(state_read(f, device).halted != 0, halts);
  assert_int_equal(state_read(f, device).step, halts ? 3 : 4);
  assert_int_equal(is_unchanged(&before, &after, COUNT, COLS), halts);
  if (!halts) return;

  const double rates[] = {0, 0.1, 0.1, 0.1, 0.1, 0.1};
  const int32_t one = 1;
  Array table = array_floats(f, rates, 6), targets = array_ints(f, &one, 1);
  g[7] = 1;
  parameters_write(f, &p, ARENA_OF_GRAD, 0, g);
  ops->step_begin(c, device, table.data, targets.data);
  ops->clip(c, device, &p, 1.0f, &golden_adamw);
  ops->adamw(c, device, &p, &golden_adamw);
  after = snapshot(f, &p);
  assert_true(state_read(f, device).halted != 0);
  assert_int_equal(state_read(f, device).step, 3);
  assert_true(is_unchanged(&before, &after, COUNT, COLS));
}

static void test_not_finite_halts(void **state) {
  Fixture *f = *state;
  halting_case(f, 1, 2, false); /* the reference */
  halting_case(f, (double)NAN, 2, true);
  halting_case(f, -(double)INFINITY, 2, true);
  halting_case(f, 1, (double)NAN, true);
  halting_case(f, 1, (double)INFINITY, true);
}

/* ---- bits ---- */

enum { BITS_B = 3, BITS_T = 130, BITS_C = 64, BITS_ROWS = BITS_B * BITS_T, BITS_N = BITS_ROWS * BITS_C, BITS_V = 31 };

typedef struct BitsRun {
  double *dweight, *dqkv, *dtable;
  float norm;
} BitsRun;

/* Operations whose sums are divided among threads. */
static BitsRun run_for_bits(Fixture *f) {
  OPS(f);
  const int32_t *tokens = some_tokens(f, BITS_ROWS, BITS_V);
  ParameterSpec spec = matrix_spec(BITS_V, BITS_C, 0, random_values(f, 1, BITS_V * BITS_C));
  Parameters p = parameters_new(f, &spec, 1);
  Array x = array_compute(f, random_values(f, 2, BITS_N), BITS_N),
        dy = array_compute(f, random_values(f, 3, BITS_N), BITS_N);
  Array rstd = array_floats(f, random_values(f, 4, BITS_ROWS), BITS_ROWS),
        weight = array_floats(f, random_values(f, 5, BITS_C), BITS_C);
  Array dx = array_compute(f, NULL, BITS_N), dweight = array_floats(f, NULL, BITS_C), offsets, order;
  BitsRun run;
  const Norm norm = rms_norm_of(weight.data, 1e-5f);
  ops->residual_norm_backward(c, dx.data, NULL, (NormGradient){.weight = dweight.data}, dy.data, NULL, x.data,
                              (NormStats){.rstd = rstd.data}, &norm, BITS_B, BITS_T, BITS_C, NULL, false);
  run.dweight = array_read(f, &dweight);
  token_order(f, tokens, BITS_ROWS, BITS_V, &offsets, &order);
  ops->embedding_backward(c, &p, p.groups[0].matrix, dy.data, offsets.data, order.data, BITS_V, BITS_B, BITS_T, NULL,
                          false);
  run.dtable = parameters_read(f, &p, ARENA_OF_GRAD, 0);
  StepState host = {0};
  StepState *device = state_new(f, &host);
  ops->clip(c, device, &p, 1, &golden_adamw);
  run.norm = state_read(f, device).grad_norm;
  /* heads 4, kv heads 2, head size 8: 64 numbers a row */
  Layout packed = {BITS_B, BITS_T, 8, 8, BITS_T * 64, 64, 8}, plain = {BITS_B, BITS_T, 4, 8, BITS_T * 32, 32, 8};
  Attention a = {.batch = BITS_B,
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 8,
                 .queries = BITS_T,
                 .keys = BITS_T,
                 .scale = 0.35f,
                 .causal = true};
  Array qkv = array_new(f, KIND_COMPUTE, packed, random_values(f, 6, BITS_N)),
        dqkv = array_new(f, KIND_COMPUTE, packed, NULL);
  Array out = array_new(f, KIND_COMPUTE, plain, NULL),
        dout = array_new(f, KIND_COMPUTE, plain, random_values(f, 7, BITS_N / 2));
  Array lse = array_floats(f, NULL, BITS_B * 4 * BITS_T);
  View q = array_view(f, &qkv, 0), k = array_view(f, &qkv, 4), v = array_view(f, &qkv, 6), o = array_view(f, &out, 0);
  ops->attention(c, &a, o, q, k, v, lse.data);
  ops->attention_backward(c, &a, array_view(f, &dqkv, 0), array_view(f, &dqkv, 4), array_view(f, &dqkv, 6),
                          array_view(f, &dout, 0), q, k, v, o, lse.data, NULL);
  run.dqkv = array_read(f, &dqkv);
  return run;
}

static void test_same_bits(void **state) {
  Fixture *f = *state;
  BitsRun first = run_for_bits(f);
  for (int i = 0; i < 3; i++) {
    BitsRun next = run_for_bits(f);
    expect_same("dgain", next.dweight, first.dweight, BITS_C);
    expect_same("dtable", next.dtable, first.dtable, BITS_V * BITS_C);
    expect_same("dq, dk, dv", next.dqkv, first.dqkv, BITS_N);
    assert_true(next.norm == first.norm);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_step_begin),
      cmocka_unit_test(test_clip),
      cmocka_unit_test(test_adamw),
      cmocka_unit_test(test_update_large),
      cmocka_unit_test(test_update_without_eps),
      cmocka_unit_test(test_not_finite_halts),
      cmocka_unit_test(test_same_bits),
  };
  return run_on_backends("kernels: step", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
