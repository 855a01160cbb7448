/* Timing of token generation (--bench). */
#include "cli/bench_line.h"
#include "cli/startup.h"
#include "generating/program.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdlib.h>

/* Takes the time before each token and after the last one. */
static bool take_time(void *context, int64_t tokens, Error *error) {
  double *times = context;
  times[tokens] = clock_seconds();
  return startup_go_on("timing", error);
}

/* `times`: [1 + tokens of the warm-up and timed tokens]. */
static bool time_tokens(Program *p, double *times, GenerationResult *result, Quantiles *out, Error *error) {
  LoadedModel *m = &p->model;
  const int64_t timed = p->settings.bench, all = BENCH_WARM_UP + timed;
  GenerationRequest request = request_make(p, &p->prompt.tokens);
  request.max_tokens = all;
  request.ignore_end = true;
  if (!decoder_open(&m->decoder, m->model, 1, error)) return false;
  const Generation generation = {.decoder = m->decoder, .tokenizer = m->tokenizer, .progress = {take_time, times}};
  if (!generation_run_one(&generation, &request, result, error)) return false;
  if (result->tokens < all)
    return fail(error, EXIT_USAGE,
                "--on-full stop: the context is full after %" PRId64 " tokens, and --bench %" PRId64 " needs %" PRId64,
                result->tokens, timed, all);
  for (int64_t i = 0; i < all; i++) times[i] = times[i + 1] - times[i];
  *out = quantiles_of(times + BENCH_WARM_UP, (size_t)timed);
  return true;
}

/* Measures the median time of drawing a token from existing logits. */
static bool time_sampling(LoadedModel *m, double *seconds, Error *error) {
  enum { TIMES = 64 };
  double times[TIMES];
  float *logits = malloc((size_t)m->config.vocab * sizeof *logits);
  bool ok = logits || error_memory(error, "timings");
  for (int i = 0; ok && i < TIMES; i++) {
    int32_t next;
    ok = (decoder_capacity_left(m->decoder, 0) > 1 || decoder_slide(m->decoder, 0, 1, error)) &&
         decoder_logits(m->decoder, logits, error) && startup_go_on("timing", error);
    const double start = clock_seconds();
    ok = ok && decoder_next(m->decoder, &next, error);
    times[i] = clock_seconds() - start;
  }
  free(logits);
  if (ok) *seconds = quantiles_of(times, TIMES).median;
  return ok;
}

bool program_bench(Program *p, Error *error) {
  const double loaded = clock_seconds();
  BenchLine line = {.steps = p->settings.bench,
                    .tokens_per_step = 1,
                    .batch = 1,
                    .model = &p->model.config,
                    .backend = p->model.backend,
                    .context = p->model.context,
                    .commit = p->version};
  GenerationResult result;
  double sampling = 0;
  double *times = malloc((size_t)(BENCH_WARM_UP + line.steps + 1) * sizeof *times);
  bool ok =
      (times || error_memory(error, "timings")) && time_tokens(p, times, &result, &line.seconds, error) &&
      time_sampling(&p->model, &sampling, error) &&
      bench_line_print(&line, error,
                       "\"prompt_tokens\": %zu, \"first_token_ms\": %.4f, \"load_ms\": %.4f, \"sample_ms\": %.4f, "
                       "\"sample_share\": %.4f",
                       p->prompt.tokens.decoder.count, 1e3 * result.first_token_seconds, 1e3 * (loaded - p->launched),
                       1e3 * sampling, sampling / line.seconds.median);
  free(times);
  return ok;
}
