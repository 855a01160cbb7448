/* Timings of steps, and the length of a run with --minutes: the number of steps that fit, measured before training and
 * adjusted during it, because the speed of a machine may change. config.txt records the lengths, so that the same run
 * can be repeated. */
#include "train/run.h"
#include "train/auto_settings.h"

#include "cli/bench_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- --earlier-steps ---- */

static bool read_plans(const TrainSettings *s, SchedulePlans *plans) {
  int64_t before = 0;
  int size;
  *plans = (SchedulePlans){0};
  for (const char *at = s->earlier_steps; at && *at; plans->count++) {
    if (plans->count == SCHEDULE_PLANS) return false;
    int64_t *until = &plans->items[plans->count].until, *steps = &plans->items[plans->count].steps;
    if (sscanf(at, "%9" SCNd64 ":%9" SCNd64 "%n", until, steps, &size) != 2 || (at[size] && at[size] != ','))
      return false;
    if (*until <= before || *until >= *steps || *steps > SETTINGS_MAX_STEPS) return false;
    before = *until;
    at += size + (at[size] == ',');
  }
  return !plans->count || before < s->steps;
}

bool run_read_earlier_steps(TrainSettings *s, Error *error) {
  if (read_plans(s, &s->plans)) return true;
  return fail(
      error, EXIT_USAGE,
      "--earlier-steps %.100s: need UNTIL:STEPS,... with rising UNTIL, each less than the length before and after it, "
      "and at most %d of them",
      s->earlier_steps, SCHEDULE_PLANS);
}

static void write_plans(TimeBudget *budget, TrainSettings *s) {
  const SchedulePlans *plans = &s->plans;
  budget->text[0] = '\0';
  for (int i = 0; i < plans->count; i++)
    text_append(budget->text, sizeof budget->text, "%s%" PRId64 ":%" PRId64, i ? "," : "", plans->items[i].until,
                plans->items[i].steps);
  s->earlier_steps = budget->text;
}

/* ---- timing steps, for --bench and --minutes ---- */

/* Runs one step and drops its report. An asynchronous device is kept some steps behind the host (Backend.poll), as in
 * training, so that the measured rate is the device's. */
static bool time_step(Run *r, int64_t step, double *start, double *seconds, Error *error) {
  StepReport reports[REPORT_RING];
  TokenBatch batch;
  run_fill_batch(r, step, &batch, error);
  if (!run_agree_on_stop(r, error)) return false;
  if (r->session.stopping) return fail(error, (ExitCode)(EXIT_SIGNALS + r->session.stopping), "stopped while timing");
  model_train_step(r->model.on_device, &batch);
  if (model_reports(r->model.on_device, reports, REPORT_RING, false, error) < 0) return false;
  const double end = clock_seconds();
  *seconds = end - *start;
  *start = end;
  return true;
}

/* Measures the seconds of each of `steps` training steps after a warm-up. After `limit` seconds it stops with the steps
 * timed so far; if there is only the warm-up step, it returns that one. */
static bool time_steps(Run *r, int64_t steps, double limit, Quantiles *out, Error *error) {
  double *seconds = malloc((size_t)(BENCH_WARM_UP + steps) * sizeof *seconds), start = clock_seconds();
  const double stop = start + limit;
  int64_t done = 0;
  bool ok = seconds || error_memory(error, "timings");
  for (bool more = ok; more; done++) {
    ok = time_step(r, done + 1, &start, &seconds[done], error);
    more = ok && done + 1 < BENCH_WARM_UP + steps && run_broadcast_flag(r->peers, start < stop);
  }
  const int64_t first = done > BENCH_WARM_UP ? BENCH_WARM_UP : done - 1;
  if (ok) *out = quantiles_of(seconds + first, (size_t)(done - first));
  free(seconds);
  return ok;
}

/* Measures the seconds of a training step on this machine. Takes at most `limit` seconds, or one step. */
static bool measure_step(Run *r, double limit, double *out, Error *error) {
  enum { STEPS = 20 };
  const TrainSettings kept = r->settings;
  Quantiles seconds;
  r->settings.steps = STEPS + BENCH_WARM_UP;
  r->settings.warmup = 0;
  const bool ok = run_together(r, run_start_model, error) && run_init_weights(r, error) &&
                  time_steps(r, STEPS, limit, &seconds, error);
  if (ok) *out = seconds.median;
  run_stop_model(&r->model);
  r->settings = kept;
  return ok;
}

