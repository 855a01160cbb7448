/* Functions for tests of kernels.h, which run on every backend.
 *
 * run_on_backends() runs each test once for every backend of backend_list() and every compute dtype that it opens, in a
 * fresh context. A test takes its Fixture from *state and never frees: device arrays, host buffers and golden files
 * belong to the fixture. At the end of the test the guard zones around every array are checked, and the context must
 * have no error.
 *
 * Host values are doubles whatever the dtype; arrays convert. Memory without values is filled with 0xFF bytes, a NaN in
 * every float type: this detects reads beyond the inputs, and outputs that are not written. */
#ifndef INKLING_TESTS_BACKENDS_H
#define INKLING_TESTS_BACKENDS_H

#include "kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct Owned Owned;

typedef struct Fixture {
  const Backend *backend;
  Context *context;
  DType dtype;
  const char *test;  /* "cpu-v3 f32 test_linear" */
  bool expect_error; /* the test provoked the context's error, which is not checked afterwards */
  Owned *owned;      /* resources of the test */
} Fixture;

/* Like cmocka_run_group_tests, on all backends; returns the number of failures. CPU backends must open; others that do
 * not are reported on stderr and skipped. With $INKLING_TEST_BACKEND only the backend of that name, which must open in
 * all dtypes. */
int run_on_backends(const char *group, const struct CMUnitTest *tests, int count);

/* The same only in f32, for operations without arguments in the compute dtype. */
int run_on_backends_in_f32(const char *group, const struct CMUnitTest *tests, int count);

/* Frees the resources of a test's own Fixture, and closes its context. */
void fixture_free(Fixture *f);

/* Calls close(what) at the end of the test. */
void fixture_close_later(Fixture *f, void (*close)(void *what), void *what);

/* Whether the backend is CUDA, on a card or emulated. Emulated kernels are slow: tests make every check there, but with
 * fewer numbers. */
bool fixture_is_cuda(const Fixture *f);

/* ---- host memory ---- */

void *host_memory(Fixture *f, size_t bytes); /* zeroed */
double *host_values(Fixture *f, size_t count);
/* Normal-looking numbers of mean 0 and variance 1, exact in every dtype; the same for the same `seed`. */
double *random_values(Fixture *f, uint32_t seed, size_t count);

/* ---- device arrays ---- */

typedef enum Kind { KIND_F32, KIND_COMPUTE, KIND_I32 } Kind;

size_t value_bytes(DType dtype, Kind kind);
void value_store(DType dtype, Kind kind, void *at, double value);
double value_fetch(DType dtype, Kind kind, const void *at);

/* Device memory between guard zones; without `bytes` it is filled with 0xFF. */
void *guarded_memory(Fixture *f, const char *name, const void *bytes, size_t count);

/* [batch][row][head][width] with any strides, in elements: what a View describes. */
typedef struct Layout {
  int batches, rows, heads, width;
  int64_t batch, row, head; /* strides */
} Layout;

typedef struct Array {
  void *data; /* device */
  Layout layout;
  Kind kind;
  size_t count; /* values, gaps not counted */
  size_t span;  /* elements from the first to the last, gaps counted */
} Array;

Layout layout_flat(size_t count);
Layout layout_rows(int rows, int width, int64_t stride);
/* values [count] without gaps; NULL leaves the array filled with 0xFF. */
Array array_new(Fixture *f, Kind kind, Layout layout, const double *values);
Array array_floats(Fixture *f, const double *values, size_t count);  /* fp32 */
Array array_compute(Fixture *f, const double *values, size_t count); /* the compute dtype */
Array array_ints(Fixture *f, const int32_t *values, size_t count);
void array_write(Fixture *f, const Array *array, const double *values);
double *array_read(Fixture *f, const Array *array); /* [count]; fails when a gap or a guard zone was written to */
View array_view(Fixture *f, const Array *array, int first_head);
/* Element `index` of the span, as a pointer. */
void *array_at(Fixture *f, const Array *array, int64_t index);

StepState *state_new(Fixture *f, const StepState *host); /* device */
StepState state_read(Fixture *f, const StepState *device);

/* ---- parameters ---- */

enum { GROUP_MATRICES = 3 }; /* of Muon in a group, at most */

typedef struct ParameterSpec {
  int rows, cols; /* rows: logical */
  int pad_rows;   /* zero rows after them, which are part of the Matrix */
  bool decay, gemm;
  const double *values;        /* [rows][cols] */
  int heights[GROUP_MATRICES]; /* of the matrices in it, where Muon updates them; 0 = no more */
} ParameterSpec;

/* Parameters without arenas: the matrices in this order. */
Parameters parameters_described(Fixture *f, const ParameterSpec *specs, int count);
/* The values of the specs as one arena [p->count], 0 wherever there are none. */
double *parameters_flat(Fixture *f, const Parameters *p, const ParameterSpec *specs);

/* Arenas with `count` matrices in this order; gradients and moments zero; the compute copy made. */
Parameters parameters_new(Fixture *f, const ParameterSpec *specs, int count);
typedef enum Arena { ARENA_OF_MASTER, ARENA_OF_GRAD, ARENA_OF_M, ARENA_OF_V } Arena;
/* The whole Matrix with pads; fails if the arena is not zero outside of the matrices. Matrices of Muon have no second
 * moments. */
