/* What a run has reached and what to do next, in words for people who train their first model. */
#ifndef INKLING_REPORT_SUMMARY_H
#define INKLING_REPORT_SUMMARY_H

#include "report/history.h"

/* Of the run; what history does not know. */
typedef struct SummaryFacts {
  const char *dir;
  const char *state;  /* as result_state() */
  double steps;       /* planned; NaN: not known */
  double chance;      /* nats per token: the loss of a model that guesses; NaN: not known */
  double dropout, lr; /* NaN: not known */
  double muon_lr;     /* NaN: not known, or AdamW alone */
} SummaryFacts;

typedef struct Summary {
  char text[1500];
} Summary;

Summary summary_of(const History *history, const SummaryFacts *facts);

#endif
