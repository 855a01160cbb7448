#include "report/chart.h"

#include "base/html.h"
#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

enum {
  WIDTH = 520,
  HEIGHT = 256,
  LEFT = 70,
  RIGHT = 496,
  TOP = 10,
  BOTTOM = 210,
  TICKS = 6,
  MOST_TICKS = 20,
  MOST_DOTS = 100,
  NAME_BYTES = 60, /* of a curve's name in the legend */
  AXIS_NAME_BYTES = 24,
  CHARACTER = 9, /* width of a character in the larger of the two font sizes of the style sheet */
  LINE = 19,     /* height of a line */
  WIDEST = 78    /* a name under the last tick is cut off by the edge of the picture if it is wider */
};

/* ---- ranges ---- */

typedef struct Range {
  double low, high;
} Range;

typedef struct Plot {
  const Chart *chart;
  bool log;   /* chart->log, and y spans more than a decade */
  Range x, y; /* with `log`, y is the logarithm to base 10; with CHART_LOGARITHMS, x is */
  int below;  /* more height under the axis, for names that stand upright; 0: they do not */
} Plot;

static bool is_shown(const Chart *chart, const ChartPoint *p) {
  return chart_can_draw(p->x) && chart_can_draw(p->y) && (!chart->log || p->y > 0);
}

static double place_of(const Chart *chart, double x) { return chart->x == CHART_LOGARITHMS ? log10(x) : x; }

static double height_of(const Plot *plot, double y) { return plot->log ? log10(y) : y; }

static void widen(Range *range, double value) {
  range->low = fmin(range->low, value);
  range->high = fmax(range->high, value);
}

static bool find_ranges(Plot *plot) {
  const Chart *chart = plot->chart;
  const bool over_steps = chart->x <= CHART_TIME;
  plot->x = plot->y = (Range){INFINITY, -INFINITY};
  for (const ChartCurve *c = chart->curves; c < chart->curves + chart->curve_count; c++)
    for (int i = 0; i < c->count; i++) {
      if (!is_shown(chart, &c->points[i])) continue;
      widen(&plot->x, place_of(chart, c->points[i].x));
      if (i < chart_first_counted(c->count) && over_steps) continue;
      widen(&plot->y, chart->y_most > 0 ? fmin(chart->y_most, c->points[i].y) : c->points[i].y);
    }
  if (!(plot->x.low <= plot->x.high && plot->y.low <= plot->y.high)) return false;
  plot->log = chart->log && plot->y.high > 10 * plot->y.low;
  if (plot->log) plot->y = (Range){log10(plot->y.low), log10(plot->y.high)};
  const double range = plot->y.high - plot->y.low, margin = 0.04 * range;
  const double least = (range > 0 ? 1e-3 : 0.05) * fmax(1e-9, fabs(plot->y.high));
  plot->y.low -= fmax(margin, least);
  plot->y.high += fmax(margin, least);
  if (!over_steps) { /* dots at the edge of the range are seen whole */
    const double aside = plot->x.high > plot->x.low ? 0.05 * (plot->x.high - plot->x.low) : 0.5;
    plot->x = (Range){plot->x.low - aside, plot->x.high + aside};
  }
  if (plot->x.low == plot->x.high) plot->x.low = plot->x.low > 0 ? 0 : plot->x.low - 1;
  return true;
}

static double pixel_x(const Plot *plot, double x) {
  return (double)LEFT +
         (place_of(plot->chart, x) - plot->x.low) / (plot->x.high - plot->x.low) * (double)(RIGHT - LEFT);
}

/* Values outside of the range are drawn at its edge. */
static double pixel_y(const Plot *plot, double y) {
  const double height = (height_of(plot, y) - plot->y.low) / (plot->y.high - plot->y.low);
  return (double)BOTTOM - fmin(1, fmax(0, height)) * (double)(BOTTOM - TOP);
}

/* ---- axes ---- */

/* Returns 1, 2 or 5 times a power of ten, so that there are about TICKS ticks in the range. */
static double nice_step(Range range) {
  const double rough = (range.high - range.low) / (double)TICKS, unit = pow(10, floor(log10(rough)));
  return unit * (rough > 5 * unit ? 10 : rough > 2 * unit ? 5 : rough > unit ? 2 : 1);
}

