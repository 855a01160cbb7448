/* A table of runs, one row per run: `./train --runs DIR...`. */
#ifndef INKLING_REPORT_RUNS_H
#define INKLING_REPORT_RUNS_H

#include "cli/console.h"
#include "report/table.h"
#include "util/error.h"

#include <stdio.h>

typedef struct RunsTable {
  const char *const *dirs; /* runs, or directories that contain runs; links are not followed */
  int count;
  const char *sort; /* a column, "-NAME" for the largest first; NULL: bits_per_byte */
  /* names separated by commas, or "all"; NULL: all columns in CSV and JSON, else the most informative ones */
  const char *columns;
  bool fit; /* print the scaling law of the runs instead (report/fit.h) */
  TableFormat format;
  int width;        /* greatest width of text, unless `columns` is given; Markdown has the same columns */
  Console *console; /* for notes; CSV and JSON have none */
} RunsTable;

/* Prints the table. Columns: run; the settings that differ between runs; then, for the model in model.safetensors
 * (history_kept()):
 *
 *   bits_per_byte            on all of the validation text
 *   val_text                 label of that text
 *   bits_per_byte_beginning  on its beginning, when only that was evaluated; so the other *_beginning
 *   exact                    fraction of exactly correct responses; exact_beginning: of the first few
 *   accuracy                 --choose: fraction of right answers; accuracy_beginning: to the first questions
 *   state                    as in result.json, or running, killed, damaged
 *   val_loss                 nats per token; val_loss_beginning
 *   step, kept_step          steps made; step of the model
 *   seconds, tokens          of training, from result.json, or else the last line of metrics.jsonl
 *   epochs                   passes over the training text
 *   tokens_per_s             tokens / seconds
 *   params
 *
 * Unknown values are empty, in JSON null. Only rows with the same validation text are ranked together
 * (report/table.h). EXIT_INPUT: there is no run; EXIT_USAGE: no such column; EXIT_OUTPUT. */
bool runs_print(const RunsTable *table, FILE *stream, Error *error);

#endif
