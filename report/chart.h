/* A chart, a picture in inline SVG with its words: curves over steps or time, for report.html. Colors are those of the
 * page's style sheet. */
#ifndef INKLING_REPORT_CHART_H
#define INKLING_REPORT_CHART_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct ChartPoint {
  double x, y;       /* y NaN: a gap */
  double low, high;  /* a band around the curve; NaN: none */
  const char *title; /* shown when the pointer rests on it; NULL: none */
} ChartPoint;

enum { CHART_COLORS = 8 };

typedef struct ChartCurve {
  const char *name; /* in the legend */
  int color;        /* from 0; those from CHART_COLORS on are the first ones again, dashed */
  bool dots;        /* a dot a point, too, unless there are many */
  ChartPoint *points;
  int count;
} ChartCurve;

/* A level to compare with; where it lies outside of the curves' range only the legend has it. */
typedef struct ChartLevel {
  const char *name; /* "guessing" */
  double y;         /* NaN: none */
} ChartLevel;

typedef struct Chart {
  const char *title;
  const char *note; /* what is good, in a sentence */
  const char *id;   /* unique in the page; letters, digits, hyphens */
  bool time;        /* x is in seconds; else a count of steps */
  bool log;         /* y is drawn by its logarithm, where it spans more than a decade */
  const ChartCurve *curves;
  int curve_count;
  const ChartLevel *levels;
  int level_count;
  const ChartPoint *mark; /* the model that is kept, which is circled; NULL: none */
} Chart;

/* A <figure>: title, note and legend as text that wraps, and under them the picture, so that they cannot overlap.
 * What is not finite, and with `log` not positive, is left out. The plot's <g> has the ranges as data-x0, data-x1,
 * data-y0, data-y1 and the pixels as data-left, data-right, data-bottom, data-top. A chart without a point is a line of
 * text that says so. */
void chart_write(FILE *stream, const Chart *chart);

/* ---- what charts and plots in a terminal agree on ---- */

/* Ranges of what is larger could not be computed with. */
static inline bool chart_can_draw(double value) { return fabs(value) < 1e30; }

/* The first point that the range is made for: a first fiftieth, where losses fall from those of guessing, would leave
 * no room for the rest. */
static inline int chart_first_counted(int points) { return points / 50; }

#endif
