/* Search for runs on disk: in the given directories and below them. For --runs, --report and --plot. */
#ifndef INKLING_REPORT_FIND_RUNS_H
#define INKLING_REPORT_FIND_RUNS_H

#include "report/history.h"

/* Receives a run. Returning false, with `error` filled, ends the search. */
typedef bool FindRunsTake(void *context, const char *dir, Error *error);

/* Calls `take` for each of `dirs` that is a run, and for every run below the others, in alphabetical order. A run is a
 * directory with settings or metrics. Links below `dirs` are not followed, hidden directories are left out. EXIT_INPUT:
 * there is no run; EXIT_MEMORY. */
bool find_runs(const char *const *dirs, int count, FindRunsTake *take, void *context, Error *error);

/* ---- runs with their metrics ---- */

typedef struct FoundRun {
  char *dir;
  History history;
} FoundRun;

typedef struct FoundRuns {
  FoundRun *items;
  int count;
  size_t capacity;
} FoundRuns;

/* Finds runs and reads their metrics into a zeroed `out`. EXIT_INPUT: there is no run, or one without metrics. */
bool find_runs_read(FoundRuns *out, const char *const *dirs, int count, Error *error);
void find_runs_free(FoundRuns *runs); /* also after a failure */

#endif
