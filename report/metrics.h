/* metrics.jsonl: what a run measures, one JSON object a line, flushed line by line. */
#ifndef INKLING_REPORT_METRICS_H
#define INKLING_REPORT_METRICS_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum MetricsKind {
  METRICS_STEPS,      /* training steps since the last such line */
  METRICS_EVALUATION, /* on validation text */
  METRICS_KEPT,       /* the model that the run keeps, measured at the end */
  METRICS_VERDICT     /* what the numbers mean (report/verdicts.h) */
} MetricsKind;

enum { METRICS_NAME_BYTES = 32, METRICS_TEXT_BYTES = 300 };

/* A line. What is not finite is null in the file, and NaN when it was read; so is what a line of the file does not
 * have. */
typedef struct MetricsLine {
  MetricsKind kind;
  int64_t step, tokens; /* trained on until then */
  double seconds;       /* since the run began, all its resumed parts together */
  /* of steps */
  double loss; /* nats per token, mean since the last such line */
  double lr, grad_norm;
  double tokens_per_s; /* since the last such line */
  /* of an evaluation, and of the model that is kept */
  double val_loss; /* nats per token */
  double bits_per_byte;
  double exact; /* above an encoder: the fraction of answers that are exactly right; NaN: not counted, left out */
  double xz_bits_per_byte; /* of `xz -9` (report/xz.h), once in a run; NaN: left out */
  uint64_t val_text;       /* identifies the validation text, whatever its tokens are; 0: not known */
  bool all;                /* over all validation text; else over its beginning, the same in the whole run */
  bool best;               /* of an evaluation: better than every one before, and its model kept */
  /* of a verdict */
  char verdict[METRICS_NAME_BYTES];
  char text[METRICS_TEXT_BYTES];
} MetricsLine;

/* ---- writing ---- */

typedef struct Metrics {
  FILE *stream;
  char *path;
} Metrics;

/* Opens a fresh file (kept_bytes < 0), or the old one cut to that size as file_cut() does it. EXIT_OUTPUT. */
bool metrics_open(Metrics *metrics, const char *path, int64_t kept_bytes, Error *error);
bool metrics_append(Metrics *metrics, const MetricsLine *line, Error *error); /* EXIT_OUTPUT */
void metrics_close(Metrics *metrics); /* also after a failure; harmless on a zeroed struct */

/* ---- reading ---- */

/* False: it is no such line. */
bool metrics_parse(const char *line, size_t size, MetricsLine *out);

/* Every line of the file, in order; *damaged counts those that are none, a torn last one not among them. `take` returns
 * false to stop. EXIT_INPUT where there is no such file. */
typedef bool MetricsTake(void *context, const MetricsLine *line);
bool metrics_read(const char *path, MetricsTake *take, void *context, int64_t *damaged, Error *error);

#endif
