/* Gated causal short convolution (kernels.h): forward, backward and the state of a prompt. Decoding is in
 * tests/test_decode_parts.c. As tests/test_kernels.c. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

enum { TAPS = CONVOLUTION_TAPS };

/* Operands and results of one call; host values are as stored. */
typedef struct ConvolutionCase {
  int batch, length, dim;
  size_t rows, n; /* n: elements of y */
  const double *bcx, *kernel, *dy;
  const int32_t *positions; /* NULL: none */
  double *y, *dbcx, *dkernel;
  double tolerance;
} ConvolutionCase;

static ConvolutionCase case_of(Fixture *f, int batch, int length, int dim) {
  ConvolutionCase k = {.batch = batch, .length = length, .dim = dim, .tolerance = TOLERANCE_F32};
  k.rows = (size_t)(batch * length), k.n = k.rows * (size_t)dim;
  k.bcx = random_values(f, 1, 3 * k.n);
  k.kernel = random_values(f, 2, TAPS * (size_t)dim);
  k.dy = random_values(f, 3, k.n);
  return k;
}

/* ---- the formulas in double ---- */

/* The first row of the text of row n. */
static int begin_of(const ConvolutionCase *k, int n) { return n - (k->positions ? k->positions[n] : n % k->length); }

/* Computes y, dbcx and dkernel. */
static void compute(Fixture *f, ConvolutionCase *k) {
  const int dim = k->dim;
  double *z = host_values(f, k->n), *s = host_values(f, k->n), *dz = host_values(f, k->n);
  k->y = host_values(f, k->n), k->dbcx = host_values(f, 3 * k->n);
  k->dkernel = host_values(f, TAPS * (size_t)dim);
  for (int n = 0; n < (int)k->rows; n++)
    for (int j = 0; j < dim; j++) {
      const double *row = k->bcx + 3 * n * dim + j, ds = k->dy[n * dim + j] * row[dim];
      z[n * dim + j] = row[0] * row[2 * dim];
      for (int i = 0; i < TAPS; i++) {
        const int from = n - (TAPS - 1) + i;
        if (from < begin_of(k, n)) continue;
        s[n * dim + j] += k->kernel[j * TAPS + i] * z[from * dim + j];
        dz[from * dim + j] += k->kernel[j * TAPS + i] * ds;
        k->dkernel[j * TAPS + i] += ds * z[from * dim + j];
      }
      k->y[n * dim + j] = row[dim] * s[n * dim + j];
    }
  for (int n = 0; n < (int)k->rows; n++)
    for (int j = 0; j < dim; j++) {
      const double *row = k->bcx + 3 * n * dim + j;
      double *out = k->dbcx + 3 * n * dim + j;
      out[0] = dz[n * dim + j] * row[2 * dim];
      out[dim] = k->dy[n * dim + j] * s[n * dim + j];
      out[2 * dim] = dz[n * dim + j] * row[0];
    }
}

/* Positions of texts of 1, 2, 1, 3, 7 and 19 rows, in turn; each sequence begins with a new text. */
static int32_t *packed_positions(Fixture *f, int batch, int length) {
  static const int lengths[] = {1, 2, 1, 3, 7, 19};
  int32_t *positions = host_memory(f, (size_t)(batch * length) * sizeof *positions);
  for (int b = 0, text = 0; b < batch; b++, text++)
    for (int t = 0, at = 0; t < length; t++, at++) {
      if (at == lengths[text % 6]) at = 0, text++;
      positions[b * length + t] = at;
    }
  return positions;
}

/* ---- on the device ---- */

typedef struct ConvolutionArrays {
  Convolution v;
  Array bcx, dy, y, dbcx, dkernel;
} ConvolutionArrays;

/* Runs forward and backward on new arrays; dkernel is added to `sum`, or written if that is NULL. */
static ConvolutionArrays run(Fixture *f, const ConvolutionCase *k, const double *sum) {
  OPS(f);
  const size_t taps = TAPS * (size_t)k->dim;
  const int32_t *positions = k->positions ? array_ints(f, k->positions, k->rows).data : NULL;
  ConvolutionArrays a = {.v = {array_floats(f, k->kernel, taps).data, k->dim, positions},
                         .bcx = array_compute(f, k->bcx, 3 * k->n),
                         .dy = array_compute(f, k->dy, k->n),
                         .y = array_compute(f, NULL, k->n),
                         .dbcx = array_compute(f, NULL, 3 * k->n),
                         .dkernel = array_floats(f, sum, taps)};
  ops->convolution(c, a.y.data, a.bcx.data, &a.v, k->batch, k->length);
  ops->convolution_backward(c, a.dbcx.data, a.dkernel.data, a.dy.data, a.bcx.data, &a.v, k->batch, k->length,
                            sum != NULL);
  return a;
}

