/* The loss (kernels.h): its values and gradients, its sum, and NaN. As tests/test_kernels.c. */
#include "tests/backends.h"

#include <math.h>

/* ---- loss ---- */

static const double pad_garbage = 3000; /* larger than any logit: a softmax that includes it is wrong */

/* Computes losses [rows] and dlogits [rows][stride] from z [rows][stride] by the formulas. */
static double *reference_loss(Fixture *f, const double *z, const int32_t *targets, int rows, int vocab, int stride,
                              double smoothing, double inv_targets, double *losses) {
  double *dz = host_values(f, (size_t)rows * (size_t)stride);
  for (int n = 0; n < rows; n++, z += stride) {
    double max = z[0], sum = 0, total = 0, *to = dz + (size_t)n * (size_t)stride;
    losses[n] = targets[n] < 0 ? 0 : (double)NAN;
    if (targets[n] < 0 || targets[n] >= vocab) continue;
    for (int k = 0; k < vocab; k++) max = fmax(max, z[k]), total += z[k];
    for (int k = 0; k < vocab; k++) sum += exp(z[k] - max);
    losses[n] = log(sum) + max - (1 - smoothing) * z[targets[n]] - smoothing / vocab * total;
    for (int k = 0; k < vocab; k++)
      to[k] = inv_targets * (exp(z[k] - max) / sum - (1 - smoothing) * (k == targets[n]) - smoothing / vocab);
  }
  return dz;
}

/* Compares with the formulas for the logits as stored: rounding a logit of 50 changes its probability. */
static void check_loss(Fixture *f, const double *logits, const int32_t *targets, int rows, int vocab, int stride,
                       float smoothing, float inv_targets) {
  OPS(f);
  StepState host = {.inv_targets = inv_targets};
  const StepState *state = state_new(f, &host);
  size_t count = (size_t)rows * (size_t)stride;
  const double *wide = with_pads(f, logits, rows, vocab, stride, pad_garbage);
  Array z = array_compute(f, wide, count), ids = array_ints(f, targets, (size_t)rows),
        loss = array_floats(f, NULL, (size_t)rows);
  Array loss_only = array_floats(f, NULL, (size_t)rows);
  const double *stored = array_read(f, &z);
  double *losses = host_values(f, (size_t)rows);
  const double *dlogits =
      reference_loss(f, stored, targets, rows, vocab, stride, (double)smoothing, (double)inv_targets, losses);
  ops->cross_entropy(c, loss_only.data, z.data, stride, ids.data, rows, vocab, smoothing, state, false);
  expect_same("logits that no gradient was asked for", array_read(f, &z), stored, count);
  ops->cross_entropy(c, loss.data, z.data, stride, ids.data, rows, vocab, smoothing, state, true);
  const double *got = array_read(f, &z);
  expect_close(f, "losses", array_read(f, &loss), losses, (size_t)rows, TOLERANCE_F32);
  expect_close(f, "losses without gradient", array_read(f, &loss_only), losses, (size_t)rows, TOLERANCE_F32);
  expect_close(f, "dlogits", got, dlogits, count, TOLERANCE_F32);
  for (int i = 0; i < rows * stride; i++) {
    bool zero = i % stride >= vocab || targets[i / stride] < 0;
    if (zero && got[i] != 0)
      fail_msg("dlogits[%d][%d] of a pad or an ignored row is %g", i / stride, i % stride, got[i]);
  }
}

static void test_cross_entropy(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "cross_entropy");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims"), *targets = golden_ints(f, g, index, "targets");
    const double *logits = golden_values(f, g, index, "logits", NULL);
    double smoothing = golden_value(f, g, index, "smoothing"), inv_targets = golden_value(f, g, index, "inv_targets");
    size_t rows = (size_t)dims[0], count = rows * (size_t)dims[1];
    double *losses = host_values(f, rows);
    const double *dlogits =
        reference_loss(f, logits, targets, dims[0], dims[1], dims[1], smoothing, inv_targets, losses);
    if (f->dtype == DTYPE_F32) { /* the formulas are right */
      expect_close(f, "losses by formula", losses, golden_values(f, g, index, "losses", NULL), rows, 1e-6);
      expect_close(f, "dlogits by formula", dlogits, golden_values(f, g, index, "dlogits", NULL), count, 1e-6);
    }
    check_loss(f, logits, targets, dims[0], dims[1], fitting_stride(f, dims[2]), (float)smoothing, (float)inv_targets);
  }
  assert_int_equal(index, 14);
}

/* Rows of all lengths that backends distinguish: in a warp's registers, in shared memory, read twice; with and without
 * whole vectors. */