bool run_bench(Run *r, const char *version, Error *error) {
  const int64_t tokens = settings_tokens_per_step(&r->settings);
  BenchLine line = {.steps = r->settings.bench,
                    .tokens_per_step = tokens,
                    .batch = r->settings.batch,
                    .model = &r->model.config,
                    .backend = r->device.backend,
                    .context = r->device.context,
                    .version = version};
  return time_steps(r, line.steps, INFINITY, &line.seconds, error) &&
         (!run_leads(r->peers) ||
          bench_line_print(
              &line, error,
              "\"grad_accum\": %d, \"optimizer\": \"%s\", \"flops_per_s\": %.4g, \"peak_flops_per_s\": %.4g",
              r->settings.grad_accum, settings_optimizers[r->settings.optimizer],
              run_step_flops(r) / line.seconds.median, r->device.peak_flops));
}

/* ---- before the run ---- */

/* The part of the time that evaluations and checkpoints are assumed to take before the first of them is timed. */
static const double PAUSES = 0.07;
static const double CHECK_EVERY = 0.02; /* the part of --minutes between two checks of the length */

/* Returns the estimated seconds of a step, without pauses. */
static double step_seconds(const TimeBudget *p) { return p->recent_seconds / p->recent_steps; }

/* Returns the steps for which so many seconds suffice, with the training of the teacher. */
static double steps_within(const Run *r, double seconds) {
  const double flops = seconds / step_seconds(&r->budget) * run_step_flops(r);
  return auto_steps_within(flops, &r->settings, &r->model.config, run_teacher(r), r->device.info.accelerator);
}

/* On a machine that is slower than usual, epochs count more than a teacher that was not asked for. The teacher trains
 * without a clock: RESERVE of the time is for a machine that becomes slower meanwhile. */
static void drop_teacher(Run *r, double seconds) {
  TrainSettings *s = &r->settings;
  TimeBudget *p = &r->budget;
  const double RESERVE = 0.1, step = run_step_flops(r);
  const bool chosen = !s->resume && s->teacher_steps > 0 && !options_typed(&r->options, "teacher-steps");
  if (!chosen || steps_within(r, (1 - RESERVE) * seconds) >= p->most / AUTO_TAUGHT) return;
  s->teacher_steps = 0;
  s->teacher_weight = NAN;
  p->recent_seconds *= run_step_flops(r) / step;
  p->most = auto_most_steps(s, run_epoch_tokens(r));
  if (r->outlooks.count)
    outlooks_drop_teacher(&r->outlooks, (double)run_epoch_bytes(&r->text),
                          p->most * (double)settings_tokens_per_step(s) / (double)run_epoch_tokens(r));
  console_note(&r->console, "without a teacher, because this machine is slower now than such machines usually are");
}

/* Sets the number of steps that fit into the rest of the minutes after the text was read, but at least into half of
 * them, so that the model learns something. A resumed run gets the same number of minutes again. */
bool run_fit_minutes(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  TimeBudget *p = &r->budget;
  const double minutes = s->minutes;
  const bool asked = options_typed(&r->options, "minutes");
  const double done = run_broadcast_number(r->peers, s->resume ? checkpoint_find_number(r->files.dir, "step") : 0);
  s->minutes = NAN;
  s->minutes_text = NULL; /* config.txt keeps the number of steps instead */
  if (s->resume && !asked) {
    const double known = run_broadcast_number(r->peers, checkpoint_find_number(r->files.dir, "steps"));
    if (known >= 1) {
      s->steps = (int64_t)known;
      return true;
    }
  }
  const double end = fmax(p->launched + 60 * minutes, clock_seconds() + 30 * minutes);
  double measured = 0;
  if (!measure_step(r, 3 * minutes, &measured, error)) return false;
  p->recent_seconds = CHECK_EVERY * 60 * minutes;
  p->recent_steps = p->recent_seconds / run_broadcast_number(r->peers, measured);
  const double left = (end - clock_seconds()) * (1 - PAUSES);
  p->most = SETTINGS_MAX_STEPS;
  if (!s->resume) p->most = fmin(p->most, auto_most_steps(s, run_epoch_tokens(r)));
  drop_teacher(r, left);
  const PathText teacher = path_in(r->files.dir, CHECKPOINT_TEACHER);
  const bool taught = s->resume && checkpoint_find_number(teacher.text, "finished") > 0;
  const double more = taught || done > 0 ? left / step_seconds(p) : steps_within(r, left);
  const double steps = (done > 0 ? done : 0) + fmax(1, more);
  if (s->teacher_steps > 0 && !s->resume && steps_within(r, left) < 1)
    return fail(error, EXIT_USAGE,
                "--teacher-steps %" PRId64 " takes longer than --minutes allows; give fewer, or more minutes",
                s->teacher_steps);
  if (steps > (double)SETTINGS_MAX_STEPS)
    return fail(error, EXIT_USAGE, "that is %.0f steps, more than %d; lower --minutes", steps, SETTINGS_MAX_STEPS);
  if (steps > p->most)
    console_note(
        &r->console,
        "the run will end after %s, earlier than --minutes allows, because more would memorize the text; for a "
        "longer run give --epochs N instead",
        text_plural(p->most, "step").text);
  s->steps = (int64_t)fmin(steps, p->most);
  /* A warm-up that was chosen for a longer run is chosen again. */
  if (s->resume && !options_typed(&r->options, "warmup") && s->warmup > s->steps) s->warmup = -1;
  p->minutes = minutes;
  p->deadline = end;
  return true;
}

