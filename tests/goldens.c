/* Known results: files of tests/golden, comparisons, finite differences. See backends.h. */
#include "files/formats/safetensors.h"
#include "tests/backends.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- goldens ---- */

struct Golden {
  SafeTensors file;
  const char *name;
};

static void close_golden(void *golden) { safetensors_close(&((Golden *)golden)->file); }

const Golden *golden_open(Fixture *f, const char *name) {
  const char *dir = getenv("INKLING_GOLDEN");
  char path[1024];
  Error error = {0};
  snprintf(path, sizeof path, "%s/%s.safetensors", dir ? dir : "tests/golden", name);
  Golden *golden = host_memory(f, sizeof *golden);
  if (!safetensors_open(&golden->file, path, &error)) fail_msg("%s", error.text);
  fixture_close_later(f, close_golden, golden);
  golden->name = name;
  return golden;
}

static const SafeTensor *golden_find(const Golden *g, int index, const char *name) {
  char full[160];
  if (index < 0) snprintf(full, sizeof full, "%s", name);
  else snprintf(full, sizeof full, "%d.%s", index, name);
  return safetensors_find(&g->file, full);
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
    memcpy(&single, (const char *)tensor->data + 4 * i, 4); /* tensors of a file may be unaligned */
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
  if (f->dtype != DTYPE_F32) return; /* rounding hides differences */
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
