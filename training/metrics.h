/* metrics.jsonl: what was measured, one JSON object a line, flushed line by line. */
#ifndef INKLING_TRAINING_METRICS_H
#define INKLING_TRAINING_METRICS_H

#include "util/error.h"

#include <stdint.h>

/* Which fields of a line were measured; the others do not appear in it. A number that is not finite becomes null. */
enum {
  METRIC_LOSS = 1 << 0,
  METRIC_VAL_LOSS = 1 << 1,
  METRIC_BITS_PER_BYTE = 1 << 2,
  METRIC_LR = 1 << 3,
  METRIC_GRAD_NORM = 1 << 4,
  METRIC_TOKENS_PER_S = 1 << 5,
  METRIC_SECONDS = 1 << 6
};

typedef struct MetricsLine {
  int64_t step, tokens;  /* always written */
  unsigned measured;     /* METRIC_ bits */
  double loss, val_loss; /* nats per token; loss: mean since the last line */
  double bits_per_byte;  /* of the validation text */
  double lr, grad_norm;
  double tokens_per_s, seconds; /* since the run began, all its resumed parts together */
} MetricsLine;

typedef struct Metrics Metrics;

/* A fresh file (resumed_step < 0), or the old one cut, atomically, to its whole lines with step <= resumed_step.
 * EXIT_OUTPUT. */
bool metrics_open(Metrics **out, const char *path, int64_t resumed_step, Error *error);
bool metrics_append(Metrics *metrics, const MetricsLine *line, Error *error); /* EXIT_OUTPUT */
void metrics_close(Metrics *metrics);                                         /* NULL is fine */

#endif
