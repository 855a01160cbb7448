/* Spans of tokens put into windows, best fit. A window has one row of places, or two that are filled side by side. */
#ifndef INKLING_DATASET_WINDOW_TABLE_H
#define INKLING_DATASET_WINDOW_TABLE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* Which spans each window holds. Begins as {0}, freed by window_table_free. */
typedef struct WindowTable {
  int64_t windows; /* number of them */
  int64_t *firsts; /* [windows + 1] the first span of each window */
  int64_t *spans;  /* [firsts[windows]] the first token of each span */
} WindowTable;

void window_table_free(WindowTable *table); /* harmless on a zeroed struct */

enum {
  OPEN_WINDOWS = 64, /* that spans are still put into */
  WINDOW_ROWS = 2    /* at most */
};

/* A window that still has room. */
typedef struct OpenWindow {
  int room[WINDOW_ROWS]; /* places */
  int64_t *spans;
  size_t count, capacity;
} OpenWindow;

/* Fills a table; nothing in it is the caller's. */
typedef struct WindowFiller {
  WindowTable *table;
  int rows, places;
  OpenWindow open[OPEN_WINDOWS];
  int open_count;
  size_t spans, spans_capacity, firsts_capacity; /* of the table */
} WindowFiller;

/* Into a table of zeros, windows of `rows` (1..WINDOW_ROWS) rows of `places` each. Takes 8 bytes a span and 8 a window.
 * All three: EXIT_MEMORY. After a failure too the filler ends with window_filler_free, the table with
 * window_table_free. */
bool window_filler_begin(WindowFiller *filler, WindowTable *table, int rows, int places, Error *error);
/* The span that begins at token `begin` and takes `sizes` (1..places) of each row. It goes into that of the open
 * windows in which it leaves the least room, all rows together. */
bool window_filler_add(WindowFiller *filler, int64_t begin, const int *sizes, Error *error);
/* No more spans: the open windows follow the others. */
bool window_filler_end(WindowFiller *filler, Error *error);
void window_filler_free(WindowFiller *filler);

#endif
