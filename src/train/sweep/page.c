/* report.html of a sweep. */
#include "report/chart.h"
#include "report/page.h"
#include "report/runs.h"
#include "train/sweep/findings.h"
#include "base/array.h"
#include "base/file.h"
#include "base/html.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was found ---- */

static void write_summary(FILE *stream, const SweepRuns *runs, const SweepOption *options, int count) {
  const SweepRun *best = sweep_best(runs);
  fputs("<p class=\"summary\">", stream);
  if (best) {
    fputs("After all steps, the best setting is ", stream);
    html_write_text(stream, sweep_setting_text(runs, best).text);
    fputs(".</p>\n", stream);
  } else {
    fputs("No run has made all of its steps.</p>\n", stream);
  }
  for (int i = 0; i < count; i++) {
    if (!options[i].edge) continue;
    fputs("<p class=\"verdict\">Its ", stream);
    html_write_text(stream, options[i].name);
    fprintf(stream, " is the %s that was tried: a %s one may be better.</p>\n",
            options[i].edge < 0 ? "smallest" : "largest", options[i].edge < 0 ? "smaller" : "larger");
  }
}

/* ---- a picture of an option ---- */

/* Returns the score above which a picture would show little else than the worst settings: as far above the median as
 * three times the way from the best to it; 0: there is none. EXIT_MEMORY: NaN. */
static double worst_shown(const SweepRuns *runs) {
  double *scores = malloc((size_t)runs->count * sizeof *scores);
  int count = 0;
  if (!scores) return (double)NAN;
  for (int i = 0; i < runs->count; i++) {
    const double score = sweep_group_score(runs, i, 0);
    if (runs->items[i].group == i && isfinite(score)) scores[count++] = score;
  }
  qsort(scores, (size_t)count, sizeof *scores, array_compare_doubles);
  const double most = count ? scores[count / 2] + 3 * (scores[count / 2] - scores[0]) : 0;
  free(scores);
  return most;
}

/* Returns the place of a value on the x axis. */
static double place_of(const SweepOption *option, const SweepRun *run) {
  const char *text = json_string_value(json_object_get(run->settings, option->name));
  for (int i = 0; i < option->count; i++)
    if (text && strcmp(option->values[i].text, text) == 0) return option->numbers ? option->values[i].number : i;
  return (double)NAN;
}

/* Adds a setting with the mean of its seeds, and the lowest and highest of them as a band. */
static void add_point(ChartCurve *curve, const SweepRuns *runs, int group, double x) {
  ChartPoint *point = &curve->points[curve->count++];
  int seeds = 0;
  *point = (ChartPoint){.x = x, .y = sweep_group_score(runs, group, 0), .low = INFINITY, .high = -INFINITY};
  for (int i = group; i < runs->count; i++) {
    if (runs->items[i].group != group) continue;
    point->low = fmin(point->low, runs->items[i].scores[0]);
    point->high = fmax(point->high, runs->items[i].scores[0]);
    seeds++;
  }
  if (seeds < 2) point->low = point->high = (double)NAN;
  snprintf(point->title, sizeof point->title, "%.4f: %.90s", point->y, runs->items[group].name);
}

static ChartX axis_of(const SweepOption *option) {
  const double first = option->values[0].number, last = option->values[option->count - 1].number;
  return !option->numbers ? CHART_NAMES : first > 0 && last >= 10 * first ? CHART_LOGARITHMS : CHART_NUMBERS;
}

/* Fills the curves "all settings" and "best of each value", which have room for all runs. */
static void fill_curves(ChartCurve curves[2], const SweepRuns *runs, const SweepOption *option) {
  ChartCurve *all = &curves[0], *best = &curves[1];
  for (int i = 0; i < runs->count; i++)
    if (runs->items[i].group == i) add_point(all, runs, i, place_of(option, &runs->items[i]));
  for (int i = 0; i < all->count; i++) all->points[i].low = all->points[i].high = (double)NAN;
  for (int i = 0; i < option->count; i++)
    if (isfinite(option->values[i].score))
      add_point(best, runs, option->values[i].group, option->numbers ? option->values[i].number : i);
}

/* most: worst_shown() */
static bool write_option(FILE *stream, const SweepRuns *runs, const SweepOption *option, int number, double most) {
  char id[20], note[300];
  ChartCurve curves[] = {{.name = "all settings", .color = 0, .dots = true, .no_line = true},
                         {.name = "best of each value", .color = 1, .dots = true}};
  const char **names = calloc((size_t)option->count, sizeof *names);
  bool ok = names;
  for (int k = 0; k < 2; k++) ok = (curves[k].points = calloc((size_t)runs->count, sizeof *curves[k].points)) && ok;
  for (int i = 0; ok && i < option->count; i++) names[i] = option->values[i].text;
  if (ok) fill_curves(curves, runs, option);
  snprintf(id, sizeof id, "option-%d", number);
  snprintf(
      note, sizeof note,
      "Validation loss in %s after %s of the steps; lower is better. A dot is the mean of a setting's seeds, and a "
      "band their range. Much worse settings are drawn at the upper edge, failed ones are not.",
      sweep_unit(runs), sweep_stages[0].name);
  const Chart chart = {.title = option->name,
                       .note = note,
                       .id = id,
                       .x = axis_of(option),
                       .x_name = option->name,
                       .x_names = names,
                       .x_name_count = option->count,
                       .y_most = most,
                       .curves = curves,
                       .curve_count = 2};
  if (ok) chart_write(stream, &chart);
  for (int k = 0; k < 2; k++) free(curves[k].points);
  free(names);
  return ok;
}

/* ---- the page ---- */

static bool write_page(FILE *stream, const SweepRuns *runs, const RunsTable *table, const SweepOption *options,
                       int count, Error *error) {
  const double most = worst_shown(runs);
  const bool any_score = most > 0;
  bool ok = !isnan(most);
  html_begin(stream, "report", table->dirs[0], table->dirs[0]);
  write_summary(stream, runs, options, count);
  fputs("<section>\n<h2>Options</h2>\n<div class=\"charts\">\n", stream);
  for (int i = 0; ok && i < count; i++)
    if (options[i].count > 1) ok = write_option(stream, runs, &options[i], i, most);
  fputs("</div>\n</section>\n<section><h2>Runs</h2>\n", stream);
  if (!ok) error_memory(error, "a report");
  if (ok && any_score) ok = runs_print(table, stream, error);
  fputs("</section>\n", stream);
  html_end(stream);
  return ok;
}

bool sweep_page_write(const SweepRuns *runs, const char *dir, const Options *options, bool by_seed, const char *path,
                      Error *error) {
  RunsTable table = runs_page_table(options, by_seed);
  FileWriter file;
  SweepOption *varied;
  int count;
  table.dirs = &dir, table.count = 1;
  bool ok = sweep_options(runs, &varied, &count, error) && file_writer_begin(&file, path, error);
  if (ok && !(ok = write_page(file.stream, runs, &table, varied, count, error))) file_writer_abort(&file);
  ok = ok && file_writer_commit(&file, error);
  sweep_options_free(varied, count);
  return ok;
}
