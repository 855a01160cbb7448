/* ./train: from a text file to a run directory.
 *
 * main -> run -> prepare (whatever can be refused is refused), plan, loop, finish. The parts are in training/. */
#include "cli/device.h"
#include "cli/startup.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the loop ---- */

static bool log_step(Run *r, Error *error) {
  double seconds = clock_seconds() - r->logged_at;
  double speed = (double)(r->loss_steps * settings_tokens_per_step(&r->settings)) / seconds;
  MetricsLine line = {.step = r->newest.step,
                      .tokens = r->newest.step * settings_tokens_per_step(&r->settings),
                      .measured = METRIC_LOSS | METRIC_LR | METRIC_GRAD_NORM | METRIC_TOKENS_PER_S | METRIC_SECONDS,
                      .loss = r->loss_sum / (double)r->loss_steps,
                      .lr = (double)r->newest.lr,
                      .grad_norm = (double)r->newest.grad_norm,
                      .tokens_per_s = speed,
                      .seconds = run_seconds(r)};
  return metrics_append(r->metrics, &line, error);
}

static void show_progress(Run *r, bool logged) {
  int64_t per_step = settings_tokens_per_step(&r->settings);
  double seconds = clock_seconds() - r->logged_at, speed = (double)(r->loss_steps * per_step) / seconds;
  double left = (double)((r->settings.steps - r->newest.step) * per_step) / speed;
  ConsoleProgress numbers = {.step = r->newest.step,
                             .steps = r->settings.steps,
                             .loss = r->loss_sum / (double)r->loss_steps,
                             .val_loss = r->last_val_loss,
                             .lr = (double)r->newest.lr,
                             .tokens_per_s = speed,
                             .peak = model_step_flops(&r->config, per_step) / (double)per_step * speed / r->peak_flops,
                             .seconds_left = left};
  console_progress(&r->console, &numbers, logged);
}

static void restart_log(Run *r) {
  r->loss_sum = 0;
  r->loss_steps = 0;
  r->logged_at = clock_seconds();
}

static bool diverged(const Run *r, const StepState *report, Error *error) {
  char saved[64] = "no state was saved yet";
  if (r->saved_step >= 0) snprintf(saved, sizeof saved, "last/ holds step %" PRId64, r->saved_step);
  return fail(error, EXIT_NONFINITE,
              "stopped at step %" PRId64
              ": the loss (%g) or the gradient norm (%g) is not finite; the update was not made. "
              "In %s %s, and model.safetensors is from step %" PRId64 ". Try --lr %.1g",
              report->step + 1, (double)report->loss, (double)report->grad_norm, r->dir, saved, r->best_step,
              (double)r->settings.lr / 3);
}

/* Takes the reports that have arrived: sums the losses, writes metrics. */
static bool take_reports(Run *r, bool wait, Error *error) {
  StepState reports[64];
  int count;
  while ((count = model_reports(r->model, reports, 64, wait, error)) > 0)
    for (int i = 0; i < count; i++) {
      if (reports[i].halted) return diverged(r, &reports[i], error);
      r->newest = reports[i];
      r->loss_sum += (double)reports[i].loss;
      r->loss_steps++;
      bool logged = reports[i].step % r->settings.log_every == 0 || reports[i].step == r->settings.steps;
      if (logged && !log_step(r, error)) return false;
      show_progress(r, logged);
      if (logged) restart_log(r);
    }
  return count == 0;
}

static bool every(int64_t interval, int64_t step) { return interval > 0 && step % interval == 0; }

static bool save_due(const Run *r) {
  const Interval *interval = &r->settings.save_every;
  return every(interval->steps, r->step) ||
         (interval->seconds > 0 && clock_seconds() - r->saved_at >= interval->seconds);
}

static bool evaluation_due(const Run *r) {
  return r->evaluated_step < r->step && (r->step == r->settings.steps || every(r->settings.eval_every, r->step));
}

/* Saving, evaluating and sampling do not count as training time. Saving comes first: what follows may be killed, and
 * then the resumed run makes that evaluation. */
static bool pause_training(Run *r, Error *error) {
  bool last = r->step == r->settings.steps, sampled = !last && every(r->settings.sample_every, r->step);
  bool saved = save_due(r) || last || stop_signal;
  if (!saved && !evaluation_due(r) && !sampled) return true;
  if (!take_reports(r, true, error)) return false;
  double start = clock_seconds();
  if (saved && !run_save_state(r, error)) return false;
  if (!stop_signal && evaluation_due(r) && !run_evaluate(r, error)) return false;
  if (!stop_signal && sampled && !run_sample(r, error)) return false;
  r->logged_at += clock_seconds() - start;
  return true;
}

static bool out_of_patience(Run *r) {
  if (!r->settings.patience || r->bad_evals < r->settings.patience) return false;
  console_note(&r->console,
               "no better validation loss for %" PRId64 " evaluations: stopping; the best was step %" PRId64,
               r->bad_evals, r->best_step);
  return true;
}

static bool train_loop(Run *r, Error *error) {
  r->started = r->saved_at = clock_seconds();
  restart_log(r);
  if (!stop_signal && evaluation_due(r) && !run_evaluate(r, error)) return false; /* saved, then stopped before it */
  while (r->step < r->settings.steps && !stop_signal && !out_of_patience(r)) {
    if (!run_fill_batch(r, r->step + 1, error)) return false;
    const TokenBatch filled = run_batch(r);
    model_train_step(r->model, &filled);
    r->step++;
    if (!take_reports(r, false, error) || !pause_training(r, error)) return false;
  }
  return take_reports(r, true, error);
}

