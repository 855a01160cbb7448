/* The line of JSON that --bench prints, in both programs. */
#ifndef INKLING_CLI_BENCH_LINE_H
#define INKLING_CLI_BENCH_LINE_H

#include "base/error.h"
#include "base/array.h"
#include "kernels.h"
#include "model.h"

#ifdef __clang__
#define COMPILER_NAME __VERSION__ /* includes the name of clang */
#else
#define COMPILER_NAME "gcc " __VERSION__
#endif

enum { BENCH_WARM_UP = 12 }; /* untimed steps before the timed ones, to capture graphs and warm up a GPU */

/* The measurements of --bench. A step is a training step, or one generated token of each sequence. */
typedef struct BenchLine {
  Quantiles seconds; /* seconds per step */
  int64_t steps, tokens_per_step;
  int batch; /* sequences computed at a time */
  const ModelConfig *model;
  const Backend *backend;
  Context *context;
  const char *version;
} BenchLine;

/* Prints the line to stdout. `format` adds members that only one program has: `"key": value`, separated by commas.
 * Without an accelerator peak_memory_bytes is the peak memory of the process. EXIT_OUTPUT. */
bool bench_line_print(const BenchLine *line, Error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
