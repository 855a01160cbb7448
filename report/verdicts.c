#include "report/verdicts.h"

#include "util/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const double RISE = 0.01;        /* a share of the best loss: less is noise */
static const double JUMP = 0.3;         /* nats per token: losses rise by that only where training fails */
static const double OVER_CHANCE = 0.05; /* nats per token, above a model that knows nothing */
enum { RISEN_EVALUATIONS = 3, FEWEST_EVALUATIONS = 8 };

/* ---- what is looked at ---- */

/* The last evaluation; *since_best: how many came after the best one. */
static const HistoryEvaluation *newest(const History *h, int *since_best) {
  const HistoryEvaluation *best = history_best(h);
  const HistoryEvaluation *last = h->evaluation_count ? &h->evaluations[h->evaluation_count - 1] : NULL;
  *since_best = best ? (int)(last - best) : 0;
  return last;
}

/* The evaluation nearest to that step. */
static const HistoryEvaluation *nearest(const History *h, double step) {
  const HistoryEvaluation *found = NULL;
  for (size_t i = 0; i < h->evaluation_count; i++) {
    const HistoryEvaluation *e = &h->evaluations[i];
    if (!found || fabs((double)e->step - step) < fabs((double)found->step - step)) found = e;
  }
  return found;
}

/* The training loss about that step: of the point that holds it and of its neighbors. NaN: none. */
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

__attribute__((format(printf, 4, 5))) static bool say(MetricsLine *out, const char *name, const HistoryEvaluation *at,
                                                      const char *format, ...) {
  va_list arguments;
  *out = (MetricsLine){.kind = METRICS_VERDICT, .step = at->step, .tokens = at->tokens};
  snprintf(out->verdict, sizeof out->verdict, "%s", name);
  va_start(arguments, format);
  vsnprintf(out->text, sizeof out->text, format, arguments);
  va_end(arguments);
  return true;
}

/* ---- diverging ---- */

static double lower(double rate, double usual) { return fmax(1e-12, fmin(rate / 3, usual)); }

VerdictRates verdict_lower_rates(const VerdictFacts *f) {
  VerdictRates rates;
  char muon[32] = "";
  if (!isnan(f->muon_lr)) snprintf(muon, sizeof muon, "--muon-lr %.1g ", lower(f->muon_lr, f->usual_muon_lr));
  snprintf(rates.text, sizeof rates.text, "%s--lr %.1g", muon, lower(f->lr, f->usual_lr));
  return rates;
}

static bool is_over_chance(const HistoryEvaluation *e, const VerdictFacts *f) {
  return e->step > f->warmup && !(e->loss <= f->chance + OVER_CHANCE);
}

/* Of training and validation: only the latter rises where a model overfits. */
static bool has_jumped(const History *h, const HistoryEvaluation *last) {
  const HistoryEvaluation *best = history_best(h);
  return best && best->step < last->step && last->loss > best->loss + JUMP &&
         training_loss(h, last->step) > training_loss(h, best->step) + JUMP;
}

static bool diverging(const History *h, const HistoryEvaluation *last, const VerdictFacts *f, MetricsLine *out) {
  if (is_over_chance(last, f))
    return say(
        out, VERDICT_DIVERGING, last,
        "diverging: the validation loss of %.3f is worse than guessing (%.3f); the learning rate is too high, try "
        "%s",
        last->loss, f->chance, verdict_lower_rates(f).text);
  return has_jumped(h, last) &&
         say(out, VERDICT_DIVERGING, last,
             "diverging: the validation loss rose from %.3f at step %" PRId64
             " to %.3f, and the training loss with it; "
             "the learning rate is too high, try %s",
             history_best(h)->loss, history_best(h)->step, last->loss, verdict_lower_rates(f).text);
}

/* ---- overfitting ---- */

static bool is_overfitting(const History *h, const HistoryEvaluation *last, int since_best) {
  const HistoryEvaluation *best = history_best(h);
  if (!best || since_best < RISEN_EVALUATIONS) return false;
  for (int i = 1; i <= RISEN_EVALUATIONS; i++)
    if (!(h->evaluations[h->evaluation_count - (size_t)i].loss > best->loss * (1 + RISE))) return false;
  return training_loss(h, last->step) < training_loss(h, best->step);
}

