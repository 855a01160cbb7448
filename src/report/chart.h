/* A chart: curves over steps, time or numbers. chart.c draws it for pages as inline SVG with title, note and legend, in
 * the colors of their style sheet; chart_text.c draws it in a terminal. */
#ifndef INKLING_REPORT_CHART_H
#define INKLING_REPORT_CHART_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { CHART_COLORS = 8, CHART_TITLE_BYTES = 120 };

typedef struct ChartPoint {
  double x, y;                   /* y NaN: a gap */
  double low, high;              /* a band around the curve; equal: none */
  char title[CHART_TITLE_BYTES]; /* tooltip; "": none */
} ChartPoint;

typedef struct ChartCurve {
  const char *name; /* in the legend */
  int color;        /* from 0; from CHART_COLORS on colors repeat, dashed */
  bool dots;        /* draw a dot per point, if there are at most 100 */
  ChartPoint *points;
  int count;
  bool no_line; /* draw the dots alone */
  char letter;  /* in a terminal: repeated on the line, or instead of each dot; 0: none */
} ChartCurve;

/* A reference level; outside of the curves' range only the legend shows it. */
typedef struct ChartLevel {
  const char *name; /* "guessing" */
  double y;         /* NaN: none */
} ChartLevel;

typedef enum ChartX { CHART_STEPS, CHART_TIME, CHART_NUMBERS, CHART_LOGARITHMS } ChartX;

typedef struct Chart {
  const char *title;
  const char *note;   /* says which values are good */
  const char *id;     /* unique in the page; letters, digits, hyphens */
  ChartX x;           /* a count of steps, seconds, numbers, or positive numbers on a logarithmic axis */
  const char *x_name; /* of numbers, under the axis */
  bool log;           /* logarithmic y axis if y spans more than a decade */
  double y_most;      /* > 0: larger values are drawn at the upper edge */
  const ChartCurve *curves;
  int curve_count;
  const ChartLevel *levels;
  int level_count;
  const ChartPoint *mark; /* the kept model, marked with a circle; NULL: none */
} Chart;

/* Writes a <figure>: title, note and legend as text that wraps, above the picture, so that they cannot overlap. Values
 * that are not finite, or not positive if `log`, are left out. The plot's <g> has the ranges as
 * data-x0, data-x1, data-y0, data-y1 and the pixels as data-left, data-right, data-bottom, data-top. A chart without a
 * point becomes a line of text. */
void chart_write(FILE *stream, const Chart *chart);

/* Draws the curves over steps and the mark (as *) in braille, or in ASCII if `utf8` is false: 16 lines of 72
 * characters, or fewer if axes and plot do not fit into `width` columns (0: no limit). Returns false for a chart
 * without a point. */
bool chart_print(FILE *stream, const Chart *chart, int width, bool utf8);

/* ---- what both share ---- */

typedef struct ChartRange {
  double low, high;
} ChartRange;

typedef struct ChartRanges {
  bool log;        /* chart->log, and y spans more than a decade */
  ChartRange x, y; /* with `log`, y is the logarithm to base 10; with CHART_LOGARITHMS, x is */
} ChartRanges;

bool chart_find_ranges(const Chart *chart, ChartRanges *out); /* false: there is no point */
bool chart_shows(const Chart *chart, const ChartPoint *point);
/* Return the place in the ranges, from 0 to 1. Values of y outside of their range are at its edge. */
double chart_x(const Chart *chart, const ChartRanges *ranges, double x);
double chart_y(const ChartRanges *ranges, double y);

#endif
