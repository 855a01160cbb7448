#include "data/output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

bool output_fail(Output *out, const char *what, Error *error) {
  out->reader_left = errno == EPIPE;
  return fail(error, EXIT_OUTPUT, "cannot %s %s: %s", what, out->name, strerror(errno));
}

bool output_open(Output *out, const char *name, Error *error) {
  *out = (Output){.stream = stdout, .name = name ? name : "standard output"};
  struct stat status;
  if (!name) return true;
  if (stat(name, &status) == 0 && !S_ISREG(status.st_mode)) {
    out->stream = fopen(name, "wb");
    return out->stream || output_fail(out, "open", error);
  }
  if (!file_writer_begin(&out->file, name, error)) return false;
  out->stream = out->file.stream;
  return true;
}

bool output_close(Output *out, bool ok, Error *error) {
  if (out->file.stream) {
    if (ok) return file_writer_commit(&out->file, error);
    file_writer_abort(&out->file);
    return false;
  }
  if (ok && fflush(out->stream) != 0) ok = output_fail(out, "write", error);
  if (out->stream != stdout && fclose(out->stream) != 0 && ok) ok = output_fail(out, "write", error);
  return ok;
}
