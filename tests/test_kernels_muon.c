/* Muon (kernels.h): ten steps against float64 PyTorch, larger matrices against the formula in double, unchanged memory.
 * As tests/test_kernels.c. */
#include "tests/machine.h"

#include <math.h>
#include <string.h>

static const AdamW adamw = {.beta1 = 0, .beta2 = 0, .eps = 1}; /* w - lr g / (|g| + 1); v = g^2 */

/* The iteration runs in the compute dtype of a GPU. It enlarges small components by up to MUON_A^5, also rounding
 * errors in directions in which the gradient is 0. */
static double update_tolerance(const Fixture *f, bool full_rank) {
  ContextInfo info;
  f->backend->info(f->context, &info);
  if (!info.accelerator || f->dtype == DTYPE_F32) return 1e-4;
  return full_rank ? 6e-2 : 0.5;
}

static double *difference(Fixture *f, const double *a, const double *b, size_t count) {
  double *out = host_values(f, count);
  for (size_t i = 0; i < count; i++) out[i] = a[i] - b[i];
  return out;
}

/* A gain, the group, another gain. */
typedef struct Neighbors {
  Parameters p;
  double *gain, *dgain; /* [8] of both gains, which AdamW updates */
} Neighbors;

static Neighbors neighbors_new(Fixture *f, const int32_t heights[GROUP_MATRICES], int cols, const double *values) {
  Neighbors n = {.gain = random_values(f, 31, 8), .dgain = random_values(f, 32, 8)};
  ParameterSpec group = matrix_spec(0, cols, 0, values);
  for (int i = 0; i < GROUP_MATRICES; i++) group.rows += group.heights[i] = heights[i];
  n.p = parameters_new(f, (ParameterSpec[]){norm_spec(8, n.gain), group, norm_spec(8, n.gain)}, 3);
  return n;
}

static void update(Fixture *f, Neighbors *n, StepState *device, const double *gradient, float max_norm,
                   const Muon *muon) {
  OPS(f);
  parameters_write(f, &n->p, ARENA_OF_GRAD, 0, n->dgain);
  parameters_write(f, &n->p, ARENA_OF_GRAD, 1, gradient);
  parameters_write(f, &n->p, ARENA_OF_GRAD, 2, n->dgain);
  ops->clip(c, device, &n->p, max_norm, &adamw);
  ops->muon(c, device, &n->p, muon);
  ops->adamw(c, device, &n->p, &adamw);
}

/* After updates with these rates and no clipping. */
static void expect_neighbors(Fixture *f, const Neighbors *n, const double *rates, int steps) {
  double gain[8], v[8], first[8];
  for (int i = 0; i < 8; i++) {
    gain[i] = n->gain[i];
    first[i] = n->dgain[i];
    v[i] = first[i] * first[i];
    for (int t = 0; t < steps; t++) gain[i] -= rates[t] * first[i] / (fabs(first[i]) + 1);
  }
  for (int i = 0; i <= 2; i += 2) {
    expect_close(f, "gain", parameters_read(f, &n->p, ARENA_OF_MASTER, i), gain, 8, 1e-5);
    expect_close(f, "m of a gain", parameters_read(f, &n->p, ARENA_OF_M, i), first, 8, 1e-6);
    expect_close(f, "v of a gain", parameters_read(f, &n->p, ARENA_OF_V, i), v, 8, 1e-6);
  }
}

static bool has_heights(const Fixture *f, const int32_t heights[GROUP_MATRICES]) {
  ContextInfo info;
  f->backend->info(f->context, &info);
  for (int i = 0; i < GROUP_MATRICES; i++)
    if (heights[i] % info.width_multiple) return false;
  return true;
}

