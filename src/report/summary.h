/* The summary of a run and a suggested next step, for people who train their first model. */
#ifndef INKLING_REPORT_SUMMARY_H
#define INKLING_REPORT_SUMMARY_H

#include "report/history.h"

/* Facts about the run that are not in its history. */
typedef struct SummaryFacts {
  const char *dir;
  const char *state;  /* as result_state() */
  double steps;       /* planned steps; NaN: unknown */
  double chance;      /* nats per token: the loss of guessing; NaN: unknown */
  double dropout, lr; /* NaN: unknown */
  double muon_lr;     /* NaN: unknown, or AdamW only */
} SummaryFacts;

typedef struct Summary {
  char text[1500];
} Summary;

Summary summary_of(const History *history, const SummaryFacts *facts);

#endif
