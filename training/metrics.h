/* metrics.jsonl: what was measured, one JSON object a line, flushed line by line. */
#ifndef INKLING_TRAINING_METRICS_H
#define INKLING_TRAINING_METRICS_H

#include "util/error.h"

#include <stdint.h>
#include <stdio.h>

/* A training line has loss (nats per token, mean since the last line), lr, grad_norm, tokens_per_s (since the last
 * line) and seconds (since the run began, all its resumed parts together); an evaluation has val_loss, bits_per_byte
 * and seconds. */
typedef struct Metric {
  const char *name;
  double value; /* null when it is not finite */
} Metric;

typedef struct Metrics {
  FILE *stream;
  char *path;
} Metrics;

/* Opens a fresh file (resumed_step < 0), or the old one cut, atomically, to its whole lines with step <= resumed_step.
 * EXIT_OUTPUT. */
bool metrics_open(Metrics *metrics, const char *path, int64_t resumed_step, Error *error);
/* A line with the step, the tokens trained on until then, and `values`. EXIT_OUTPUT. */
bool metrics_append(Metrics *metrics, int64_t step, int64_t tokens, const Metric *values, size_t count, Error *error);
void metrics_close(Metrics *metrics); /* also after a failure; harmless on a zeroed struct */

#endif
