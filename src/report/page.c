#include "report/page.h"

#include "files/checkpoint/directory.h"
#include "files/formats/model_files.h"
#include "report/chart.h"
#include "report/result.h"
#include "report/summary.h"
#include "base/file.h"
#include "base/html.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  SAMPLES = 24,
  SAMPLE_BYTES = 4000,
  UNBROKEN_BYTES = 24 /* shorter options fit into any line */
};

/* ---- the files of a run ---- */

/* A run on the page. */
typedef struct PageRun {
  const char *dir;
  const History *history;
  json_t *settings, *result; /* result NULL: the run has not ended */
  double chance;             /* nats per token: the loss of guessing; NaN: unknown */
} PageRun;

/* Unreadable files are missing on the page. EXIT_MEMORY. */
static PageRun read_run(const FoundRun *run, Error *error) {
  Error problem = {0};
  json_t *model = result_json(run->dir, MODEL_FILE_CONFIG, &problem);
  const json_t *vocab = json_object_get(model, "vocab_size");
  const PageRun out = {.dir = run->dir,
                       .history = &run->history,
                       .settings = result_settings(run->dir, &problem),
                       .result = result_json(run->dir, CHECKPOINT_RESULT, &problem),
                       .chance = json_number_value(vocab) > 1 ? log(json_number_value(vocab)) : (double)NAN};
  json_decref(model);
  if (problem.code == EXIT_MEMORY) *error = problem;
  return out;
}

/* ---- summary and facts ---- */

static void write_json(FILE *stream, const json_t *value) {
  char *text = json_value_text(value, 6);
  if (json_is_boolean(value)) fputs(json_is_true(value) ? "yes" : "no", stream);
  else html_write_text(stream, text ? text : "");
  free(text);
}

__attribute__((format(printf, 3, 4))) static void write_fact(FILE *stream, const char *name, const char *format, ...) {
  va_list arguments;
  fprintf(stream, "<div><dt>%s</dt><dd>", name);
  va_start(arguments, format);
  vfprintf(stream, format, arguments);
  va_end(arguments);
  fputs("</dd></div>\n", stream);
}

static void write_facts(FILE *stream, const PageRun *s) {
  const History *h = s->history;
  const MetricsLine *kept = history_kept(h);
  const HistoryPoint *last = h->count ? &h->points[h->count - 1] : NULL;
  const json_t *params = json_object_get(s->result, "params"), *steps = json_object_get(s->settings, "steps");
  fputs("<dl>\n", stream);
  const char *state = result_state(s->dir, s->result);
  write_fact(stream, "state", "%s%s", result_state_words(state, false),
             strcmp(state, "running") == 0 ? " when this page was written" : "");
  if (h->damaged) write_fact(stream, "damaged", "%" PRId64 " lines of metrics.jsonl cannot be read", h->damaged);
  if (last)
    write_fact(stream, "step", "%" PRId64 "%s%" JSON_INTEGER_FORMAT, last->step, steps ? " of " : "",
               steps ? json_integer_value(steps) : 0);
  if (kept) {
    write_fact(stream,
               kept->all ? "loss on all of the validation text" : "loss on the beginning of the validation text",
               "%.4f nats per token", kept->val_loss);
    if (isfinite(kept->bits_per_byte)) write_fact(stream, "bits per byte of it", "%.4f", kept->bits_per_byte);
    if (isfinite(kept->exact)) write_fact(stream, "answers exactly right", "%.1f %%", 100 * kept->exact);
    if (isfinite(kept->accuracy))
      write_fact(stream, "choices right", "%.1f %% (by guessing: %.1f %%)", 100 * kept->accuracy, 100 * kept->chance);
    write_fact(stream, "the model that is kept", "of step %" PRId64, kept->step);
  }
  if (json_is_integer(params)) write_fact(stream, "parameters", "%s", text_count(json_number_value(params)).text);
  if (last) write_fact(stream, "tokens", "%s", text_count((double)last->tokens).text);
  if (last && isfinite(last->seconds)) write_fact(stream, "time", "%s", text_duration(last->seconds).text);
  if (last && last->seconds > 0)
    write_fact(stream, "tokens per second", "%s", text_count((double)last->tokens / last->seconds).text);
  fputs("</dl>\n", stream);
}

