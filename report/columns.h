/* The columns of a table of runs. */
#ifndef INKLING_REPORT_COLUMNS_H
#define INKLING_REPORT_COLUMNS_H

#include "report/ranking.h"
#include "report/runs.h"

/* Returns all names under which rows may have values, in table order: run, settings, measurements. True: a column of
 * the whole table; false: a setting that is equal in all runs, or the directory. */
json_t *columns_known(const json_t *rows);

/* Checks that a sort column exists. This and columns_choose() fail with EXIT_USAGE and list the names of the
 * columns. */
bool columns_check_sort(const json_t *known, const char *sort, Error *error);
/* Chooses the columns of `table`, in memory that the caller frees and that points into `known`, and its widest cell.
 * *left_out: the number of other columns. */
bool columns_choose(Table *table, const json_t *known, const RunsTable *runs, const Ranking *ranking, size_t *left_out,
                    Error *error);

/* Replaces the state by words, and paths by the part after the last slash. */
void columns_make_readable(json_t *row);

#endif
