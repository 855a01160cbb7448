/* report.html: the results of one run, or of several side by side. One file without scripts, links or network access;
 * pictures are inline SVG. */
#ifndef INKLING_REPORT_PAGE_H
#define INKLING_REPORT_PAGE_H

#include "report/find_runs.h"
#include "report/runs.h"

/* Writes the page of `count` > 0 runs to `path`, from their histories and their config.txt, config.json, result.json
 * and samples.txt, if these exist. Less than half a megabyte per run, regardless of its length. EXIT_OUTPUT,
 * EXIT_MEMORY. Several runs are also in `table`, which runs_page_table() returns; it may be NULL for a single run. */
bool page_write(const FoundRun *found, int count, const RunsTable *table, const char *path, Error *error);

/* Writes the page of the runs that find_runs() finds for the table: `./train --report`. EXIT_INPUT: there is none. */
bool page_write_runs(const RunsTable *table, const char *path, Console *console, Error *error);

#endif
