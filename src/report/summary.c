#include "report/summary.h"

#include "report/diagnosis.h"
#include "report/result.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const double NEAR_CHANCE = 0.05; /* nats per token; a model within this of guessing has learned nothing */
static const double EARLY = 0.75; /* fraction of the steps; if the best evaluation is earlier, the rest was wasted */
enum { SHELL_BYTES = 200 };

__attribute__((format(printf, 2, 3))) static void say(Summary *s, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  text_append_list(s->text, sizeof s->text, format, arguments);
  va_end(arguments);
}

/* ---- access to the history ---- */

static bool is_state(const SummaryFacts *f, RunEnd end) { return strcmp(f->state, run_end_names[end]) == 0; }

static bool has_ended(const SummaryFacts *f) {
  return is_state(f, RUN_DONE) || is_state(f, RUN_MINUTES) || is_state(f, RUN_PATIENCE);
}

static int64_t last_step(const History *h) {
  const int64_t logged = h->count ? h->points[h->count - 1].step : 0;
  const int64_t evaluated = h->evaluation_count ? h->evaluations[h->evaluation_count - 1].step : 0;
  return logged > evaluated ? logged : evaluated;
}

/* ---- how good the model is ---- */

static const char *extent(bool all) { return all ? "all" : "the beginning"; }

static bool only_guesses(const MetricsLine *kept, const SummaryFacts *f) {
  return kept && kept->val_loss > f->chance - NEAR_CHANCE;
}

/* Compares bits per byte with those of `other`. */
static const char *compared(double bits, double other) {
  return bits < 0.6 * other     ? "far better than"
         : bits < 0.9 * other   ? "better than"
         : bits < 0.99 * other  ? "a little better than"
         : bits <= 1.01 * other ? "about as good as"
         : bits < 1.1 * other   ? "a little worse than"
                                : "worse than";
}

static void say_prediction(Summary *s, const History *h, const MetricsLine *kept) {
  say(s, "Predicts unseen text (%s of the validation text) at ", extent(kept->all));
  if (isfinite(kept->bits_per_byte)) say(s, "%.2f bits per byte", kept->bits_per_byte);
  else say(s, "%.2f nats per token", kept->val_loss);
  if (isfinite(kept->bits_per_byte) && h->xz_bits_per_byte > 0)
    say(s, ", %s the compressor xz -9 (%.2f)", compared(kept->bits_per_byte, h->xz_bits_per_byte), h->xz_bits_per_byte);
  say(s, ".");
}

static void say_unevaluated(Summary *s, const History *h, const SummaryFacts *f) {
  if (h->evaluation_count) say(s, "No evaluation gave a loss that is a finite number.");
  else if (has_ended(f))
    say(s, "There was no validation text, so it is not known how well the model predicts text that it has not seen; "
           "--val-frac 0.1 keeps a tenth of the text for that.");
  else say(s, h->count ? "The model was not evaluated yet." : "Nothing was measured yet.");
  if (h->count && isfinite(h->last_loss))
    say(s, " The training loss at step %" PRId64 " is %.2f nats per token.", h->points[h->count - 1].step,
        h->last_loss);
}

static void say_reached(Summary *s, const History *h, const SummaryFacts *f) {
  const MetricsLine *kept = history_kept(h);
  if (!kept) say_unevaluated(s, h, f);
  else if (isfinite(kept->exact))
    say(s, "Gives exactly the right answer to %.1f %% of the prompts of the validation text (%s of it).",
        100 * kept->exact, extent(history_counted_all(kept)));
  else if (only_guesses(kept, f))
    say(s,
        "Predicts unseen text (%s of the validation text) no better than guessing: the loss is %.2f nats per token, "
        "and guessing has %.2f.",
        extent(kept->all), kept->val_loss, f->chance);
  else say_prediction(s, h, kept);
}

/* ---- how it ended ---- */

static OneLine step_words(int64_t step, const SummaryFacts *f) {
  OneLine words;
  snprintf(words.text, sizeof words.text, "step %" PRId64, step);
  if (f->steps >= (double)step && f->steps < 1e15) text_append(words.text, sizeof words.text, " of %.0f", f->steps);
  return words;
}

static void say_state(Summary *s, const History *h, const SummaryFacts *f) {
  const OneLine at = step_words(last_step(h), f);
  const ShellWord dir = text_shell_word(f->dir, SHELL_BYTES), train = program_name_elsewhere("train");
  if (strcmp(f->state, "running") == 0) say(s, " The run is at %s.", at.text);
  else if (is_state(f, RUN_SIGNAL))
    say(s, " It was stopped at %s; %s --resume=%s goes on.", at.text, train.text, dir.text);
  else if (strcmp(f->state, "killed") == 0)
    say(s, " It was killed after %s; %s --resume=%s goes on from the last state that was saved.", at.text, train.text,
        dir.text);
  else if (is_state(f, RUN_PATIENCE)) say(s, " It stopped early, as --patience asks, at %s.", at.text);
}

/* ---- what to do next ---- */

static void say_failed(Summary *s, const History *h, const SummaryFacts *f) {
  say(s,
      " Training failed after step %" PRId64
      ": the loss or the gradient was no finite number any more. Start again with "
      "a lower learning rate",
      last_step(h));
  const OneLine lower = diagnosis_lower_rates(
      &(DiagnosisFacts){.lr = f->lr, .muon_lr = f->muon_lr, .usual_lr = INFINITY, .usual_muon_lr = INFINITY});
  if (f->lr > 0) say(s, ", such as %s", lower.text);
  say(s, ".");
}

static void say_well(Summary *s, const History *h, const SummaryFacts *f) {
  const ShellWord dir = text_shell_word(f->dir, SHELL_BYTES), generate = program_name_elsewhere("generate");
  const MetricsLine *kept = history_kept(h), *best = history_best(h);
  const double latest = is_state(f, RUN_PATIENCE) ? 1 : EARLY;
  const bool early = best && (double)best->step < latest * (double)last_step(h);
  if (best) say(s, " The validation loss was lowest at %s.", step_words(best->step, f).text);
  if (kept && isfinite(kept->exact) && !f->chats) say(s, " Ask it: %s %s -p TEXT --greedy", generate.text, dir.text);
  else say(s, f->chats ? " Talk to it: %s %s -i" : " Let it write: %s %s -n 500", generate.text, dir.text);
  say(s, ". For a better one: %smore text, or a larger model (--dim, --layers)%s.",
      early ? "" : "more steps (--steps), ", early ? "; more steps would not help" : "");
}

/* What to do next; diagnoses, which stand below the summary, say it themselves. */
static void say_next(Summary *s, const History *h, const SummaryFacts *f) {
  if (is_state(f, RUN_NONFINITE)) say_failed(s, h, f);
  else if (!has_ended(f) || h->diagnosis_count > history_has_diagnosis(h, DIAGNOSIS_COPYING)) return;
  else if (only_guesses(history_kept(h), f))
    say(s, " It has learned nothing yet: train it longer, and look with --dry-run --show 3 whether it reads what you "
           "meant.");
  else say_well(s, h, f);
}

Summary summary_of(const History *history, const SummaryFacts *facts) {
  Summary summary = {""};
  say_reached(&summary, history, facts);
  say_state(&summary, history, facts);
  say_next(&summary, history, facts);
  return summary;
}
