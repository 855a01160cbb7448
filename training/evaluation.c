/* Validation: how well the model predicts text that it is not trained on, and which model is the best. */
#include "training/run.h"

#include "cli/startup.h"
#include "util/clock.h"

#include <inttypes.h>
#include <math.h>

typedef struct Validation {
  Run *r;
  int64_t windows; /* to be evaluated */
} Validation;

/* A stop is not an error here: the run ends after it has saved. */
static bool show_progress(void *context, int64_t windows, Error *error) {
  const Validation *v = context;
  const double ctx = v->r->config.ctx;
  console_work(&v->r->console, &(ConsoleWork){"validating", (double)windows * ctx, (double)v->windows * ctx, false});
  return run_listen(v->r, error) && !v->r->stopping;
}

/* The part of the validation text that may be read every eval_every steps for 5 % of the time; a forward pass costs a
 * third of a training step. A resumed run keeps it, or its losses could not be compared with those before. */
static int64_t prefix_windows(const Run *r) {
  if (r->val_part) return r->val_part;
  double interval = (double)(r->settings.eval_every ? r->settings.eval_every : r->settings.steps);
  double windows = 0.05 * 3.0 * interval * (double)settings_tokens_per_step(&r->settings) / r->config.ctx;
  return windows < r->settings.batch ? r->settings.batch : (int64_t)windows;
}

static bool show_answers(void *context, int64_t pairs, Error *error) {
  (void)error;
  console_work(context, &(ConsoleWork){"answering", (double)pairs, 0, false});
  return !stop_signal;
}

/* Above an encoder: how many of the first pairs to validate on the model answers exactly. So many that their answers
 * have about `tokens` tokens, at most `most`. */
static bool count_exact(Run *r, int64_t tokens, int64_t most, ExactCount *out, Error *error) {
  const int64_t fit = tokens / (r->val_pairs.longest.target + 1), limit = fit < 1 ? 1 : fit < most ? fit : most;
  bool ok = answers_count_exact(r->decoder, r->decoder_rows, r->tokenizer, &r->val_windows, limit,
                                (Progress){show_answers, &r->console}, out, error);
  console_work_end(&r->console);
  return ok;
}

static bool is_better(const Run *r, const Evaluation *result) { return evaluation_loss(result) < r->best_loss; }

static bool diverged(const Run *r, double loss, Error *error) {
  char what[100];
  snprintf(what, sizeof what, "stopped after step %" PRId64 ": the validation loss (%g) is not finite", r->step, loss);
  return run_fail_nonfinite(r, what, error);
}

/* What all processes have counted. */
static void add_up(Run *r, Evaluation *e) {
  double sums[] = {e->nats, (double)e->tokens, (double)e->bytes};
  collective_sum(r->peers, sums, 3);
  *e = (Evaluation){sums[0], (int64_t)sums[1], (int64_t)sums[2]};
}

/* At most `limit` windows (0: all) into `out`, last_val_loss and metrics.jsonl. *complete is false when it was stopped,
 * for then the loss cannot be compared with others. No tokens: there are only prompts, and nothing was measured. */
static bool evaluate(Run *r, int64_t limit, Evaluation *out, ExactCount *exact, bool *complete, Error *error) {
  const EvaluationPlan plan = {.windows = r->val_windows,
                               .stride = r->config.ctx,
                               .batch = run_sequence_share(r).batch,
                               .limit = limit,
                               .rank = r->peers->rank,
                               .ranks = r->peers->size,
                               .tokenizer = r->tokenizer};
  Validation validation = {r, evaluation_windows(&plan)};
  const double start = clock_seconds();
  bool ok = evaluation_run(r->model, &plan, out, (Progress){show_progress, &validation}, error);
  console_work_end(&r->console);
  if (!run_agree(r, error)) return false;
  *complete = ok && !r->stopping;
  if (!*complete) return ok;
  add_up(r, out);
  if (!out->tokens) return true;
  r->last_val_loss = evaluation_loss(out);
  if (!run_leads(r)) return isfinite(r->last_val_loss) || diverged(r, r->last_val_loss, error);
  if (r->config.encoder_layers && !count_exact(r, limit ? 4096 : 32768, limit ? 128 : 1000, exact, error)) return false;
  const double measured = clock_seconds();
  double xz;
  if (!run_measure_compression(r, &xz, error)) return false;
  r->pace.evaluating = measured - start;
  r->pace.once += clock_seconds() - measured;
  const MetricsLine line = {.kind = METRICS_EVALUATION,
                            .step = r->step,
                            .tokens = r->step * settings_tokens_per_step(&r->settings),
                            .seconds = run_seconds(r),
                            .val_loss = evaluation_loss(out),
                            .bits_per_byte = evaluation_bits_per_byte(out),
                            .exact = exact->pairs ? (double)exact->exact / (double)exact->pairs : (double)NAN,
                            .xz_bits_per_byte = xz,
                            .all = limit == 0,
                            .best = limit && is_better(r, out)};
  return run_log(r, &line, error) && (isfinite(line.val_loss) || diverged(r, line.val_loss, error));
}

