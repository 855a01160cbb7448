#include "report/diagnosis.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double RISE = 0.01;         /* fraction of the best loss; smaller rises are noise */
static const double JUMP = 0.3;          /* nats per token; losses rise by this much only when training fails */
static const double OVER_CHANCE = 0.05;  /* nats per token above the loss of guessing */
static const double SMALL_BYTES = 100e3; /* with less training text, overfitting is attributed to the text */
static const double WORTH = 0.04;        /* fraction of the loss that twice the steps must save to be suggested */
enum { RISEN_EVALUATIONS = 3, FEWEST_EVALUATIONS = 8 };

bool diagnosis_is_warning(const char *name) {
  return strcmp(name, DIAGNOSIS_DIVERGING) == 0 || strcmp(name, DIAGNOSIS_OVERFITTING) == 0 ||
         strcmp(name, DIAGNOSIS_LITTLE_TEXT) == 0;
}

/* ---- access to the history ---- */

/* Returns the last evaluation during the run; NULL: there is none. */
static const MetricsLine *newest(const History *h) {
  return h->evaluation_count ? &h->evaluations[h->evaluation_count - 1] : NULL;
}

/* Returns the number of evaluations after the best one; 0: no loss was finite. */
static int since_best(const History *h) {
  const MetricsLine *best = history_best(h);
  return best ? (int)(newest(h) - best) : 0;
}

/* Returns the evaluation nearest to that step. */
static const MetricsLine *nearest(const History *h, double step) {
  const MetricsLine *found = NULL;
  for (size_t i = 0; i < h->evaluation_count; i++) {
    const MetricsLine *e = &h->evaluations[i];
    if (!found || fabs((double)e->step - step) < fabs((double)found->step - step)) found = e;
  }
  return found;
}

/* Returns the mean training loss of the point that contains the step and of its two neighbors on each side. NaN:
 * none. */
static double training_loss(const History *h, int64_t step) {
  double sum = 0;
  int at = 0, count = 0;
  while (at < h->count - 1 && h->points[at].step < step) at++;
  for (int i = at - 2; i <= at + 2; i++) {
    if (i < 0 || i >= h->count || !isfinite(h->points[i].loss)) continue;
    sum += h->points[i].loss;
    count++;
  }
  return count ? sum / count : NAN;
}

__attribute__((format(printf, 4, 5))) static bool report(MetricsLine *out, const char *name, const MetricsLine *at,
                                                         const char *format, ...) {
  va_list arguments;
  *out = (MetricsLine){.kind = METRICS_DIAGNOSIS, .step = at->step, .tokens = at->tokens};
  snprintf(out->diagnosis, sizeof out->diagnosis, "%s", name);
  va_start(arguments, format);
  vsnprintf(out->text, sizeof out->text, format, arguments);
  va_end(arguments);
  return true;
}

/* ---- diverging ---- */

static double lower(double rate, double usual) { return fmax(1e-12, fmin(rate / 3, usual)); }

OneLine diagnosis_lower_rates(const DiagnosisFacts *f) {
  OneLine rates;
  char muon[32] = "";
  if (!isnan(f->muon_lr)) snprintf(muon, sizeof muon, "--muon-lr %.1g ", lower(f->muon_lr, f->usual_muon_lr));
  snprintf(rates.text, sizeof rates.text, "%s--lr %.1g", muon, lower(f->lr, f->usual_lr));
  return rates;
}

static bool is_over_chance(const MetricsLine *e, const DiagnosisFacts *f) {
  return !(e->val_loss <= f->chance + OVER_CHANCE);
}

/* Returns whether the validation loss is not below that of the evaluation before, or below the first training loss. */
static bool has_not_fallen(const History *h, const MetricsLine *last) {
  const double begin = h->count ? h->points[0].loss : (double)NAN;
  return !(last->val_loss < (last == h->evaluations ? begin : last[-1].val_loss));
}

/* Returns whether both losses have risen a lot. Where a model overfits, only the validation loss rises. */
static bool has_jumped(const History *h, const MetricsLine *last) {
  const MetricsLine *best = history_best(h);
  return best && best->step < last->step && last->val_loss > best->val_loss + JUMP &&
         training_loss(h, last->step) > training_loss(h, best->step) + JUMP;
}

