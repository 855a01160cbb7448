/* The columns of a table of runs. */
#ifndef INKLING_REPORT_COLUMNS_H
#define INKLING_REPORT_COLUMNS_H

#include "report/ranking.h"
#include "report/runs.h"

/* Returns the names of all values in the rows, in table order: run, settings, measurements. A name is true when it is a
 * column of the whole table, and false when it is a setting that is equal in all runs, or the directory. */
json_t *columns_known(json_t *const *rows, size_t count);

/* Checks that a sort column exists. This and columns_choose() fail with EXIT_USAGE and list the names of the
 * columns. */
bool columns_check_sort(const json_t *known, const char *sort, Error *error);
/* Chooses the columns of `table` and the width of its widest cell. The caller frees table->columns, whose items point
 * into `known`. *left_out: the number of other columns. */
bool columns_choose(Table *table, const json_t *known, const RunsTable *runs, const Ranking *ranking, size_t *left_out,
                    Error *error);

/* Replaces the state by words, and each path by the part after its last slash. */
void columns_make_readable(json_t *row);

#endif