/* ---- verdicts ---- */

VerdictFacts run_verdict_facts(const Run *r) {
  const TrainSettings *s = &r->settings;
  const double trained = (double)token_range_size(&r->train) / (double)r->tokens_file.info.tokens;
  return (VerdictFacts){.steps = run_planned_steps(r),
                        .warmup = s->warmup,
                        .chance = log(r->config.vocab),
                        .train_bytes = trained * (double)r->text.bytes,
                        .train_tokens = (double)run_epoch_tokens(r),
                        .lr = (double)s->lr,
                        .muon_lr = s->optimizer == OPTIMIZER_MUON ? (double)s->muon_lr : (double)NAN,
                        .usual_lr = choices_learning_rate(s, &r->config),
                        .usual_muon_lr = choices_muon_rate(s),
                        .dropout = (double)s->dropout,
                        .early_stopping = s->patience > 0};
}

static bool judge(Run *r, bool at_end, Error *error) {
  const VerdictFacts facts = run_verdict_facts(r);
  MetricsLine line = {0};
  if (!run_leads(r)) return true;
  if (!(at_end ? verdict_at_end : verdict_at_evaluation)(&r->history, &facts, &line)) return true;
  console_note(&r->console, "%s", line.text);
  return run_log(r, &line, error);
}

bool run_has_learned(const Run *r) {
  const VerdictFacts facts = run_verdict_facts(r);
  return !verdict_worse_than_chance(&r->history, &facts);
}

/* ---- evaluations ---- */

static bool evaluate_part(Run *r, Error *error) {
  if (!run_has_validation(r)) {
    r->best_step = r->evaluated_step = r->step;
    return run_download_weights(r, error) && run_write_weights(r, error);
  }
  Evaluation result;
  ExactCount exact = {0};
  bool complete = false;
  r->val_part = prefix_windows(r);
  evaluate(r, r->val_part, &result, &exact, &complete, error);
  if (!run_agree(r, error)) return false;
  if (!complete) return true; /* a resumed run evaluates again */
  r->evaluated_step = r->step;
  if (!result.tokens) return true;
  const bool better = run_leader_says(r, is_better(r, &result));
  r->bad_evals = better ? 0 : r->bad_evals + 1;
  if (!better) return judge(r, false, error) && run_write_report(r, error);
  r->best_loss = evaluation_loss(&result);
  r->best_step = r->step;
  return run_download_weights(r, error) && run_write_weights(r, error) && judge(r, false, error) &&
         run_write_report(r, error);
}

bool run_evaluate(Run *r, Error *error) {
  evaluate_part(r, error);
  return run_agree(r, error);
}

double run_final_evaluation_share(const Run *r) {
  const int64_t all = windows_count(&r->val_windows, r->config.ctx), part = prefix_windows(r);
  return part < all ? (double)all / (double)part : 1;
}

bool run_evaluate_base(Run *r, Error *error) {
  if (!run_evaluate(r, error) || r->stopping || !run_has_validation(r)) return !error->code;
  console_line(&r->console, "before: %.4f nats per token; %s as it is, on %sthe text to validate on", r->last_val_loss,
               r->settings.init, run_final_evaluation_share(r) > 1 ? "the beginning of " : "");
  return true;
}

static bool evaluate_all(Run *r, Error *error) {
  if (!run_has_validation(r)) return true;
  Evaluation result;
  ExactCount exact = {0};
  bool complete = false;
  if (!evaluate(r, 0, &result, &exact, &complete, error)) return false;
  if (!complete || !result.tokens) return true;
  console_line(&r->console, "validation loss %.4f nats per token, %.4f bits per byte, over all %" PRId64 " tokens",
               evaluation_loss(&result), evaluation_bits_per_byte(&result), result.tokens);
  if (exact.pairs)
    console_line(&r->console, "%.1f %% of %" PRId64 " answers are exactly right",
                 100 * (double)exact.exact / (double)exact.pairs, exact.pairs);
  if (r->best_step < r->step)
    console_note(&r->console,
                 "the best evaluation was at step %" PRId64 " (%.4f); that model is in %s/" CHECKPOINT_WEIGHTS,
                 r->best_step, r->best_loss, r->dir);
  return judge(r, true, error);
}

bool run_final_evaluation(Run *r, Error *error) {
  evaluate_all(r, error);
  return run_agree(r, error);
}
