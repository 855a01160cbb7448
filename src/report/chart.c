#include "report/chart.h"

#include "base/html.h"
#include "base/text.h"

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
  NAME_BYTES = 60 /* of a curve's name in the legend */
};

/* ---- ranges ---- */

typedef struct Plot {
  const Chart *chart;
  ChartRanges ranges;
} Plot;

bool chart_shows(const Chart *chart, const ChartPoint *p) {
  const double most = 1e30; /* ranges of larger values would overflow */
  return fabs(p->x) < most && fabs(p->y) < most && (!chart->log || p->y > 0);
}

static double place_of(const Chart *chart, double x) { return chart->x == CHART_LOGARITHMS ? log10(x) : x; }

static double height_of(const ChartRanges *ranges, double y) { return ranges->log ? log10(y) : y; }

static void widen(ChartRange *range, double value) {
  range->low = fmin(range->low, value);
  range->high = fmax(range->high, value);
}

/* Makes the ranges wider, so that points at their edges are seen whole. */
static void add_margins(ChartRanges *ranges, bool over_steps) {
  ChartRange *x = &ranges->x, *y = &ranges->y;
  const double range = y->high - y->low, least = (range > 0 ? 1e-3 : 0.05) * fmax(1e-9, fabs(y->high));
  const double margin = fmax(0.04 * range, least), aside = x->high > x->low ? 0.05 * (x->high - x->low) : 0.5;
  *y = (ChartRange){y->low - margin, y->high + margin};
  if (!over_steps) *x = (ChartRange){x->low - aside, x->high + aside};
  if (x->low == x->high) x->low = x->low > 0 ? 0 : x->low - 1;
}

bool chart_find_ranges(const Chart *chart, ChartRanges *out) {
  const bool over_steps = chart->x <= CHART_TIME;
  ChartRange x = {INFINITY, -INFINITY}, y = x;
  for (const ChartCurve *c = chart->curves; c < chart->curves + chart->curve_count; c++)
    for (int i = 0; i < c->count; i++) {
      if (!chart_shows(chart, &c->points[i])) continue;
      widen(&x, place_of(chart, c->points[i].x));
      /* In the first fiftieth the loss falls from the loss of guessing, which would take most of the range. */
      if (over_steps && !c->no_line && i < c->count / 50) continue;
      widen(&y, chart->y_most > 0 ? fmin(chart->y_most, c->points[i].y) : c->points[i].y);
    }
  *out = (ChartRanges){.log = chart->log && y.high > 10 * y.low, .x = x, .y = y};
  if (!(x.low <= x.high && y.low <= y.high)) return false;
  out->y = (ChartRange){height_of(out, y.low), height_of(out, y.high)};
  add_margins(out, over_steps);
  return true;
}

double chart_x(const Chart *chart, const ChartRanges *ranges, double x) {
  return (place_of(chart, x) - ranges->x.low) / (ranges->x.high - ranges->x.low);
}

double chart_y(const ChartRanges *ranges, double y) {
  const double height = (height_of(ranges, y) - ranges->y.low) / (ranges->y.high - ranges->y.low);
  return fmin(1, fmax(0, height));
}

/* ---- a picture ---- */

static double pixel_x(const Plot *plot, double x) {
  return (double)LEFT + chart_x(plot->chart, &plot->ranges, x) * (double)(RIGHT - LEFT);
}

static double pixel_y(const Plot *plot, double y) {
  return (double)BOTTOM - chart_y(&plot->ranges, y) * (double)(BOTTOM - TOP);
}

/* ---- axes ---- */

typedef struct Ticks {
  double at[MOST_TICKS];
  int count;
  double step; /* between two of them; 0: they are powers of ten */
} Ticks;

/* Returns 1, 2 or 5 times a power of ten, so that there are about TICKS ticks in the range. */
static double nice_step(ChartRange range) {
  const double rough = (range.high - range.low) / (double)TICKS, unit = pow(10, floor(log10(rough)));
  return unit * (rough > 5 * unit ? 10 : rough > 2 * unit ? 5 : rough > unit ? 2 : 1);
}

/* Returns a usual number of seconds, minutes or hours. */
static double nice_seconds(ChartRange range) {
  static const double steps[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600};
  const double rough = (range.high - range.low) / (double)TICKS;
  if (rough < 1) return nice_step(range);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (steps[i] >= rough) return steps[i];
  return 21600 * ceil(rough / 21600);
}

static Ticks even_ticks(ChartRange range, double step) {
  Ticks ticks = {.step = step};
  for (double i = ceil(range.low / step); ticks.count < MOST_TICKS && i * step <= range.high; i++)
    ticks.at[ticks.count++] = i * step;
  return ticks;
}

/* Powers of ten in a range of logarithms; where it has few of them, also twice and five times these. */
static Ticks logarithmic_ticks(ChartRange range) {
  static const double multiples[] = {1, 2, 5};
  const int count = range.high - range.low < 2 ? 3 : 1, each = 1 + (int)(range.high - range.low) / TICKS;
  Ticks ticks = {.step = 0};
  for (int decade = (int)floor(range.low); decade <= range.high; decade += each)
    for (int i = 0; i < count && ticks.count < MOST_TICKS; i++) {
      const double value = multiples[i] * pow(10, decade);
      if (log10(value) >= range.low && log10(value) <= range.high) ticks.at[ticks.count++] = value;
    }
  return ticks;
}

