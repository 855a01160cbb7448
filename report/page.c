#include "report/page.h"

#include "checkpoint/directory.h"
#include "report/chart.h"
#include "report/find_runs.h"
#include "report/result.h"
#include "util/file.h"
#include "util/html.h"
#include "util/json.h"
#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 24, SAMPLE_BYTES = 4000, TITLE_BYTES = 120 };

/* ---- a run, read ---- */

typedef struct Subject {
  const char *dir;
  const History *history;
  json_t *settings, *result; /* result NULL: it has not ended */
  double chance;             /* nats per token; NaN: not known */
} Subject;

/* What cannot be read is missing on the page; EXIT_MEMORY. */
static Subject read_subject(const PageRun *run, Error *error) {
  Error problem = {0};
  json_t *model = result_json(run->dir, CHECKPOINT_CONFIG, &problem);
  const json_t *vocab = json_object_get(model, "vocab_size");
  const Subject subject = {.dir = run->dir,
                           .history = run->history,
                           .settings = result_settings(run->dir, &problem),
                           .result = result_json(run->dir, CHECKPOINT_RESULT, &problem),
                           .chance = json_number_value(vocab) > 1 ? log(json_number_value(vocab)) : (double)NAN};
  json_decref(model);
  if (problem.code == EXIT_MEMORY) *error = problem;
  return subject;
}

static void free_subject(Subject *s) {
  json_decref(s->settings);
  json_decref(s->result);
}

/* ---- charts ---- */

/* What a chart shows of the logged steps. */
typedef enum Measure { OF_LOSS, OF_LR, OF_GRAD_NORM, OF_SPEED } Measure;

static ChartPoint point_of(const HistoryPoint *p, Measure measure, bool time) {
  ChartPoint point = {.x = time ? p->seconds : (double)p->step, .low = NAN, .high = NAN};
  switch (measure) {
  case OF_LOSS:
    point.y = p->loss;
    if (p->lines > 1 && isfinite(p->most)) {
      point.low = p->least;
      point.high = p->most;
    }
    break;
  case OF_LR: point.y = p->lr; break;
  case OF_GRAD_NORM: point.y = p->grad_norm; break;
  case OF_SPEED: point.y = p->tokens_per_s; break;
  }
  return point;
}

/* The points of a curve, and the titles of those that have one. */
typedef struct Drawn {
  ChartCurve curve;
  const ChartPoint *best; /* the best evaluation among its points; NULL: there is none */
  char (*titles)[TITLE_BYTES];
} Drawn;

static bool allocate(Drawn *d, const char *name, int color, size_t count) {
  *d = (Drawn){.curve = {.name = name, .color = color, .points = calloc(count + 1, sizeof *d->curve.points)}};
  return d->curve.points;
}

static void free_drawn(Drawn *d) {
  free(d->curve.points);
  free(d->titles);
}

static bool draw_steps(Drawn *d, const History *h, Measure measure, bool time, const char *name, int color) {
  if (!allocate(d, name, color, (size_t)h->count)) return false;
  for (int i = 0; i < h->count; i++) d->curve.points[i] = point_of(&h->points[i], measure, time);
  d->curve.count = h->count;
  return true;
}

/* Evaluations over the beginning of the validation text: at most HISTORY_POINTS of them, evenly, and the best. */
static bool draw_evaluations(Drawn *d, const History *h, bool bits, bool time, const char *name, int color) {
  if (!allocate(d, name, color, HISTORY_POINTS + 1)) return false;
  d->titles = calloc(HISTORY_POINTS + 1, sizeof *d->titles);
  const size_t every = h->evaluation_count / HISTORY_POINTS + 1;
  const HistoryEvaluation *best = history_best(h);
  for (size_t i = 0; d->titles && i < h->evaluation_count; i++) {
    const HistoryEvaluation *e = &h->evaluations[i];
    if (e->all || (e != best && (h->evaluation_count - 1 - i) % every)) continue;
    if (e == best) d->best = &d->curve.points[d->curve.count];
    char *title = d->titles[d->curve.count];
    snprintf(title, TITLE_BYTES, "step %" PRId64 ": %.4f nats per token, %.4f bits per byte, %s", e->step, e->loss,
             e->bits_per_byte, text_duration(e->seconds).text);
    d->curve.points[d->curve.count++] = (ChartPoint){
        time ? e->seconds : (double)e->step, bits ? e->bits_per_byte : e->loss, (double)NAN, (double)NAN, title};
  }
  d->curve.dots = every == 1;
  return d->titles;
}

