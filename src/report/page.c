#include "report/page.h"

#include "files/checkpoint/directory.h"
#include "files/formats/model_files.h"
#include "report/chart.h"
#include "report/result.h"
#include "report/run_charts.h"
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
#include <unistd.h>

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

static void write_value(FILE *stream, const char *tag, const json_t *value) {
  char *text = json_value_text(value, 6);
  const char *shown = text ? text : "";
  if (json_is_boolean(value)) shown = json_is_true(value) ? "yes" : "no";
  html_write_element(stream, tag, shown);
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

/* Writes how long each phase of a run that has ended took. */
static void write_phases(FILE *stream, const json_t *phases) {
  char text[256] = "";
  for (int i = 0; i < PHASES; i++)
    text_append(text, sizeof text, "%s%s %.3g", i ? ", " : "", phase_names[i], result_value(phases, phase_names[i]));
  if (phases) write_fact(stream, "seconds of each phase", "%s", text);
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
  write_phases(stream, json_object_get(s->result, "phases"));
  fputs("</dl>\n", stream);
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
                              .steps = result_value(s->settings, "steps"),
                              .chance = s->chance,
                              .lr = result_value(s->settings, "lr"),
                              .muon_lr = result_value(s->settings, "muon-lr"),
                              .chats = access(path_in(s->dir, CHAT_TEMPLATE_JINJA).text, F_OK) == 0};
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

/* What other time budgets should reach: a curve of the run's result.json. */
static void write_budgets(FILE *stream, const PageRun *run) {
  enum { MOST = 32 };
  ChartPoint points[MOST] = {0};
  const MetricsLine *kept = history_kept(run->history);
  const json_t *budgets = json_object_get(run->result, "budgets"), *budget;
  ChartCurve curve = {.name = "expected", .color = 1, .dots = true, .points = points};
  size_t i;
  json_array_foreach(budgets, i, budget) if (curve.count < MOST) {
    ChartPoint *p = &points[curve.count++];
    *p = (ChartPoint){.x = result_value(budget, "minutes"), .y = result_value(budget, "bits_per_byte")};
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

/* ---- settings ---- */

/* The settings of one run: names and values. */
static void write_list(FILE *stream, json_t *settings) {
  fputs("<dl class=\"settings\">\n", stream);
  for (void *at = json_object_iter(settings); at; at = json_object_iter_next(settings, at)) {
    fputs("<div>", stream);
    html_write_element(stream, "dt", json_object_iter_key(at));
    write_value(stream, "dd", json_object_iter_value(at));
    fputs("</div>\n", stream);
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
    write_value(stream, other ? "td class=\"other\"" : "td", own);
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

static bool write_page(FILE *stream, const FoundRun *found, const PageRun *runs, int count, const RunsTable *table,
                       Error *error) {
  OneLine title = text_one_line(runs[0].dir, 250);
  if (count > 1) text_append(title.text, sizeof title.text, " and %d more", count - 1);
  html_begin(stream, "report", title.text, count > 1 ? text_plural(count, "run").text : runs[0].dir);
  if (count > 1) html_write_element(stream, "h2", "Results");
  if (count > 1 && !runs_print(table, stream, error)) return false;
  for (int i = 0; i < count; i++) {
    if (count > 1) html_write_element(stream, "h2", runs[i].dir);
    write_summary(stream, &runs[i]);
    write_diagnoses(stream, runs[i].history);
    write_facts(stream, &runs[i]);
  }
  fputs("<section>\n<h2>Charts</h2>\n<div class=\"charts\">\n", stream);
  bool ok = run_charts_write(stream, found, count, runs[0].chance, error);
  if (count == 1) write_budgets(stream, &runs[0]);
  fputs("</div>\n</section>\n", stream);
  ok = ok && (count > 1 || write_samples(stream, runs[0].dir, error));
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
  if (ok && !(ok = write_page(file.stream, found, runs, count, table, error))) file_writer_abort(&file);
  ok = ok && file_writer_commit(&file, error);
  for (int i = 0; i < count; i++) {
    json_decref(runs[i].settings);
    json_decref(runs[i].result);
  }
  free(runs);
  return ok;
}

bool page_write_runs(const RunsTable *table, const char *path, Console *console, Error *error) {
  FoundRuns runs = {.console = console};
  const bool ok =
      find_runs_read(&runs, table->dirs, table->count, error) && page_write(runs.items, runs.count, table, path, error);
  find_runs_free(&runs);
  return ok;
}
