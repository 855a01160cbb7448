/* The order of runs in a table: best first among those that can be compared. */
#ifndef INKLING_REPORT_RANKING_H
#define INKLING_REPORT_RANKING_H

#include "cli/console.h"

#include <jansson.h>
#include <stdbool.h>

/* What keeps rows of a table (report/table.h) from being compared. */
typedef struct Ranking {
  size_t texts;       /* validation texts; those that are not known count as one */
  size_t other_text;  /* rows ranked by themselves: validated on another text than the largest group, or on one that */
  size_t no_text;     /* is not known */
  size_t beginning;   /* rows with numbers over the beginning of their validation text alone */
  bool tokens_differ; /* nats per token of some rows are of different tokens */
} Ranking;

/* Sorts by a column, "-NAME" for the largest first; rows without a value come last. Of a column that was measured on
 * validation text the largest group with the same text comes first (of equal ones the first), then the others, each
 * sorted by itself. EXIT_MEMORY. */
bool ranking_sort(Ranking *ranking, json_t **rows, size_t count, const char *sort, Error *error);
/* Replaces the fingerprint of each validation text by a label: A, B, ... in the order of the groups by bits_per_byte;
 * "?": not known. */
void ranking_label(json_t **rows, size_t count);
/* Tells what is not compared in a table sorted by that column. */
void ranking_tell(const Ranking *ranking, const char *sort, Console *console);

/* Measured on validation text, and in nats per token. */
bool ranking_is_measured(const char *column);
bool ranking_is_per_token(const char *column);

#endif
