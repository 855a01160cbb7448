/* --device, --isa, --dtype, --threads, --autotune: which backend computes. */
#ifndef INKLING_CLI_DEVICE_H
#define INKLING_CLI_DEVICE_H

#include "util/error.h"
#include "cli/console.h"
#include "kernels.h"
#include "model.h"

/* The names of each choice, NULL at the end; 0 is "auto". */
extern const char *const device_choices[];       /* auto cuda cpu: best first */
extern const char *const dtype_choices[];        /* auto f32 bf16 */
extern const char *const weight_dtype_choices[]; /* the same and int8 */

typedef struct DeviceSettings {
  int device, dtype; /* index into the choices above */
  bool reads_only;   /* no training: on a CPU, dtype is that of the weights alone */
  const char *isa;   /* the highest Backend.isa that may be used on a CPU; NULL: $INKLING_ISA, or any */
  int threads;       /* 0 = all that the process may use */
  bool autotune;
  Collective *peers; /* ContextOptions.peers */
} DeviceSettings;

/* The instruction sets in backend_list(), best first. */
enum { MAX_ISAS = 8 };
typedef struct IsaList {
  const char *name[MAX_ISAS];
  int count;
} IsaList;
IsaList device_isas(void);

/* Several times as many threads as there are processors only slow each other down, or cannot be made: then as many as
 * those, which the console is told. */
void device_limit_threads(DeviceSettings *settings, Console *console);

/* Opens the backend that is named, or with auto the best one that can compute `model` (NULL: not known yet); `console`
 * is told which one was skipped and why; where nothing is trained only of one that should have worked. Its dtype is the
 * one named, or with auto the natural one. `tuning`: ContextOptions.tuning. EXIT_USAGE when this build or machine does
 * not have it. */
bool device_open(const DeviceSettings *settings, const ModelConfig *model, const char *tuning, Console *console,
                 const Backend **backend, Context **context, Error *error);

#endif