static void test_cross_entropy_sizes(void **state) {
  Fixture *f = *state;
  const int sizes[][2] = {{1, 1},         {2, 8},         {50, 50},       {50, 64},       {65, 128},
                          {256, 256},     {255, 257},     {257, 264},     {1000, 1000},   {1000, 1024},
                          {1000, 1001},   {1500, 1504},   {1501, 1501},   {4096, 4096},   {5003, 5120},
                          {12288, 12288}, {24576, 24576}, {30000, 30007}, {50257, 50304}, {60001, 60032}};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
    int vocab = sizes[i][0], rows = vocab > 2000 ? 4 : 19;
    double *z = random_values(f, (uint32_t)i, (size_t)(rows * vocab));
    int32_t *targets = some_tokens(f, rows, vocab);
    targets[0] = 0, targets[1] = vocab - 1, targets[2] = IGNORE_INDEX, targets[3] = vocab / 2;
    for (int k = 0; k < vocab; k++) z[3 * vocab + k] *= 40; /* one logit dominates */
    check_loss(f, z, targets, rows, vocab, fitting_stride(f, sizes[i][1]), i % 3 ? 0.2f : 0, 0.25f);
  }
}

/* ---- distillation ---- */

/* Computes dz [rows][vocab] with a teacher by the formula. */
static double *reference_distilled(Fixture *f, const double *dz, const double *teacher, const int32_t *targets,
                                   int rows, int vocab, double smoothing, double weight, double inv_targets) {
  double *out = host_values(f, (size_t)rows * (size_t)vocab), *to = out;
  for (int n = 0; n < rows; n++, dz += vocab, teacher += vocab, to += vocab) {
    double max = teacher[0], sum = 0;
    for (int k = 0; k < vocab; k++) max = fmax(max, teacher[k]);
    for (int k = 0; k < vocab; k++) sum += exp(teacher[k] - max);
    for (int k = 0; k < vocab; k++) {
      const double target = (1 - smoothing) * (k == targets[n]) + smoothing / vocab;
      to[k] = dz[k] + (targets[n] < 0 ? 0 : weight * inv_targets * (target - exp(teacher[k] - max) / sum));
    }
  }
  return out;
}

/* Returns what an array of the compute dtype stores of [rows][vocab] values. */
static const double *as_stored(Fixture *f, const double *values, int rows, int vocab) {
  Array array = array_compute(f, values, (size_t)rows * (size_t)vocab);
  return array_read(f, &array);
}

/* dz [rows][vocab]: as cross_entropy() leaves it. The pads of the teacher hold garbage. */
static void check_distill(Fixture *f, const double *dz, const double *teacher, const int32_t *targets, int rows,
                          int vocab, int width, double smoothing, double weight, double inv_targets) {
  OPS(f);
  const int stride = fitting_stride(f, width);
  const size_t count = (size_t)rows * (size_t)stride;
  StepState host = {.inv_targets = (float)inv_targets};
  Array z = array_compute(f, with_pads(f, dz, rows, vocab, stride, 0), count);
  Array t = array_compute(f, with_pads(f, teacher, rows, vocab, stride, pad_garbage), count);
  Array ids = array_ints(f, targets, (size_t)rows);
  const double *expected =
      reference_distilled(f, as_stored(f, dz, rows, vocab), as_stored(f, teacher, rows, vocab), targets, rows, vocab,
                          (double)(float)smoothing, (double)(float)weight, (double)(float)inv_targets);
  ops->distill(c, z.data, t.data, stride, ids.data, rows, vocab, (float)smoothing, (float)weight, state_new(f, &host));
  expect_close(f, "dlogits with a teacher", array_read(f, &z), with_pads(f, expected, rows, vocab, stride, 0), count,
               TOLERANCE_F32);
}

static void test_distill(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "distill");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims"), *targets = golden_ints(f, g, index, "targets");
    const double *dz = golden_values(f, g, index, "dlogits", NULL),
                 *teacher = golden_values(f, g, index, "teacher", NULL);
    const double smoothing = golden_value(f, g, index, "smoothing"), weight = golden_value(f, g, index, "weight");
    const double inv_targets = golden_value(f, g, index, "inv_targets");
    if (f->dtype == DTYPE_F32) /* the formula is right */
      expect_close(f, "dlogits by formula",
                   reference_distilled(f, dz, teacher, targets, dims[0], dims[1], smoothing, weight, inv_targets),
                   golden_values(f, g, index, "distilled", NULL), (size_t)dims[0] * (size_t)dims[1], 1e-6);
    check_distill(f, dz, teacher, targets, dims[0], dims[1], dims[2], smoothing, weight, inv_targets);
  }
  assert_int_equal(index, 15);
}

/* Rows of all lengths that backends distinguish. */
static void test_distill_sizes(void **state) {
  Fixture *f = *state;
  const int sizes[][2] = {{255, 257}, {1000, 1024}, {1500, 1504}, {5003, 5120}, {50257, 50304}};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
    const int vocab = sizes[i][0], rows = 3, targets[] = {vocab - 1, IGNORE_INDEX, 7};
    double *dz = random_values(f, (uint32_t)i, (size_t)(rows * vocab));
    double *teacher = random_values(f, 100 + (uint32_t)i, (size_t)(rows * vocab));
    teacher[2 * vocab + 5] = 30;
    check_distill(f, dz, teacher, targets, rows, vocab, sizes[i][1], 0.2, 0.7, 0.25);
  }
}

