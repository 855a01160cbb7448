#include "cli/device.h"

#include <stdio.h>
#include <string.h>

const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};
const char *const dtype_choices[] = {"auto", "f32", "bf16", NULL};

const char *dtype_name(DType dtype) { return dtype == DTYPE_F32 ? "f32" : "bf16"; }

bool device_open(const DeviceSettings *settings, const char *tuning, Console *console, const Backend **backend,
                 Context **context, Error *error) {
  Error last = {0};
  for (const Backend *const *b = backends(); *b; b++) {
    if (settings->device && strcmp((*b)->name, device_choices[settings->device]) != 0) continue;
    Error passed_over = last;
    DType dtype = settings->dtype ? (DType)(settings->dtype - 1) : (*b)->natural_dtype;
    ContextOptions options = {
        .dtype = dtype, .threads = settings->threads, .autotune = settings->autotune, .tuning = tuning};
    last = (Error){0};
    if ((*b)->open(context, &options, &last)) {
      if (passed_over.code) message_note(console, "%s; computing on the CPU", passed_over.text);
      *backend = *b;
      return true;
    }
  }
  if (last.code)
    return fail(error, last.code, "%s%s", last.text,
                settings->device && strcmp(device_choices[settings->device], "cpu") != 0 ? "; use --device cpu" : "");
  return fail(error, EXIT_USAGE, "--device %s: this build has no such backend; use --device cpu",
              device_choices[settings->device]);
}

bool device_check(const Backend *backend, Context *context, const ModelConfig *model, Error *error) {
  ContextInfo info;
  backend->info(context, &info);
  if (model->head_dim % info.head_dim_multiple == 0 && model->head_dim <= info.head_dim_max) return true;
  return fail(error, EXIT_USAGE,
              "heads of %d numbers (dim %d, %d heads) are not possible on %s: multiples of %d up to %d are; change "
              "--dim or --heads, or use --device cpu",
              model->head_dim, model->dim, model->heads, info.device, info.head_dim_multiple, info.head_dim_max);
}

void print_version(const char *program, const char *version) {
  printf("%s (Inkling) %s, backends:", program, version);
  for (const Backend *const *b = backends(); *b; b++) printf(" %s", (*b)->name);
  printf("\n");
}
