/* Timings: for --bench, and of a few steps for --minutes. */
#include "training/run.h"

#include "cli/bench_line.h"
#include "cli/startup.h"

#include <stdlib.h>

/* One step, whose report is dropped. A device that works beside the host is kept some steps behind it (Backend.poll),
 * as in training: then the steps go by at the device's pace. */
static bool time_step(Run *r, int64_t step, double *start, double *seconds, Error *error) {
  StepState reports[REPORT_RING];
  TokenBatch batch;
  if (!run_fill_batch(r, step, &batch, error)) return false;
  model_train_step(r->model, &batch);
  if (model_reports(r->model, reports, REPORT_RING, false, error) < 0) return false;
  const double end = clock_seconds();
  *seconds = end - *start;
  *start = end;
  return startup_go_on("timing", error);
}

/* Seconds of each of `steps` training steps after a warm-up. */
static bool time_steps(Run *r, int64_t steps, Quantiles *out, Error *error) {
  double *seconds = malloc((size_t)(BENCH_WARM_UP + steps) * sizeof *seconds), start = clock_seconds();
  bool ok = seconds || error_memory(error, "timings");
  for (int64_t i = 0; ok && i < BENCH_WARM_UP + steps; i++) ok = time_step(r, i + 1, &start, &seconds[i], error);
  if (ok) *out = quantiles_of(seconds + BENCH_WARM_UP, (size_t)steps);
  free(seconds);
  return ok;
}

/* For --minutes: what this machine does, leaving 7 % for evaluation and saving. */
bool run_measure_steps_per_minute(Run *r, double *out, Error *error) {
  enum { STEPS = 20 };
  const TrainSettings kept = r->settings;
  Quantiles seconds;
  r->settings.steps = STEPS + BENCH_WARM_UP;
  r->settings.warmup = 0;
  bool ok = run_start_model(r, error);
  if (ok) run_init_weights(r);
  ok = ok && time_steps(r, STEPS, &seconds, error);
  if (ok) *out = 0.93 * 60.0 / seconds.median;
  run_stop_model(r);
  r->settings = kept;
  return ok;
}

bool run_bench(Run *r, const char *commit, Error *error) {
  const int64_t tokens = settings_tokens_per_step(&r->settings);
  BenchLine line = {.steps = r->settings.bench,
                    .tokens_per_step = tokens,
                    .batch = r->settings.batch,
                    .model = &r->config,
                    .backend = r->backend,
                    .context = r->context,
                    .commit = commit};
  return time_steps(r, line.steps, &line.seconds, error) &&
         bench_line_print(&line, error, "\"grad_accum\": %d, \"flops_per_s\": %.4g, \"peak_flops_per_s\": %.4g",
                          r->settings.grad_accum, model_step_flops(&r->config, tokens) / line.seconds.median,
                          r->peak_flops);
}
