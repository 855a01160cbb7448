/* The charts of a page, for one run or for several side by side. */
#ifndef INKLING_REPORT_PAGE_CHARTS_H
#define INKLING_REPORT_PAGE_CHARTS_H

#include "report/history.h"

#include <jansson.h>

/* A run on the page. */
typedef struct PageSubject {
  const char *dir;
  const History *history;
  json_t *settings, *result; /* result NULL: the run has not ended */
  double chance;             /* nats per token: the loss of guessing; NaN: unknown */
} PageSubject;

/* Writes all charts. Returns false when memory is out. */
bool page_write_charts(FILE *stream, const PageSubject *subjects, int count);

#endif
