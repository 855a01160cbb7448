/* What the programs that generate texts share: output files and main(). */
#ifndef INKLING_TOOLS_OUTPUT_H
#define INKLING_TOOLS_OUTPUT_H

#include "cli/options.h"
#include "base/file.h"

#include <stdio.h>

/* A regular file appears under its name only when it is complete; pipes and devices are written to directly. */
typedef struct Output {
  FILE *stream;
  const char *name;
  FileWriter file;
  bool reader_left; /* the reader of the pipe, such as head or less, has read enough */
} Output;

/* `name` NULL: standard output. EXIT_OUTPUT. */
bool output_open(Output *out, const char *name, Error *error);
/* Reports that `what` ("write") has failed, with the cause in errno: returns false with EXIT_OUTPUT. */
bool output_fail(Output *out, const char *what, Error *error);
/* Closes an output after everything was written (`ok`) or after a failure. Returns whether all was successful; a reader
 * that has read enough is no failure. */
bool output_close(Output *out, bool ok, Error *error);

typedef bool OutputProgram(const Options *options, void *settings, Error *error);
/* Parses the command line and calls `run`, or prints the help or the version. Returns the exit status of the
 * program. */
int output_main(Options *options, int argc, char **argv, OutputProgram *run, void *settings);

#endif
