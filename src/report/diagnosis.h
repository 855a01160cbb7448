/* Diagnoses: interpretations of the measurements of a run, at most one per evaluation and at the end, each kind once
 * per run. */
#ifndef INKLING_REPORT_DIAGNOSIS_H
#define INKLING_REPORT_DIAGNOSIS_H

#include "report/history.h"
#include "base/text.h"

/* Facts about the run that are not in its history. */
typedef struct DiagnosisFacts {
  int64_t steps, warmup;
  double chance; /* nats per token: the loss of guessing, log(vocabulary) */
  double train_bytes, train_tokens;
  double lr, muon_lr;             /* muon_lr NaN: AdamW only */
  double usual_lr, usual_muon_lr; /* the defaults for this model */
  double dropout;
  bool early_stopping; /* --patience is given */
} DiagnosisFacts;

#define DIAGNOSIS_DIVERGING "diverging"
#define DIAGNOSIS_OVERFITTING "overfitting"
#define DIAGNOSIS_LITTLE_TEXT "little text"
#define DIAGNOSIS_STILL_LEARNING "still learning"
#define DIAGNOSIS_COPYING "copying"

/* Returns whether the diagnosis with that name is a warning (the run went wrong), not a note. */
bool diagnosis_is_warning(const char *name);

/* Returns the learning rates to try after a run that diverged, as flags: a third of the rates used, or the defaults if
 * these are lower. */
OneLine diagnosis_lower_rates(const DiagnosisFacts *facts);

/* Interprets the last evaluation. Returns false when there is nothing new to report; otherwise *out is the line for
 * metrics.jsonl. */
bool diagnosis_at_evaluation(const History *history, const DiagnosisFacts *facts, MetricsLine *out);
/* Interprets a run at its end, unless it was stopped. */
bool diagnosis_at_end(const History *history, const DiagnosisFacts *facts, MetricsLine *out);

/* Interprets the last sample of a run by the longest passage that it has in common with the training text, and the
 * longest passage that unseen texts of the same length have in common with it. */
bool diagnosis_of_sample(int64_t step, int64_t tokens, size_t copied_bytes, size_t usual_bytes, MetricsLine *out);

/* Returns whether the kept model is no better than guessing, as far as the evaluations during the run say. */
bool diagnosis_worse_than_chance(const History *history, const DiagnosisFacts *facts);

#endif