/* Returns a usual number of seconds, minutes or hours. */
static double nice_seconds(Range range) {
  static const double steps[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600};
  const double rough = (range.high - range.low) / (double)TICKS;
  if (rough < 1) return nice_step(range);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (steps[i] >= rough) return steps[i];
  return 21600 * ceil(rough / 21600);
}

static void write_x_tick(FILE *stream, const Plot *plot, double x, const char *text) {
  const double at = pixel_x(plot, x);
  fprintf(stream, "<line class=\"tick\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", at, at, BOTTOM, BOTTOM + 4);
  if (plot->below)
    fprintf(stream, "<text class=\"end\" transform=\"translate(%.1f %d) rotate(-90)\">", at + 4, BOTTOM + 8);
  else fprintf(stream, "<text x=\"%.1f\" y=\"%d\">", at, BOTTOM + 20);
  html_write_text(stream, text);
  fputs("</text>\n", stream);
}

static void write_x_name(FILE *stream, const Plot *plot, const char *name) {
  fprintf(stream, "<text class=\"end\" x=\"%d\" y=\"%d\">", RIGHT, BOTTOM + 40 + plot->below);
  html_write_text(stream, name);
  fputs("</text>\n", stream);
}

/* Steps, time and numbers. */
static void write_even_axis(FILE *stream, const Plot *plot) {
  const bool time = plot->chart->x == CHART_TIME, steps = plot->chart->x == CHART_STEPS;
  const double step = time ? nice_seconds(plot->x) : fmax(steps ? 1 : 0, nice_step(plot->x));
  const double first = ceil(plot->x.low / step);
  for (int i = 0; i < MOST_TICKS && (first + i) * step <= plot->x.high; i++) {
    const double x = (first + i) * step;
    char number[32];
    snprintf(number, sizeof number, "%.6g", x);
    write_x_tick(stream, plot, x, steps ? text_count(x).text : time && step >= 1 ? text_duration(x).text : number);
  }
  write_x_name(stream, plot, steps ? "step" : !time ? plot->chart->x_name : step < 1 ? "seconds" : "time");
}

static void write_logarithmic_axis(FILE *stream, const Plot *plot) {
  static const double multiples[] = {1, 2, 5};
  const bool few = plot->x.high - plot->x.low < 2.5;
  const int each = 1 + (int)(plot->x.high - plot->x.low) / TICKS;
  for (int decade = (int)floor(plot->x.low); decade <= plot->x.high; decade += each)
    for (int i = 0; i < (few ? 3 : 1); i++) {
      const double x = multiples[i] * pow(10, decade);
      if (log10(x) >= plot->x.low && log10(x) <= plot->x.high)
        write_x_tick(stream, plot, x, text_number(x, false).text);
    }
  write_x_name(stream, plot, plot->chart->x_name);
}

static OneLine axis_name(const Plot *plot, int index) {
  return text_one_line(plot->chart->x_names[index], AXIS_NAME_BYTES);
}

/* Names that are wider than the space between them stand upright. */
static int height_of_names(const Plot *plot) {
  int widest = 0;
  if (plot->chart->x != CHART_NAMES) return 0;
  for (int i = 0; i < plot->chart->x_name_count; i++) {
    const int width = CHARACTER * utf8_characters(axis_name(plot, i).text);
    if (width > widest) widest = width;
  }
  return widest < fmin(WIDEST, pixel_x(plot, 1) - pixel_x(plot, 0)) ? 0 : widest;
}

/* Where more names stand than there is room for, the axis has every second one, every third one, ... */
static void write_names_axis(FILE *stream, const Plot *plot) {
  const int each = plot->below ? (int)ceil((double)LINE / (pixel_x(plot, 1) - pixel_x(plot, 0))) : 1;
  for (int i = 0; i < plot->chart->x_name_count; i += each) write_x_tick(stream, plot, i, axis_name(plot, i).text);
  write_x_name(stream, plot, plot->chart->x_name);
}

static void write_x_axis(FILE *stream, const Plot *plot) {
  if (plot->chart->x == CHART_NAMES) write_names_axis(stream, plot);
  else if (plot->chart->x == CHART_LOGARITHMS) write_logarithmic_axis(stream, plot);
  else write_even_axis(stream, plot);
}

