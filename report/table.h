/* Runs as a table: rows are JSON objects, columns are names in them. */
#ifndef INKLING_REPORT_TABLE_H
#define INKLING_REPORT_TABLE_H

#include <jansson.h>
#include <stdio.h>

typedef enum TableFormat { TABLE_TEXT, TABLE_MARKDOWN, TABLE_CSV, TABLE_JSON } TableFormat;
extern const char *const table_format_names[]; /* as TableFormat, then NULL */

/* The key of the settings in a row, an object. A value of the row itself takes precedence over a setting. */
#define TABLE_SETTINGS "settings"

enum { TABLE_GAP = 2 }; /* spaces between columns of text */

typedef struct Table {
  json_t **rows;
  size_t row_count;
  const char **columns;
  size_t column_count;
  int widest; /* for TABLE_TEXT: longer cells are shortened in the middle */
} Table;

json_t *table_value(const json_t *row, const char *column); /* NULL: none */
/* Returns the width in characters of the widest cell, including the column's name. */
int table_column_width(const Table *table, const char *column);
void table_print(const Table *table, TableFormat format, FILE *stream);

#endif
