/* Handles the reports of steps, which arrive some steps later: losses, metrics.jsonl, the progress line. */
#include "files/formats/model_files.h"
#include "report/page.h"
#include "train/auto_settings.h"
#include "train/run.h"
#include "base/path.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

bool run_log(Run *r, const MetricsLine *line, Error *error) {
  if (!run_leads(r->peers)) return true;
  return metrics_append(&r->files.metrics, line, error) && history_add(&r->files.history, line, error);
}

bool run_log_diagnosis(Run *r, const MetricsLine *diagnosis, Error *error) {
  (diagnosis_is_warning(diagnosis->diagnosis) ? console_warning : console_note)(&r->console, "%s", diagnosis->text);
  return run_log(r, diagnosis, error);
}

/* Collects the newest evaluation losses, oldest first; returns their number. */
static int recent_losses(const History *h, double out[CONSOLE_TREND]) {
  const size_t count = h->evaluation_count < CONSOLE_TREND ? h->evaluation_count : CONSOLE_TREND;
  for (size_t i = 0; i < count; i++) out[i] = h->evaluations[h->evaluation_count - count + i].val_loss;
  return (int)count;
}

/* Shows the newest step, and logs it to metrics.jsonl if it is time for a line. */
static bool show_step(Run *r, bool logged, Error *error) {
  const StepState *newest = &r->session.newest.state;
  const int64_t per_step = settings_tokens_per_step(&r->settings);
  const double loss = r->progress.loss_sum / (double)r->progress.loss_steps;
  const double steps_per_s = 1e9 * (double)r->session.timed_steps / fmax((double)r->session.timed_ns, 1);
  /* The peak of a CPU depends on everything else that runs on the machine. */
  const double peak_flops = r->device.info.accelerator ? r->device.peak_flops : (double)NAN;
  double trend[CONSOLE_TREND];
  const History *h = &r->files.history;
  const MetricsLine line = {.kind = METRICS_STEPS,
                            .step = newest->step,
                            .tokens = newest->step * per_step,
                            .seconds = run_seconds(r),
                            .loss = loss,
                            .lr = (double)newest->lr,
                            .grad_norm = (double)newest->grad_norm,
                            .tokens_per_s = steps_per_s * (double)per_step};
  const ConsoleProgress numbers = {.trend = trend,
                                   .trend_count = recent_losses(h, trend),
                                   .step = newest->step,
                                   .steps = r->settings.steps,
                                   .loss = loss,
                                   .val_loss = r->progress.last_val_loss,
                                   .accuracy = h->evaluation_count ? h->evaluations[h->evaluation_count - 1].accuracy
                                                                   : (double)NAN,
                                   .lr = (double)newest->lr,
                                   .tokens_per_s = line.tokens_per_s,
                                   .peak = steps_per_s * run_step_flops(r) / peak_flops,
                                   .seconds_left = (double)(r->settings.steps - newest->step) / steps_per_s};
  if (logged && !run_log(r, &line, error)) return false;
  console_progress(&r->console, &numbers, logged);
  return true;
}

bool run_fail_nonfinite(const Run *r, const char *what, Error *error) {
  const DiagnosisFacts facts = run_diagnosis_facts(r);
  char saved[64] = "no state was saved yet";
  if (r->session.saved_step >= 0)
    snprintf(saved, sizeof saved, CHECKPOINT_LAST "/ holds step %" PRId64, r->session.saved_step);
  return fail(error, EXIT_NONFINITE, "%s. In %s %s, and " MODEL_FILE_WEIGHTS " is from step %" PRId64 ". Try %s", what,
              r->files.dir, saved, r->progress.best_step, diagnosis_lower_rates(&facts).text);
}

static bool diverged(const Run *r, const StepState *report, Error *error) {
  char what[200];
  snprintf(what, sizeof what,
           "stopped at step %" PRId64
           ": the loss (%g) or the gradient norm (%g) is not finite; the update was not made",
           report->step + 1, (double)report->loss, (double)report->grad_norm);
  return run_fail_nonfinite(r, what, error);
}

/* Reports may arrive several at a time, so only the device knows how long each step took. */
static void time_report(RunSession *session, const StepReport *report) {
  session->timed_ns += report->ended - (session->paused ? report->began : session->newest.ended);
  session->timed_steps++;
  session->paused = false;
  session->newest = *report;
}

