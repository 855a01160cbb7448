#include "cli/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};
const char *const dtype_choices[] = {"auto", "f32", "bf16", NULL};
const char *const weight_dtype_choices[] = {"auto", "f32", "bf16", "int8", NULL};

/* `best`: the backend that would be taken whatever the dtype. Where weights are only read, a CPU keeps them in the dtype
 * asked for and computes in f32. */
static ContextOptions context_options(const Backend *best, const DeviceSettings *settings, const char *tuning) {
  ContextOptions options = {.dtype = settings->dtype ? (DType)(settings->dtype - 1) : best->natural_dtype,
                            .weights = DTYPE_F32,
                            .threads = settings->threads,
                            .autotune = settings->autotune,
                            .tuning = tuning};
  if (settings->reads_only && best->isa) {
    options.weights = settings->dtype ? options.dtype : DTYPE_F32;
    options.dtype = DTYPE_F32;
  } else if (options.dtype == DTYPE_I8) {
    options.weights = options.dtype;
    options.dtype = best->natural_dtype;
  }
  return options;
}

/* NULL, with the reason, when the backend cannot be used. */
static Context *open_backend(const Backend *backend, const ContextOptions *options, const ModelConfig *model,
                             Error *error) {
  Context *context = NULL;
  ContextInfo info;
  if (!backend->open(&context, options, error)) return NULL;
  backend->info(context, &info);
  if (!model || model_check_device(model, &info, error)) return context;
  backend->close(context);
  return NULL;
}

/* The backend that was asked for is not in backend_list(). */
static bool no_backend(const DeviceSettings *settings, const char *isa, Error *error) {
  char has[96] = "";
  bool found = !isa;
  const char *last = NULL;
  for (const Backend *const *b = backend_list(); *b; b++) {
    if (!(*b)->isa || (last && strcmp(last, (*b)->isa) == 0)) continue;
    last = (*b)->isa;
    found |= isa && strcmp(isa, last) == 0;
    snprintf(has + strlen(has), sizeof has - strlen(has), " %s", last);
  }
  if (strcmp(device_choices[settings->device], "cuda") == 0)
    return fail(error, EXIT_USAGE, "--device cuda: this build does not have it; use --device cpu");
  if (!last) return fail(error, EXIT_USAGE, "this build has no CPU kernels that this processor can run");
  if (!found)
    return fail(error, EXIT_USAGE, "--isa (or INKLING_ISA) %.20s: not on this machine, which has%s", isa, has);
  return fail(error, EXIT_USAGE, "--dtype %s is not available with %s on the CPU; use f32",
              dtype_choices[settings->dtype], isa ? isa : last);
}

bool device_open(const DeviceSettings *settings, const ModelConfig *model, const char *tuning, Console *console,
                 const Backend **backend, Context **context, Error *error) {
  const char *isa = settings->isa ? settings->isa : getenv("INKLING_ISA"), *devices[] = {"cuda", "cpu"};
  Error skipped = {0}; /* why the better device cannot be used */
  for (int i = 0; i < 2; i++) {
    if (settings->device && strcmp(devices[i], device_choices[settings->device]) != 0) continue;
    const Backend *best = backend_find(devices[i], isa, NULL);
    if (!best) continue;
    const ContextOptions options = context_options(best, settings, tuning);
    *backend = backend_find(devices[i], isa, &options.dtype);
    if (!*backend) continue;
    Error why = {0};
    *context = open_backend(*backend, &options, model, &why);
    if (*context && skipped.code == EXIT_USAGE) console_note(console, "%s; computing on the CPU", skipped.text);
    else if (*context && skipped.code) console_warning(console, "%s; computing on the CPU", skipped.text);
    if (*context) return true;
    if (settings->device) return fail(error, why.code, "%s%s", why.text, best->isa ? "" : "; use --device cpu");
    if (skipped.code) return fail(error, why.code, "%s; on the CPU: %s", skipped.text, why.text);
    skipped = why;
  }
  if (skipped.code) return fail(error, skipped.code, "%s", skipped.text);
  return no_backend(settings, isa, error);
}
