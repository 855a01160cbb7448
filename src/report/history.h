/* The measurements of a run: the lines of metrics.jsonl. Neighboring lines of steps are merged, so that their memory
 * does not grow with the length of the run. */
#ifndef INKLING_REPORT_HISTORY_H
#define INKLING_REPORT_HISTORY_H

#include "report/metrics.h"

/* Consecutive logged lines, merged. NaN: none of them has that number. */
typedef struct HistoryPoint {
  int64_t lines;        /* the number of merged lines */
  int64_t step, tokens; /* of the last line */
  double seconds;
  double loss, least, most;           /* mean, minimum and maximum; infinite when a loss was not finite */
  double lr;                          /* of the last line */
  double grad_norm;                   /* the maximum */
  double tokens_per_s;                /* timed_tokens / timed_seconds */
  double timed_tokens, timed_seconds; /* sums over lines with a known speed, without pauses */
} HistoryPoint;

enum { HISTORY_POINTS = 512 };

typedef struct History {
  HistoryPoint *points; /* at most HISTORY_POINTS, in order of steps */
  int count;
  int64_t lines_a_point;    /* in every point but the last: a power of two */
  double last_loss;         /* in the last line; 0: there are no points */
  MetricsLine *evaluations; /* during the run, by step; all use the same windows */
  size_t evaluation_count, evaluation_capacity;
  MetricsLine at_end;     /* of the newest model on all text, when the others use only the beginning */
  MetricsLine kept;       /* of the kept model; old files may not have it. METRICS_STEPS: none, in both */
  uint64_t val_text;      /* from the newest evaluation, as in MetricsLine */
  MetricsLine *diagnoses; /* METRICS_DIAGNOSIS */
  size_t diagnosis_count, diagnosis_capacity;
  double xz_bits_per_byte; /* 0: not measured */
  double chance;           /* --choose: the newest MetricsLine.chance; 0: not given */
  int64_t damaged;         /* unreadable lines of the file */
} History;

/* Adds a line. Lines with earlier steps than the line before are left out and counted as damaged. EXIT_MEMORY. */
bool history_add(History *history, const MetricsLine *line, Error *error);
/* Reads all lines of a metrics.jsonl into a zeroed history. EXIT_INPUT, EXIT_MEMORY. */
bool history_read(History *history, const char *path, Error *error);
void history_free(History *history);

/* Returns the best evaluation during the run: the last one that was better than all before it (after resuming with
 * another validation text, all on that text). In old files without this mark, it is the one with the lowest loss. NULL:
 * there is none. After the end of the run another model may be kept: see history_kept(). */
const MetricsLine *history_best(const History *history);
/* Returns the evaluation of the model after the last step, on as much text as available. NULL: there is none. */
const MetricsLine *history_last(const History *history);
/* Returns the evaluation of the model in model.safetensors: on all validation text after the end of the run, or when
 * every evaluation uses all of it. NULL: there is none. */
const MetricsLine *history_kept(const History *history);
/* Returns whether the fractions of exact responses and of right answers (--choose) count all pairs and questions:
 * during a run only the first ones are counted. */
static inline bool history_counted_all(const MetricsLine *e) { return e->all && !e->best; }
bool history_has_diagnosis(const History *history, const char *name);

#endif