static void test_loss_sum(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { N = 9001 };
  double *losses = random_values(f, 1, N), sum = 0;
  int32_t *targets = some_tokens(f, N, 5);
  int64_t count = 0;
  for (int i = 0; i < N; i++) {
    losses[i] = (double)(float)(4 + losses[i] / 3);
    if (targets[i] == 0) targets[i] = IGNORE_INDEX, losses[i] = 0;
    count += targets[i] >= 0;
    sum += losses[i];
  }
  Array values = array_floats(f, losses, N), ids = array_ints(f, targets, N);
  StepState host = {0};
  StepState *device = state_new(f, &host);
  ops->loss_sum(c, device, values.data, ids.data, N);
  StepState got = state_read(f, device);
  assert_int_equal(got.loss_count, count);
  if (fabs(got.loss_sum - sum) > 1e-12 * sum) fail_msg("loss_sum is %.17g, not %.17g", got.loss_sum, sum);
  ops->loss_sum(c, device, values.data, ids.data, 1); /* adds to what is there */
  StepState more = state_read(f, device);
  assert_true(more.loss_sum == got.loss_sum + losses[0]);
  assert_int_equal(more.loss_count, count + (targets[0] >= 0));
}

/* ---- NaN, invalid targets ---- */

/* NaN in the input gives a loss of NaN and a halted update. */
static void poisoned_logit(Fixture *f, double poison, int vocab, int width, int at) {
  OPS(f);
  enum { N = 3 };
  const int stride = fitting_stride(f, width);
  double *z = random_values(f, 1, (size_t)(N * vocab));
  z[vocab + at] = poison;
  const int32_t targets[N] = {1, 4, 0};
  StepState host = {.inv_targets = 1.0f / 3};
  StepState *device = state_new(f, &host);
  size_t count = (size_t)(N * stride);
  Array logits = array_compute(f, with_pads(f, z, N, vocab, stride, (double)NAN), count);
  Array ids = array_ints(f, targets, N), losses = array_floats(f, NULL, N), only = array_floats(f, NULL, N);
  ParameterSpec spec = matrix_spec(2, 2, 0, random_values(f, 2, 4));
  Parameters p = parameters_new(f, &spec, 1);
  ops->cross_entropy(c, only.data, logits.data, stride, ids.data, N, vocab, 0.1f, device, false);
  ops->cross_entropy(c, losses.data, logits.data, stride, ids.data, N, vocab, 0.1f, device, true);
  ops->loss_sum(c, device, losses.data, ids.data, N);
  const AdamW adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-3f, .weight_decay = 0.1f};
  ops->clip(c, device, &p, 1.0f, &adamw);
  const double *got = array_read(f, &losses);
  assert_true(isfinite(got[0]) && isnan(got[1]) && isfinite(got[2]));
  expect_same("losses without gradient", array_read(f, &only), got, N);
  assert_true(state_read(f, device).halted != 0);
  const double *dz = array_read(f, &logits); /* the neighbors and pads are correct */
  for (int i = 0; i < N * stride; i++) {
    if (i / stride != 1) assert_true(isfinite(dz[i]));
    if (i % stride >= vocab) assert_true(dz[i] == 0);
  }
}

static void test_nan_reaches_the_loss(void **state) {
  const double poisons[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
  for (int i = 0; i < 3; i++) {
    poisoned_logit(*state, poisons[i], 5, 5, 2);
    poisoned_logit(*state, poisons[i], 65, 72, 64); /* behind the last vector */
    poisoned_logit(*state, poisons[i], 999, 1000, 500);
    poisoned_logit(*state, poisons[i], 2051, 2056, 1024);
    poisoned_logit(*state, poisons[i], 2051, 2056, 2050);
    poisoned_logit(*state, poisons[i], 2051, 2051, 4); /* the target's */
  }
}

/* A target outside of the vocabulary is not ignored. */
static void test_target_outside(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { N = 3 };
  const int sizes[][2] = {{5, 5}, {65, 72}, {2051, 2056}};
  for (int i = 0; i < 3; i++) {
    int vocab = sizes[i][0], stride = fitting_stride(f, sizes[i][1]);
    const int32_t targets[N] = {vocab, -1, 0x7FFFFFFF};
    StepState host = {.inv_targets = 1};
    StepState *device = state_new(f, &host);
    size_t count = (size_t)(N * stride);
    Array logits = array_compute(f, random_values(f, 1, count), count), ids = array_ints(f, targets, N),
          losses = array_floats(f, NULL, N);
    ops->cross_entropy(c, losses.data, logits.data, stride, ids.data, N, vocab, 0.1f, device, true);
    const double want[N] = {(double)NAN, 0, (double)NAN};
    expect_same("losses of targets outside", array_read(f, &losses), want, N);
    expect_same("dlogits of targets outside", array_read(f, &logits), host_values(f, count), count);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cross_entropy),  cmocka_unit_test(test_cross_entropy_sizes),
      cmocka_unit_test(test_distill),        cmocka_unit_test(test_distill_sizes),
      cmocka_unit_test(test_loss_sum),       cmocka_unit_test(test_nan_reaches_the_loss),
      cmocka_unit_test(test_target_outside),
  };
  return run_on_backends("kernels: loss", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
