/* The order of runs in a table: best first among comparable runs. */
#ifndef INKLING_REPORT_RANKING_H
#define INKLING_REPORT_RANKING_H

#include "cli/console.h"

#include <jansson.h>
#include <stdbool.h>

/* Reasons why rows of a table (report/table.h) cannot be compared. */
typedef struct Ranking {
  size_t texts;       /* the number of validation texts; unknown ones count as one */
  size_t other_text;  /* rows outside of the largest group, validated on another text */
  size_t no_text;     /* rows whose validation text is unknown */
  size_t beginning;   /* rows evaluated only on the beginning of their validation text */
  bool tokens_differ; /* nats per token of some rows refer to different tokens */
} Ranking;

/* Sorts by a column, "-NAME" for the largest first; rows without a value come last. For a column measured on validation
 * text the largest group with the same text comes first (ties: the first group), then the others, each sorted
 * separately. EXIT_MEMORY. */
bool ranking_sort(Ranking *ranking, json_t **rows, size_t count, const char *sort, Error *error);
/* Replaces the fingerprint of each validation text by a label: A, B, ... in the order of the groups by bits_per_byte;
 * "?": unknown. */
void ranking_label(json_t **rows, size_t count);
/* Prints notes about rows that are not comparable in a table sorted by that column. */
void ranking_tell(const Ranking *ranking, const char *sort, Console *console);

/* Returns whether a column is measured in nats per token. */
bool ranking_is_per_token(const char *column);

#endif