/* ---- while it trains ---- */

void run_start_budget(Run *r) {
  TimeBudget *p = &r->budget;
  p->checked_at = clock_seconds();
  p->checked_step = p->first_step = r->progress.step;
}

/* Returns the seconds after the last step: a checkpoint, evaluations of the newest and, if it is another, the best
 * model on the whole validation text, unless that was done before, a sample, and a second checkpoint. */
static double seconds_at_end(const Run *r) {
  const TimeBudget *p = &r->budget;
  const double windows = (double)windows_count(&r->text.val.windows, r->model.config.ctx);
  /* a forward pass costs a third of a training step */
  const double guess = step_seconds(p) / 3 * r->model.config.ctx / (double)settings_tokens_per_step(&r->settings);
  const bool newest = !run_evaluates_all(r) || !r->settings.eval_every; /* it was not evaluated before */
  const int evaluations = newest ? 1 + (r->progress.bad_evals > 0) : 0;
  return 2 * p->saving + p->sampling + evaluations * windows * (p->evaluating > 0 ? p->evaluating : guess) +
         p->answering * (double)r->text.val.pairs.pairs + p->choosing * (double)r->text.choices.count;
}

static bool change_length(Run *r, int64_t steps, Error *error) {
  TrainSettings *s = &r->settings;
  SchedulePlans *plans = &s->plans;
  plans->items[plans->count].until = r->progress.step;
  plans->items[plans->count++].steps = s->steps;
  s->steps = steps;
  const TrainConfig config = settings_train_config(s);
  write_plans(&r->budget, s);
  return (!run_leads(r->peers) || run_write_settings(&r->options, &r->settings, r->files.dir, error)) &&
         model_set_schedule(r->model.on_device, &config.schedule, error);
}

/* Sets the length again. The speed is a sum of seconds divided by a sum of steps, and each check halves the weight of
 * the steps before it: a machine that becomes slower is noticed, but a single slow step counts as one step. At least
 * one more step is planned, so that the last step is known when it is made. */
bool run_keep_minutes(Run *r, Error *error) {
  TimeBudget *p = &r->budget;
  if (isnan(p->minutes)) return true;
  const double now = clock_seconds(), budget = 60 * p->minutes;
  const bool early = now - p->checked_at < CHECK_EVERY * budget || r->progress.step <= p->checked_step ||
                     r->progress.step >= r->settings.steps || r->settings.plans.count == SCHEDULE_PLANS;
  if (run_broadcast_flag(r->peers, early)) return true;
  p->recent_seconds = 0.5 * (p->recent_seconds + now - p->checked_at - p->paused);
  p->recent_steps = 0.5 * (p->recent_steps + (double)(r->progress.step - p->checked_step));
  p->all_paused += p->paused;
  p->paused = 0;
  p->checked_at = now;
  p->checked_step = r->progress.step;
  const double pause = p->all_paused / (double)(r->progress.step - p->first_step);
  const double left = p->deadline - now - seconds_at_end(r);
  const double fit = fmin(fmax(1, floor(left / (step_seconds(p) + pause))), p->most - (double)r->progress.step);
  const int64_t steps = (int64_t)run_broadcast_number(r->peers, (double)(r->progress.step + (int64_t)fit));
  const double change = fabs((double)(steps - r->settings.steps)) * (step_seconds(p) + pause);
  const bool same = change < 0.01 * budget || steps == r->settings.steps;
  if (run_broadcast_flag(r->peers, same)) return true;
  if (!run_take_step_reports(r, true, error)) return false; /* waiting for a GPU's steps is no pause */
  const double start = clock_seconds();
  const bool ok = change_length(r, steps, error);
  p->paused = clock_seconds() - start; /* writing config.txt can take longer than many steps */
  r->session.paused = true;
  return ok;
}
