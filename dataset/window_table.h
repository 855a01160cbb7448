/* Best-fit packing of spans of tokens into windows. A window has one row of slots for tokens, or two rows that are
 * filled in parallel. */
#ifndef INKLING_DATASET_WINDOW_TABLE_H
#define INKLING_DATASET_WINDOW_TABLE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* The spans of each window. Begins as {0}, freed by window_table_free. */
typedef struct WindowTable {
  int64_t windows; /* number of them */
  int64_t *firsts; /* [windows + 1] the first span of each window */
  int64_t *spans;  /* [firsts[windows]] the first token of each span */
} WindowTable;

void window_table_free(WindowTable *table); /* harmless on a zeroed struct */

enum {
  OPEN_WINDOWS = 64, /* windows that still accept spans */
  WINDOW_ROWS = 2    /* the most rows */
};

/* A window that still has free slots. */
typedef struct OpenWindow {
  int free[WINDOW_ROWS]; /* slots */
  int64_t *spans;
  size_t count, capacity;
} OpenWindow;

/* Fills a table; all fields are private. */
typedef struct WindowFiller {
  WindowTable *table;
  int rows, slots;
  OpenWindow open[OPEN_WINDOWS];
  int open_count;
  size_t spans, spans_capacity, firsts_capacity; /* of the table */
} WindowFiller;

/* Begins to fill a table of zeros with windows of `rows` (1..WINDOW_ROWS) rows of `slots` each. Memory: 8 bytes per
 * span and 8 per window. All three functions: EXIT_MEMORY. Free the filler with window_filler_free and the table with
 * window_table_free, also after a failure. */
bool window_filler_begin(WindowFiller *filler, WindowTable *table, int rows, int slots, Error *error);
/* Adds the span that begins at token `begin` and takes `sizes` (1..slots) of each row. It goes into the open window in
 * which it leaves the fewest free slots over all rows. */
bool window_filler_add(WindowFiller *filler, int64_t begin, const int *sizes, Error *error);
/* Ends the filling: adds the open windows to the table. */
bool window_filler_end(WindowFiller *filler, Error *error);
void window_filler_free(WindowFiller *filler);

#endif