static bool diverging(const History *h, const MetricsLine *last, const DiagnosisFacts *f, MetricsLine *out) {
  if (last->step > f->warmup && is_over_chance(last, f) && has_not_fallen(h, last))
    return report(
        out, DIAGNOSIS_DIVERGING, last,
        "diverging: the validation loss of %.3f is worse than guessing (%.3f); the learning rate is too high, try %s",
        last->val_loss, f->chance, diagnosis_lower_rates(f).text);
  return has_jumped(h, last) &&
         report(out, DIAGNOSIS_DIVERGING, last,
                "diverging: the validation loss rose from %.3f at step %" PRId64
                " to %.3f, and the training loss with it; the learning rate is too high, try %s",
                history_best(h)->val_loss, history_best(h)->step, last->val_loss, diagnosis_lower_rates(f).text);
}

/* ---- overfitting ---- */

/* Returns " or --dropout 0.1" with the next higher rate, or "" where dropout would not help: with Muon
 * (docs/learning.md), or if it is high already. */
static OneLine more_dropout(const DiagnosisFacts *f) {
  OneLine words = {""};
  if (isnan(f->muon_lr) && f->dropout < 0.45)
    snprintf(words.text, sizeof words.text, " or --dropout %.1g", f->dropout + 0.1);
  return words;
}

/* Reports `what` happened to the losses and what helps: more text and `rest`. `tokens`: tokens trained on when it
 * began. */
static bool report_overfitting(MetricsLine *out, const MetricsLine *last, int64_t tokens, const DiagnosisFacts *f,
                               const char *what, const char *rest) {
  if (f->train_bytes < SMALL_BYTES)
    return report(out, DIAGNOSIS_LITTLE_TEXT, last, "little text: after %.1f passes over %s %s; more text helps most",
                  (double)tokens / f->train_tokens, text_bytes(f->train_bytes).text, what);
  return report(out, DIAGNOSIS_OVERFITTING, last, "overfitting: %s; more text%s would help%s", what,
                more_dropout(f).text, rest);
}

/* Returns whether the last evaluations are all worse than the best one, while the training loss fell. */
static bool has_risen(const History *h, const MetricsLine *last) {
  const MetricsLine *best = history_best(h);
  if (!best || since_best(h) < RISEN_EVALUATIONS) return false;
  for (int i = 1; i <= RISEN_EVALUATIONS; i++)
    if (!(h->evaluations[h->evaluation_count - (size_t)i].val_loss > best->val_loss * (1 + RISE))) return false;
  return training_loss(h, last->step) < training_loss(h, best->step);
}

static bool is_known_to_overfit(const History *h) {
  return history_has_diagnosis(h, DIAGNOSIS_OVERFITTING) || history_has_diagnosis(h, DIAGNOSIS_LITTLE_TEXT);
}

static bool overfitting(const History *h, const MetricsLine *last, const DiagnosisFacts *f, MetricsLine *out) {
  char what[METRICS_TEXT_BYTES];
  if (is_known_to_overfit(h) || !has_risen(h, last)) return false;
  const MetricsLine *best = history_best(h);
  snprintf(what, sizeof what,
           "the validation loss was best at step %" PRId64
           " (%.3f, which is kept) and is %.3f now, while the training loss falls",
           best->step, best->val_loss, last->val_loss);
  return report_overfitting(out, last, best->tokens, f, what,
                            f->early_stopping ? "" : ", and --patience 3 saves the time");
}

/* A straight line through losses, fitted by least squares. */
typedef struct Trend {
  double n, x, y, xx, xy, yy; /* sums; x is 0 at the beginning of the trend and 1 at the last step */
} Trend;

static void trend_add(Trend *t, double x, double loss) {
  if (x <= 0 || !isfinite(loss)) return;
  t->n++;
  t->x += x;
  t->y += loss;
  t->xx += x * x;
  t->xy += x * loss;
  t->yy += loss * loss;
}

/* The rise from x = 0 to 1. NaN with fewer than three losses. */
static double trend_slope(const Trend *t) { return (t->n * t->xy - t->x * t->y) / (t->n * t->xx - t->x * t->x); }
static double trend_at(const Trend *t, double x) { return (t->y + trend_slope(t) * (t->n * x - t->x)) / t->n; }

/* The standard error of the slope. */
static double trend_noise(const Trend *t) {
  const double spread = t->xx - t->x * t->x / t->n, slope = trend_slope(t);
  return sqrt(fmax(0, t->yy - t->y * t->y / t->n - slope * slope * spread) / (t->n - 2) / spread);
}

/* Judges the last third of a run that has read its text more than once. Returns true when the training loss fell by
 * much more than noise and is well below the validation loss, which did not fall. While a model learns from its text,
 * both fall; once it has learned all it can, or if learning rates are too low, neither does. */
