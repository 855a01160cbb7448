/* Where the programs that make texts write them. */
#ifndef INKLING_DATA_OUTPUT_H
#define INKLING_DATA_OUTPUT_H

#include "util/file.h"

#include <stdio.h>

/* A regular file appears under its name only when it is complete; pipes and devices are written to directly. */
typedef struct Output {
  FILE *stream;
  const char *name;
  FileWriter file;
  bool reader_left; /* head, less: enough was read */
} Output;

/* `name` NULL: standard output. EXIT_OUTPUT. */
bool output_open(Output *out, const char *name, Error *error);
/* Returns false: EXIT_OUTPUT, by errno, after `what` ("write") has failed. */
bool output_fail(Output *out, const char *what, Error *error);
/* Ends an output, after everything was written (`ok`) or after a failure. */
bool output_close(Output *out, bool ok, Error *error);

#endif
