#include "cli/device.h"

#include <stdio.h>
#include <string.h>

const char *const device_choices[] = {"auto", "cpu", "cuda", NULL};

bool device_open(DeviceChoice choice, int threads, const Backend **backend, Context **context, Error *error) {
  ContextOptions options = {.dtype = DTYPE_F32, .threads = threads};
  Error last = {0};
  for (const Backend *const *b = backends(); *b; b++) {
    if (choice != DEVICE_AUTO && strcmp((*b)->name, device_choices[choice]) != 0) continue;
    last = (Error){0};
    if ((*b)->open(context, &options, &last)) {
      *backend = *b;
      return true;
    }
  }
  if (last.code) return fail(error, last.code, "%s", last.text);
  return fail(error, EXIT_USAGE, "--device %s: this build has no such backend; use --device cpu",
              device_choices[choice]);
}

void print_version(const char *program, const char *version) {
  printf("%s (Inkling) %s, backends:", program, version);
  for (const Backend *const *b = backends(); *b; b++) printf(" %s", (*b)->name);
  printf("\n");
}