static bool is_flat(const Trend *training, const Trend *validation) {
  const double FEWEST_POINTS = 10, FEWEST_FLAT = 5; /* measurements */
  const double CLEAR = 0.02, GAP = 0.05;            /* fractions of the loss */
  const double fall = -trend_slope(training), end = trend_at(validation, 1);
  return training->n >= FEWEST_POINTS && validation->n >= FEWEST_FLAT && fall > CLEAR * trend_at(training, 0) &&
         fall > 4 * trend_noise(training) && trend_at(training, 1) < (1 - GAP) * end &&
         -trend_slope(validation) < fmin(0.1 * fall, RISE / 2 * end);
}

static bool flat(const History *h, const MetricsLine *last, const DiagnosisFacts *f, MetricsLine *out) {
  const double FEWEST_PASSES = 2, begin = (double)last->step * 2 / 3, length = (double)last->step - begin;
  Trend training = {0}, validation = {0};
  char what[METRICS_TEXT_BYTES];
  if (is_known_to_overfit(h) || (double)last->tokens < FEWEST_PASSES * f->train_tokens) return false;
  for (int i = 0; i < h->count; i++)
    trend_add(&training, ((double)h->points[i].step - begin) / length, h->points[i].loss);
  for (size_t i = 0; i < h->evaluation_count; i++)
    trend_add(&validation, ((double)h->evaluations[i].step - begin) / length, h->evaluations[i].val_loss);
  if (!is_flat(&training, &validation)) return false;
  snprintf(what, sizeof what,
           "since step %.0f the validation loss has stayed at %.3f, while the training loss fell from %.3f to %.3f",
           begin, validation.y / validation.n, trend_at(&training, 0), trend_at(&training, 1));
  return report_overfitting(out, last, last->tokens, f, what, ", and more steps would not");
}

bool diagnosis_at_evaluation(const History *history, const DiagnosisFacts *facts, MetricsLine *out) {
  const MetricsLine *last = newest(history);
  if (history_has_diagnosis(history, DIAGNOSIS_DIVERGING)) return false; /* divergence explains all that follows */
  return last && (diverging(history, last, facts, out) || overfitting(history, last, facts, out));
}

bool diagnosis_worse_than_chance(const History *history, const DiagnosisFacts *facts) {
  const MetricsLine *best = history_best(history), *kept = best ? best : newest(history);
  return kept && is_over_chance(kept, facts);
}

/* ---- still learning ---- */

/* Estimates how much twice the steps would lower the loss, in nats per token. Losses approach their limit about as a
 * power of the steps, so the estimate is a fraction of the fall between a quarter and a half of the steps, where
 * learning rates are still high. In runs of 300, 600, 1200 and 2400 steps (nano on 1 MB of text) the true fraction was
 * 0.56, 0.34, 0.30 and 0.16. NaN: unknown. */
static double worth_of_doubling(const History *h, const MetricsLine *last, int64_t steps) {
  const double FRACTION = 0.3;
  const MetricsLine *quarter = nearest(h, (double)steps / 4), *half = nearest(h, (double)steps / 2);
  if (h->evaluation_count < FEWEST_EVALUATIONS || last->step < steps) return NAN;
  return FRACTION * (quarter->val_loss - half->val_loss);
}

static bool still_learning(const History *h, const MetricsLine *last, const DiagnosisFacts *f, MetricsLine *out) {
  if (since_best(h) || h->diagnosis_count) return false;
  const double worth = worth_of_doubling(h, last, f->steps);
  return worth > WORTH * last->val_loss && worth < last->val_loss && /* a loss does not fall below 0 */
         report(
             out, DIAGNOSIS_STILL_LEARNING, last,
             "still learning: twice as many steps would lower the validation loss by about %.1g; --resume with --steps "
             "%" PRId64 " continues this run, and a new run of that length would be better",
             worth, 2 * f->steps);
}

bool diagnosis_at_end(const History *history, const DiagnosisFacts *facts, MetricsLine *out) {
  const MetricsLine *last = newest(history);
  if (history_has_diagnosis(history, DIAGNOSIS_DIVERGING)) return false;
  return last && (flat(history, last, facts, out) || still_learning(history, last, facts, out));
}

/* ---- copying ---- */

/* Unseen texts show how long common phrases are. */
bool diagnosis_of_sample(int64_t step, int64_t tokens, size_t copied_bytes, size_t usual_bytes, MetricsLine *out) {
  enum { FEWEST_BYTES = 60, TIMES = 3 };
  const MetricsLine now = {.step = step, .tokens = tokens};
  return copied_bytes >= FEWEST_BYTES && copied_bytes > TIMES * usual_bytes &&
         report(out, DIAGNOSIS_COPYING, &now,
                "copying: %zu bytes in a row of the last sample stand in the training text (of text that the model has "
                "not seen, at most %zu do); fewer passes over more text would help",
                copied_bytes, usual_bytes);
}
