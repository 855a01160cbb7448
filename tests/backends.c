#include "tests/backends.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(INKLING_SANITIZE)
/* Memory that runs out is tested: malloc has to return NULL then, not end the program. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

enum { GUARD_BYTES = 256, MAX_TESTS = 64 };

/* A linked list of whatever has to be looked at or freed when the test is over. */
struct Owned {
  Owned *next;
  void *host;        /* malloc */
  void *device;      /* backend->alloc; with the guard zones */
  size_t span_bytes; /* between the guard zones */
  SafeTensors golden;
  bool is_golden;
};

struct Golden {
  const SafeTensors *file;
  const char *name;
};

static Owned *own(Fixture *f) {
  Owned *owned = calloc(1, sizeof *owned);
  assert_non_null(owned);
  owned->next = f->owned;
  f->owned = owned;
  return owned;
}

/* ---- digests: with $INKLING_TEST_DIGEST a line for every test, its name and a hash of all that it downloaded, is
 * appended to that file. Runs that must agree to the bit are compared so. ---- */

static struct {
  const Backend *backend; /* the one that is tested */
  uint64_t hash;          /* FNV-1a */
} digest;

static void digest_add(const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  for (size_t i = 0; i < count; i++) digest.hash = (digest.hash ^ at[i]) * 0x100000001B3u;
}

static void digest_download(Context *c, void *host, const void *device, size_t bytes) {
  if (bytes) memset(host, 0xEE, bytes); /* in a context that holds an error nothing is downloaded */
  digest.backend->download(c, host, device, bytes);
  digest_add(host, bytes);
}

static int digest_poll(Context *c, StepState *out, int capacity, bool wait, Error *error) {
  int count = digest.backend->poll(c, out, capacity, wait, error);
  const size_t bytes = offsetof(StepState, bias2) + sizeof out->bias2; /* without the padding */
  for (int i = 0; i < count; i++) digest_add(&out[i], bytes);
  return count;
}

/* `backend`, or one in `wrapped` that goes through the functions above. */
static const Backend *digest_of(const Backend *backend, Backend *wrapped) {
  if (!getenv("INKLING_TEST_DIGEST")) return backend;
  digest.backend = backend;
  *wrapped = *backend;
  wrapped->download = digest_download;
  wrapped->poll = digest_poll;
  return wrapped;
}

static bool digest_write(const char *test) {
  const char *path = getenv("INKLING_TEST_DIGEST");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!path) return true;
  if (file) fprintf(file, "%s %016llx\n", test, (unsigned long long)digest.hash);
  if (file && fclose(file) == 0) return true;
  fprintf(stderr, "%s: cannot be written\n", path);
  return false;
}

/* ---- running ---- */

static int set_up(void **state) {
  Fixture *f = *state;
  Error error = {0};
  ContextOptions options = {.dtype = f->dtype, .threads = 0};
  f->expect_error = false;
  f->owned = NULL;
  digest.hash = 0xCBF29CE484222325u;
  if (f->backend->open(&f->context, &options, &error)) return 0;
  fprintf(stderr, "%s: %s\n", f->backend->name, error.text);
  return 1;
}

static bool guards_whole(const Fixture *f, const Owned *owned) {
  unsigned char guard[GUARD_BYTES];
  for (int side = 0; side < 2; side++) {
    const char *at = (const char *)owned->device + (side ? GUARD_BYTES + owned->span_bytes : 0);
    f->backend->download(f->context, guard, at, GUARD_BYTES);
    for (int i = 0; i < GUARD_BYTES; i++) {
      if (guard[i] == 0xFF) continue;
      fprintf(stderr, "an array of %zu bytes was written to %s\n", owned->span_bytes,
              side ? "behind its end" : "before its start");
      return false;
    }
  }
  return true;
}

