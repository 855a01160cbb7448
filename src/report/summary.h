/* The summary of a run and a suggested next step, for people who train their first model. A diagnosis of the run
 * (report/diagnosis.h) makes its own suggestion, which pages show below the summary. */
#ifndef INKLING_REPORT_SUMMARY_H
#define INKLING_REPORT_SUMMARY_H

#include "report/history.h"

/* Facts about the run that are not in its history. */
typedef struct SummaryFacts {
  const char *dir;
  const char *state;  /* as result_state() */
  double steps;       /* planned steps; NaN: unknown */
  double chance;      /* nats per token: the loss of guessing; NaN: unknown */
  double lr, muon_lr; /* NaN: unknown, or for muon_lr AdamW only */
  bool chats;         /* the model has a chat template */
} SummaryFacts;

typedef struct Summary {
  char text[1500];
} Summary;

Summary summary_of(const History *history, const SummaryFacts *facts);

#endif