/* Training and validation loss of a run. */
static bool write_losses(FILE *stream, const Subject *s, bool time) {
  Drawn drawn[2] = {0};
  const ChartLevel guessing = {"guessing", s->chance};
  bool ok = draw_steps(&drawn[0], s->history, OF_LOSS, time, "training", 0) &&
            draw_evaluations(&drawn[1], s->history, false, time, "validation", 1);
  const ChartCurve curves[] = {drawn[0].curve, drawn[1].curve};
  const Chart chart = {.title = time ? "Loss over time, nats per token" : "Loss, nats per token",
                       .id = time ? "loss-time" : "loss",
                       .time = time,
                       .curves = curves,
                       .curve_count = 2,
                       .levels = &guessing,
                       .level_count = 1,
                       .mark = ok ? drawn[1].best : NULL};
  if (ok) chart_write(stream, &chart);
  for (int i = 0; i < 2; i++) free_drawn(&drawn[i]);
  return ok;
}

/* Of all runs one measure of the logged steps, or their evaluations. */
typedef struct Comparison {
  const char *title, *id;
  bool of_evaluations, bits, time, log;
  Measure measure;
} Comparison;

static bool write_comparison(FILE *stream, const Subject *subjects, int count, const Comparison *c) {
  Drawn *drawn = calloc((size_t)count, sizeof *drawn);
  ChartCurve *curves = calloc((size_t)count, sizeof *curves);
  const double xz = c->bits && count == 1 ? subjects[0].history->xz_bits_per_byte : 0;
  const ChartLevel levels[] = {{"guessing", c->bits ? 8 : (double)NAN}, {"xz -9", xz > 0 ? xz : (double)NAN}};
  bool ok = drawn && curves;
  for (int i = 0; ok && i < count; i++) {
    const Subject *s = &subjects[i];
    const int color = count == 1 ? c->of_evaluations : i % CHART_COLORS;
    ok = c->of_evaluations ? draw_evaluations(&drawn[i], s->history, c->bits, c->time, s->dir, color)
                           : draw_steps(&drawn[i], s->history, c->measure, c->time, s->dir, color);
    curves[i] = drawn[i].curve;
  }
  const Chart chart = {.title = c->title,
                       .id = c->id,
                       .time = c->time,
                       .log = c->log,
                       .curves = curves,
                       .curve_count = count,
                       .levels = levels,
                       .level_count = 2,
                       .mark = ok && count == 1 && c->of_evaluations ? drawn[0].best : NULL};
  if (ok) chart_write(stream, &chart);
  for (int i = 0; drawn && i < count; i++) free_drawn(&drawn[i]);
  free(drawn);
  free(curves);
  return ok;
}

static bool write_charts(FILE *stream, const Subject *subjects, int count) {
  static const Comparison comparisons[] = {
      {"Validation loss, nats per token", "validation", true, false, false, false, OF_LOSS},
      {"Validation loss over time, nats per token", "validation-time", true, false, true, false, OF_LOSS},
      {"Training loss, nats per token", "training", false, false, false, false, OF_LOSS},
      {"Bits per byte of validation text", "bits", true, true, false, false, OF_LOSS},
      {"Learning rate", "lr", false, false, false, false, OF_LR},
      {"Gradient norm", "norm", false, false, false, true, OF_GRAD_NORM},
      {"Tokens per second", "speed", false, false, false, false, OF_SPEED}};
  enum { OF_SEVERAL = 3 }; /* so many are only drawn to compare runs */
  fputs("<section class=\"charts\">\n", stream);
  bool ok = count > 1 || (write_losses(stream, subjects, false) && write_losses(stream, subjects, true));
  for (size_t i = count > 1 ? 0 : OF_SEVERAL; ok && i < sizeof comparisons / sizeof *comparisons; i++)
    ok = write_comparison(stream, subjects, count, &comparisons[i]);
  fputs("</section>\n", stream);
  return ok;
}

/* ---- words ---- */

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

