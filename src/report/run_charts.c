#include "report/run_charts.h"

#include "report/chart.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the logged steps, and from EVALUATIONS on of the evaluations. */
typedef enum Measure { LOSS, LR, GRAD_NORM, SPEED, EVALUATIONS, BITS, CHOICES } Measure;

/* One curve per run, or two of one run. */
typedef struct Kind {
  Measure measure;
  bool and_evaluations; /* a second curve; the chart is for one run */
  bool time;            /* over time, not steps */
  const char *id, *title, *note;
} Kind;

/* ---- curves ---- */

static void draw_steps(ChartCurve *curve, const History *h, Measure measure, bool time) {
  for (const HistoryPoint *p = h->points; p < h->points + h->count; p++) {
    const double values[] = {[LOSS] = p->loss, [LR] = p->lr, [GRAD_NORM] = p->grad_norm, [SPEED] = p->tokens_per_s};
    const bool band = measure == LOSS && p->lines > 1 && isfinite(p->most);
    curve->points[curve->count++] = (ChartPoint){.x = time ? p->seconds : (double)p->step,
                                                 .y = values[measure],
                                                 .low = band ? p->least : 0,
                                                 .high = band ? p->most : 0};
  }
}

static ChartPoint evaluation_point(const MetricsLine *e, Measure measure, bool time) {
  ChartPoint point = {.x = time ? e->seconds : (double)e->step, .y = e->val_loss};
  snprintf(point.title, sizeof point.title, "step %" PRId64 ": %.4f nats per token", e->step, e->val_loss);
  if (measure == BITS) point.y = e->bits_per_byte;
  if (measure == CHOICES) {
    point.y = 100 * e->accuracy;
    text_append(point.title, sizeof point.title, ", %.1f %% right", point.y);
  } else if (isfinite(e->bits_per_byte)) {
    text_append(point.title, sizeof point.title, ", %.4f bits per byte", e->bits_per_byte);
  }
  text_append(point.title, sizeof point.title, ", %s", text_duration(e->seconds).text);
  return point;
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
    if (is_kept) mark = &curve->points[curve->count];
    curve->points[curve->count++] = evaluation_point(e, measure, time);
  }
  curve->dots = every == 1;
  return mark;
}

/* ---- a chart ---- */

typedef struct RunChart {
  Chart chart;
  ChartCurve *curves;
  ChartPoint *points; /* of all curves */
  ChartLevel levels[2];
} RunChart;

static void forget(RunChart *c) {
  free(c->curves);
  free(c->points);
}

/* Returns what guessing would reach; NaN: unknown, or it differs between the runs. */
static double guessing(const FoundRun *runs, int count, double chance, const Kind *kind) {
  if (kind->measure == BITS) return 8;
  if (kind->measure == CHOICES && count == 1) return 100 * runs->history.chance;
  return kind->and_evaluations ? chance : (double)NAN;
}

/* Fills a zeroed chart. EXIT_MEMORY. Call forget() in any case. */
static bool make(RunChart *c, const FoundRun *runs, int count, double chance, const Kind *kind, Error *error) {
  enum { POINTS = HISTORY_POINTS + 1 };
  const int curves = kind->and_evaluations ? 2 : count;
  const double xz = kind->measure == BITS && count == 1 ? runs->history.xz_bits_per_byte : 0;
  const ChartPoint *kept = NULL;
  c->curves = calloc((size_t)curves, sizeof *c->curves);
  c->points = calloc((size_t)curves, POINTS * sizeof *c->points);
  if (!c->curves || !c->points) return error_memory(error, "a chart");
  for (int i = 0; i < curves; i++) {
    const FoundRun *run = &runs[kind->and_evaluations ? 0 : i];
    const Measure measure = kind->and_evaluations && i == 1 ? EVALUATIONS : kind->measure;
    const bool evaluations = measure >= EVALUATIONS;
    ChartCurve *curve = &c->curves[i];
    *curve =
        (ChartCurve){.name = run->dir, .color = count == 1 ? evaluations : i + 1, .points = c->points + i * POINTS};
    if (kind->and_evaluations) curve->name = evaluations ? "validation" : "training";
    if (evaluations) kept = draw_evaluations(curve, &run->history, measure, kind->time);
    else draw_steps(curve, &run->history, measure, kind->time);
  }
  c->levels[0] = (ChartLevel){"guessing", guessing(runs, count, chance, kind)};
  c->levels[1] = (ChartLevel){"xz -9", xz > 0 ? xz : (double)NAN};
  c->chart = (Chart){.title = kind->title,
                     .note = kind->note,
                     .id = kind->id,
                     .x = kind->time ? CHART_TIME : CHART_STEPS,
                     .log = kind->measure == GRAD_NORM,
                     .curves = c->curves,
                     .curve_count = curves,
                     .levels = c->levels,
                     .level_count = 2,
                     .mark = count == 1 ? kept : NULL};
  return true;
}

/* ---- a page ---- */

