/* Runs as a table: rows are JSON objects, columns are names in them. */
#ifndef INKLING_REPORT_TABLE_H
#define INKLING_REPORT_TABLE_H

#include <jansson.h>
#include <stdio.h>

typedef enum TableFormat { TABLE_TEXT, TABLE_MARKDOWN, TABLE_CSV, TABLE_JSON } TableFormat;
extern const char *const table_format_names[]; /* as TableFormat, then NULL */

/* Of a row: an object of the settings of its run. What the row itself has under a name goes before a setting. */
#define TABLE_SETTINGS "settings"

enum { TABLE_GAP = 2 }; /* blanks between columns of text */

typedef struct Table {
  json_t **rows;
  size_t row_count;
  const char **columns;
  size_t column_count;
  int widest; /* of TABLE_TEXT: longer cells lose their middle */
} Table;

json_t *table_value(const json_t *row, const char *column); /* NULL: it has none */
/* Columns of text that the widest cell takes, and the column's name. */
int table_column_width(const Table *table, const char *column);
void table_print(const Table *table, TableFormat format, FILE *stream);

#endif
