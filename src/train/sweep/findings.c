/* What the runs of a sweep say about the options in which they differ: in the terminal, and in its report.html. */
#include "files/checkpoint/directory.h"
#include "report/chart.h"
#include "report/page.h"
#include "report/result.h"
#include "report/runs.h"
#include "train/sweep/internal.h"
#include "base/array.h"
#include "base/file.h"
#include "base/html.h"
#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const SweepStage sweep_stages[SWEEP_STAGES] = {{"a quarter", 0.25, 8}, {"a half", 0.5, 3}, {"all", 1, 1}};

int sweep_left_after(const SweepStage *stage, int groups) {
  enum { FEWEST = 2 };
  const int left = groups / stage->of;
  return left > FEWEST ? left : groups < FEWEST ? groups : FEWEST;
}

/* ---- scores ---- */

SeedSum sweep_group_scores(const Sweep *s, int group, int stage) {
  SeedSum sum = {0};
  for (int i = group; i < s->count; i++)
    if (s->runs[i].group == group) seeds_add(&sum, s->runs[i].scores[stage]);
  return sum;
}

double sweep_group_score(const Sweep *s, int group, int stage) {
  const SeedSum sum = sweep_group_scores(s, group, stage);
  return seeds_mean(&sum);
}

const char *sweep_unit(const SweepRun *run) { return run->in_nats ? "nats per token" : "bits per byte"; }

/* Returns the best run after all steps, by the mean of its seeds and then by itself, or by itself alone. */
static const SweepRun *best_run(const Sweep *s, bool by_mean) {
  const SweepRun *best = NULL;
  double least = INFINITY;
  for (const SweepRun *run = s->runs; run < s->runs + s->count; run++) {
    const double own = run->scores[SWEEP_LAST], score = by_mean ? sweep_group_score(s, run->group, SWEEP_LAST) : own;
    if (!(score < least || (best && run->group == best->group && own < best->scores[SWEEP_LAST]))) continue;
    least = score;
    best = run;
  }
  return best;
}

const SweepRun *sweep_best(const Sweep *s) {
  const SweepRun *best = best_run(s, true);
  return best ? best : best_run(s, false); /* each setting has a failed run */
}

/* Returns the setting of a run, without the seed, and its score after all steps: "lr=3e-3, wd=1: 2.0440 bits per byte
 * (mean of 2 seeds, standard deviation 0.0010)". */
static OneLine setting_text(const Sweep *s, const SweepRun *run) {
  char text[1000] = "";
  const char *name;
  json_t *value;
  const SeedSum sum = sweep_group_scores(s, run->group, SWEEP_LAST);
  json_object_foreach(run->settings, name, value) {
    if (strcmp(name, "seed") != 0)
      text_append(text, sizeof text, "%s%s=%s", *text ? ", " : "", name, json_string_value(value));
  }
  OneLine line = text_one_line(*text ? text : "the setting", ONE_LINE_BYTES / 2);
  const bool all = isfinite(seeds_mean(&sum));
  text_append(line.text, sizeof line.text, ": %.4f %s%s", all ? seeds_mean(&sum) : run->scores[SWEEP_LAST],
              sweep_unit(run), all ? "" : " (this run; another seed failed)");
  if (all && sum.count > 1)
    text_append(line.text, sizeof line.text, " (mean of %d seeds, standard deviation %.4f)", sum.count,
                seeds_deviation(&sum));
  return line;
}

/* ---- options ---- */

/* Returns the values of each option but the seed: {"lr": {"1e-3": 2.5, "10": null}}. A value's score is that of its
 * best setting after the first stage, which all settings have reached; null: each has a failed run. */