enum { FOR_SEVERAL = 2, FOR_ANY = 5 }; /* the first charts are for one run, the next ones for several */
static const Kind kinds[] = {
    {LOSS, true, false, "loss", "Loss on training and validation text (nats per token)",
     "How wrong the predictions are; lower is better. Where only the training loss falls, the model learns its text by "
     "heart."},
    {LOSS, true, true, "loss-time", "Loss over time (nats per token)",
     "The same losses over the time since the run began. Lower is better."},
    {EVALUATIONS, false, false, "validation", "Loss on validation text (nats per token)",
     "How wrong the predictions are on text that the model does not learn from; lower is better. Only runs with the "
     "same text and tokenizer can be compared."},
    {EVALUATIONS, false, true, "validation-time", "Loss on validation text over time (nats per token)",
     "The same losses over the time since each run began. Lower is better."},
    {LOSS, false, false, "training", "Loss on training text (nats per token)",
     "How wrong the predictions are on the text that the model learns from; lower is better."},
    {BITS, false, false, "bits", "Bits per byte of validation text",
     "What the model needs to store a byte of unseen text; lower is better. It compares tokenizers, too, and xz -9, a "
     "compressor that has read the end of the training text."},
    {CHOICES, false, false, "choices", "Right choices (%)",
     "How often the model gives the right text of a question (--choose) the highest probability; higher is better."},
    {LR, false, false, "lr", "Learning rate",
     "How large the steps of training are. It is planned before the run: nothing to judge."},
    {GRAD_NORM, false, false, "norm", "Gradient norm",
     "How strongly the text pulls at the weights, before clipping. Single peaks are harmless; a lasting rise is a sign "
     "that training fails."},
    {SPEED, false, false, "speed", "Speed (tokens per second)",
     "Higher is faster. The speed falls where the machine does other work, too."}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Returns whether one of the runs was given --choose. */
static bool have_choices(const FoundRun *runs, int count) {
  for (int i = 0; i < count; i++)
    if (runs[i].history.chance > 0) return true;
  return false;
}

bool run_charts_write(FILE *stream, const FoundRun *runs, int count, double chance, Error *error) {
  bool ok = true;
  for (int i = 0; ok && i < KINDS; i++) {
    RunChart c = {0};
    if (i < FOR_ANY && (i >= FOR_SEVERAL) != (count > 1)) continue;
    if (kinds[i].measure == CHOICES && !have_choices(runs, count)) continue;
    ok = make(&c, runs, count, chance, &kinds[i], error);
    if (ok) chart_write(stream, &c.chart);
    forget(&c);
  }
  return ok;
}

/* ---- a terminal ---- */

enum { NAME_BYTES = 250 };

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static char letter_of(int run) { return letters[run % (int)(sizeof letters - 1)]; }

static const char *nothing_of(const History *h) {
  return h->damaged ? "no line of its metrics.jsonl can be read" : "nothing was measured yet";
}

static void print_one(FILE *stream, RunChart *c, const FoundRun *run, int width, bool utf8) {
  OneLine name = text_one_line(run->dir, NAME_BYTES);
  char title[ONE_LINE_BYTES + 80];
  snprintf(title, sizeof title, "%s: loss, nats per token (%s training, o validation, * best)", name.text,
           utf8 ? "\xE2\xA3\xBF" : ".");
  c->chart.title = title;
  c->curves[1].letter = 'o';
  c->curves[1].no_line = true;
  if (!chart_print(stream, &c->chart, width, utf8)) fprintf(stream, "%s: %s\n", name.text, nothing_of(&run->history));
}

static void print_several(FILE *stream, RunChart *c, const FoundRun *runs, int count, int width, bool utf8) {
  char title[80];
  snprintf(title, sizeof title, "%s loss of %d runs, nats per token",
           c->chart.id == kinds[FOR_SEVERAL].id ? "validation" : "training", count);
  c->chart.title = title;
  for (int i = 0; i < count; i++) c->curves[i].letter = letter_of(i);
  chart_print(stream, &c->chart, width, utf8);
  for (int i = 0; i < count; i++) {
    const MetricsLine *kept = history_kept(&runs[i].history);
    fprintf(stream, "%c %s", letter_of(i), text_one_line(runs[i].dir, NAME_BYTES).text);
    if (kept)
      fprintf(stream, ": the kept model has %.4f over %s the validation text", kept->val_loss,
              kept->all ? "all of" : "the beginning of");
    else if (!runs[i].history.count) fprintf(stream, ": %s", nothing_of(&runs[i].history));
    fputc('\n', stream);
  }
}

bool run_charts_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8, Error *error) {
  const Kind *kind = &kinds[count > 1 ? FOR_SEVERAL : 0];
  RunChart c = {0};
  for (int i = 0; i < count && count > 1; i++) /* every run with measurements must have evaluations */
    if (runs[i].history.count && !runs[i].history.evaluation_count) kind = &kinds[FOR_ANY - 1];
  const bool ok = make(&c, runs, count, (double)NAN, kind, error);
  if (ok && count == 1) print_one(stream, &c, runs, width, utf8);
  else if (ok) print_several(stream, &c, runs, count, width, utf8);
  forget(&c);
  return ok;
}
