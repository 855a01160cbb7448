/* metrics.jsonl: the measurements of a run, one JSON object per line, flushed line by line. */
#ifndef INKLING_REPORT_METRICS_H
#define INKLING_REPORT_METRICS_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum MetricsKind {
  METRICS_STEPS,      /* training steps since the last such line */
  METRICS_EVALUATION, /* an evaluation on validation text */
  METRICS_KEPT,       /* evaluation of the kept model at the end */
  METRICS_DIAGNOSIS   /* an interpretation of the numbers (report/diagnosis.h) */
} MetricsKind;

enum { METRICS_NAME_BYTES = 32, METRICS_TEXT_BYTES = 300 };

/* One line. Numbers that are not finite are null in the file and NaN when read; so are fields that a line does not
 * have. */
typedef struct MetricsLine {
  MetricsKind kind;
  int64_t step, tokens; /* tokens trained on so far */
  double seconds;       /* training time of the run, including the time before it was resumed */
  /* METRICS_STEPS */
  double loss; /* nats per token, mean since the last such line */
  double lr, grad_norm;
  double tokens_per_s; /* since the last such line */
  /* METRICS_EVALUATION and METRICS_KEPT */
  double val_loss; /* nats per token */
  double bits_per_byte;
  double exact;            /* with an encoder: the fraction of exactly correct responses; NaN: not counted, left out */
  double accuracy, chance; /* --choose: the fraction of right answers, of the model and by guessing; NaN: left out */
  double xz_bits_per_byte; /* of `xz -9` (report/xz.h), once per run; NaN: left out */
  uint64_t val_text;       /* identifies the validation text, independently of its tokens; 0: unknown */
  bool all;                /* on all validation text; else on its beginning, the same in the whole run */
  bool best;               /* METRICS_EVALUATION: better than all before, and its model was kept */
  bool mean;               /* of the mean weights, which were better than the newest ones */
  /* METRICS_DIAGNOSIS */
  char diagnosis[METRICS_NAME_BYTES];
  char text[METRICS_TEXT_BYTES];
} MetricsLine;

/* ---- writing ---- */

typedef struct Metrics {
  FILE *stream;
  char *path;
} Metrics;

/* Opens a new file (kept_bytes < 0), or the existing one truncated to that size by file_cut(). EXIT_OUTPUT. */
bool metrics_open(Metrics *metrics, const char *path, int64_t kept_bytes, Error *error);
bool metrics_append(Metrics *metrics, const MetricsLine *line, Error *error); /* EXIT_OUTPUT */
void metrics_close(Metrics *metrics); /* also after a failure; harmless on a zeroed struct */

/* ---- reading ---- */

/* Returns the name of the first number in which two lines differ, and the numbers; NULL: they are equal, apart from
 * times, speeds and xz, which depend on the machine. */
const char *metrics_difference(const MetricsLine *a, const MetricsLine *b, double *of_a, double *of_b);

/* Parses a line. Returns false when it is not a valid line. For whole files see report/history.h. */
bool metrics_parse(const char *line, size_t size, MetricsLine *out);

#endif