void fixture_free(Fixture *f) {
  for (Owned *owned = f->owned, *next; owned; owned = next) {
    next = owned->next;
    if (owned->device) f->backend->release(f->context, owned->device);
    if (owned->is_golden) safetensors_close(&owned->golden);
    free(owned->host);
    free(owned);
  }
  f->owned = NULL;
  f->backend->close(f->context);
  f->context = NULL;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  Error error = {0};
  StepState reports[8];
  int failures = 0;
  if (!f->expect_error) {
    while (f->backend->poll(f->context, reports, 8, true, &error) > 0) {
    }
    if (error.code != EXIT_DONE) fprintf(stderr, "the context holds an error: %s\n", error.text), failures++;
  }
  for (Owned *owned = f->owned; owned; owned = owned->next)
    if (owned->device && !f->expect_error && !guards_whole(f, owned)) failures++;
  if (!digest_write(f->test)) failures++;
  fixture_free(f);
  return failures ? -1 : 0;
}

static const char *dtype_name(DType dtype) { return dtype == DTYPE_F32 ? "f32" : "bf16"; }

static bool opens(const Backend *backend, DType dtype) {
  Context *context = NULL;
  Error error = {0};
  ContextOptions options = {.dtype = dtype, .threads = 0};
  if (backend->open(&context, &options, &error)) {
    backend->close(context);
    return true;
  }
  fprintf(stderr, "[ not run  ] %s %s: %s\n", backend->name, dtype_name(dtype), error.text);
  return false;
}

static int run_on(const Backend *backend, DType dtype, const char *group, const struct CMUnitTest *tests, int count) {
  char names[MAX_TESTS][128], title[128];
  struct CMUnitTest copies[MAX_TESTS];
  Fixture fixtures[MAX_TESTS];
  Backend wrapped;
  snprintf(title, sizeof title, "%s %s %s", group, backend->name, dtype_name(dtype));
  for (int i = 0; i < count; i++) {
    snprintf(names[i], sizeof names[i], "%s %s %s", backend->name, dtype_name(dtype), tests[i].name);
    fixtures[i] = (Fixture){.backend = digest_of(backend, &wrapped), .dtype = dtype, .test = names[i]};
    copies[i] = tests[i];
    copies[i].name = names[i];
    copies[i].setup_func = set_up;
    copies[i].teardown_func = tear_down;
    copies[i].initial_state = &fixtures[i];
  }
  return _cmocka_run_group_tests(title, copies, (size_t)count, NULL, NULL);
}

int run_on_backends(const char *group, const struct CMUnitTest *tests, int count) {
  int failures = 0, runs = 0;
  if (count > MAX_TESTS) {
    fprintf(stderr, "%s: %d tests, room for %d\n", group, count, MAX_TESTS);
    return 1;
  }
  const char *only = getenv("INKLING_TEST_BACKEND");
  for (const Backend *const *b = backend_list(); *b; b++) {
    if (only && strcmp((*b)->name, only) != 0) continue;
    for (DType dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
      bool required = strcmp((*b)->name, "cpu") == 0 ? dtype == DTYPE_F32 : only != NULL;
      if (!opens(*b, dtype)) {
        failures += required;
        continue;
      }
      runs++;
      failures += run_on(*b, dtype, group, tests, count);
    }
  }
  return failures + (runs == 0);
}

/* ---- host memory ---- */

void *host_memory(Fixture *f, size_t bytes) {
  Owned *owned = own(f);
  owned->host = calloc(bytes ? bytes : 1, 1);
  assert_non_null(owned->host);
  return owned->host;
}

double *host_values(Fixture *f, size_t count) { return host_memory(f, count * sizeof(double)); }

double *random_values(Fixture *f, uint32_t seed, size_t count) {
  double *values = host_values(f, count);
  for (size_t i = 0; i < count; i++) {
    PhiloxWords r = philox(seed, (uint32_t)i, 0xFEu << 24, 0, 0);
    double sum = 0; /* of four uniform numbers on multiples of 1/16: about normal, and few enough bits for bf16 */
    for (int j = 0; j < 4; j++) sum += (double)(r.word[j] >> 28) / 16 - 0.46875;
    values[i] = round(sum * 1.75 * 16) / 16;
  }
  return values;
}

/* ---- conversions ---- */