/* A second run gives the same bits, and inputs do not change. */
static void check(Fixture *f, const ConvolutionCase *k) {
  const size_t taps = TAPS * (size_t)k->dim;
  const double *before = random_values(f, 4, taps);
  const ConvolutionArrays a = run(f, k, NULL), added = run(f, k, before);
  expect_close(f, "y", array_read(f, &a.y), k->y, k->n, k->tolerance);
  expect_close(f, "dbcx", array_read(f, &a.dbcx), k->dbcx, 3 * k->n, k->tolerance);
  expect_close(f, "dkernel", array_read(f, &a.dkernel), k->dkernel, taps, k->tolerance);
  expect_close(f, "dkernel added", array_read(f, &added.dkernel), sum_of(f, before, k->dkernel, taps), taps,
               k->tolerance);
  expect_same("y again", array_read(f, &added.y), array_read(f, &a.y), k->n);
  expect_same("dbcx again", array_read(f, &added.dbcx), array_read(f, &a.dbcx), 3 * k->n);
  expect_same("dy", array_read(f, &a.dy), array_read(f, &added.dy), k->n);
}

/* ---- the tests ---- */

static void test_convolution(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "convolution");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    const int32_t *dims = golden_ints(f, g, index, "dims");
    if (fitting_width(f, dims[2]) != dims[2]) continue;
    ConvolutionCase k = case_of(f, dims[0], dims[1], dims[2]);
    const struct {
      const char *name;
      const double **values;
    } tensors[] = {{"bcx", &k.bcx},
                   {"kernel", &k.kernel},
                   {"dy", &k.dy},
                   {"y", (const double **)&k.y},
                   {"dbcx", (const double **)&k.dbcx},
                   {"dkernel", (const double **)&k.dkernel}};
    for (int i = 0; i < 6; i++) *tensors[i].values = golden_values(f, g, index, tensors[i].name, NULL);
    if (dims[3]) k.positions = golden_ints(f, g, index, "positions");
    check(f, &k);
  }
  assert_int_equal(index, 6);
}

/* Texts of all lengths; rows and channels of one and of several blocks, with and without a rest. */
static void test_convolution_sizes(void **state) {
  Fixture *f = *state;
  static const int shapes[][3] = {{1, 1, 1},   {3, 1, 8},   {2, 2, 33},    {2, 3, 128}, {1, 4, 264},
                                  {5, 97, 24}, {3, 65, 40}, {2, 37, 1032}, {1, 600, 8}, {2, 150, 520}};
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
    for (int packed = 0; packed < 2; packed++) {
      ConvolutionCase k = case_of(f, shapes[i][0], shapes[i][1], fitting_width(f, shapes[i][2]));
      if (packed) k.positions = packed_positions(f, k.batch, k.length);
      compute(f, &k);
      check(f, &k);
    }
}

/* Positions 0..T-1 are those of no positions. */
static void test_convolution_positions(void **state) {
  Fixture *f = *state;
  enum { BATCH = 3, LENGTH = 21 };
  ConvolutionCase k = case_of(f, BATCH, LENGTH, 24);
  const ConvolutionArrays plain = run(f, &k, NULL);
  int32_t positions[BATCH * LENGTH];
  for (int n = 0; n < BATCH * LENGTH; n++) positions[n] = n % LENGTH;
  k.positions = positions;
  const ConvolutionArrays counted = run(f, &k, NULL);
  expect_same("y", array_read(f, &counted.y), array_read(f, &plain.y), k.n);
  expect_same("dbcx", array_read(f, &counted.dbcx), array_read(f, &plain.dbcx), 3 * k.n);
  expect_same("dkernel", array_read(f, &counted.dkernel), array_read(f, &plain.dkernel), (size_t)(TAPS * k.dim));
}

