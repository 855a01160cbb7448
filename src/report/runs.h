/* A table of runs, one row per run: `./train --runs DIR...`. */
#ifndef INKLING_REPORT_RUNS_H
#define INKLING_REPORT_RUNS_H

#include "cli/console.h"
#include "cli/options.h"
#include "report/table.h"
#include "base/error.h"

#include <stdio.h>

enum { RUNS_PAGE_WIDTH = 200 };

typedef struct RunsTable {
  const char *const *dirs; /* runs, or directories that contain runs; links are not followed */
  int count;
  const char *sort; /* a column, "-NAME" for the largest first; NULL: bits_per_byte */
  /* names separated by commas, or "all"; NULL: all columns in CSV and JSON, else the most informative ones */
  const char *columns;
  bool by_seed; /* a row for each run; else runs that differ only in their seed are one */
  TableFormat format;
  const Options *options; /* of ./train: which settings are paths, or beside the point. NULL: unknown */
  int width;              /* greatest width of text, unless `columns` is given; Markdown has the same columns */
  Console *console; /* for notes, which CSV and JSON do not have, and warnings. NULL: the table is part of a page */
} RunsTable;

/* Returns the table of a page. */
static inline RunsTable runs_page_table(const char *const *dirs, int count, const Options *options, bool by_seed) {
  return (RunsTable){
      dirs, count, .options = options, .by_seed = by_seed, .format = TABLE_HTML, .width = RUNS_PAGE_WIDTH};
}

/* Prints the table. Runs that differ only in their seed (report/seeds.h), with the same validation text, state and,
 * except after --patience, step, are one row: the name of the first, a list of their seeds, and means. Columns: run;
 * the settings that differ between runs; then, for the model in model.safetensors (history_kept()):
 *
 *   bits_per_byte            on all of the validation text
 *   NAME_sd                  sample standard deviation of bits_per_byte and the others that are measured on that text
 *   seeds                    number of runs in the row
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