static json_t *scores_of_values(const Sweep *s) {
  json_t *options = json_object(), *value;
  const char *name;
  for (const SweepRun *run = s->runs; run < s->runs + s->count; run++) {
    const double score = sweep_group_score(s, run->group, 0);
    json_object_foreach(run->settings, name, value) {
      if (strcmp(name, "seed") == 0) continue;
      if (!json_object_get(options, name)) json_object_set_new(options, name, json_object());
      json_t *values = json_object_get(options, name);
      if (!(result_value(values, json_string_value(value)) <= score))
        json_object_set_new(values, json_string_value(value), result_number(score));
    }
  }
  return options;
}

/* Returns a value as a number; NaN: it is none. */
static double number_of(const char *value) {
  char *end;
  const double number = strtod(value, &end);
  return *value && !*end ? number : (double)NAN;
}

/* Returns whether a value is the smallest (-1) or the largest (1) of three or more numbers. Of two, one always is. */
static int edge_of(json_t *values, const char *own) {
  enum { FEWEST = 3 };
  bool smaller = false, larger = false;
  const char *text;
  json_t *score;
  json_object_foreach(values, text, score) {
    if (isnan(number_of(text))) return 0;
    smaller = smaller || number_of(text) < number_of(own);
    larger = larger || number_of(text) > number_of(own);
  }
  return json_object_size(values) < FEWEST ? 0 : !smaller ? -1 : !larger;
}

/* ---- sentences, for the terminal or for the page ---- */

typedef struct Report {
  const Sweep *s;
  FILE *page; /* NULL: the terminal */
} Report;

typedef enum Sentence { WHAT, VALUES, HINT, BEST } Sentence;

