#include "train/sweep/findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const SweepStage sweep_stages[SWEEP_STAGES] = {{"a quarter", 0.25, 8}, {"a half", 0.5, 3}, {"all", 1, 1}};

int sweep_left_after(const SweepStage *stage, int groups) {
  enum { FEWEST = 2 };
  const int left = groups / stage->of;
  return left > FEWEST ? left : groups < FEWEST ? groups : FEWEST;
}

SeedSum sweep_group_scores(const SweepRuns *runs, int group, int stage) {
  SeedSum sum = {0};
  for (int i = group; i < runs->count; i++)
    if (runs->items[i].group == group) seeds_add(&sum, runs->items[i].scores[stage]);
  return sum;
}

double sweep_group_score(const SweepRuns *runs, int group, int stage) {
  const SeedSum sum = sweep_group_scores(runs, group, stage);
  return seeds_mean(&sum);
}

/* Returns the best run after all steps, by the mean of its seeds and then by itself, or by itself alone. */
static const SweepRun *best_run(const SweepRuns *runs, bool by_mean) {
  enum { LAST = SWEEP_STAGES - 1 };
  const SweepRun *best = NULL;
  double least = INFINITY;
  for (const SweepRun *run = runs->items; run < runs->items + runs->count; run++) {
    const double own = run->scores[LAST], score = by_mean ? sweep_group_score(runs, run->group, LAST) : own;
    if (!(score < least || (best && run->group == best->group && own < best->scores[LAST]))) continue;
    least = score;
    best = run;
  }
  return best;
}

const SweepRun *sweep_best(const SweepRuns *runs) {
  const SweepRun *best = best_run(runs, true);
  return best ? best : best_run(runs, false); /* each setting has a failed run */
}

const char *sweep_run_unit(const SweepRun *run) { return run->in_nats ? "nats per token" : "bits per byte"; }

const char *sweep_unit(const SweepRuns *runs) {
  for (int i = 0; i < runs->count; i++)
    if (runs->items[i].in_nats) return sweep_run_unit(&runs->items[i]);
  return sweep_run_unit(&runs->items[0]);
}

OneLine sweep_setting_text(const SweepRuns *runs, const SweepRun *run) {
  char text[1000] = "";
  const char *name;
  json_t *value;
  const SeedSum sum = sweep_group_scores(runs, run->group, SWEEP_STAGES - 1);
  json_object_foreach(run->settings, name, value) {
    if (strcmp(name, "seed") != 0)
      text_append(text, sizeof text, "%s%s=%s", *text ? ", " : "", name, json_string_value(value));
  }
  OneLine line = text_one_line(*text ? text : "the setting", ONE_LINE_BYTES / 2);
  const bool all = isfinite(seeds_mean(&sum));
  text_append(line.text, sizeof line.text, ": %.4f %s%s", all ? seeds_mean(&sum) : run->scores[SWEEP_STAGES - 1],
              sweep_run_unit(run), all ? "" : " (this run; another seed failed)");
  if (all && sum.count > 1)
    text_append(line.text, sizeof line.text, " (mean of %d seeds, standard deviation %.4f)", sum.count,
                seeds_deviation(&sum));
  return line;
}

/* ---- options ---- */

enum { FEWEST_FOR_EDGE = 3 }; /* of two values, one is always on an edge */

static const char *value_of(const SweepRun *run, const char *name) {
  const char *value = json_string_value(json_object_get(run->settings, name));
  return value ? value : "";
}

static void add_value(SweepOption *option, const SweepRun *run, double score) {
  const char *text = value_of(run, option->name);
  SweepValue *value = option->values;
  char *end;
  while (value < option->values + option->count && strcmp(value->text, text) != 0) value++;
  if (value == option->values + option->count) {
    const double number = strtod(text, &end);
    *value = (SweepValue){text, *text && !*end ? number : (double)NAN, (double)NAN, run->group};
    option->count++;
  }
  if (isnan(score) || value->score <= score) return;
  value->score = score;
  value->group = run->group;
}

