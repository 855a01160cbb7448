/* The line of JSON that --bench prints, in both programs. */
#ifndef INKLING_CLI_BENCH_LINE_H
#define INKLING_CLI_BENCH_LINE_H

#include "util/error.h"
#include "util/quantiles.h"
#include "kernels.h"
#include "model.h"

enum { BENCH_WARM_UP = 12 }; /* steps before the timed ones: graphs are captured, a GPU is kept busy */

/* A step: of training, or a token of generation. */
typedef struct BenchLine {
  Quantiles seconds; /* of a step */
  int64_t steps, tokens_per_step;
  int batch; /* sequences computed at a time */
  const ModelConfig *model;
  const Backend *backend;
  Context *context;
  const char *commit;
} BenchLine;

/* Prints the line to stdout; `format` makes the members that only one program has, `"key": value` with commas between
 * them. Without an accelerator peak_memory_bytes is what the process has occupied at most. EXIT_OUTPUT. */
bool bench_line_print(const BenchLine *line, Error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
