/* Timings: for --bench, and of a few steps for --minutes. */
#include "training/run.h"

#include "cli/startup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

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

/* Seconds of `steps` training steps after a warm-up, ascending; the caller frees them. NULL on errors. */
static double *time_steps(Run *r, int64_t steps, Error *error) {
  double *seconds = malloc((size_t)(BENCH_WARM_UP + steps) * sizeof *seconds), start = clock_seconds();
  bool ok = seconds || error_memory(error, "timings");
  for (int64_t i = 0; ok && i < BENCH_WARM_UP + steps; i++) ok = time_step(r, i + 1, &start, &seconds[i], error);
  if (!ok) {
    free(seconds);
    return NULL;
  }
  memmove(seconds, seconds + BENCH_WARM_UP, (size_t)steps * sizeof *seconds);
  qsort(seconds, (size_t)steps, sizeof *seconds, compare_doubles);
  return seconds;
}

/* For --minutes: what this machine does, leaving 7 % for evaluation and saving. */
bool run_measure_steps_per_minute(Run *r, double *out, Error *error) {
  enum { STEPS = 20 };
  const TrainSettings kept = r->settings;
  r->settings.steps = STEPS + BENCH_WARM_UP;
  r->settings.warmup = 0;
  bool ok = run_start_model(r, error);
  if (ok) run_init_weights(r);
  double *seconds = ok ? time_steps(r, STEPS, error) : NULL;
  if (seconds) *out = 0.93 * 60.0 / seconds[STEPS / 2];
  ok = seconds;
  free(seconds);
  run_stop_model(r);
  r->settings = kept;
  return ok;
}

bool run_bench(Run *r, Error *error) {
  const int64_t n = r->settings.bench, tokens = settings_tokens_per_step(&r->settings);
  double *seconds = time_steps(r, n, error);
  if (!seconds) return false;
  const ContextInfo info = run_device_now(r);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const double median = seconds[n / 2];
  printf("{\"tokens_per_s\": %.1f, \"step_ms\": %.4f, \"step_ms_p10\": %.4f, \"step_ms_p90\": %.4f, "
         "\"peak_memory_bytes\": %zu, "
         "\"device\": \"%s\", \"dtype\": \"%s\", \"params\": %" PRId64
         ", \"threads\": %d, \"batch\": %d, \"grad_accum\": %d, \"ctx\": %d, "
         "\"steps\": %" PRId64 ", \"flops_per_s\": %.4g, \"peak_flops_per_s\": %.4g}\n",
         (double)tokens / median, 1e3 * median, 1e3 * seconds[n / 10], 1e3 * seconds[n - 1 - n / 10],
         info.accelerator ? info.peak_bytes : (size_t)usage.ru_maxrss * 1024, info.device, dtype_name(info.dtype),
         model_parameters(&r->config), info.threads, r->settings.batch, r->settings.grad_accum, r->config.ctx, n,
         model_step_flops(&r->config, tokens) / median, r->peak_flops);
  free(seconds);
  if (fflush(stdout) != 0) return fail(error, EXIT_OUTPUT, "cannot write to stdout: %s", strerror(errno));
  return true;
}
