/* What the numbers of a run mean: a line at most at every evaluation and at the end, each kind once in a run. */
#ifndef INKLING_REPORT_VERDICTS_H
#define INKLING_REPORT_VERDICTS_H

#include "report/history.h"

/* Of the run; what history does not know. */
typedef struct VerdictFacts {
  int64_t steps, warmup;
  double chance; /* nats per token: the loss of a model that guesses, log(vocabulary) */
  double train_bytes, train_tokens;
  double lr, muon_lr;             /* muon_lr NaN: AdamW alone */
  double usual_lr, usual_muon_lr; /* the automatic ones */
  double dropout;
  bool early_stopping; /* --patience is given */
} VerdictFacts;

/* Below so many bytes, overfitting is the text's fault. */
#define VERDICT_SMALL_KB 100
/* A share of the last loss: more steps are worth a word where twice as many would bring so much. */
#define VERDICT_WORTH 0.04

#define VERDICT_DIVERGING "diverging"
#define VERDICT_OVERFITTING "overfitting"
#define VERDICT_LITTLE_TEXT "little text"
#define VERDICT_STILL_LEARNING "still learning"
#define VERDICT_COPYING "copying"

/* Whether the verdict of that name is a warning: the run went wrong. The others are notes. */
bool verdict_is_warning(const char *name);

/* A third of the learning rates, or the automatic ones where those are lower, as flags: what to try after a run that
 * diverged. */
typedef struct VerdictRates {
  char text[64];
} VerdictRates;
VerdictRates verdict_lower_rates(const VerdictFacts *facts);

/* At the evaluation that is the last of the history. False: there is nothing to say, or it was said before. Else *out
 * is the line for metrics.jsonl, with its step and tokens. */
bool verdict_at_evaluation(const History *history, const VerdictFacts *facts, MetricsLine *out);
/* At the end of a run that was not stopped. */
bool verdict_at_end(const History *history, const VerdictFacts *facts, MetricsLine *out);

/* At the end, of the last sample: the longest passage in it that stands in the training text, and the longest in texts
 * of its length that the model has not seen, in bytes. */
bool verdict_of_sample(int64_t step, int64_t tokens, size_t copied_bytes, size_t usual_bytes, MetricsLine *out);

/* Whether the last evaluation is no better than guessing. */
bool verdict_worse_than_chance(const History *history, const VerdictFacts *facts);

#endif
