#include "cli/device.h"

#include "base/text.h"
#include "base/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const device_choices[] = {"auto", "cuda", "cpu", NULL};
const char *const dtype_choices[] = {"auto", "f32", "bf16", NULL};
const char *const weight_dtype_choices[] = {"auto", "f32", "bf16", "int8", NULL};

/* Returns the options of a context. When weights are only read, a CPU stores them in the requested dtype and computes
 * in f32. */
static ContextOptions context_options(const char *device, const char *isa, const DeviceSettings *settings) {
  const DType natural = backend_natural_dtype(device, isa);
  ContextOptions options = {.dtype = settings->dtype ? (DType)(settings->dtype - 1) : natural,
                            .weights = DTYPE_F32,
                            .threads = settings->threads,
                            .peers = settings->peers};
  if (settings->reads_only && strcmp(device, "cpu") == 0) {
    options.weights = settings->dtype ? options.dtype : DTYPE_F32;
    options.dtype = DTYPE_F32;
  } else if (options.dtype == DTYPE_I8) {
    options.weights = options.dtype;
    options.dtype = natural;
  }
  return options;
}

/* Returns NULL, with the reason, when the backend cannot be used. */
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

IsaList device_isas(void) {
  IsaList list = {.count = 0};
  for (const Backend *const *b = backend_list(); *b; b++) {
    const char *isa = (*b)->isa;
    const bool again = list.count > 0 && isa && strcmp(list.name[list.count - 1], isa) == 0; /* for another dtype */
    if (isa && !again && list.count < MAX_ISAS) list.name[list.count++] = isa;
  }
  return list;
}

/* Appends the names, which end with NULL, to `out`. Returns whether the instruction set is among them. */
static bool list_names(const char *const *names, const char *isa, char *out, size_t size) {
  bool found = false;
  for (; *names; names++) {
    found = found || strcmp(*names, isa) == 0;
    text_append(out, size, " %s", *names);
  }
  return found;
}

/* Reports why no backend fits. Returns false. */
static bool no_backend(const char *device, const char *isa, DType dtype, Error *error) {
  if (strcmp(device, "cuda") == 0) return fail(error, EXIT_USAGE, "--device cuda: this build has no CUDA backend");
  const IsaList list = device_isas();
  char built[96] = "", has[96] = "";
  if (isa && !list_names(backend_isas(), isa, built, sizeof built))
    return fail(error, EXIT_USAGE, "--isa (or INKLING_ISA) %.20s: not in this build, which has%s", isa, built);
  if (list.count == 0)
    return fail(error, EXIT_USAGE,
                "this build has no CPU kernels that this processor can run; make ISA=generic builds some");
  if (isa && !list_names(list.name, isa, has, sizeof has))
    return fail(error, EXIT_USAGE, "--isa (or INKLING_ISA) %.20s: this machine supports only%s", isa, has);
  return fail(error, EXIT_USAGE, "--dtype %s is not available with %s on the CPU; use f32", dtype_name(dtype),
              isa ? isa : list.name[list.count - 1]);
}

/* Opens the best backend of one device; NULL, with the reason. */
static Context *open_device(const char *device, const char *isa, const DeviceSettings *settings,
                            const ModelConfig *model, const Backend **backend, Error *error) {
  const ContextOptions options = context_options(device, isa, settings);
  *backend = backend_find(device, isa, 1u << options.dtype);
  if (!*backend) return no_backend(device, isa, options.dtype, error), NULL;
  return open_backend(*backend, &options, model, error);
}

void device_limit_threads(DeviceSettings *settings, Console *console) {
  enum { MOST = 4 }; /* threads per processor */
  const int cores = threads_count(0);
  if (settings->threads <= MOST * cores) return;
  console_note(console, "--threads %d: this process may use %d processors; using %d", settings->threads, cores, cores);
  settings->threads = cores;
}

/* Notes why a better device is not used. ./generate does not mention a missing GPU in every call; --device cuda reports
 * the reason. */
static void say_skipped(Console *console, const DeviceSettings *settings, const Error *why) {
  const bool missing = why->code == EXIT_USAGE;
  if (missing && !settings->reads_only) console_note(console, "%s; computing on the CPU", why->text);
  if (why->code && !missing) console_warning(console, "%s; computing on the CPU", why->text);
}

bool device_open(const DeviceSettings *settings, const ModelConfig *model, Console *console, const Backend **backend,
                 Context **context, Error *error) {
  const char *isa = settings->isa ? settings->isa : getenv("INKLING_ISA");
  if (isa && !*isa) isa = NULL; /* set but empty */
  Error skipped = {0};          /* why the better device cannot be used */
  for (const char *const *device = device_choices + 1; *device; device++) {
    Error why = {0};
    const bool cpu = strcmp(*device, "cpu") == 0;
    if (settings->device && strcmp(*device, device_choices[settings->device]) != 0) continue;
    if (!settings->device && !cpu && !backend_find(*device, NULL, ~0u)) continue; /* this build has no such backend */
    *context = open_device(*device, isa, settings, model, backend, &why);
    if (*context) say_skipped(console, settings, &skipped);
    if (*context) return true;
    if (settings->device) return fail(error, why.code, "%s%s", why.text, cpu ? "" : "; use --device cpu");
    if (skipped.code) return fail(error, why.code, "%s; on the CPU: %s", skipped.text, why.text);
    skipped = why;
  }
  return fail(error, skipped.code, "%s", skipped.text);
}
