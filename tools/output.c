#include "tools/output.h"

#include "base/text.h"

#include <errno.h>
#include <signal.h>
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
  if (out->reader_left) *error = (Error){0};
  return ok || out->reader_left;
}

static bool run_or_help(Options *options, int argc, char **argv, OutputProgram *run, void *settings, Error *error) {
  Output out;
  if (!options_parse(options, argc, argv, error)) return false;
  if (!options->help && !options->version) return run(options, settings, error);
  if (!output_open(&out, NULL, error)) return false;
  if (options->help) options_help(options, stdout);
  else printf("%s (Inkling)\n", options->program);
  return output_close(&out, true, error);
}

int output_main(Options *options, int argc, char **argv, OutputProgram *run, void *settings) {
  Error error = {0};
  program_name_set(argc > 0 ? argv[0] : NULL);
  signal(SIGPIPE, SIG_IGN);
  if (!run_or_help(options, argc, argv, run, settings, &error))
    fprintf(stderr, "%s: %s\n", options->program, error.text);
  options_free(options);
  return (int)error.code;
}