static void write_facts(FILE *stream, const Subject *s) {
  const History *h = s->history;
  const HistoryEvaluation *best = history_best(h), *shown = history_kept(h);
  const HistoryPoint *last = h->count ? &h->points[h->count - 1] : NULL;
  const json_t *params = json_object_get(s->result, "params"), *steps = json_object_get(s->settings, "steps");
  const char *state = result_state(s->dir, s->result);
  fputs("<dl>\n", stream);
  write_fact(stream, "state", "%s", strcmp(state, "running") == 0 ? "running when this page was written" : state);
  if (h->damaged) write_fact(stream, "damaged", "%" PRId64 " lines of metrics.jsonl cannot be read", h->damaged);
  if (last)
    write_fact(stream, "step", "%" PRId64 "%s%" JSON_INTEGER_FORMAT, last->step, steps ? " of " : "",
               steps ? json_integer_value(steps) : 0);
  if (shown) write_fact(stream, "validation loss", "%.4f nats per token", shown->loss);
  if (shown && isfinite(shown->bits_per_byte)) write_fact(stream, "bits per byte", "%.4f", shown->bits_per_byte);
  if (shown && isfinite(shown->exact)) write_fact(stream, "answers exactly right", "%.1f %%", 100 * shown->exact);
  if (best) write_fact(stream, "best step", "%" PRId64, best->step);
  if (json_is_integer(params)) write_fact(stream, "parameters", "%s", text_count(json_number_value(params)).text);
  if (last) write_fact(stream, "tokens", "%s", text_count((double)last->tokens).text);
  if (last && isfinite(last->seconds)) write_fact(stream, "time", "%s", text_duration(last->seconds).text);
  if (isfinite(result_speed(h))) write_fact(stream, "tokens per second", "%s", text_count(result_speed(h)).text);
  fputs("</dl>\n", stream);
}

static void write_verdicts(FILE *stream, const History *h) {
  for (size_t i = 0; i < h->verdict_count; i++) {
    fputs("<p class=\"verdict\">", stream);
    html_write_text(stream, h->verdicts[i].text);
    fputs("</p>\n", stream);
  }
}

static void write_cell(FILE *stream, const char *tag, const char *text) {
  fprintf(stream, "<%s>", tag);
  html_write_text(stream, text);
  fprintf(stream, "</%s>", tag);
}

/* What another run has otherwise than the first one is marked. */
static void write_setting(FILE *stream, const char *name, const Subject *subjects, int count) {
  fputs("<tr>", stream);
  write_cell(stream, "th", name);
  for (int i = 0; i < count; i++) {
    const json_t *own = json_object_get(subjects[i].settings, name);
    const bool other = i > 0 && !json_equal(own, json_object_get(subjects[0].settings, name));
    fputs(other ? "<td class=\"other\">" : "<td>", stream);
    write_json(stream, own);
    fputs("</td>", stream);
  }
  fputs("</tr>\n", stream);
}

static void write_settings(FILE *stream, const Subject *subjects, int count) {
  json_t *names = json_object();
  for (int i = 0; i < count; i++) json_object_update_missing(names, subjects[i].settings);
  fputs("<section><h2>Settings</h2>\n<div class=\"wide\"><table>\n", stream);
  if (count > 1) fputs("<tr><th></th>", stream);
  for (int i = 0; count > 1 && i < count; i++) write_cell(stream, "th", subjects[i].dir);
  if (count > 1) fputs("</tr>\n", stream);
  for (void *at = json_object_iter(names); at; at = json_object_iter_next(names, at))
    write_setting(stream, json_object_iter_key(at), subjects, count);
  fputs("</table></div></section>\n", stream);
  json_decref(names);
}

/* ---- samples ---- */

/* The next line "=== step N" from `at` on, or the end. */
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