static float bf16_to_float(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

static uint16_t float_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static size_t element_bytes(const Fixture *f, Kind kind) { return kind == KIND_COMPUTE ? dtype_bytes(f->dtype) : 4; }

static void store(const Fixture *f, Kind kind, void *at, double value) {
  if (kind == KIND_I32) {
    int32_t i = (int32_t)value;
    memcpy(at, &i, 4);
  } else if (kind == KIND_COMPUTE && f->dtype == DTYPE_BF16) {
    uint16_t bits = float_to_bf16((float)value);
    memcpy(at, &bits, 2);
  } else {
    float single = (float)value;
    memcpy(at, &single, 4);
  }
}

static double fetch(const Fixture *f, Kind kind, const void *at) {
  if (kind == KIND_I32) {
    int32_t i;
    memcpy(&i, at, 4);
    return i;
  }
  if (kind == KIND_COMPUTE && f->dtype == DTYPE_BF16) {
    uint16_t bits;
    memcpy(&bits, at, 2);
    return (double)bf16_to_float(bits);
  }
  float single;
  memcpy(&single, at, 4);
  return (double)single;
}

/* ---- arrays ---- */

Layout layout_flat(size_t count) {
  assert_true(count <= INT32_MAX);
  return layout_rows(1, (int)count, (int64_t)count);
}

Layout layout_rows(int rows, int width, int64_t stride) {
  return (Layout){.batches = 1, .rows = rows, .heads = 1, .width = width, .row = stride};
}

/* Where value number `index` lies. */
static size_t layout_at(const Layout *l, size_t index) {
  size_t width = (size_t)l->width, heads = (size_t)l->heads, rows = (size_t)l->rows;
  size_t d = index % width, h = index / width % heads, t = index / width / heads % rows,
         b = index / width / heads / rows;
  return b * (size_t)l->batch + t * (size_t)l->row + h * (size_t)l->head + d;
}

static size_t layout_count(const Layout *l) {
  return (size_t)l->batches * (size_t)l->rows * (size_t)l->heads * (size_t)l->width;
}

Array array_new(Fixture *f, Kind kind, Layout layout, const double *values) {
  Array a = {.layout = layout, .kind = kind, .count = layout_count(&layout)};
  a.span = (size_t)(layout.batches - 1) * (size_t)layout.batch + (size_t)(layout.rows - 1) * (size_t)layout.row +
           (size_t)(layout.heads - 1) * (size_t)layout.head + (size_t)layout.width;
  size_t bytes = a.span * element_bytes(f, kind), whole = bytes + 2 * GUARD_BYTES;
  unsigned char *pattern = host_memory(f, whole);
  memset(pattern, 0xFF, whole);
  Owned *owned = own(f);
  owned->span_bytes = bytes;
  owned->device = f->backend->alloc(f->context, "test", whole);
  assert_non_null(owned->device);
  f->backend->upload(f->context, owned->device, pattern, whole);
  a.data = (char *)owned->device + GUARD_BYTES;
  if (values) array_write(f, &a, values);
  return a;
}

Array array_floats(Fixture *f, const double *values, size_t count) {
  return array_new(f, KIND_F32, layout_flat(count), values);
}

Array array_compute(Fixture *f, const double *values, size_t count) {
  return array_new(f, KIND_COMPUTE, layout_flat(count), values);
}

Array array_ints(Fixture *f, const int32_t *values, size_t count) {
  double *wide = host_values(f, count);
  for (size_t i = 0; i < count; i++) wide[i] = values[i];
  return array_new(f, KIND_I32, layout_flat(count), wide);
}

void array_write(Fixture *f, const Array *array, const double *values) {
  size_t width = element_bytes(f, array->kind);
  unsigned char *bytes = malloc(array->span * width);
  assert_non_null(bytes);
  memset(bytes, 0xFF, array->span * width);
  for (size_t i = 0; i < array->count; i++)
    store(f, array->kind, bytes + layout_at(&array->layout, i) * width, values[i]);
  f->backend->upload(f->context, array->data, bytes, array->span * width);
  free(bytes);
}

/* Fails when a byte that belongs to no value is not 0xFF any more. */
static void check_gaps(const Array *array, const unsigned char *bytes, size_t width) {
  unsigned char *taken = calloc(array->span, 1);
  assert_non_null(taken);
  for (size_t i = 0; i < array->count; i++) taken[layout_at(&array->layout, i)] = 1;
  bool whole = true;
  for (size_t i = 0; i < array->span * width; i++) whole = whole && (taken[i / width] || bytes[i] == 0xFF);
  free(taken);
  if (!whole) fail_msg("a gap between the rows of an array was written to");
}

double *array_read(Fixture *f, const Array *array) {
  size_t width = element_bytes(f, array->kind);
  double *values = host_values(f, array->count);
  unsigned char *bytes = malloc(array->span * width);
  assert_non_null(bytes);
  f->backend->download(f->context, bytes, array->data, array->span * width);
  for (size_t i = 0; i < array->count; i++)
    values[i] = fetch(f, array->kind, bytes + layout_at(&array->layout, i) * width);
  check_gaps(array, bytes, width);
  free(bytes);
  return values;
}

void *array_at(Fixture *f, const Array *array, int64_t index) {
  return (char *)array->data + index * (int64_t)element_bytes(f, array->kind);
}

View array_view(Fixture *f, const Array *array, int first_head) {
  const Layout *l = &array->layout;
  return (View){.data = array_at(f, array, first_head * l->head), .batch = l->batch, .row = l->row, .head = l->head};
}

StepState *state_new(Fixture *f, const StepState *host) {
  Owned *owned = own(f);
  unsigned char guarded[sizeof *host + 2 * GUARD_BYTES];
  memset(guarded, 0xFF, sizeof guarded);
  memcpy(guarded + GUARD_BYTES, host, sizeof *host);
  owned->span_bytes = sizeof *host;
  owned->device = f->backend->alloc(f->context, "state", sizeof guarded);
  assert_non_null(owned->device);
  f->backend->upload(f->context, owned->device, guarded, sizeof guarded);
  return (StepState *)((char *)owned->device + GUARD_BYTES);
}

StepState state_read(Fixture *f, const StepState *device) {
  StepState host;
  f->backend->download(f->context, &host, device, sizeof host);
  return host;
}

/* ---- parameters and other operands ---- */

static size_t matrix_count(Matrix m) { return (size_t)m.rows * (size_t)m.cols; }

static float *arena_of(const Parameters *p, Arena arena) {
  float *const arenas[] = {p->master, p->grad, p->m, p->v};
  return arenas[arena];
}

Parameters parameters_new(Fixture *f, const ParameterSpec *specs, int count) {
  ParameterGroup *groups = host_memory(f, (size_t)count * sizeof *groups);
  Parameters p = {.groups = groups, .group_count = count};
  for (int i = 0; i < count; i++) {
    Matrix matrix = {.offset = p.count, .rows = specs[i].rows + specs[i].pad_rows, .cols = specs[i].cols};
    groups[i] = (ParameterGroup){.matrix = matrix, .decay = specs[i].decay, .gemm = specs[i].gemm};
    p.count += (matrix_count(matrix) + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
  }
  const double *zeros = host_values(f, p.count);
  p.master = array_floats(f, zeros, p.count).data;
  p.grad = array_floats(f, zeros, p.count).data;
  p.m = array_floats(f, zeros, p.count).data;
  p.v = array_floats(f, zeros, p.count).data;
  for (int i = 0; i < count; i++) {
    double *padded = host_values(f, matrix_count(groups[i].matrix));
    memcpy(padded, specs[i].values, (size_t)specs[i].rows * (size_t)specs[i].cols * sizeof *padded);
    parameters_write(f, &p, ARENA_OF_MASTER, i, padded);
  }
  f->backend->refresh_parameters(f->context, &p);
  return p;
}

void parameters_write(Fixture *f, const Parameters *p, Arena arena, int matrix, const double *values) {
  Matrix m = p->groups[matrix].matrix;
  float *singles = host_memory(f, matrix_count(m) * sizeof *singles);
  for (size_t i = 0; i < matrix_count(m); i++) singles[i] = (float)values[i];
  f->backend->upload(f->context, arena_of(p, arena) + m.offset, singles, matrix_count(m) * sizeof *singles);
}

double *parameters_read(Fixture *f, const Parameters *p, Arena arena, int matrix) {
  float *all = host_memory(f, p->count * sizeof *all);
  f->backend->download(f->context, all, arena_of(p, arena), p->count * sizeof *all);
  for (int i = 0; i < p->group_count; i++) {
    Matrix m = p->groups[i].matrix;
    size_t end = i + 1 < p->group_count ? p->groups[i + 1].matrix.offset : p->count;
    for (size_t j = m.offset + matrix_count(m); j < end; j++)
      if (all[j] != 0.0f) fail_msg("alignment pad %zu of an arena is %g", j, (double)all[j]);
  }
  Matrix m = p->groups[matrix].matrix;
  double *values = host_values(f, matrix_count(m));
  for (size_t i = 0; i < matrix_count(m); i++) values[i] = (double)all[m.offset + i];
  return values;
}

ParameterSpec gain_spec(int cols, const double *values) {
  return (ParameterSpec){.rows = 1, .cols = cols, .values = values};
}

ParameterSpec matrix_spec(int rows, int cols, int pad_rows, const double *values) {
  return (ParameterSpec){
      .rows = rows, .cols = cols, .pad_rows = pad_rows, .decay = true, .gemm = true, .values = values};
}

double *concatenate(Fixture *f, const double *a, size_t a_count, const double *b, size_t b_count) {
  double *both = host_values(f, a_count + b_count);
  memcpy(both, a, a_count * sizeof *a);
  memcpy(both + a_count, b, b_count * sizeof *b);
  return both;
}

double *sum_of(Fixture *f, const double *a, const double *b, size_t count) {
  double *sum = host_values(f, count);
  for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
  return sum;
}

void token_order(Fixture *f, const int32_t *tokens, int count, int vocab, Array *offsets, Array *order) {
  int32_t *starts = host_memory(f, (size_t)(vocab + 1) * sizeof *starts),
          *sorted = host_memory(f, (size_t)count * sizeof *sorted);
  int32_t next = 0;
  for (int v = 0; v < vocab; v++) {
    starts[v] = next;
    for (int n = 0; n < count; n++)
      if (tokens[n] == v) sorted[next++] = n;
  }
  starts[vocab] = next;
  *offsets = array_ints(f, starts, (size_t)vocab + 1);
  *order = array_ints(f, sorted, (size_t)count);
}

int32_t *some_tokens(Fixture *f, int count, int vocab) {
  int32_t *tokens = host_memory(f, (size_t)count * sizeof *tokens);
  for (int i = 0; i < count; i++) tokens[i] = (int32_t)(philox(7, (uint32_t)i, 1, 2, 3).word[0] % (uint32_t)vocab);
  return tokens;
}

Dropout dropout_at(Fixture *f, float p, int64_t steps_done, int first_sequence) {
  StepState state = {.step = steps_done, .sequence = first_sequence};
  return (Dropout){.p = p, .site = SITE_DROPOUT + 11, .seed = 0x123456789ABCDEFu, .state = state_new(f, &state)};
}

bool has_head_size(const Fixture *f, int head_dim) {
  if (strcmp(f->backend->name, "cuda") != 0) return head_dim >= 2 && head_dim <= 256 && head_dim % 2 == 0;
  return head_dim >= 8 && head_dim <= 128 && head_dim % 8 == 0;
}

/* ---- goldens ---- */

const Golden *golden_open(Fixture *f, const char *name) {
  const char *dir = getenv("INKLING_GOLDEN");
  char path[1024];
  Error error = {0};
  snprintf(path, sizeof path, "%s/%s.safetensors", dir ? dir : "tests/golden", name);
  Owned *owned = own(f);
  if (!safetensors_open(&owned->golden, path, &error)) fail_msg("%s", error.text);
  owned->is_golden = true;
  Golden *golden = host_memory(f, sizeof *golden);
  golden->file = &owned->golden;
  golden->name = name;
  return golden;
}

static const SafeTensor *golden_find(const Golden *g, int index, const char *name) {
  char full[160];
  if (index < 0) snprintf(full, sizeof full, "%s", name);
  else snprintf(full, sizeof full, "%d.%s", index, name);
  return safetensors_find(g->file, full);
}

bool golden_has(const Golden *g, int index, const char *name) { return golden_find(g, index, name); }

static const SafeTensor *golden_need(const Golden *g, int index, const char *name, TensorType type) {
  const SafeTensor *tensor = golden_find(g, index, name);
  if (!tensor) fail_msg("golden %s, case %d: no tensor %s", g->name, index, name);
  if (tensor->type != type) fail_msg("golden %s, case %d: %s has type %d", g->name, index, name, (int)tensor->type);
  return tensor;
}

double *golden_values(Fixture *f, const Golden *g, int index, const char *name, size_t *count) {
  const SafeTensor *tensor = golden_need(g, index, name, TENSOR_F32);
  size_t n = tensor->bytes / 4;
  double *values = host_values(f, n);
  for (size_t i = 0; i < n; i++) {
    float single;
    memcpy(&single, (const char *)tensor->data + 4 * i, 4); /* tensors of a file may lie anywhere */
    values[i] = (double)single;
  }
  if (count) *count = n;
  return values;
}

int32_t *golden_ints(Fixture *f, const Golden *g, int index, const char *name) {
  const SafeTensor *tensor = golden_need(g, index, name, TENSOR_I32);
  int32_t *values = host_memory(f, tensor->bytes);
  memcpy(values, tensor->data, tensor->bytes);
  return values;
}

double golden_value(Fixture *f, const Golden *g, int index, const char *name) {
  return *golden_values(f, g, index, name, NULL);
}

/* ---- comparing ---- */

void expect_close_at(const Fixture *f, const char *what, const double *got, const double *want, size_t count,
                     double tolerance, double floor, const char *file, int line) {
  double difference = 0, size = 0;
  if (f->dtype == DTYPE_BF16) tolerance = fmax(tolerance, TOLERANCE_BF16);
  for (size_t i = 0; i < count; i++) {
    if (isinf(want[i]) && got[i] == want[i]) continue;
    if (!isfinite(want[i])) difference = (double)NAN; /* infinite over infinite would pass */
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  double scale = fmax(sqrt(size), floor * sqrt((double)count));
  if (sqrt(difference) <= tolerance * scale) return; /* false for NaN */
  size_t first = 0;
  while (first + 1 < count && fabs(got[first] - want[first]) <= tolerance * fmax(fabs(want[first]), floor)) first++;
  fprintf(stderr, "%s:%d: %s differs by %.3g relative, allowed are %.3g; value %zu of %zu is %.9g, not %.9g\n", file,
          line, what, sqrt(difference) / scale, tolerance, first, count, got[first], want[first]);
  _fail(file, line);
}

void expect_same_at(const char *what, const double *got, const double *want, size_t count, const char *file, int line) {
  for (size_t i = 0; i < count; i++) {
    if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))) continue;
    fprintf(stderr, "%s:%d: %s is not the same: value %zu of %zu is %.9g, not %.9g\n", file, line, what, i, count,
            got[i], want[i]);
    _fail(file, line);
  }
}

static double weighted_output(Fixture *f, Forward *forward, const double *input) {
  array_write(f, &forward->in, input);
  forward->run(f, forward);
  const double *out = array_read(f, &forward->out);
  double sum = 0;
  for (size_t i = 0; i < forward->out.count; i++) sum += out[i] * forward->upstream[i];
  return sum;
}

/* Central differences with a step of 1/64: fp32 outputs leave some 1e-5, the step's square 2e-4 of it. */
void expect_derivative(Fixture *f, Forward *forward, const double *input, const double *gradient) {
  size_t count = forward->in.count;
  double *moved = host_values(f, count), *want = host_values(f, count);
  const double h = 1.0 / 64;
  if (f->dtype != DTYPE_F32) return; /* a difference of rounded numbers says nothing */
  memcpy(moved, input, count * sizeof *input);
  for (size_t i = 0; i < count; i++) {
    moved[i] = input[i] + h;
    want[i] = weighted_output(f, forward, moved);
    moved[i] = input[i] - h;
    want[i] = (want[i] - weighted_output(f, forward, moved)) / (2 * h);
    moved[i] = input[i];
  }
  expect_close(f, "gradient against finite differences", gradient, want, count, 2e-3);
}