static void golden_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims");
  const int cols = dims[0], steps = dims[1];
  const size_t count = (size_t)cols * (size_t)(dims[2] + dims[3] + dims[4]);
  if (!has_heights(f, dims + 2)) return;
  const Muon muon = {.lr_factor = 4, .momentum = 0.9f, .weight_decay = 0.1f}; /* as in the script */
  const double *start = golden_values(f, g, index, "start", NULL), *rates = golden_values(f, g, index, "lr", NULL);
  const double *gradients = golden_values(f, g, index, "gradients", NULL);
  const double *first = golden_values(f, g, index, "first", NULL), *last = golden_values(f, g, index, "last", NULL);
  Neighbors n = neighbors_new(f, dims + 2, cols, start);
  StepState *device = state_new(f, &(StepState){0});
  const int32_t one = 1;
  Array table = array_floats(f, concatenate(f, host_values(f, 1), 1, rates, (size_t)steps), (size_t)steps + 1);
  Array targets = array_ints(f, &one, 1);
  for (int t = 0; t < steps; t++) {
    ops->step_begin(c, device, table.data, targets.data);
    update(f, &n, device, gradients + (size_t)t * count, 0, &muon);
    const double *want = t == 0 ? first : t == steps - 1 ? last : NULL;
    if (!want) continue;
    double *got = parameters_read(f, &n.p, ARENA_OF_MASTER, 1);
    expect_close(f, "change of the weights", difference(f, got, start, count), difference(f, want, start, count), count,
                 update_tolerance(f, dims[5] == 0));
    assert_int_equal(state_read(f, device).step, t + 1);
  }
  expect_close(f, "momentum", parameters_read(f, &n.p, ARENA_OF_M, 1), golden_values(f, g, index, "m", NULL), count,
               1e-6);
  expect_neighbors(f, &n, rates, steps);
}

static void test_ten_steps(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "muon");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) golden_case(f, g, index);
  assert_int_equal(index, 6);
}

/* ---- the formula in double ---- */

/* c [n][m] = a [n][k] b [k][m] */
static void multiply(double *c, const double *a, const double *b, int n, int k, int m) {
  memset(c, 0, (size_t)n * (size_t)m * sizeof *c);
  for (int i = 0; i < n; i++)
    for (int l = 0; l < k; l++)
      for (int j = 0; j < m; j++) c[i * m + j] += a[i * k + l] * b[l * m + j];
}

/* x [n][m], whatever its shape: with G = X X^T. */
static void orthogonalize(Fixture *f, double *x, int n, int m) {
  const size_t count = (size_t)n * (size_t)m, square = (size_t)n * (size_t)n;
  double *turned = host_values(f, count), *gram = host_values(f, square), *second = host_values(f, square);
  double *next = host_values(f, count), norm = 0;
  for (size_t i = 0; i < count; i++) norm += x[i] * x[i];
  for (size_t i = 0; i < count; i++) x[i] /= fmax(sqrt(norm), 1e-7);
  for (int step = 0; step < 5; step++) {
    for (int i = 0; i < n; i++)
      for (int j = 0; j < m; j++) turned[j * n + i] = x[i * m + j];
    multiply(gram, x, turned, n, m, n);
    multiply(second, gram, gram, n, n, n);
    for (size_t i = 0; i < square; i++) second[i] = -4.775 * gram[i] + 2.0315 * second[i];
    multiply(next, second, x, n, n, m);
    for (size_t i = 0; i < count; i++) x[i] = 3.4445 * x[i] + next[i];
  }
}

