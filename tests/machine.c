#include "tests/machine.h"

#include <string.h>

Machine machine_open(Fixture *f, int threads) {
  Machine m = {.fixture = f, .ops = f->backend};
  Error error = {0};
  ContextOptions options = {.dtype = f->dtype, .threads = threads};
  if (!f->backend->open(&m.context, &options, &error)) fail_msg("%s", error.text);
  return m;
}

void machine_close(Machine *m) {
  StepReport report;
  Error error = {0};
  m->ops->poll(m->context, &report, 1, true, &error);
  if (error.code != EXIT_DONE) fail_msg("the context holds an error: %s", error.text);
  m->ops->close(m->context);
}

void *machine_put(Machine *m, Kind kind, const double *values, size_t count) {
  size_t width = value_bytes(m->fixture->dtype, kind);
  unsigned char *host = host_memory(m->fixture, count * width);
  memset(host, 0xFF, count * width);
  for (size_t i = 0; values && i < count; i++) value_store(m->fixture->dtype, kind, host + i * width, values[i]);
  void *device = m->ops->alloc(m->context, "test", count * width);
  assert_non_null(device);
  m->ops->upload(m->context, device, host, count * width);
  return device;
}

void *machine_put_ints(Machine *m, const int32_t *values, size_t count) {
  double *wide = host_values(m->fixture, count);
  for (size_t i = 0; i < count; i++) wide[i] = values[i];
  return machine_put(m, KIND_I32, wide, count);
}

double *machine_get(Machine *m, Kind kind, const void *device, size_t count) {
  size_t width = value_bytes(m->fixture->dtype, kind);
  unsigned char *host = host_memory(m->fixture, count * width);
  double *values = host_values(m->fixture, count);
  m->ops->download(m->context, host, device, count * width);
  for (size_t i = 0; i < count; i++) values[i] = value_fetch(m->fixture->dtype, kind, host + i * width);
  return values;
}

void *machine_put_rows(Machine *m, const double *values, int rows, int width) {
  return machine_put(m, KIND_COMPUTE, values, (size_t)rows * (size_t)width);
}

double *machine_get_rows(Machine *m, const void *device, int rows, int width) {
  return machine_get(m, KIND_COMPUTE, device, (size_t)rows * (size_t)width);
}

Parameters machine_parameters(Machine *m, const ParameterSpec *specs, int count) {
  Parameters p = parameters_described(m->fixture, specs, count);
  p.master = machine_put(m, KIND_F32, parameters_flat(m->fixture, &p, specs), p.count);
  m->ops->refresh_parameters(m->context, &p);
  return p;
}

void machine_add_gradients(Machine *m, Parameters *p, const ParameterSpec *gradients) {
  const double *zeros = host_values(m->fixture, p->count);
  p->grad = machine_put(m, KIND_F32, parameters_flat(m->fixture, p, gradients), p->count);
  p->m = machine_put(m, KIND_F32, zeros, p->count);
  p->v = machine_put(m, KIND_F32, zeros, p->count);
  m->ops->refresh_parameters(m->context, p); /* now with what the optimizers need */
}
