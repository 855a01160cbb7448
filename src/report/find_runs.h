/* Search for runs on disk: in the given directories and below them. For --runs, --report and --plot. */
#ifndef INKLING_REPORT_FIND_RUNS_H
#define INKLING_REPORT_FIND_RUNS_H

#include "cli/console.h"
#include "report/history.h"

typedef struct FoundRun {
  char *dir;
  History history; /* empty until find_runs_read() */
} FoundRun;

typedef struct FoundRuns {
  FoundRun *items;
  int count;
  size_t capacity;
  Console *console; /* for a warning of each directory that cannot be read; NULL: none */
} FoundRuns;

/* Adds each of `dirs` that is a run, and every run below the others, to a zeroed `out`, in alphabetical order. One of
 * `dirs` is a run when it has settings or metrics; a directory below, when it has settings, and metrics or weights.
 * Links below `dirs` are not followed, hidden directories are left out. EXIT_INPUT: there is no run; EXIT_MEMORY. */
bool find_runs(FoundRuns *out, const char *const *dirs, int count, Error *error);
/* Finds runs and reads their metrics. A run without metrics has an empty history. EXIT_INPUT, EXIT_MEMORY. */
bool find_runs_read(FoundRuns *out, const char *const *dirs, int count, Error *error);
void find_runs_free(FoundRuns *runs); /* also after a failure */

#endif
