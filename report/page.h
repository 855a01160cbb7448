/* report.html: what one run did, or several side by side. One file without scripts, links or anything from the network;
 * pictures are inline SVG. */
#ifndef INKLING_REPORT_PAGE_H
#define INKLING_REPORT_PAGE_H

#include "report/history.h"

typedef struct PageRun {
  const char *dir; /* its config.txt, config.json, result.json and samples.txt are read; any may be missing */
  const History *history;
} PageRun;

/* Replaces `path` by the page of `count` > 0 runs. Less than half a megabyte for a run, however long. EXIT_OUTPUT,
 * EXIT_MEMORY. */
bool page_write(const PageRun *runs, int count, const char *path, Error *error);

/* The same of the runs in directories, as find_runs() finds them: `./train --report`. EXIT_INPUT: there is none. */
bool page_write_runs(const char *const *dirs, int count, const char *path, Error *error);

#endif