/* Two steps, the second with clipping; matrices of several shapes in a group. */
static void large_case(Fixture *f, const int32_t heights[GROUP_MATRICES], int cols) {
  const int rows = heights[0] + heights[1] + heights[2];
  const size_t count = (size_t)rows * (size_t)cols;
  if (!has_heights(f, heights) || fitting_width(f, cols) != cols) return;
  const Muon muon = {.lr_factor = 0.5f, .momentum = 0.75f, .weight_decay = 0.25f};
  const double rate = 0.125 * 0.5;
  double *w = random_values(f, 1, count), *m = host_values(f, count), *u = host_values(f, count);
  Neighbors n = neighbors_new(f, heights, cols, w);
  StepState *device = state_new(f, &(StepState){.lr = 0.125f});
  for (int t = 0; t < 2; t++) {
    double *g = random_values(f, 2 + (uint32_t)t, count), *before = parameters_read(f, &n.p, ARENA_OF_MASTER, 1);
    update(f, &n, device, g, t ? 3.0f : 0, &muon);
    double clip = (double)state_read(f, device).clip;
    assert_int_equal(clip < 1, t == 1);
    for (size_t i = 0; i < count; i++) {
      m[i] = 0.75 * m[i] + 0.25 * clip * g[i];
      u[i] = 0.75 * m[i] + 0.25 * clip * g[i];
    }
    size_t begin = 0;
    for (int part = 0; part < GROUP_MATRICES; part++) {
      const int height = heights[part];
      const double step = rate * sqrt(fmax(1, (double)height / cols));
      if (height) orthogonalize(f, u + begin, height, cols);
      for (size_t end = begin + (size_t)height * (size_t)cols; begin < end; begin++)
        w[begin] = w[begin] * (1 - rate * 0.25) - step * u[begin];
    }
    double *got = parameters_read(f, &n.p, ARENA_OF_MASTER, 1);
    expect_close(f, "change of the weights", difference(f, got, before, count), difference(f, w, before, count), count,
                 update_tolerance(f, true));
    memcpy(w, got, count * sizeof *w);
  }
  expect_close(f, "momentum", parameters_read(f, &n.p, ARENA_OF_M, 1), m, count, 1e-5);
}

/* Larger than panels, passes and spans of the CPU and tiles of a GPU, and multiples of none. */
static void test_large(void **state) {
  Fixture *f = *state;
  large_case(f, (const int32_t[]){136, 200, 0}, 136);
  large_case(f, (const int32_t[]){304, 0, 0}, 56);
  large_case(f, (const int32_t[]){40, 8, 16}, 264);
  large_case(f, (const int32_t[]){7, 61, 1}, 53);
  large_case(f, (const int32_t[]){1, 0, 0}, 1);
}

/* Reads the compute copy through a GEMM. */
static void test_compute_copy(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { ROWS = 16, COLS = 24, COUNT = ROWS * COLS };
  Neighbors n = neighbors_new(f, (const int32_t[]){8, 8, 0}, COLS, random_values(f, 1, COUNT));
  StepState *device = state_new(f, &(StepState){.lr = 0.125f});
  update(f, &n, device, random_values(f, 2, COUNT), 0, &(Muon){.lr_factor = 1, .momentum = 0.5f});
  double *w = parameters_read(f, &n.p, ARENA_OF_MASTER, 1), *x = host_values(f, COLS), *y = host_values(f, ROWS);
  x[5] = 1; /* the product with a unit vector is a column */
  for (int i = 0; i < ROWS; i++) y[i] = w[i * COLS + 5];
  Array in = array_compute(f, x, COLS), out = array_compute(f, NULL, ROWS);
  ops->linear(c, out.data, in.data, &n.p, layer_of(n.p.groups[1].matrix), 1);
  expect_close(f, "column of the compute copy", array_read(f, &out), y, ROWS, TOLERANCE_F32);
}

/* ---- unchanged memory ---- */

static void test_no_gradient(void **state) {
  Fixture *f = *state;
  enum { COUNT = 16 * 24 };
  double *w = random_values(f, 1, COUNT);
  Neighbors n = neighbors_new(f, (const int32_t[]){16, 0, 0}, 24, w);
  StepState *device = state_new(f, &(StepState){.lr = 0.125f});
  update(f, &n, device, host_values(f, COUNT), 0, &(Muon){.lr_factor = 2, .momentum = 0.5f, .weight_decay = 0.5f});
  for (int i = 0; i < COUNT; i++) w[i] *= 1 - 0.125 * 2 * 0.5;
  expect_close(f, "decayed weights", parameters_read(f, &n.p, ARENA_OF_MASTER, 1), w, COUNT, 1e-6);
}