static bool take_report(Run *r, const StepReport *report, Error *error) {
  const StepState *state = &report->state;
  if (state->halted) {
    r->progress.step = state->step; /* later steps were started already, but changed nothing */
    return diverged(r, state, error);
  }
  time_report(&r->session, report);
  r->progress.loss_sum += (double)state->loss;
  r->progress.loss_steps++;
  const bool logged = state->step % r->settings.log_every == 0 || state->step == r->settings.steps;
  if (!show_step(r, logged, error)) return false;
  if (!logged) return true;
  r->progress.loss_sum = 0;
  r->progress.loss_steps = 0;
  r->session.timed_steps = r->session.timed_ns = 0;
  return true;
}

/* ---- the end ---- */

/* Returns how much lower the best loss of the run is than that of the newest weights in its middle, as a fraction. NaN:
 * the first half had no evaluation. */
static double fall_in_second_half(const Run *r) {
  const History *h = &r->files.history;
  const MetricsLine *best = history_best(h);
  double middle = (double)NAN;
  for (size_t i = 0; i < h->evaluation_count && 2 * h->evaluations[i].step <= r->progress.step; i++)
    if (!h->evaluations[i].mean) middle = h->evaluations[i].bits_per_byte;
  return best ? 1 - best->bits_per_byte / middle : (double)NAN;
}

/* Where the loss falls by less in the second half of a run, the entropy of the text may be nearly reached, as with DNA,
 * and nothing is promised by the law of the loss. */
static const double LITTLE_FALL = 0.04;

/* Returns the bits per byte that the run should have reached with its whole budget. NaN: unknown, or more time would
 * change little. */
static double planned_bits(const Run *r) {
  const MetricsLine *kept = history_kept(&r->files.history);
  if (!kept || !(fall_in_second_half(r) >= LITTLE_FALL)) return (double)NAN;
  const double tokens = (double)r->progress.step * (double)settings_tokens_per_step(&r->settings);
  const double epochs = tokens / (double)run_in_epoch(&r->text, token_range_size(&r->text.train.range));
  return outlooks_planned_bits(&r->outlooks, (double)run_epoch_bytes(&r->text), epochs, kept->bits_per_byte);
}

void run_tell_outlook(Run *r) {
  char text[256];
  const double ROUNDED = 0.9; /* steps are chosen with two digits */
  const double most = auto_most_steps(&r->settings, run_epoch_tokens(r));
  const bool whole = (double)r->progress.step >= ROUNDED * most;
  outlooks_say(&r->outlooks, planned_bits(r), whole, text, sizeof text);
  if (*text) console_note(&r->console, "%s", text);
}

bool run_write_result(Run *r, RunEnd end, const char *version, Error *error) {
  if (!run_leads(r->peers)) return true;
  if (!run_write_kept(r, error)) return false;
  const int64_t tokens = r->progress.step * settings_tokens_per_step(&r->settings);
  phases_enter(&r->phases, PHASE_FILES); /* until the end of the program */
  const RunResult result = {.end = end,
                            .dir = r->files.dir,
                            .version = version,
                            .device = r->device.info.device,
                            .dtype = dtype_name(r->device.info.dtype),
                            .parameters = model_parameters(&r->model.config),
                            .without_embeddings = model_parameters_without_embeddings(&r->model.config),
                            .flops_per_step = run_step_flops(r),
                            .step = r->progress.step,
                            .tokens = tokens,
                            .epochs = (double)tokens / (double)run_epoch_tokens(r),
                            .seconds = r->progress.seconds + r->phases.entered - r->session.started,
                            .phases = &r->phases,
                            .budgets = outlooks_json(&r->outlooks, planned_bits(r))};
  return model_counts_ok(error) && result_write(&result, &r->files.history, error) &&
         run_write_report(&r->files, error);
}

bool run_write_report(const RunFiles *files, Error *error) {
  return page_write(&(FoundRun){files->dir, files->history}, 1, NULL, path_in(files->dir, CHECKPOINT_REPORT).text,
                    error);
}

bool run_take_step_reports(Run *r, bool wait, Error *error) {
  StepReport reports[REPORT_RING];
  int count;
  while ((count = model_reports(r->model.on_device, reports, REPORT_RING, wait, error)) > 0)
    for (int i = 0; i < count; i++)
      if (!take_report(r, &reports[i], error)) return false;
  return count == 0;
}
