/* Which columns a table of runs has. */
#ifndef INKLING_REPORT_COLUMNS_H
#define INKLING_REPORT_COLUMNS_H

#include "report/ranking.h"
#include "report/runs.h"

/* Every name that a row may have a value under, in the order of the table: run, settings, what was measured. True: it
 * is a column of the whole table; false: a setting that is the same in all runs, or the directory. */
json_t *columns_known(const json_t *rows);

/* Both EXIT_USAGE, with the names of the columns, where there is none of that name. */
bool columns_check_sort(const json_t *known, const char *sort, Error *error);
/* The columns of `table`, in memory to be freed, which point into `known`, and its widest cell. *left_out: how many
 * others could be named. */
bool columns_choose(Table *table, const json_t *known, const RunsTable *runs, const Ranking *ranking, size_t *left_out,
                    Error *error);

/* A state in words, and instead of paths what is behind the last slash. */
void columns_make_readable(json_t *row);

#endif
