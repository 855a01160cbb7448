/* Runs as a table: rows are JSON objects, columns are names in them. table.c prints it; ranking.c sorts its rows. */
#ifndef INKLING_REPORT_TABLE_H
#define INKLING_REPORT_TABLE_H

#include "cli/console.h"

#include <jansson.h>

typedef enum TableFormat {
  TABLE_TEXT,
  TABLE_MARKDOWN,
  TABLE_HTML,
  TABLE_LAST_FOR_PEOPLE = TABLE_HTML,
  TABLE_CSV,
  TABLE_JSON,
  TABLE_FORMATS
} TableFormat;
extern const char *const table_format_names[TABLE_FORMATS + 1]; /* then NULL */

enum { TABLE_GAP = 2 }; /* spaces between columns of text */

typedef struct Table {
  json_t **rows;
  size_t row_count;
  const char **columns;
  size_t column_count;
  int widest; /* for TABLE_TEXT: longer cells are shortened in the middle */
} Table;

/* Returns the width in characters of the widest cell, including the column's name. */
int table_column_width(const Table *table, const char *column);
void table_print(const Table *table, TableFormat format, FILE *stream);

/* ---- order: best first among comparable runs ---- */

/* Reasons why rows cannot be compared. */
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
