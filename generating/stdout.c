#include "generating/stdout.h"

#include "cli/startup.h"
#include "util/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void stdout_flush(Stdout *out) {
  const int cause = file_flush_cause(stdout);
  if (!out->error) out->error = cause;
}

bool stdout_write(Stdout *out, const void *bytes, size_t size) {
  fwrite(bytes, 1, size, stdout);
  stdout_flush(out);
  return !out->error && !stop_signal;
}

bool stdout_check(const Stdout *out, Error *error) {
  if (out->error == EPIPE) return true;
  if (out->error) return fail(error, EXIT_OUTPUT, "cannot write the text to stdout: %s", strerror(out->error));
  return startup_go_on("generating", error);
}

bool stdout_flush_and_check(Stdout *out, Error *error) {
  stdout_flush(out);
  return stdout_check(out, error);
}