__attribute__((format(printf, 3, 4))) static void say(const Report *r, Sentence what, const char *format, ...) {
  static const char *const tags[] = {"p", "pre", "p class=\"verdict\"", "p class=\"summary\""};
  char text[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (r->page) html_write_element(r->page, tags[what], text);
  else (what == HINT ? console_note : console_line)(r->s->console, "%s", text);
}

/* Says "lr  1e-3: 2.5000  10: failed", unless there is nothing to compare, or too much, as of draws. */
static void say_values(const Report *r, const char *name, json_t *values) {
  enum { MOST = 12 };
  char line[1000];
  const char *text;
  json_t *score;
  if (json_object_size(values) < 2 || json_object_size(values) > MOST) return;
  snprintf(line, sizeof line, "%-12s", name);
  json_object_foreach(values, text, score) {
    text_append(line, sizeof line, json_is_real(score) ? " %.20s: %.4f " : " %.20s: failed ", text,
                json_real_value(score));
  }
  say(r, VALUES, "  %s", line);
}

static void say_options(const Report *r, json_t *options) {
  const SweepRun *best = sweep_best(r->s);
  const char *name;
  json_t *values;
  if (!json_object_size(options)) return;
  say(r, WHAT, "for each value, the loss of its best setting after %s of the steps, in %s%s:", sweep_stages[0].name,
      sweep_unit(best ? best : r->s->runs), r->s->groups < r->s->count ? ", mean over seeds" : "");
  json_object_foreach(options, name, values) { say_values(r, name, values); }
  json_object_foreach(options, name, values) {
    const char *own = best ? json_string_value(json_object_get(best->settings, name)) : NULL;
    const int edge = own ? edge_of(values, own) : 0;
    if (edge)
      say(r, HINT, "the best %s, %s, is the %s that was tried: try %s ones, too", name, own,
          edge < 0 ? "smallest" : "largest", edge < 0 ? "smaller" : "larger");
  }
}

static void say_best(const Report *r) {
  const SweepRun *best = sweep_best(r->s);
  if (best) say(r, BEST, "best setting: %s", setting_text(r->s, best).text);
  if (best) say(r, BEST, "best run: %s", best->dir.text);
  else say(r, BEST, "no run has made all of its steps");
}

bool sweep_tell(const Sweep *s, Error *error) {
  const Report report = {s, NULL};
  json_t *options = scores_of_values(s);
  say_options(&report, options);
  say_best(&report);
  json_decref(options);
  return json_memory_ok(error, "a sweep");
}

/* ---- report.html ---- */

/* Returns the score above which a picture would show little else than the worst settings: as far above the median as
 * three times the way from the best to it; 0: there is none. */
static double worst_shown(const ChartPoint *points, int count) {
  double *scores = count ? json_allocate((size_t)count * sizeof *scores) : NULL;
  if (!scores) return 0;
  for (int i = 0; i < count; i++) scores[i] = points[i].y;
  qsort(scores, (size_t)count, sizeof *scores, array_compare_doubles);
  const double worst = scores[count / 2] + 3 * (scores[count / 2] - scores[0]);
  free(scores);
  return worst;
}

/* Draws the settings over the values of an option with numbers. `points` has room for all runs. */
static void write_option(FILE *stream, const Sweep *s, const char *name, ChartPoint *points, int id) {
  ChartCurve settings = {.dots = true, .no_line = true, .color = 1, .points = points};
  double least = INFINITY, most = -INFINITY;
  char id_text[20], note[200];
  for (int i = 0; i < s->count; i++) {
    const SweepRun *run = &s->runs[i];
    const char *value = json_string_value(json_object_get(run->settings, name));
    const double x = value ? number_of(value) : (double)NAN, score = sweep_group_score(s, i, 0);
    if (value && isnan(x)) return;
    if (!value || run->group != i || !isfinite(score)) continue;
    ChartPoint *point = &points[settings.count++];
    *point = (ChartPoint){.x = x, .y = score};
    snprintf(point->title, sizeof point->title, "%.4f: %.90s", score, run->name);
    least = fmin(least, x);
    most = fmax(most, x);
  }
  snprintf(id_text, sizeof id_text, "option-%d", id);
  snprintf(note, sizeof note,
           "Loss on validation text, in %s, after %s of the steps; lower is better. A dot is a setting. Much worse "
           "ones are drawn at the upper edge, failed ones are not.",
           sweep_unit(s->runs), sweep_stages[0].name);
  chart_write(stream, &(Chart){.title = name,
                               .note = note,
                               .id = id_text,
                               .x = least > 0 && most >= 10 * least ? CHART_LOGARITHMS : CHART_NUMBERS,
                               .x_name = name,
                               .y_most = worst_shown(points, settings.count),
                               .curves = &settings,
                               .curve_count = 1});
}

static bool write_page(FILE *stream, const Sweep *s, Error *error) {
  const Report report = {s, stream};
  json_t *options = scores_of_values(s), *values;
  ChartPoint *points = json_allocate((size_t)s->count * sizeof *points);
  const char *name, *const dirs[] = {s->dir};
  const RunsTable table = runs_page_table(dirs, 1, s->options, s->settings->by_seed);
  bool any_score = false, ok = true;
  int id = 0;
  for (int i = 0; i < s->count; i++) any_score = any_score || isfinite(s->runs[i].scores[0]);
  html_begin(stream, "report", s->dir, s->dir);
  say_best(&report);
  fputs("<section>\n<h2>Options</h2>\n", stream);
  say_options(&report, options);
  fputs("<div class=\"charts\">\n", stream);
  json_object_foreach(options, name, values) {
    if (points && json_object_size(values) > 1) write_option(stream, s, name, points, id++);
  }
  fputs("</div>\n</section>\n<section><h2>Runs</h2>\n", stream);
  if (any_score) ok = runs_print(&table, stream, error);
  fputs("</section>\n", stream);
  html_end(stream);
  free(points);
  json_decref(options);
  return ok && json_memory_ok(error, "a report");
}

bool sweep_page_write(const Sweep *s, Error *error) {
  FileWriter file;
  if (!file_writer_begin(&file, path_in(s->dir, CHECKPOINT_REPORT).text, error)) return false;
  const bool ok = write_page(file.stream, s, error);
  if (!ok) file_writer_abort(&file);
  return ok && file_writer_commit(&file, error);
}