/* NaN: unknown. */
static double number_setting(const PageRun *s, const char *name) {
  const json_t *value = json_object_get(s->settings, name);
  return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* Writes text in which no line is broken inside an option, at its hyphens. */
static void write_words(FILE *stream, const char *text) {
  for (const char *at = text, *end; *at; at = end) {
    end = *at == ' ' ? at + 1 : at + strcspn(at, " ");
    const char *dashes = strstr(at, "--");
    const bool option = (*at == '-' || (dashes && dashes < end)) && end - at < UNBROKEN_BYTES;
    fputs(option ? "<span class=\"option\">" : "", stream);
    html_write(stream, at, (size_t)(end - at));
    fputs(option ? "</span>" : "", stream);
  }
}

static void write_summary(FILE *stream, const PageRun *s) {
  const SummaryFacts facts = {.dir = s->dir,
                              .state = result_state(s->dir, s->result),
                              .steps = number_setting(s, "steps"),
                              .chance = s->chance,
                              .dropout = number_setting(s, "dropout"),
                              .lr = number_setting(s, "lr"),
                              .muon_lr = number_setting(s, "muon-lr")};
  fputs("<p class=\"summary\">", stream);
  write_words(stream, summary_of(s->history, &facts).text);
  fputs("</p>\n", stream);
}

static void write_diagnoses(FILE *stream, const History *h) {
  for (size_t i = 0; i < h->diagnosis_count; i++) {
    fprintf(stream, "<p class=\"verdict\">Note at step %" PRId64 ": ", h->diagnoses[i].step);
    write_words(stream, h->diagnoses[i].text);
    fputs("</p>\n", stream);
  }
}

/* ---- charts ---- */

/* What a chart shows: a measurement of the logged steps, evaluations, or training and validation loss of one run. */
typedef enum Measure { LOSS, LR, GRAD_NORM, SPEED, EVALUATIONS, EVALUATIONS_IN_BITS, CHOICES, BOTH_LOSSES } Measure;

/* One curve per run, or two of one run. */
typedef struct PageChart {
  Measure measure;
  bool time; /* over time, not steps */
  const char *id, *title, *note;
} PageChart;

static void draw_steps(ChartCurve *curve, const History *h, Measure measure, bool time) {
  for (const HistoryPoint *p = h->points; p < h->points + h->count; p++) {
    const double values[] = {[LOSS] = p->loss, [LR] = p->lr, [GRAD_NORM] = p->grad_norm, [SPEED] = p->tokens_per_s};
    const bool band = measure == LOSS && p->lines > 1 && isfinite(p->most);
    curve->points[curve->count++] = (ChartPoint){.x = time ? p->seconds : (double)p->step,
                                                 .y = values[measure],
                                                 .low = band ? p->least : (double)NAN,
                                                 .high = band ? p->most : (double)NAN};
  }
}

/* Draws evaluations that use the same validation text as the first one: at most HISTORY_POINTS of them, at equal
 * intervals, and the evaluation of the kept model, whose point it returns; NULL: there is none. */
static const ChartPoint *draw_evaluations(ChartCurve *curve, const History *h, Measure measure, bool time) {
  const size_t every = h->evaluation_count / HISTORY_POINTS + 1;
  const MetricsLine *kept = history_kept(h);
  const ChartPoint *mark = NULL;
  for (size_t i = 0; i < h->evaluation_count; i++) {
    const MetricsLine *e = &h->evaluations[i];
    const bool is_kept = kept && e->step == kept->step && !mark;
    if (e->all != h->evaluations[0].all || (!is_kept && (h->evaluation_count - 1 - i) % every)) continue;
    ChartPoint *point = &curve->points[curve->count++];
    char in_bits[40] = "";
    if (is_kept) mark = point;
    if (measure == CHOICES) snprintf(in_bits, sizeof in_bits, ", %.1f %% right", 100 * e->accuracy);
    else if (isfinite(e->bits_per_byte)) snprintf(in_bits, sizeof in_bits, ", %.4f bits per byte", e->bits_per_byte);
    *point = (ChartPoint){.x = time ? e->seconds : (double)e->step,
                          .y = measure == EVALUATIONS_IN_BITS ? e->bits_per_byte
                               : measure == CHOICES           ? 100 * e->accuracy
                                                              : e->val_loss,
                          .low = (double)NAN,
                          .high = (double)NAN};
    snprintf(point->title, sizeof point->title, "step %" PRId64 ": %.4f nats per token%s, %s", e->step, e->val_loss,
             in_bits, text_duration(e->seconds).text);
  }
  curve->dots = every == 1;
  return mark;
}

static bool write_chart(FILE *stream, const PageRun *runs, int count, const PageChart *c) {
  const bool both = c->measure == BOTH_LOSSES, bits = c->measure == EVALUATIONS_IN_BITS, alone = count == 1;
  const int curve_count = both ? 2 : count;
  const double xz = bits && alone ? runs[0].history->xz_bits_per_byte : 0;
  const ChartLevel levels[] = {{"guessing", both                             ? runs[0].chance
                                            : bits                           ? 8
                                            : c->measure == CHOICES && alone ? 100 * runs[0].history->chance
                                                                             : (double)NAN},
                               {"xz -9", xz > 0 ? xz : (double)NAN}};
  const ChartPoint *kept = NULL;
  ChartCurve *curves = calloc((size_t)curve_count, sizeof *curves);
  bool ok = curves;
  for (int i = 0; ok && i < curve_count; i++) {
    const PageRun *s = &runs[both ? 0 : i];
    const bool evaluations = both ? i == 1 : c->measure >= EVALUATIONS;
    curves[i] = (ChartCurve){.name = !both         ? s->dir
                                     : evaluations ? "validation"
                                                   : "training",
                             .color = alone ? evaluations : i + 1,
                             .points = calloc(HISTORY_POINTS + 1, sizeof *curves[i].points)};
    ok = curves[i].points;
    if (ok && evaluations) kept = draw_evaluations(&curves[i], s->history, c->measure, c->time);
    else if (ok) draw_steps(&curves[i], s->history, both ? LOSS : c->measure, c->time);
  }
  const Chart chart = {.title = c->title,
                       .note = c->note,
                       .id = c->id,
                       .x = c->time ? CHART_TIME : CHART_STEPS,
                       .log = c->measure == GRAD_NORM,
                       .curves = curves,
                       .curve_count = curve_count,
                       .levels = levels,
                       .level_count = 2,
                       .mark = alone ? kept : NULL};
  if (ok) chart_write(stream, &chart);
  for (int i = 0; curves && i < curve_count; i++) free(curves[i].points);
  free(curves);
  return ok;
}

/* What other time budgets should reach: a curve of the run's result.json. */
static void write_budgets(FILE *stream, const PageRun *run) {
  enum { MOST = 32 };
  ChartPoint points[MOST];
  const MetricsLine *kept = history_kept(run->history);
  const json_t *budgets = json_object_get(run->result, "budgets"), *budget;
  ChartCurve curve = {.name = "expected", .color = 1, .dots = true, .points = points};
  size_t i;
  json_array_foreach(budgets, i, budget) if (curve.count < MOST) {
    ChartPoint *p = &points[curve.count++];
    *p = (ChartPoint){.x = result_value(budget, "minutes"),
                      .y = result_value(budget, "bits_per_byte"),
                      .low = (double)NAN,
                      .high = (double)NAN};
    const char *preset = json_string_value(json_object_get(budget, "preset"));
    snprintf(p->title, sizeof p->title, "%g minutes: %s, about %.3f bits per byte", p->x, preset ? preset : "?", p->y);
  }
  if (!kept || curve.count < 2 || !isfinite(points[0].y)) return;
  const ChartPoint own = {.x = result_value(run->result, "seconds") / 60, .y = kept->bits_per_byte};
  chart_write(stream, &(Chart){.title = "Bits per byte with more time",
                               .note = "What ./train --minutes should reach on this text with the model that it would "
                                       "choose, estimated from this run (the circle); lower is better.",
                               .id = "budgets",
                               .x = CHART_LOGARITHMS,
                               .x_name = "minutes",
                               .curves = &curve,
                               .curve_count = 1,
                               .mark = &own});
}

/* Returns whether one of the runs was given --choose. */
static bool have_choices(const PageRun *runs, int count) {
  for (int i = 0; i < count; i++)
    if (runs[i].history->chance > 0) return true;
  return false;
}

/* Returns false when memory is out. */
static bool write_charts(FILE *stream, const PageRun *runs, int count) {
  static const PageChart charts[] = {
      {BOTH_LOSSES, false, "loss", "Loss on training and validation text (nats per token)",
       "How wrong the predictions are; lower is better. Where only the training loss falls, the model learns its text "
       "by heart."},
      {BOTH_LOSSES, true, "loss-time", "Loss over time (nats per token)",
       "The same losses over the time since the run began. Lower is better."},
      {EVALUATIONS, false, "validation", "Loss on validation text (nats per token)",
       "How wrong the predictions are on text that the model does not learn from; lower is better. Only runs with the "
       "same text and tokenizer can be compared."},
      {EVALUATIONS, true, "validation-time", "Loss on validation text over time (nats per token)",
       "The same losses over the time since each run began. Lower is better."},
      {LOSS, false, "training", "Loss on training text (nats per token)",
       "How wrong the predictions are on the text that the model learns from; lower is better."},
      {EVALUATIONS_IN_BITS, false, "bits", "Bits per byte of validation text",
       "What the model needs to store a byte of unseen text; lower is better. It compares tokenizers, too, and xz -9, "
       "a compressor that has read the end of the training text."},
      {CHOICES, false, "choices", "Right choices (%)",
       "How often the model gives the right text of a question (--choose) the highest probability; higher is better."},
      {LR, false, "lr", "Learning rate",
       "How large the steps of training are. It is planned before the run: nothing to judge."},
      {GRAD_NORM, false, "norm", "Gradient norm",
       "How strongly the text pulls at the weights, before clipping. Single peaks are harmless; a lasting rise is a "
       "sign that training fails."},
      {SPEED, false, "speed", "Speed (tokens per second)",
       "Higher is faster. The speed falls where the machine does other work, too."}};
  enum { FOR_SEVERAL = 2, FOR_ANY = 5 }; /* the first charts are for one run, the next ones for several */
  fputs("<section>\n<h2>Charts</h2>\n<div class=\"charts\">\n", stream);
  bool ok = true;
  for (size_t i = 0; ok && i < sizeof charts / sizeof *charts; i++)
    if ((i >= FOR_ANY || (i >= FOR_SEVERAL) == (count > 1)) &&
        (charts[i].measure != CHOICES || have_choices(runs, count)))
      ok = write_chart(stream, runs, count, &charts[i]);
  if (count == 1) write_budgets(stream, &runs[0]);
  fputs("</div>\n</section>\n", stream);
  return ok;
}

/* ---- settings ---- */

/* The settings of one run: names and values. */
static void write_list(FILE *stream, json_t *settings) {
  fputs("<dl class=\"settings\">\n", stream);
  for (void *at = json_object_iter(settings); at; at = json_object_iter_next(settings, at)) {
    fputs("<div>", stream);
    html_write_element(stream, "dt", json_object_iter_key(at));
    fputs("<dd>", stream);
    write_json(stream, json_object_iter_value(at));
    fputs("</dd></div>\n", stream);
  }
  fputs("</dl>\n", stream);
}

/* Values that differ from the first run are marked. */
static void write_row(FILE *stream, const char *name, const PageRun *runs, int count) {
  fputs("<tr>", stream);
  html_write_element(stream, "th", name);
  for (int i = 0; i < count; i++) {
    const json_t *own = json_object_get(runs[i].settings, name);
    const bool other = i > 0 && !json_equal(own, json_object_get(runs[0].settings, name));
    fputs(other ? "<td class=\"other\">" : "<td>", stream);
    write_json(stream, own);
    fputs("</td>", stream);
  }
  fputs("</tr>\n", stream);
}

static void write_table(FILE *stream, const PageRun *runs, int count) {
  json_t *names = json_object();
  for (int i = 0; i < count; i++) json_object_update_missing(names, runs[i].settings);
  fputs("<div class=\"wide\"><table>\n<thead><tr><td></td>", stream);
  for (int i = 0; i < count; i++) html_write_element(stream, "th", runs[i].dir);
  fputs("</tr></thead>\n<tbody>\n", stream);
  for (void *at = json_object_iter(names); at; at = json_object_iter_next(names, at))
    write_row(stream, json_object_iter_key(at), runs, count);
  fputs("</tbody></table></div>\n", stream);
  json_decref(names);
}

static void write_settings(FILE *stream, const PageRun *runs, int count) {
  fputs("<section><h2>Settings</h2>\n<details><summary>All settings</summary>\n", stream);
  if (count == 1) write_list(stream, runs[0].settings);
  else write_table(stream, runs, count);
  fputs("</details></section>\n", stream);
}

/* ---- samples ---- */

/* Returns the next line "=== step N" from `at` on, or `end`. */
static const char *next_header(const char *at, const char *end) {
  static const char header[] = "=== step ";
  for (; at < end; at = (at = memchr(at, '\n', (size_t)(end - at))) ? at + 1 : end)
    if ((size_t)(end - at) >= sizeof header - 1 && memcmp(at, header, sizeof header - 1) == 0) return at;
  return end;
}

static void write_sample(FILE *stream, const char *at, const char *end, bool open) {
  const char *newline = memchr(at, '\n', (size_t)(end - at)), *text = newline ? newline + 1 : end;
  const size_t size = (size_t)(end - text), shown = size < SAMPLE_BYTES ? size : SAMPLE_BYTES;
  fprintf(stream, "<details%s><summary>", open ? " open=\"open\"" : "");
  html_write(stream, at + 4, (size_t)((newline ? newline : end) - at - 4));
  fputs("</summary><pre>", stream);
  html_write(stream, text, shown);
  fputs(shown < size ? " ...</pre></details>\n" : "</pre></details>\n", stream);
}

/* Writes the newest samples, with the last one unfolded. EXIT_MEMORY. */
static bool write_samples(FILE *stream, const char *dir, Error *error) {
  Error problem = {0};
  MappedFile file;
  if (!file_map(&file, path_in(dir, CHECKPOINT_SAMPLES).text, EXIT_INPUT, &problem))
    return problem.code != EXIT_MEMORY || fail(error, EXIT_MEMORY, "%s", problem.text);
  const char *text = file.size ? (const char *)file.bytes : "", *end = text + file.size;
  int count = 0;
  for (const char *at = next_header(text, end); at < end; at = next_header(at + 1, end)) count++;
  if (count) fputs("<section><h2>Samples</h2>\n", stream);
  int i = 0;
  for (const char *at = next_header(text, end), *next; at < end; at = next, i++) {
    next = next_header(at + 1, end);
    if (i >= count - SAMPLES) write_sample(stream, at, next, i == count - 1);
  }
  if (count) fputs("</section>\n", stream);
  file_unmap(&file);
  return true;
}

/* ---- the page ---- */

static void write_command(FILE *stream, const char *dir) {
  fprintf(stream, "<section><h2>Again</h2><p>The same run once more: <code>%s --config ",
          program_name_elsewhere("train").text);
  html_write_text(stream, text_shell_word(path_in(dir, CHECKPOINT_SETTINGS).text, ONE_LINE_BYTES - 1).text);
  fputs(" --out NEW.run</code></p></section>\n", stream);
}

/* The table of --runs. */
static bool write_results(FILE *stream, const PageRun *runs, int count, RunsTable table, Error *error) {
  const char **dirs = malloc((size_t)count * sizeof *dirs);
  if (!dirs) return error_memory(error, "a report");
  for (int i = 0; i < count; i++) dirs[i] = runs[i].dir;
  table.dirs = dirs, table.count = count;
  fputs("<section><h2>Results</h2>\n", stream);
  const bool ok = runs_print(&table, stream, error);
  fputs("</section>\n", stream);
  free(dirs);
  return ok;
}

static bool write_page(FILE *stream, const PageRun *runs, int count, const RunsTable *table, Error *error) {
  OneLine title = text_one_line(runs[0].dir, 250);
  if (count > 1) text_append(title.text, sizeof title.text, " and %d more", count - 1);
  html_begin(stream, "report", title.text, count > 1 ? text_plural(count, "run").text : runs[0].dir);
  if (count > 1 && !write_results(stream, runs, count, *table, error)) return false;
  for (int i = 0; i < count; i++) {
    if (count > 1) html_write_element(stream, "h2", runs[i].dir);
    write_summary(stream, &runs[i]);
    write_facts(stream, &runs[i]);
    write_diagnoses(stream, runs[i].history);
  }
  const bool ok = (write_charts(stream, runs, count) || error_memory(error, "a report")) &&
                  (count > 1 || write_samples(stream, runs[0].dir, error));
  write_settings(stream, runs, count);
  if (count == 1) write_command(stream, runs[0].dir);
  html_end(stream);
  return ok && json_memory_ok(error, "a report");
}

bool page_write(const FoundRun *found, int count, const RunsTable *table, const char *path, Error *error) {
  FileWriter file;
  PageRun *runs = calloc((size_t)count, sizeof *runs);
  if (!runs) return error_memory(error, "a report");
  for (int i = 0; i < count; i++) runs[i] = read_run(&found[i], error);
  bool ok = error->code == EXIT_DONE && file_writer_begin(&file, path, error);
  if (ok && !(ok = write_page(file.stream, runs, count, table, error))) file_writer_abort(&file);
  ok = ok && file_writer_commit(&file, error);
  for (int i = 0; i < count; i++) {
    json_decref(runs[i].settings);
    json_decref(runs[i].result);
  }
  free(runs);
  return ok;
}

bool page_write_runs(const char *const *dirs, int count, const RunsTable *table, const char *path, Console *console,
                     Error *error) {
  FoundRuns runs = {.console = console};
  const bool ok = find_runs_read(&runs, dirs, count, error) && page_write(runs.items, runs.count, table, path, error);
  find_runs_free(&runs);
  return ok;
}
