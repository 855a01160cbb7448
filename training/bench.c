/* Timings for --bench and --minutes. */
#include "training/run.h"

#include "cli/bench_line.h"
#include "cli/startup.h"

#include <math.h>
#include <stdlib.h>

/* Runs one step and drops its report. An asynchronous device is kept some steps behind the host (Backend.poll), as in
 * training, so that the measured rate is the device's. */
static bool time_step(Run *r, int64_t step, double *start, double *seconds, Error *error) {
  StepState reports[REPORT_RING];
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

bool run_measure_step(Run *r, double limit, double *out, Error *error) {
  enum { STEPS = 20 };
  const TrainSettings kept = r->settings;
  Quantiles seconds;
  r->settings.steps = STEPS + BENCH_WARM_UP;
  r->settings.warmup = 0;
  run_start_model(r, error);
  bool ok = run_agree(r->peers, error) && run_init_weights(r, error);
  ok = ok && time_steps(r, STEPS, limit, &seconds, error);
  if (ok) *out = seconds.median;
  run_stop_model(&r->model);
  r->settings = kept;
  return ok;
}

bool run_bench(Run *r, const char *commit, Error *error) {
  const int64_t tokens = settings_tokens_per_step(&r->settings);
  BenchLine line = {.steps = r->settings.bench,
                    .tokens_per_step = tokens,
                    .batch = r->settings.batch,
                    .model = &r->model.config,
                    .backend = r->device.backend,
                    .context = r->device.context,
                    .commit = commit};
  return time_steps(r, line.steps, INFINITY, &line.seconds, error) &&
         (!run_leads(r->peers) ||
          bench_line_print(
              &line, error,
              "\"grad_accum\": %d, \"optimizer\": \"%s\", \"flops_per_s\": %.4g, \"peak_flops_per_s\": %.4g",
              r->settings.grad_accum, settings_optimizers[r->settings.optimizer],
              run_step_flops(r) / line.seconds.median, r->device.peak_flops));
}
