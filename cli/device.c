#include "cli/device.h"

#include <stdio.h>
#include <string.h>

const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};
const char *const dtype_choices[] = {"auto", "f32", "bf16", NULL};

const char *dtype_name(DType dtype) { return dtype == DTYPE_F32 ? "f32" : "bf16"; }

/* NULL, with the reason, when the backend cannot be used. */
static Context *open_backend(const Backend *backend, const DeviceSettings *settings, const ModelConfig *model,
                             const char *tuning, Error *error) {
  ContextOptions options = {.dtype = settings->dtype ? (DType)(settings->dtype - 1) : backend->natural_dtype,
                            .threads = settings->threads,
                            .autotune = settings->autotune,
                            .tuning = tuning};
  Context *context = NULL;
  if (!backend->open(&context, &options, error)) return NULL;
  if (!model || device_check(backend, context, model, error)) return context;
  backend->close(context);
  return NULL;
}

bool device_open(const DeviceSettings *settings, const ModelConfig *model, const char *tuning, Console *console,
                 const Backend **backend, Context **context, Error *error) {
  const char *wanted = device_choices[settings->device];
  Error passed_over = {0};
  for (const Backend *const *b = backend_list(); *b; b++) {
    if (settings->device && strcmp((*b)->name, wanted) != 0) continue;
    Error why = {0};
    *backend = *b;
    *context = open_backend(*b, settings, model, tuning, &why);
    if (*context && passed_over.code == EXIT_USAGE) console_note(console, "%s; computing on the CPU", passed_over.text);
    else if (*context && passed_over.code) console_warning(console, "%s; computing on the CPU", passed_over.text);
    if (*context) return true;
    if (settings->device)
      return fail(error, why.code, "%s%s", why.text, strcmp(wanted, "cpu") != 0 ? "; use --device cpu" : "");
    if (passed_over.code) return fail(error, why.code, "%s; on the CPU: %s", passed_over.text, why.text);
    passed_over = why;
  }
  if (passed_over.code) return fail(error, passed_over.code, "%s", passed_over.text);
  return fail(error, EXIT_USAGE, "--device %s: this build has no such backend; use --device cpu", wanted);
}

bool device_check(const Backend *backend, Context *context, const ModelConfig *model, Error *error) {
  ContextInfo info;
  backend->info(context, &info);
  if (model->head_dim % info.head_dim_multiple == 0 && model->head_dim <= info.head_dim_max) return true;
  return fail(error, EXIT_USAGE,
              "heads of %d numbers (dim %d, %d heads) are not possible on %s, multiples of %d up to %d are",
              model->head_dim, model->dim, model->heads, info.device, info.head_dim_multiple, info.head_dim_max);
}

void print_version(const char *program, const char *version) {
  printf("%s (Inkling) %s, backends:", program, version);
  for (const Backend *const *b = backend_list(); *b; b++) printf(" %s", (*b)->name);
  printf("\n");
}
