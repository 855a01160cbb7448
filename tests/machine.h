/* A separate context of a test, to test numbers of threads. */
#ifndef INKLING_TESTS_MACHINE_H
#define INKLING_TESTS_MACHINE_H

#include "tests/backends.h"

typedef struct Machine {
  Fixture *fixture; /* owns host memory */
  const Backend *ops;
  Context *context;
} Machine;

Machine machine_open(Fixture *f, int threads);
void machine_close(Machine *m); /* fails the test if the context has an error */

/* Host values in the form of the device; NULL: 0xFF bytes, which are NaN in every float type. */
void *machine_put(Machine *m, Kind kind, const double *values, size_t count);
void *machine_put_ints(Machine *m, const int32_t *values, size_t count);
void *machine_put_rows(Machine *m, const double *values, int rows, int width); /* of the compute dtype */
double *machine_get(Machine *m, Kind kind, const void *device, size_t count);
double *machine_get_rows(Machine *m, const void *device, int rows, int width);
/* Like parameters_new(), in this context and without gradients and moments. */
Parameters machine_parameters(Machine *m, const ParameterSpec *specs, int count);
/* Gradients, the values of these specs of the same shapes, and moments, which are zero. */
void machine_add_gradients(Machine *m, Parameters *p, const ParameterSpec *gradients);

#endif