static void test_halted(void **state) {
  Fixture *f = *state;
  enum { COUNT = 16 * 24 };
  double *w = random_values(f, 1, COUNT), *g = random_values(f, 2, COUNT);
  Neighbors n = neighbors_new(f, (const int32_t[]){16, 0, 0}, 24, w);
  StepState *device = state_new(f, &(StepState){.lr = 0.125f});
  const Muon muon = {.lr_factor = 1, .momentum = 0.5f, .weight_decay = 0.5f};
  for (int t = 0; t < 2; t++) { /* later finite gradients have no effect either */
    g[7] = t ? 1 : (double)NAN;
    update(f, &n, device, g, 1, &muon);
    assert_true(state_read(f, device).halted != 0);
    expect_same("weights", parameters_read(f, &n.p, ARENA_OF_MASTER, 1), w, COUNT);
    expect_same("momentum", parameters_read(f, &n.p, ARENA_OF_M, 1), host_values(f, COUNT), COUNT);
    expect_same("gain", parameters_read(f, &n.p, ARENA_OF_MASTER, 0), n.gain, 8);
  }
}

/* A gain and three groups (columns, heights), whose matrices have several shapes. */
enum { BITS_GROUPS = 4 };
static void bits_specs(Fixture *f, uint32_t seed, ParameterSpec out[BITS_GROUPS]) {
  static const int sizes[BITS_GROUPS - 1][1 + GROUP_MATRICES] = {{56, 56, 24, 56}, {136, 200}, {72, 8, 72, 120}};
  out[0] = norm_spec(8, random_values(f, seed, 8));
  for (int i = 1; i < BITS_GROUPS; i++) {
    const int cols = sizes[i - 1][0], *heights = sizes[i - 1] + 1;
    const int rows = heights[0] + heights[1] + heights[2];
    out[i] = matrix_spec(rows, cols, 0, random_values(f, seed + (uint32_t)i, (size_t)rows * (size_t)cols));
    memcpy(out[i].heights, heights, sizeof out[i].heights);
  }
}

/* With 1 to 3 threads, which a GPU ignores. */
static void test_same_bits(void **state) {
  Fixture *f = *state;
  const Muon muon = {.lr_factor = 1, .momentum = 0.5f, .weight_decay = 0.5f};
  const StepState begin = {.lr = 0.125f};
  ParameterSpec specs[BITS_GROUPS], gradients[BITS_GROUPS];
  const double *weights = NULL, *momentum = NULL;
  bits_specs(f, 1, specs);
  bits_specs(f, 11, gradients);
  for (int threads = 1; threads <= 3; threads++) {
    Machine m = machine_open(f, threads);
    Parameters p = machine_parameters(&m, specs, BITS_GROUPS);
    machine_add_gradients(&m, &p, gradients);
    StepState *device = m.ops->alloc(m.context, "step state", sizeof begin);
    m.ops->upload(m.context, device, &begin, sizeof begin);
    for (int t = 0; t < 2; t++) {
      m.ops->clip(m.context, device, &p, 1, &adamw);
      m.ops->muon(m.context, device, &p, &muon);
      m.ops->adamw(m.context, device, &p, &adamw);
    }
    const double *got = machine_get(&m, KIND_F32, p.master, p.count), *moved = machine_get(&m, KIND_F32, p.m, p.count);
    if (threads == 1) weights = got, momentum = moved;
    for (size_t i = 0; i < p.count; i++) assert_true(isfinite(got[i])); /* NaN would be the same as NaN */
    expect_same("weights", got, weights, p.count);
    expect_same("momentum", moved, momentum, p.count);
    m.ops->release_parameters(m.context, &p);
    machine_close(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ten_steps),   cmocka_unit_test(test_large),  cmocka_unit_test(test_compute_copy),
      cmocka_unit_test(test_no_gradient), cmocka_unit_test(test_halted), cmocka_unit_test(test_same_bits),
  };
  return run_on_backends("kernels: Muon", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