static bool overfitting(const History *h, const HistoryEvaluation *last, int since_best, const VerdictFacts *f,
                        MetricsLine *out) {
  if (history_has_verdict(h, VERDICT_OVERFITTING) || history_has_verdict(h, VERDICT_LITTLE_TEXT) ||
      !is_overfitting(h, last, since_best))
    return false;
  const HistoryEvaluation *best = history_best(h);
  const double passes = (double)best->tokens / f->train_tokens;
  if (f->train_bytes < 1000.0 * VERDICT_SMALL_KB)
    return say(out, VERDICT_LITTLE_TEXT, last,
               "little text: after %.1f passes over %s the validation loss was best (%.3f at step %" PRId64
               ", which is kept), now it is %.3f; more text helps more than any setting",
               passes, text_bytes(f->train_bytes).text, best->loss, best->step, last->loss);
  char more_dropout[32] = "";
  if (f->dropout < 0.45) snprintf(more_dropout, sizeof more_dropout, " or --dropout %.1g", f->dropout + 0.1);
  return say(out, VERDICT_OVERFITTING, last,
             "overfitting: the validation loss was best at step %" PRId64
             " (%.3f, which is kept) and is %.3f now, while the training loss falls; more text%s would help%s",
             best->step, best->loss, last->loss, more_dropout,
             f->early_stopping ? "" : ", and --patience 3 saves the time");
}

bool verdict_at_evaluation(const History *history, const VerdictFacts *facts, MetricsLine *out) {
  int since_best;
  if (history_has_verdict(history, VERDICT_DIVERGING)) return false; /* which explains all that follows */
  const HistoryEvaluation *last = newest(history, &since_best);
  return last && (diverging(history, last, facts, out) || overfitting(history, last, since_best, facts, out));
}

bool verdict_worse_than_chance(const History *history, const VerdictFacts *facts) {
  return history->evaluation_count > 0 && is_over_chance(&history->evaluations[history->evaluation_count - 1], facts);
}

/* ---- still learning ---- */

/* What twice the steps would bring, in nats per token. Between a quarter and a half of the steps, where learning rates
 * are still high, the loss fell by something; losses approach their limit about as a power of the steps, so a doubling
 * brings less the later it is: of runs of 300, 600, 1200 and 2400 steps (nano on 1 MB of text) 0.56, 0.34, 0.30 and
 * 0.16 of that fall. NaN: it cannot be told. */
static double worth_of_doubling(const History *h, const HistoryEvaluation *last, int64_t steps) {
  const double LATER = 0.3;
  const HistoryEvaluation *quarter = nearest(h, (double)steps / 4), *half = nearest(h, (double)steps / 2);
  if (h->evaluation_count < FEWEST_EVALUATIONS || last->step < steps) return NAN;
  return LATER * (quarter->loss - half->loss);
}

bool verdict_at_end(const History *history, const VerdictFacts *facts, MetricsLine *out) {
  int since_best;
  const HistoryEvaluation *last = newest(history, &since_best);
  if (!last || since_best || history->verdict_count) return false;
  const double worth = worth_of_doubling(history, last, facts->steps);
  return worth > VERDICT_WORTH * last->loss &&
         say(out, VERDICT_STILL_LEARNING, last,
             "still learning: twice as many steps would lower the validation loss by about %.1g; --resume with --steps "
             "%" PRId64 " goes on, but starting again with so many is better",
             worth, 2 * facts->steps);
}

/* ---- copying ---- */

/* Common phrases are as long in text that the model has not seen. */
bool verdict_of_sample(int64_t step, int64_t tokens, size_t copied_bytes, size_t usual_bytes, MetricsLine *out) {
  enum { FEWEST_BYTES = 60, TIMES = 3 };
  const HistoryEvaluation now = {.step = step, .tokens = tokens};
  return copied_bytes >= FEWEST_BYTES && copied_bytes > TIMES * usual_bytes &&
         say(out, VERDICT_COPYING, &now,
             "copying: %zu bytes in a row of the last sample stand in the training text (of text that the model has "
             "not "
             "seen at most %zu do); fewer passes over more text would help",
             copied_bytes, usual_bytes);
}
