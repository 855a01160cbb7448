/* Verdicts: interpretations of the numbers of a run, at most one at every evaluation and at the end, each kind once per
 * run. */
#ifndef INKLING_REPORT_VERDICTS_H
#define INKLING_REPORT_VERDICTS_H

#include "report/history.h"

/* Facts about the run that are not in its history. */
typedef struct VerdictFacts {
  int64_t steps, warmup;
  double chance; /* nats per token: the loss of guessing, log(vocabulary) */
  double train_bytes, train_tokens;
  double lr, muon_lr;             /* muon_lr NaN: AdamW only */
  double usual_lr, usual_muon_lr; /* the automatic learning rates */
  double dropout;
  bool early_stopping; /* --patience is given */
} VerdictFacts;

/* With less training text (KB), overfitting is attributed to the text. */
#define VERDICT_SMALL_KB 100
/* A fraction of the last loss: more steps are suggested when twice as many would reduce the loss by this much. */
#define VERDICT_WORTH 0.04

#define VERDICT_DIVERGING "diverging"
#define VERDICT_OVERFITTING "overfitting"
#define VERDICT_LITTLE_TEXT "little text"
#define VERDICT_STILL_LEARNING "still learning"
#define VERDICT_COPYING "copying"

/* Returns whether the verdict of that name is a warning, because the run went wrong. The others are notes. */
bool verdict_is_warning(const char *name);

/* Learning rates to try after a run that diverged, as flags: a third of the rates used, or the automatic ones if those
 * are lower. */
typedef struct VerdictRates {
  char text[64];
} VerdictRates;
VerdictRates verdict_lower_rates(const VerdictFacts *facts);

/* Judges the last evaluation of the history. Returns false when there is nothing new to report. Otherwise *out is the
 * line for metrics.jsonl, with its step and tokens. */
bool verdict_at_evaluation(const History *history, const VerdictFacts *facts, MetricsLine *out);
/* Judges a run at its end, if it was not stopped. */
bool verdict_at_end(const History *history, const VerdictFacts *facts, MetricsLine *out);

/* Judges the last sample at the end of a run from the longest passage, in bytes, that it shares with the training text,
 * and the longest in unseen texts of the same length. */
bool verdict_of_sample(int64_t step, int64_t tokens, size_t copied_bytes, size_t usual_bytes, MetricsLine *out);

/* Returns whether the last evaluation is no better than guessing. */
bool verdict_worse_than_chance(const History *history, const VerdictFacts *facts);

#endif