double *parameters_read(Fixture *f, const Parameters *p, Arena arena, int matrix);
void parameters_write(Fixture *f, const Parameters *p, Arena arena, int matrix, const double *values);

/* ---- other operands ---- */

#define OPS(f)                                                                                                         \
  const Backend *ops = (f)->backend;                                                                                   \
  Context *c = (f)->context

ParameterSpec norm_spec(int cols, const double *values);
ParameterSpec bias_spec(int cols, const double *values);
ParameterSpec matrix_spec(int rows, int cols, int pad_rows, const double *values);
/* A layer without bias. */
static inline Linear layer_of(Matrix weight) { return (Linear){.weight = weight}; }
/* weight: device memory. */
static inline Norm rms_norm_of(const float *weight, float eps) { return (Norm){NORM_RMS, weight, NULL, eps}; }
static inline Norm layer_norm_of(const float *weight, const float *bias, float eps) {
  return (Norm){NORM_LAYER, weight, bias, eps};
}
/* An embedding without positions. */
static inline Embedding table_of(Matrix table) { return (Embedding){.table = table}; }
double *concatenate(Fixture *f, const double *a, size_t a_count, const double *b, size_t b_count);
double *sum_of(Fixture *f, const double *a, const double *b, size_t count);
int32_t *some_tokens(Fixture *f, int count, int vocab);
/* The counting sort that loaders make: offsets [vocab + 1], order [count]. */
void token_order(Fixture *f, const int32_t *tokens, int count, int vocab, Array *offsets, Array *order);
/* With a device state of its own. */
Dropout dropout_at(Fixture *f, float p, int64_t steps_done, int first_sequence);
/* The factors of dropout by the documented map, 0 or 1 / (1 - p), on [batch][length][dim]; sequences are numbered from
 * `first`. */
double *dropout_mask(Fixture *f, const Dropout *d, int64_t step, int first, int batch, int length, int dim);
/* Whether attention supports the head size (even and at most 256 on the CPU, multiples of 8 to 128 on CUDA). */
bool has_head_size(const Fixture *f, int head_dim);
/* `width`, or the next greater one that rows on this backend may have (a multiple of 8 on CUDA); fitting_width(): at most
 * the greatest width of a model. */
int fitting_stride(const Fixture *f, int width);
int fitting_width(const Fixture *f, int width);
/* Pads [rows][width] to [rows][stride] with `pad`. */
double *with_pads(Fixture *f, const double *values, int rows, int width, int stride, double pad);
/* Copies [batch][rows][cols][width] to [batch][cols][rows][width]. */
double *swapped(Fixture *f, const double *values, int batch, int rows, int cols, int width);

/* ---- goldens: tests/golden/NAME.safetensors, or in the directory $INKLING_GOLDEN ---- */

typedef struct Golden Golden;
const Golden *golden_open(Fixture *f, const char *name);
/* Tensor "CASE.name", or "name" when `index` is negative. Fails the test when it is absent. */
double *golden_values(Fixture *f, const Golden *g, int index, const char *name, size_t *count);
int32_t *golden_ints(Fixture *f, const Golden *g, int index, const char *name);
double golden_value(Fixture *f, const Golden *g, int index, const char *name);
bool golden_has(const Golden *g, int index, const char *name);

/* ---- comparing ---- */

/* ||got - want|| <= tolerance * max(||want||, floor * sqrt(count)), in the L2 norm; a value that is infinite in `want`
 * must be the same infinity. NaN never passes. In bf16 the tolerance is at least TOLERANCE_BF16. `floor` is the size of
 * the numbers that canceled where the true result is (nearly) zero. */
#define expect_close(f, what, got, want, count, tolerance)                                                             \
  expect_close_at(f, what, got, want, count, tolerance, 1e-3, __FILE__, __LINE__)
#define expect_close_floor(f, what, got, want, count, tolerance, floor)                                                \
  expect_close_at(f, what, got, want, count, tolerance, floor, __FILE__, __LINE__)
void expect_close_at(const Fixture *f, const char *what, const double *got, const double *want, size_t count,
                     double tolerance, double floor, const char *file, int line);
#define expect_same(what, got, want, count) expect_same_at(what, got, want, count, __FILE__, __LINE__)
/* Equal bit for bit (as numbers: NaN equals NaN). */
void expect_same_at(const char *what, const double *got, const double *want, size_t count, const char *file, int line);

/* A forward operation as a function of one operand. */
typedef struct Forward Forward;
struct Forward {
  void (*run)(Fixture *f, Forward *forward); /* reads `in`, writes `out` */
  Array in, out;
  Array fixed[4]; /* other operands */
  const Dropout *dropout;
  const double *upstream; /* gradient of the output */
  int dims[4];
};
/* `gradient` of sum(out * upstream) at `input`, against central differences. In bf16, where these say nothing, it does
 * nothing. */
void expect_derivative(Fixture *f, Forward *forward, const double *input, const double *gradient);

/* fp32 with sums of up to some hundred terms: 2^-24 times a few. */
#define TOLERANCE_F32 1e-5
/* Eight bits of mantissa round by 2^-9; inputs, saved values and outputs are each rounded. */
#define TOLERANCE_BF16 1e-2

#endif