/* The newest ones, the last of them unfolded; nothing where there are none. False: EXIT_MEMORY. */
static bool write_samples(FILE *stream, const char *dir, Error *error) {
  Error problem = {0};
  MappedFile file;
  if (!file_map(&file, checkpoint_path(dir, CHECKPOINT_SAMPLES).text, EXIT_INPUT, &problem))
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

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
    "<style>\n"
    ":root { color-scheme: light dark; --ink: #1c2733; --soft: #5d6b7a; --line: #dfe4ea; --paper: #fff; --box: "
    "#f5f7f9; "
    "--c0: #8aa0b6; --c1: #0b62c4; --c2: #c4520b; --c3: #16803c; --c4: #8a2fb0; --c5: #a37200; --c6: #b3173f; --c7: "
    "#00788a; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #97a5b3; --line: #2c3641; --paper: #12171c; "
    "--box: #1a2128; --c0: #6f8499; --c1: #5fa8ff; --c2: #ff9a5c; --c3: #5fd38a; --c4: #cf8df0; --c5: #e3b341; --c6: "
    "#ff7d97; --c7: #4fd0e0; } }\n"
    "body { margin: 0 auto; max-width: 1340px; padding: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); "
    "background: var(--paper); }\n"
    "h1 { font-size: 1.4rem; margin: .4rem 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; }\n"
    "dl { display: flex; flex-wrap: wrap; gap: .5rem; margin: .8rem 0; } dl div { background: var(--box); "
    "border-radius: 6px; padding: .35rem .8rem; } dt { color: var(--soft); font-size: .8rem; } dd { margin: 0; "
    "font-variant-numeric: tabular-nums; }\n"
    ".verdict { border-left: 4px solid var(--c2); background: var(--box); padding: .5rem .8rem; margin: .5rem 0; }\n"
    ".charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 1rem; }\n"
    ".none { color: var(--soft); }\n"
    "svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--soft); text-anchor: "
    "middle; } svg .title { fill: var(--ink); font-size: 14px; font-weight: 600; text-anchor: start; } svg .end { "
    "text-anchor: end; } .grid { stroke: var(--line); } .tick { stroke: var(--soft); } line.level { stroke: "
    "var(--soft); "
    "stroke-dasharray: 5 4; }\n"
    ".curve { fill: none; stroke: var(--c); stroke-width: 1.7; stroke-linejoin: round; } .band { fill: var(--c); "
    "opacity: .22; } .dot { fill: var(--c); } svg .name { fill: var(--c); font-weight: 600; } .mark { fill: none; "
    "stroke: var(--c2); stroke-width: 2; }\n"
    ".c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); } .c4 { --c: "
    "var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }\n"
    ".wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; } th, td { text-align: left; "
    "padding: .1rem .8rem .1rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; } th { font-weight: "
    "500; color: var(--soft); } .other { color: var(--c2); }\n"
    "pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--box); border-radius: 6px; padding: .8rem; "
    "margin: .4rem 0; } summary { cursor: pointer; color: var(--soft); } code { background: var(--box); padding: .1rem "
    ".3rem; border-radius: 4px; overflow-wrap: anywhere; }\n"
    "</style>\n";

static void write_command(FILE *stream, const char *dir) {
  fputs("<section><h2>Again</h2><p>The same run once more: <code>./train --config ", stream);
  html_write_text(stream, text_shell_word(checkpoint_path(dir, CHECKPOINT_SETTINGS).text, ONE_LINE_BYTES - 1).text);
  fputs(" --out NEW.run</code></p></section>\n", stream);
}

static bool write_page(FILE *stream, const Subject *subjects, int count, Error *error) {
  fputs(head, stream);
  fputs("<title>", stream);
  html_write_text(stream, subjects[0].dir);
  if (count > 1) fprintf(stream, " and %d more", count - 1);
  fputs("</title>\n</head>\n<body>\n", stream);
  for (int i = 0; i < count; i++) {
    fputs("<h1>", stream);
    html_write_text(stream, subjects[i].dir);
    fputs("</h1>\n", stream);
    write_facts(stream, &subjects[i]);
    write_verdicts(stream, subjects[i].history);
  }
  const bool ok = (write_charts(stream, subjects, count) || error_memory(error, "a report")) &&
                  (count > 1 || write_samples(stream, subjects[0].dir, error));
  write_settings(stream, subjects, count);
  if (count == 1) write_command(stream, subjects[0].dir);
  fputs("</body>\n</html>\n", stream);
  return ok && json_memory_ok(error, "a report");
}

bool page_write(const PageRun *runs, int count, const char *path, Error *error) {
  FileWriter file;
  if (count < 1) return fail(error, EXIT_INTERNAL, "a report of no run");
  Subject *subjects = calloc((size_t)count, sizeof *subjects);
  if (!subjects) return error_memory(error, "a report");
  for (int i = 0; i < count; i++) subjects[i] = read_subject(&runs[i], error);
  bool ok = error->code == EXIT_DONE && file_writer_begin(&file, path, error);
  if (ok && !(ok = write_page(file.stream, subjects, count, error))) file_writer_abort(&file);
  ok = ok && file_writer_commit(&file, error);
  for (int i = 0; i < count; i++) free_subject(&subjects[i]);
  free(subjects);
  return ok;
}

bool page_write_runs(const char *const *dirs, int count, const char *path, Error *error) {
  FoundRuns found = {0};
  PageRun *runs = NULL;
  bool ok = find_runs_read(&found, dirs, count, error);
  if (ok) ok = (runs = calloc((size_t)found.count, sizeof *runs)) || error_memory(error, "a report");
  for (int i = 0; ok && i < found.count; i++) runs[i] = (PageRun){found.items[i].dir, &found.items[i].history};
  ok = ok && page_write(runs, found.count, path, error);
  free(runs);
  find_runs_free(&found);
  return ok;
}
