#include "report/page_charts.h"

#include "report/chart.h"
#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { TITLE_BYTES = 120 };

/* The values of the logged steps that a chart can show. */
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
  const ChartPoint *kept; /* the evaluation of the model that is kept, among its points; NULL: there is none */
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

/* Evaluations over one part of the validation text: at most HISTORY_POINTS of them, evenly, and that of the model that
 * is kept. */
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

/* Training and validation loss of a run. */
static bool write_losses(FILE *stream, const PageSubject *s, bool time) {
  Drawn drawn[2] = {0};
  const ChartLevel guessing = {"guessing", s->chance};
  bool ok = draw_steps(&drawn[0], s->history, OF_LOSS, time, "training", 0) &&
            draw_evaluations(&drawn[1], s->history, false, time, "validation", 1);
  const ChartCurve curves[] = {drawn[0].curve, drawn[1].curve};
  const Chart chart = {
      .title = time ? "Loss over time (nats per token)" : "Loss on training and validation text (nats per token)",
      .note = time ? "The same losses over the time since the run began. Lower is better."
                   : "How wrong the predictions are; lower is better. Where only the training loss falls, the "
                     "model learns its text by heart.",
      .id = time ? "loss-time" : "loss",
      .time = time,
      .curves = curves,
      .curve_count = 2,
      .levels = &guessing,
      .level_count = 1,
      .mark = ok ? drawn[1].kept : NULL};
  if (ok) chart_write(stream, &chart);
  for (int i = 0; i < 2; i++) free_drawn(&drawn[i]);
  return ok;
}

/* Of all runs one measure of the logged steps, or their evaluations. */
typedef struct Comparison {
  const char *title, *note, *id;
  bool of_evaluations, bits, time, log;
  Measure measure;
} Comparison;

static bool write_comparison(FILE *stream, const PageSubject *subjects, int count, const Comparison *c) {
  Drawn *drawn = calloc((size_t)count, sizeof *drawn);
  ChartCurve *curves = calloc((size_t)count, sizeof *curves);
  const double xz = c->bits && count == 1 ? subjects[0].history->xz_bits_per_byte : 0;
  const ChartLevel levels[] = {{"guessing", c->bits ? 8 : (double)NAN}, {"xz -9", xz > 0 ? xz : (double)NAN}};
  bool ok = drawn && curves;
  for (int i = 0; ok && i < count; i++) {
    const PageSubject *s = &subjects[i];
    const int color = count == 1 ? c->of_evaluations : i + 1;
    ok = c->of_evaluations ? draw_evaluations(&drawn[i], s->history, c->bits, c->time, s->dir, color)
                           : draw_steps(&drawn[i], s->history, c->measure, c->time, s->dir, color);
    curves[i] = drawn[i].curve;
  }
  const Chart chart = {.title = c->title,
                       .note = c->note,
                       .id = c->id,
                       .time = c->time,
                       .log = c->log,
                       .curves = curves,
                       .curve_count = count,
                       .levels = levels,
                       .level_count = 2,
                       .mark = ok && count == 1 && c->of_evaluations ? drawn[0].kept : NULL};
  if (ok) chart_write(stream, &chart);
  for (int i = 0; drawn && i < count; i++) free_drawn(&drawn[i]);
  free(drawn);
  free(curves);
  return ok;
}

bool page_write_charts(FILE *stream, const PageSubject *subjects, int count) {
  static const Comparison comparisons[] = {
      {"Loss on validation text (nats per token)",
       "How wrong the predictions are on text that the model does not learn from; lower is better. Only runs with the "
       "same text and tokenizer can be compared.",
       "validation", true, false, false, false, OF_LOSS},
      {"Loss on validation text over time (nats per token)",
       "The same losses over the time since each run began. Lower is better.", "validation-time", true, false, true,
       false, OF_LOSS},
      {"Loss on training text (nats per token)",
       "How wrong the predictions are on the text that the model learns from; lower is better.", "training", false,
       false, false, false, OF_LOSS},
      {"Bits per byte of validation text",
       "What the model needs to store a byte of unseen text; lower is better. It compares tokenizers, too, and xz -9, "
       "a compressor that has read the end of the training text.",
       "bits", true, true, false, false, OF_LOSS},
      {"Learning rate", "How large the steps of training are. It is planned before the run: nothing to judge.", "lr",
       false, false, false, false, OF_LR},
      {"Gradient norm",
       "How strongly the text pulls at the weights, before clipping. Single peaks are harmless; a lasting rise is a "
       "sign that training fails.",
       "norm", false, false, false, true, OF_GRAD_NORM},
      {"Speed (tokens per second)", "Higher is faster. The speed falls where the machine does other work, too.",
       "speed", false, false, false, false, OF_SPEED}};
  enum { OF_SEVERAL = 3 }; /* the first ones are drawn only to compare runs */
  fputs("<section>\n<h2>Charts</h2>\n<div class=\"charts\">\n", stream);
  bool ok = count > 1 || (write_losses(stream, subjects, false) && write_losses(stream, subjects, true));
  for (size_t i = count > 1 ? 0 : OF_SEVERAL; ok && i < sizeof comparisons / sizeof *comparisons; i++)
    ok = write_comparison(stream, subjects, count, &comparisons[i]);
  fputs("</div>\n</section>\n", stream);
  return ok;
}
