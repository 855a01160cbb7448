/* A chart for report.html: curves over steps, time or the values of an option as inline SVG, with title, note and
 * legend. Colors are defined in the page's style sheet. */
#ifndef INKLING_REPORT_CHART_H
#define INKLING_REPORT_CHART_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { CHART_COLORS = 8, CHART_TITLE_BYTES = 120 };

typedef struct ChartPoint {
  double x, y;                   /* y NaN: a gap */
  double low, high;              /* a band around the curve; NaN: none */
  char title[CHART_TITLE_BYTES]; /* tooltip; "": none */
} ChartPoint;

typedef struct ChartCurve {
  const char *name; /* in the legend */
  int color;        /* from 0; from CHART_COLORS on colors repeat, dashed */
  bool dots;        /* draw a dot per point, if there are at most 100 */
  ChartPoint *points;
  int count;
  bool no_line; /* draw the dots alone */
} ChartCurve;

/* A reference level; outside of the curves' range only the legend shows it. */
typedef struct ChartLevel {
  const char *name; /* "guessing" */
  double y;         /* NaN: none */
} ChartLevel;

typedef enum ChartX { CHART_STEPS, CHART_TIME, CHART_NUMBERS, CHART_LOGARITHMS, CHART_NAMES } ChartX;

typedef struct Chart {
  const char *title;
  const char *note; /* says which values are good */
  const char *id;   /* unique in the page; letters, digits, hyphens */
  ChartX x; /* a count of steps, seconds, numbers, positive numbers on a logarithmic axis, or indices of names */
  const char *x_name;         /* of numbers and names, under the axis */
  const char *const *x_names; /* of CHART_NAMES */
  int x_name_count;
  bool log;      /* logarithmic y axis if y spans more than a decade */
  double y_most; /* > 0: larger values are drawn at the upper edge */
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

/* ---- rules shared by charts and terminal plots ---- */

/* Returns whether a value can be drawn. Ranges of larger values would overflow. */
static inline bool chart_can_draw(double value) { return fabs(value) < 1e30; }

/* Returns the first point that determines the range of y. It skips the first fiftieth, in which the loss falls from the
 * loss of guessing; otherwise that fall would take most of the range. */
static inline int chart_first_counted(int points) { return points / 50; }

#endif
