/* A table over runs: `./train --runs DIR...`, a row a run. */
#ifndef INKLING_REPORT_RUNS_H
#define INKLING_REPORT_RUNS_H

#include "util/error.h"

#include <stdio.h>

typedef enum TableFormat { TABLE_MARKDOWN, TABLE_CSV, TABLE_JSON } TableFormat;
extern const char *const table_format_names[]; /* as TableFormat, then NULL: md, csv, json */

typedef struct RunsTable {
  const char *const *dirs; /* runs, and directories below which there are runs; links are not followed */
  int count;
  const char *sort; /* a column, "-NAME" for the largest first; NULL: bits_per_byte */
  TableFormat format;
} RunsTable;

/* Columns: run; the settings that are not the same in all; state (done, minutes, patience, signal, nonfinite, as in
 * result.json; running; killed; damaged); step, params; best_step, best_loss (nats per token) and bits_per_byte of the
 * model that is kept (of all the validation text where that was evaluated, else of the best evaluation); final_loss, of
 * the last model over all the validation text; tokens_per_s, seconds. What is
 * not known is empty, in JSON null, and sorted to the end. EXIT_INPUT: there is no run; EXIT_USAGE: no such column;
 * EXIT_OUTPUT. */
bool runs_print(const RunsTable *table, FILE *stream, Error *error);

#endif
