#include "dataset/window_table.h"

#include "util/array.h"

#include <stdlib.h>
#include <string.h>

void window_table_free(WindowTable *table) {
  free(table->firsts);
  free(table->spans);
  *table = (WindowTable){0};
}

static bool no_memory(const WindowFiller *f, Error *error) {
  return fail(error, EXIT_MEMORY, "out of memory for a table of %lld windows of documents",
              (long long)f->table->windows);
}

bool window_filler_begin(WindowFiller *f, WindowTable *table, int rows, int slots, Error *error) {
  *f = (WindowFiller){.table = table, .rows = rows, .slots = slots};
  if (!array_reserve(&table->firsts, &f->firsts_capacity, 1, sizeof *table->firsts)) return no_memory(f, error);
  table->firsts[0] = 0;
  return true;
}

static void empty_window(const WindowFiller *f, OpenWindow *window) {
  for (int row = 0; row < f->rows; row++) window->free[row] = f->slots;
  window->count = 0;
}

/* Moves the window's spans to the table and empties the window. */
static bool close_window(WindowFiller *f, OpenWindow *window, Error *error) {
  WindowTable *out = f->table;
  const size_t spans = f->spans + window->count;
  if (!array_reserve(&out->spans, &f->spans_capacity, spans, sizeof *out->spans) ||
      !array_reserve(&out->firsts, &f->firsts_capacity, (size_t)out->windows + 2, sizeof *out->firsts))
    return no_memory(f, error);
  memcpy(out->spans + f->spans, window->spans, window->count * sizeof *out->spans);
  f->spans = spans;
  out->firsts[++out->windows] = (int64_t)spans;
  empty_window(f, window);
  return true;
}

/* Returns the total number of free slots of a window; -1 when the span does not fit. */
static int64_t free_slots(const WindowFiller *f, const OpenWindow *window, const int *sizes) {
  int64_t slots = 0;
  for (int row = 0; row < f->rows; row++) {
    if (window->free[row] < sizes[row]) return -1;
    slots += window->free[row];
  }
  return slots;
}

/* Returns the open window with the fewest free slots that the span fits into; NULL: none. */
static OpenWindow *tightest(WindowFiller *f, const int *sizes) {
  OpenWindow *best = NULL;
  for (int64_t i = 0, least = INT64_MAX; i < f->open_count; i++) {
    const int64_t slots = free_slots(f, &f->open[i], sizes);
    if (slots < 0 || slots >= least) continue;
    best = &f->open[i];
    least = slots;
  }
  return best;
}

static OpenWindow *window_for(WindowFiller *f, const int *sizes, Error *error) {
  OpenWindow *window = tightest(f, sizes);
  if (window) return window;
  if (f->open_count < OPEN_WINDOWS) {
    window = &f->open[f->open_count++];
    empty_window(f, window);
    return window;
  }
  window = tightest(f, (const int[WINDOW_ROWS]){0});
  return close_window(f, window, error) ? window : NULL;
}

bool window_filler_add(WindowFiller *f, int64_t begin, const int *sizes, Error *error) {
  OpenWindow *window = window_for(f, sizes, error);
  if (!window) return false;
  if (!array_reserve(&window->spans, &window->capacity, window->count + 1, sizeof *window->spans))
    return no_memory(f, error);
  window->spans[window->count++] = begin;
  bool full = false;
  for (int row = 0; row < f->rows; row++) {
    window->free[row] -= sizes[row];
    full = full || window->free[row] == 0;
  }
  return !full || close_window(f, window, error);
}

bool window_filler_end(WindowFiller *f, Error *error) {
  for (int i = 0; i < f->open_count; i++)
    if (f->open[i].count && !close_window(f, &f->open[i], error)) return false;
  return true;
}

void window_filler_free(WindowFiller *f) {
  for (int i = 0; i < f->open_count; i++) free(f->open[i].spans);
  *f = (WindowFiller){0};
}