/* NaN in one channel of a row reaches the rows of its text that read it, forward and backward, and nothing else. */
static void test_convolution_nan(void **state) {
  Fixture *f = *state;
  enum { LENGTH = 12, DIM = 24, BAD = 5 };
  const int32_t positions[LENGTH] = {0, 1, 2, 0, 0, 1, 0, 1, 2, 3, 4, 0},
                ends[LENGTH] = {3, 3, 3, 4, 6, 6, 11, 11, 11, 11, 11, 12};
  for (int row = 0; row < LENGTH; row++) {
    ConvolutionCase k = case_of(f, 1, LENGTH, DIM);
    double *bcx = random_values(f, 1, 3 * k.n), *dy = random_values(f, 3, k.n);
    for (int part = 0; part < 3; part++) bcx[(3 * row + part) * DIM + BAD] = NAN;
    dy[row * DIM + BAD] = NAN;
    k.bcx = bcx, k.dy = dy, k.positions = positions;
    const ConvolutionArrays a = run(f, &k, NULL);
    const double *y = array_read(f, &a.y), *dbcx = array_read(f, &a.dbcx), *dkernel = array_read(f, &a.dkernel);
    for (int n = 0; n < LENGTH; n++)
      for (int j = 0; j < DIM; j++) {
        const bool reads = j == BAD && n >= row && n < row + TAPS && n < ends[row];
        const bool is_read = j == BAD && n <= row && n > row - TAPS && n >= row - positions[row];
        assert_int_equal(isnan(y[n * DIM + j]) != 0, reads);
        assert_int_equal(isnan(dbcx[3 * n * DIM + j]) != 0, is_read);
        assert_int_equal(isnan(dbcx[(3 * n + 1) * DIM + j]) != 0, reads);
        assert_int_equal(isnan(dbcx[(3 * n + 2) * DIM + j]) != 0, is_read);
      }
    for (int i = 0; i < DIM * TAPS; i++)
      if (i / TAPS != BAD) assert_int_equal(isnan(dkernel[i]) != 0, 0);
    assert_true(isnan(dkernel[BAD * TAPS + TAPS - 1]));
  }
}

/* z of the last two positions, each at its place, in one slot of several; of a prompt of one token, only z[0]. */
static void test_convolution_store(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { SLOTS = 3, MOST = 5 };
  const int dims[] = {1, 8, 33, 1032};
  for (int i = 0; i < 4; i++)
    for (int length = 0; length <= MOST; length++)
      for (int slot = -1; slot < SLOTS; slot++) {
        const int dim = fitting_width(f, dims[i]), stride = TAPS * dim + fitting_width(f, 7);
        const size_t count = (size_t)(MOST * 3 * dim);
        const double *bcx = random_values(f, 1, count);
        double *want = host_values(f, (size_t)(SLOTS * TAPS * dim));
        Array in = array_compute(f, bcx, count),
              z = array_new(f, KIND_COMPUTE, layout_rows(SLOTS, TAPS * dim, stride), NULL);
        ops->convolution_store(c, &(ConvolutionState){z.data, stride}, slot, in.data, dim, length);
        const double *got = array_read(f, &z);
        for (int j = 0; j < SLOTS * TAPS * dim; j++) {
          int t = length - 1;
          while (t >= length - 2 && t >= 0 && t % TAPS != j / dim % TAPS) t--;
          const bool stored = j / (TAPS * dim) == slot && t >= 0 && t >= length - 2;
          const double *row = bcx + 3 * (t < 0 ? 0 : t) * dim + j % dim;
          want[j] = row[0] * row[2 * dim];
          assert_int_equal(isnan(got[j]) == 0, stored);
          if (!stored) want[j] = 0;
        }
        double *stored = host_values(f, (size_t)(SLOTS * TAPS * dim));
        for (int j = 0; j < SLOTS * TAPS * dim; j++) stored[j] = isnan(got[j]) ? 0 : got[j];
        expect_close(f, "z", stored, want, (size_t)(SLOTS * TAPS * dim), 1e-6);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_convolution),           cmocka_unit_test(test_convolution_sizes),
      cmocka_unit_test(test_convolution_positions), cmocka_unit_test(test_convolution_nan),
      cmocka_unit_test(test_convolution_store),
  };
  return run_on_backends("kernels: convolution", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