static void write_tick(FILE *stream, const Plot *plot, double y) {
  const double at = pixel_y(plot, y);
  fprintf(stream,
          "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"end\" x=\"%d\" "
          "y=\"%.1f\">",
          LEFT, RIGHT, at, at, LEFT - 6, at + 4);
  if (fabs(y) < 1e4) fprintf(stream, "%.6g</text>\n", y);
  else fprintf(stream, "%s</text>\n", text_count(y).text);
}

static void write_y_axis(FILE *stream, const Plot *plot) {
  if (!plot->log) {
    const double step = nice_step(plot->y);
    const double first = ceil(plot->y.low / step);
    for (int i = 0; i < MOST_TICKS && (first + i) * step <= plot->y.high; i++)
      write_tick(stream, plot, (first + i) * step);
    return;
  }
  const bool few = plot->y.high - plot->y.low < 1.5; /* few decades: also ticks at 2 and 5 */
  const int each = 1 + (int)(plot->y.high - plot->y.low) / MOST_TICKS;
  for (int decade = (int)floor(plot->y.low); decade <= plot->y.high; decade += each) {
    static const double multiples[] = {1, 2, 5};
    for (int i = 0; i < (few ? 3 : 1); i++) {
      const double y = multiples[i] * pow(10, decade);
      if (log10(y) >= plot->y.low && log10(y) <= plot->y.high) write_tick(stream, plot, y);
    }
  }
}

/* ---- curves ---- */

static void write_band(FILE *stream, const Plot *plot, const ChartCurve *curve) {
  const char *command = "<path class=\"band\" d=\"M";
  for (int i = 0; i < curve->count; i++) {
    const ChartPoint *p = &curve->points[i];
    if (!is_shown(plot->chart, p) || isnan(p->high)) continue;
    fprintf(stream, "%s%.1f %.1f", command, pixel_x(plot, p->x), pixel_y(plot, p->high));
    command = "L";
  }
  for (int i = curve->count - 1; i >= 0; i--) {
    const ChartPoint *p = &curve->points[i];
    if (is_shown(plot->chart, p) && !isnan(p->low))
      fprintf(stream, "L%.1f %.1f", pixel_x(plot, p->x), pixel_y(plot, p->low));
  }
  if (*command == 'L') fprintf(stream, "Z\"/>\n");
}

static void write_line(FILE *stream, const Plot *plot, const ChartCurve *curve) {
  bool gap = true;
  fputs("<path class=\"curve\" d=\"", stream);
  for (int i = 0; i < curve->count; i++) {
    const ChartPoint *p = &curve->points[i];
    if (is_shown(plot->chart, p))
      fprintf(stream, "%s%.1f %.1f", gap ? "M" : "L", pixel_x(plot, p->x), pixel_y(plot, p->y));
    gap = !is_shown(plot->chart, p);
  }
  fputs("\"/>\n", stream);
}

static void write_dot(FILE *stream, const Plot *plot, const ChartPoint *p, const char *class, double radius) {
  if (!is_shown(plot->chart, p)) return;
  fprintf(stream, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", class, pixel_x(plot, p->x),
          pixel_y(plot, p->y), radius);
  if (p->title[0]) {
    fputs("<title>", stream);
    html_write_text(stream, p->title);
    fputs("</title>", stream);
  }
  fputs("</circle>\n", stream);
}

/* A color that is used again is dashed. */
static const char *dash_of(const ChartCurve *curve) { return curve->color < CHART_COLORS ? "" : " dashed"; }

static void write_curve(FILE *stream, const Plot *plot, const ChartCurve *curve) {
  fprintf(stream, "<g class=\"c%d%s\">\n", curve->color % CHART_COLORS, dash_of(curve));
  write_band(stream, plot, curve);
  if (!curve->no_line) write_line(stream, plot, curve);
  const bool dots = curve->no_line || curve->count == 1 || (curve->dots && curve->count <= MOST_DOTS);
  for (int i = 0; dots && i < curve->count; i++) write_dot(stream, plot, &curve->points[i], "dot", 2.4);
  fputs("</g>\n", stream);
}

static bool is_inside(const Plot *plot, double y) { return y >= plot->y.low && y <= plot->y.high; }

