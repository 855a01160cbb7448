/* Selection of the backend: --device, --isa, --dtype, --threads. */
#ifndef INKLING_CLI_DEVICE_H
#define INKLING_CLI_DEVICE_H

#include "base/error.h"
#include "cli/console.h"
#include "kernels.h"
#include "model.h"

/* The names of the choices; each list ends with NULL; 0 is "auto". */
extern const char *const device_choices[];       /* auto cuda cpu: best first */
extern const char *const dtype_choices[];        /* auto f32 bf16 */
extern const char *const weight_dtype_choices[]; /* dtype_choices and int8 */

typedef struct DeviceSettings {
  int device, dtype; /* index into the choices above */
  bool reads_only;   /* no training: on a CPU, dtype applies only to the weights */
  const char *isa;   /* the highest Backend.isa allowed on a CPU; NULL: $INKLING_ISA, or any */
  int threads;       /* 0 = all that are available to the process */
  bool autotune;     /* ./train measures algorithms of GEMMs */
  Collective *peers; /* ContextOptions.peers */
} DeviceSettings;

/* The instruction sets in backend_list(), best first. */
enum { MAX_ISAS = 8 };
typedef struct IsaList {
  const char *name[MAX_ISAS + 1]; /* ends with NULL */
  int count;
} IsaList;
IsaList device_isas(void);

/* Limits the number of threads to the number of processors when it is several times as large, because more threads only
 * slow each other down or cannot be created. Prints a note. */
void device_limit_threads(DeviceSettings *settings, Console *console);

/* Opens the named backend, or with auto the best one that supports `model` (NULL: unknown). Notes on `console` name
 * skipped backends and the reason; without training only those that should have worked. The dtype is the named one, or
 * with auto the native one. EXIT_USAGE when this build or machine does not have it. */
bool device_open(const DeviceSettings *settings, const ModelConfig *model, Console *console, const Backend **backend,
                 Context **context, Error *error);

#endif
