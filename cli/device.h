/* Choosing and opening the machine that computes: --device, --dtype, --threads, --autotune. */
#ifndef INKLING_CLI_DEVICE_H
#define INKLING_CLI_DEVICE_H

#include "util/error.h"
#include "cli/console.h"
#include "kernels.h"
#include "model.h"

/* The names of each choice, NULL at the end; 0 is "auto". */
extern const char *const device_choices[]; /* auto cpu cuda */
extern const char *const dtype_choices[];  /* auto f32 bf16 */

typedef struct DeviceSettings {
  int device, dtype; /* index into the choices above */
  int threads;       /* 0 = all that the process may use */
  bool autotune;
} DeviceSettings;

/* Opens the best backend that is there and can compute `model` (auto; a note on `console` says what was passed over, a
 * warning when it was there) or the one named, in its natural dtype (auto) or the one named. `model`: NULL when it is
 * not known yet. `tuning`: ContextOptions.tuning. EXIT_USAGE when this build or machine does not have it. */
bool device_open(const DeviceSettings *settings, const ModelConfig *model, const char *tuning, Console *console,
                 const Backend **backend, Context **context, Error *error);

/* EXIT_USAGE when the device cannot work with heads of this size. */
bool device_check(const Backend *backend, Context *context, const ModelConfig *model, Error *error);

const char *dtype_name(DType dtype); /* "f32", "bf16" */

/* `train (Inkling) VERSION, backends: cpu` on stdout. */
void print_version(const char *program, const char *version);

#endif