static void write_levels(FILE *stream, const Plot *plot) {
  for (int i = 0; i < plot->chart->level_count; i++) {
    const double y = plot->chart->levels[i].y;
    if (!isfinite(y) || !is_inside(plot, y)) continue;
    fprintf(stream, "<line class=\"level l%d\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", i, LEFT, RIGHT,
            pixel_y(plot, y), pixel_y(plot, y));
  }
}

/* ---- title, note and legend ---- */

static void write_curve_name(FILE *stream, const ChartCurve *curve) {
  const OneLine name = text_one_line(curve->name, NAME_BYTES);
  fprintf(stream, "<li class=\"c%d%s\"", curve->color % CHART_COLORS, dash_of(curve));
  if (strcmp(name.text, curve->name) != 0) {
    fputs(" title=\"", stream);
    html_write_text(stream, curve->name);
    fputs("\"", stream);
  }
  fputs(">", stream);
  html_write_text(stream, name.text);
  fputs("</li>\n", stream);
}

static void write_level_name(FILE *stream, const Plot *plot, int index) {
  const ChartLevel *level = &plot->chart->levels[index];
  fprintf(stream, "<li class=\"l%d\">", index);
  html_write_text(stream, level->name);
  fprintf(stream, " %.4g%s</li>\n", level->y,
          is_inside(plot, level->y) ? ""
          : level->y > plot->y.high ? " (above the picture)"
                                    : " (below the picture)");
}

static void write_legend(FILE *stream, const Plot *plot) {
  const Chart *chart = plot->chart;
  int levels = 0;
  for (int i = 0; i < chart->level_count; i++) levels += isfinite(chart->levels[i].y) != 0;
  if (chart->curve_count < 2 && !levels && !chart->mark) return;
  fputs("<ul class=\"legend\">\n", stream);
  for (int i = 0; i < chart->curve_count && chart->curve_count > 1; i++) write_curve_name(stream, &chart->curves[i]);
  if (chart->mark) fputs("<li class=\"kept\">the model that is kept</li>\n", stream);
  for (int i = 0; i < chart->level_count; i++)
    if (isfinite(chart->levels[i].y)) write_level_name(stream, plot, i);
  fputs("</ul>\n", stream);
}

static void write_caption(FILE *stream, const Plot *plot) {
  const Chart *chart = plot->chart;
  fprintf(stream, "<figcaption><p class=\"title\" id=\"%s-title\">", chart->id);
  html_write_text(stream, chart->title);
  fprintf(stream, "</p>\n<p class=\"note\" id=\"%s-note\">", chart->id);
  html_write_text(stream, chart->note);
  fputs("</p>\n", stream);
  write_legend(stream, plot);
  fputs("</figcaption>\n", stream);
}

/* ---- the chart ---- */

void chart_write(FILE *stream, const Chart *chart) {
  Plot plot = {.chart = chart};
  if (!find_ranges(&plot)) {
    fputs("<p class=\"none\">", stream);
    html_write_text(stream, chart->title);
    fputs(": nothing was measured yet</p>\n", stream);
    return;
  }
  fputs("<figure>\n", stream);
  write_caption(stream, &plot);
  plot.below = height_of_names(&plot);
  fprintf(stream,
          "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title\" aria-describedby=\"%s-note\">\n", WIDTH,
          HEIGHT + plot.below, chart->id, chart->id);
  write_x_axis(stream, &plot);
  write_y_axis(stream, &plot);
  write_levels(stream, &plot);
  fprintf(
      stream,
      "<g data-x0=\"%.10g\" data-x1=\"%.10g\" data-y0=\"%.10g\" data-y1=\"%.10g\" data-left=\"%d\" data-right=\"%d\" "
      "data-bottom=\"%d\" data-top=\"%d\">\n",
      plot.x.low, plot.x.high, plot.y.low, plot.y.high, LEFT, RIGHT, BOTTOM, TOP);
  for (int i = 0; i < chart->curve_count; i++) write_curve(stream, &plot, &chart->curves[i]);
  if (chart->mark) write_dot(stream, &plot, chart->mark, "mark", 5);
  fputs("</g>\n</svg>\n</figure>\n", stream);
}