static Ticks x_ticks(const Plot *plot) {
  const ChartRange range = plot->ranges.x;
  switch (plot->chart->x) {
  case CHART_STEPS: return even_ticks(range, fmax(1, nice_step(range)));
  case CHART_TIME: return even_ticks(range, nice_seconds(range));
  case CHART_NUMBERS: return even_ticks(range, nice_step(range));
  case CHART_LOGARITHMS: break;
  }
  return logarithmic_ticks(range);
}

static void write_x_axis(FILE *stream, const Plot *plot) {
  const Ticks ticks = x_ticks(plot);
  const bool steps = plot->chart->x == CHART_STEPS, time = plot->chart->x == CHART_TIME && ticks.step >= 1;
  for (const double *x = ticks.at; x < ticks.at + ticks.count; x++) {
    const double at = pixel_x(plot, *x);
    ShortText text = steps ? text_count(*x) : text_duration(*x);
    if (!steps && !time) snprintf(text.text, sizeof text.text, "%.6g", *x);
    fprintf(stream,
            "<line class=\"tick\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text x=\"%.1f\" "
            "y=\"%d\">%s</text>\n",
            at, at, BOTTOM, BOTTOM + 4, at, BOTTOM + 20, text.text);
  }
  const char *name = steps ? "step" : time ? "time" : plot->chart->x == CHART_TIME ? "seconds" : plot->chart->x_name;
  fprintf(stream, "<text class=\"end\" x=\"%d\" y=\"%d\">", RIGHT, BOTTOM + 40);
  html_write_text(stream, name);
  fputs("</text>\n", stream);
}

static void write_y_axis(FILE *stream, const Plot *plot) {
  const ChartRange range = plot->ranges.y;
  const Ticks ticks = plot->ranges.log ? logarithmic_ticks(range) : even_ticks(range, nice_step(range));
  for (const double *y = ticks.at; y < ticks.at + ticks.count; y++) {
    const double at = pixel_y(plot, *y);
    ShortText text = text_count(*y);
    if (fabs(*y) < 1e4) snprintf(text.text, sizeof text.text, "%.6g", *y);
    fprintf(stream,
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"end\" x=\"%d\" "
            "y=\"%.1f\">%s</text>\n",
            LEFT, RIGHT, at, at, LEFT - 6, at + 4, text.text);
  }
}

/* ---- curves ---- */

static void write_band(FILE *stream, const Plot *plot, const ChartCurve *curve) {
  const char *command = "<path class=\"band\" d=\"M";
  for (int i = 0; i < curve->count; i++) {
    const ChartPoint *p = &curve->points[i];
    if (!chart_shows(plot->chart, p) || !(p->low < p->high)) continue;
    fprintf(stream, "%s%.1f %.1f", command, pixel_x(plot, p->x), pixel_y(plot, p->high));
    command = "L";
  }
  for (int i = curve->count - 1; i >= 0; i--) {
    const ChartPoint *p = &curve->points[i];
    if (chart_shows(plot->chart, p) && p->low < p->high)
      fprintf(stream, "L%.1f %.1f", pixel_x(plot, p->x), pixel_y(plot, p->low));
  }
  if (*command == 'L') fprintf(stream, "Z\"/>\n");
}

static void write_line(FILE *stream, const Plot *plot, const ChartCurve *curve) {
  bool gap = true;
  fputs("<path class=\"curve\" d=\"", stream);
  for (int i = 0; i < curve->count; i++) {
    const ChartPoint *p = &curve->points[i];
    if (chart_shows(plot->chart, p))
      fprintf(stream, "%s%.1f %.1f", gap ? "M" : "L", pixel_x(plot, p->x), pixel_y(plot, p->y));
    gap = !chart_shows(plot->chart, p);
  }
  fputs("\"/>\n", stream);
}

static void write_dot(FILE *stream, const Plot *plot, const ChartPoint *p, const char *class, double radius) {
  if (!chart_shows(plot->chart, p)) return;
  fprintf(stream, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">", class, pixel_x(plot, p->x),
          pixel_y(plot, p->y), radius);
  if (p->title[0]) html_write_element(stream, "title", p->title);
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

static bool is_inside(const Plot *plot, double y) { return y >= plot->ranges.y.low && y <= plot->ranges.y.high; }

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
          is_inside(plot, level->y)        ? ""
          : level->y > plot->ranges.y.high ? " (above the picture)"
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
  if (!chart_find_ranges(chart, &plot.ranges)) {
    OneLine text = text_one_line(chart->title, ONE_LINE_BYTES / 2);
    text_append(text.text, sizeof text.text, ": nothing was measured yet");
    html_write_element(stream, "p class=\"none\"", text.text);
    return;
  }
  fputs("<figure>\n", stream);
  write_caption(stream, &plot);
  fprintf(stream,
          "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title\" aria-describedby=\"%s-note\">\n", WIDTH,
          HEIGHT, chart->id, chart->id);
  write_x_axis(stream, &plot);
  write_y_axis(stream, &plot);
  write_levels(stream, &plot);
  fprintf(
      stream,
      "<g data-x0=\"%.10g\" data-x1=\"%.10g\" data-y0=\"%.10g\" data-y1=\"%.10g\" data-left=\"%d\" data-right=\"%d\" "
      "data-bottom=\"%d\" data-top=\"%d\">\n",
      plot.ranges.x.low, plot.ranges.x.high, plot.ranges.y.low, plot.ranges.y.high, LEFT, RIGHT, BOTTOM, TOP);
  for (int i = 0; i < chart->curve_count; i++) write_curve(stream, &plot, &chart->curves[i]);
  if (chart->mark) write_dot(stream, &plot, chart->mark, "mark", 5);
  fputs("</g>\n</svg>\n</figure>\n", stream);
}