static int compare_numbers(const void *a, const void *b) {
  const double x = ((const SweepValue *)a)->number, y = ((const SweepValue *)b)->number;
  return (x > y) - (x < y);
}

static bool fill_option(SweepOption *option, const SweepRuns *runs, const char *name, Error *error) {
  const SweepRun *best = sweep_best(runs);
  *option = (SweepOption){.name = name, .values = calloc((size_t)runs->count, sizeof *option->values), .numbers = true};
  if (!option->values) return error_memory(error, "a sweep");
  for (int i = 0; i < runs->count; i++)
    if (json_object_get(runs->items[i].settings, name))
      add_value(option, &runs->items[i], sweep_group_score(runs, runs->items[i].group, 0));
  for (int i = 0; i < option->count; i++) option->numbers = option->numbers && isfinite(option->values[i].number);
  if (!option->numbers) return true;
  qsort(option->values, (size_t)option->count, sizeof *option->values, compare_numbers);
  if (option->count < FEWEST_FOR_EDGE) return true;
  const char *own = best ? value_of(best, name) : "";
  option->edge = strcmp(own, option->values[0].text) == 0                   ? -1
                 : strcmp(own, option->values[option->count - 1].text) == 0 ? 1
                                                                            : 0;
  return true;
}

static bool is_known(const SweepOption *options, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(options[i].name, name) == 0) return true;
  return strcmp(name, "seed") == 0;
}

bool sweep_options(const SweepRuns *runs, SweepOption **out, int *count, Error *error) {
  size_t most = 1;
  json_t *value;
  const char *name;
  *count = 0;
  for (int i = 0; i < runs->count; i++) most += json_object_size(runs->items[i].settings);
  *out = calloc(most, sizeof **out);
  bool ok = *out || error_memory(error, "a sweep");
  for (int i = 0; ok && i < runs->count; i++) {
    json_object_foreach(runs->items[i].settings, name, value) {
      if (is_known(*out, *count, name)) continue;
      ok = fill_option(&(*out)[(*count)++], runs, name, error);
      if (!ok) break;
    }
  }
  return ok;
}

void sweep_options_free(SweepOption *options, int count) {
  for (int i = 0; options && i < count; i++) free(options[i].values);
  free(options);
}

/* ---- in the terminal ---- */

static void tell_values(const SweepOption *option, Console *console) {
  enum { MOST = 12 };
  char line[1000];
  snprintf(line, sizeof line, "%-12s", option->name);
  if (option->count < 2 || option->count > MOST) return; /* nothing to compare; drawn values, for example */
  for (const SweepValue *v = option->values; v < option->values + option->count; v++)
    text_append(line, sizeof line, isfinite(v->score) ? " %.20s: %.4f " : " %.20s: failed ", v->text, v->score);
  console_line(console, "  %s", line);
}

bool sweep_tell(const SweepRuns *runs, Console *console, Error *error) {
  const SweepRun *best = sweep_best(runs);
  SweepOption *options;
  int count;
  if (!sweep_options(runs, &options, &count, error)) {
    sweep_options_free(options, count);
    return false;
  }
  console_line(console, "for each value, the loss of its best setting after %s of the steps, in %s%s:",
               sweep_stages[0].name, sweep_unit(runs), runs->groups < runs->count ? ", mean over seeds" : "");
  for (int i = 0; i < count; i++) tell_values(&options[i], console);
  for (int i = 0; best && i < count; i++)
    if (options[i].edge)
      console_note(console, "the best %s, %s, is the %s that was tried: try %s ones, too", options[i].name,
                   value_of(best, options[i].name), options[i].edge < 0 ? "smallest" : "largest",
                   options[i].edge < 0 ? "smaller" : "larger");
  if (best) console_line(console, "best setting: %s", sweep_setting_text(runs, best).text);
  if (best) console_line(console, "best run: %s", best->dir.text);
  sweep_options_free(options, count);
  return true;
}
