/* A table over runs: `./train --runs DIR...`, a row a run. */
#ifndef INKLING_REPORT_RUNS_H
#define INKLING_REPORT_RUNS_H

#include "cli/console.h"
#include "report/table.h"
#include "util/error.h"

#include <stdio.h>

typedef struct RunsTable {
  const char *const *dirs; /* runs, and directories below which there are runs; links are not followed */
  int count;
  const char *sort; /* a column, "-NAME" for the largest first; NULL: bits_per_byte */
  const char
      *columns; /* names with a comma between two, or "all"; NULL: all in CSV and JSON, else those that tell most */
  TableFormat format;
  int width;        /* of text, columns at most, unless `columns` are named; the same columns are in Markdown */
  Console *console; /* for notes, which CSV and JSON do without */
} RunsTable;

/* Columns: run; the settings that are not the same in all runs; then, of the model in model.safetensors
 * (history_kept()):
 *
 *   bits_per_byte            over all of the validation text
 *   val_text                 which one that is
 *   bits_per_byte_beginning  where only the beginning of it was evaluated, and so in the other columns of that name
 *   exact                    the fraction of all answers that are exactly right; exact_beginning: of the first few
 *   state                    as in result.json, or running, killed, damaged
 *   val_loss                 nats per token; val_loss_beginning
 *   step, kept_step          made; of the model
 *   seconds, tokens          trained, as in result.json, until there is one of the last line of metrics.jsonl
 *   tokens_per_s             tokens / seconds
 *   params
 *
 * What is not known is empty, in JSON null. Rows are ranked among those with the same validation text
 * (report/ranking.h). EXIT_INPUT: there is no run; EXIT_USAGE: no such column; EXIT_OUTPUT. */
bool runs_print(const RunsTable *table, FILE *stream, Error *error);

#endif