/* ---- the end ---- */

static bool interrupted(Run *r, Error *error) {
  console_end_line(&r->console);
  return fail(error, (ExitCode)(128 + stop_signal),
              "stopped after step %" PRId64 " of %" PRId64 ", saved. Go on with: ./train --resume=%s", r->step,
              r->settings.steps, r->dir);
}

/* The state is saved once more when the last evaluation is in it: only then the run is finished. */
static bool finish(Run *r, Error *error) {
  if (stop_signal) return (r->saved_step == r->step || run_save_state(r, error)) && interrupted(r, error);
  console_end_line(&r->console);
  if (!run_final_evaluation(r, error) || (!stop_signal && !run_sample(r, error))) return false;
  if (stop_signal) return interrupted(r, error);
  if (!run_save_state(r, error)) return false;
  console_line(&r->console, "trained %" PRId64 " steps in %s. More text: ./generate %s -n 500", r->step,
               text_duration(run_seconds(r)).text, r->dir);
  return true;
}

/* ---- main ---- */

static bool resolve_length(Run *r, const ChoiceInputs *given, Error *error) {
  TrainSettings *s = &r->settings;
  double steps_per_minute = 0;
  if (s->bench) {
    s->steps = s->bench + BENCH_WARM_UP;
    s->epochs = s->minutes = NAN;
  }
  if (!isnan(s->minutes)) {
    bool asked = options_origin(&r->options, &s->minutes) == ORIGIN_COMMAND_LINE;
    double known = s->resume && !asked ? run_resume_steps(r) : NAN;
    if (known >= 1) steps_per_minute = (known + 0.5) / s->minutes;
    else if (!run_measure_steps_per_minute(r, &steps_per_minute, error)) return false;
  }
  return choices_length(s, given, &r->config, steps_per_minute, &r->choices, error);
}

static bool check_device(const Run *r, const ModelConfig *model, Error *error) {
  Error why = {0};
  ContextInfo info;
  r->backend->info(r->context, &info);
  return model_check_device(model, &info, &why) ||
         fail(error, why.code, "%s; change --dim or --heads, or use --device cpu", why.text);
}

/* What is wrong with the flags whatever the text is, before gigabytes of it are read. */
static bool check_flags(const Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  ModelConfig model;
  bool shaped;
  if (s->patience && !s->val && s->val_frac <= 0)
    return fail(error, EXIT_USAGE, "--patience %d needs validation text, and there is none", s->patience);
  if (!choices_check_shape(s, &model, &shaped, error)) return false;
  return !shaped || check_device(r, &model, error);
}

/* Everything that can be refused is refused here, before anything is computed, or of an older run replaced. */
static bool prepare(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->resume && !run_resume_settings(r, error)) return false;
  if (s->data.count == 0)
    return fail(error, EXIT_USAGE, "no text given; try: ./train book.txt   (./train --help lists everything)");
  if (!run_name_directory(r, error) || !run_open_device(r, error) || !check_flags(r, error)) return false;
  r->peak_flops = r->backend->peak_flops(r->context);
  if ((settings_have_directory(s) && !run_take_directory(r, error)) || !run_open_data(r, error)) return false;
  ContextInfo info;
  r->backend->info(r->context, &info);
  ChoiceInputs given = {.vocab = tokenizer_vocab(r->tokenizer),
                        .text_bytes = r->text.bytes,
                        .device = &info,
                        .peak_flops = r->peak_flops};
  if (!run_measure_documents(r, &given.lengths, error) || !choices_model(s, &given, &r->config, &r->choices, error) ||
      !check_device(r, &r->config, error) || (s->resume && !run_check_same_model(r, error)) ||
      !run_open_windows(r, error))
    return false;
  if (s->patience && !run_has_validation(r))
    return fail(error, EXIT_USAGE, "--patience %d needs validation text, and there is none", s->patience);
  given.train_tokens = run_epoch_tokens(r);
  return resolve_length(r, &given, error);
}

static bool run(void *context, Error *error) {
  Run *r = context;
  const TrainSettings *s = &r->settings;
  if (!prepare(r, error)) return false;
  bool resumes = s->resume && settings_have_directory(s);
  if (resumes && (!run_start_model(r, error) || !run_resume_state(r, error)))
    return false; /* refused before the plan is said */
  run_print_plan(r);
  if (s->dry_run) return true;
  if (!resumes) {
    if (!run_start_model(r, error)) return false;
    run_init_weights(r);
  }
  if (s->bench) return run_bench(r, error);
  return run_warm_up(r, error) && run_begin_directory(r, error) && train_loop(r, error) && finish(r, error);
}

static void close_run(Run *r) {
  metrics_close(r->metrics);
  if (r->dir) run_abandon_directory(r);
  run_stop_model(r);
  if (r->backend) r->backend->close(r->context);
  run_close_data(r);
  if (r->lock >= 0) close(r->lock);
  free(r->dir);
  options_free(&r->options);
}

int main(int argc, char **argv) {
  Run r = {.lock = -1, .saved_step = -1, .best_loss = INFINITY, .last_val_loss = NAN};
  settings_options(&r.options, &r.settings);
  const int status = startup_run(argc, argv, INKLING_VERSION, &r.options, &r.console, run, &r);
  close_run(&r);
  return status;
}
