#include "report/page_charts.h"

#include "report/chart.h"
#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { TITLE_BYTES = 120 };

/* What a chart shows: a measurement of the logged steps, or evaluations. */
typedef enum Measure { LOSS, LR, GRAD_NORM, SPEED, EVALUATIONS, LOSS_AND_EVALUATIONS } Measure;

static ChartPoint point_of(const HistoryPoint *p, Measure measure, bool time) {
  ChartPoint point = {.x = time ? p->seconds : (double)p->step, .low = NAN, .high = NAN};
  switch (measure) {
  default:
    point.y = p->loss;
    if (p->lines > 1 && isfinite(p->most)) {
      point.low = p->least;
      point.high = p->most;
    }
    break;
  case LR: point.y = p->lr; break;
  case GRAD_NORM: point.y = p->grad_norm; break;
  case SPEED: point.y = p->tokens_per_s; break;
  }
  return point;
}

/* A curve with its memory. */
typedef struct Drawn {
  ChartCurve curve;
  const ChartPoint *kept; /* the point of the kept model's evaluation; NULL: none */
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

/* Draws evaluations that use the same validation text as the first one: at most HISTORY_POINTS of them, at equal
 * intervals, and the evaluation of the kept model. */
static bool draw_evaluations(Drawn *d, const History *h, bool bits, bool time, const char *name, int color) {
  if (!allocate(d, name, color, HISTORY_POINTS + 1)) return false;
  d->titles = calloc(HISTORY_POINTS + 1, sizeof *d->titles);
  const size_t every = h->evaluation_count / HISTORY_POINTS + 1;
  const HistoryEvaluation *kept = history_kept(h);
  for (size_t i = 0; d->titles && i < h->evaluation_count; i++) {
    const HistoryEvaluation *e = &h->evaluations[i];
    const bool is_kept = kept && e->step == kept->step && !d->kept;
    if (e->all != h->evaluations[0].all || (!is_kept && (h->evaluation_count - 1 - i) % every)) continue;
    if (is_kept) d->kept = &d->curve.points[d->curve.count];
    char *title = d->titles[d->curve.count];
    char in_bits[40] = "";
    if (isfinite(e->bits_per_byte)) snprintf(in_bits, sizeof in_bits, ", %.4f bits per byte", e->bits_per_byte);
    snprintf(title, TITLE_BYTES, "step %" PRId64 ": %.4f nats per token%s, %s", e->step, e->loss, in_bits,
             text_duration(e->seconds).text);
    d->curve.points[d->curve.count++] = (ChartPoint){
        time ? e->seconds : (double)e->step, bits ? e->bits_per_byte : e->loss, (double)NAN, (double)NAN, title};
  }
  d->curve.dots = every == 1;
  return d->titles;
}

/* One curve per run; LOSS_AND_EVALUATIONS: training and validation loss of one run. */
typedef struct PageChart {
  const char *title, *note, *id;
  Measure measure;
  bool bits, time, log;
} PageChart;

static bool write_chart(FILE *stream, const PageSubject *subjects, int count, const PageChart *c) {
  const bool both = c->measure == LOSS_AND_EVALUATIONS, alone = count == 1;
  const int curve_count = both ? 2 : count;
  Drawn *drawn = calloc((size_t)curve_count, sizeof *drawn);
  ChartCurve *curves = calloc((size_t)curve_count, sizeof *curves);
  const double xz = c->bits && alone ? subjects[0].history->xz_bits_per_byte : 0;
  const ChartLevel levels[] = {{"guessing", both      ? subjects[0].chance
                                            : c->bits ? 8
                                                      : (double)NAN},
                               {"xz -9", xz > 0 ? xz : (double)NAN}};
  const ChartPoint *kept = NULL;
  bool ok = drawn && curves;
  for (int i = 0; ok && i < curve_count; i++) {
    const PageSubject *s = &subjects[both ? 0 : i];
    const bool evaluations = both ? i == 1 : c->measure == EVALUATIONS;
    const char *name = !both ? s->dir : evaluations ? "validation" : "training";
    const int color = alone ? evaluations : i + 1;
    ok = evaluations ? draw_evaluations(&drawn[i], s->history, c->bits, c->time, name, color)
                     : draw_steps(&drawn[i], s->history, c->measure, c->time, name, color);
    curves[i] = drawn[i].curve;
    if (alone && evaluations) kept = drawn[i].kept;
  }
  const Chart chart = {.title = c->title,
                       .note = c->note,
                       .id = c->id,
                       .time = c->time,
                       .log = c->log,
                       .curves = curves,
                       .curve_count = curve_count,
                       .levels = levels,
                       .level_count = 2,
                       .mark = kept};
  if (ok) chart_write(stream, &chart);
  for (int i = 0; drawn && i < curve_count; i++) free_drawn(&drawn[i]);
  free(drawn);
  free(curves);
  return ok;
}

bool page_write_charts(FILE *stream, const PageSubject *subjects, int count) {
  static const PageChart charts[] = {
      {"Loss on training and validation text (nats per token)",
       "How wrong the predictions are; lower is better. Where only the training loss falls, the model learns its text "
       "by "
       "heart.",
       "loss", LOSS_AND_EVALUATIONS, false, false, false},
      {"Loss over time (nats per token)", "The same losses over the time since the run began. Lower is better.",
       "loss-time", LOSS_AND_EVALUATIONS, false, true, false},
      {"Loss on validation text (nats per token)",
       "How wrong the predictions are on text that the model does not learn from; lower is better. Only runs with the "
       "same text and tokenizer can be compared.",
       "validation", EVALUATIONS, false, false, false},
      {"Loss on validation text over time (nats per token)",
       "The same losses over the time since each run began. Lower is better.", "validation-time", EVALUATIONS, false,
       true, false},
      {"Loss on training text (nats per token)",
       "How wrong the predictions are on the text that the model learns from; lower is better.", "training", LOSS,
       false, false, false},
      {"Bits per byte of validation text",
       "What the model needs to store a byte of unseen text; lower is better. It compares tokenizers, too, and xz -9, "
       "a compressor that has read the end of the training text.",
       "bits", EVALUATIONS, true, false, false},
      {"Learning rate", "How large the steps of training are. It is planned before the run: nothing to judge.", "lr",
       LR, false, false, false},
      {"Gradient norm",
       "How strongly the text pulls at the weights, before clipping. Single peaks are harmless; a lasting rise is a "
       "sign that training fails.",
       "norm", GRAD_NORM, false, false, true},
      {"Speed (tokens per second)", "Higher is faster. The speed falls where the machine does other work, too.",
       "speed", SPEED, false, false, false}};
  enum { FOR_SEVERAL = 2, FOR_ANY = 5 }; /* the first charts are for one run, the next ones for several */
  fputs("<section>\n<h2>Charts</h2>\n<div class=\"charts\">\n", stream);
  bool ok = true;
  for (size_t i = 0; ok && i < sizeof charts / sizeof *charts; i++)
    if (i >= FOR_ANY || (i >= FOR_SEVERAL) == (count > 1)) ok = write_chart(stream, subjects, count, &charts[i]);
  fputs("</div>\n</section>\n", stream);
  return ok;
}
