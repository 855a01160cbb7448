/* What a run has measured so far, in memory that does not grow with its length: the lines of metrics.jsonl, neighbors
 * put together. */
#ifndef INKLING_REPORT_HISTORY_H
#define INKLING_REPORT_HISTORY_H

#include "report/metrics.h"

/* Logged lines that follow one another, as one. NaN: none of them has that number. */
typedef struct HistoryPoint {
  int64_t lines;        /* put together */
  int64_t step, tokens; /* of the last one */
  double seconds;
  double loss, least, most;           /* mean, least and most; infinite where a loss was not finite */
  double lr;                          /* of the last one */
  double grad_norm;                   /* most */
  double tokens_per_s;                /* timed_tokens / timed_seconds */
  double timed_tokens, timed_seconds; /* trained on since the line before, where the speed is known, pauses left out */
} HistoryPoint;

typedef struct HistoryEvaluation {
  bool known; /* false: there is none */
  int64_t step, tokens;
  double seconds, loss, bits_per_byte, exact; /* as in a MetricsLine */
  bool all, best;
} HistoryEvaluation;

typedef struct HistoryVerdict {
  int64_t step;
  char name[METRICS_NAME_BYTES], text[METRICS_TEXT_BYTES];
} HistoryVerdict;

enum { HISTORY_POINTS = 512 };

typedef struct History {
  HistoryPoint *points; /* at most HISTORY_POINTS, in order */
  int count;
  int64_t lines_a_point;          /* of every point but the last one: a power of two */
  double last_loss;               /* of the last line; 0: there is no point */
  HistoryEvaluation *evaluations; /* during the run, by step: all of them over the same windows */
  size_t evaluation_count, evaluation_capacity;
  HistoryEvaluation at_end; /* of the newest model, over all, where the others are over the beginning */
  HistoryEvaluation kept;   /* of the model that is kept; in old files only where they say so */
  uint64_t val_text;        /* of the newest evaluation, as in a MetricsLine */
  HistoryVerdict *verdicts;
  size_t verdict_count, verdict_capacity;
  double xz_bits_per_byte; /* 0: not measured */
  int64_t damaged;         /* lines of the file that could not be read */
} History;

/* Lines that go back in time (a file that somebody put together) are left out and count as damaged. EXIT_MEMORY. */
bool history_add(History *history, const MetricsLine *line, Error *error);
/* All lines of a metrics.jsonl into a zeroed history. EXIT_INPUT, EXIT_MEMORY. */
bool history_read(History *history, const char *path, Error *error);
void history_free(History *history);

/* The best evaluation during the run: the last one that was better than those before it (of a run resumed with another
 * text, better than those of that text); where no line says so, as in old files, the one with the least loss. NULL:
 * there is none. Once the run has ended, another model may be kept: history_kept(). */
const HistoryEvaluation *history_best(const History *history);
/* Of the model after the last step: the widest one. NULL: there is none. */
const HistoryEvaluation *history_last(const History *history);
/* Of the model in model.safetensors: over all validation text once the run has ended, or where every evaluation is.
 * NULL: there is none. */
const HistoryEvaluation *history_kept(const History *history);
/* Whether its share of exact answers is that of all pairs: during a run the first ones alone are counted. */
static inline bool history_counted_all(const HistoryEvaluation *e) { return e->all && !e->best; }
bool history_has_verdict(const History *history, const char *name);

#endif
