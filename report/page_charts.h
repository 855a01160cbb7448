/* The charts of a page: of one run, or of several side by side. */
#ifndef INKLING_REPORT_PAGE_CHARTS_H
#define INKLING_REPORT_PAGE_CHARTS_H

#include "report/history.h"

#include <jansson.h>

/* A run, read. */
typedef struct PageSubject {
  const char *dir;
  const History *history;
  json_t *settings, *result; /* result NULL: it has not ended */
  double chance;             /* nats per token: the loss of a model that guesses; NaN: not known */
} PageSubject;

/* False: no memory. */
bool page_write_charts(FILE *stream, const PageSubject *subjects, int count);

#endif
