/* Timing of token generation (--bench). */
#include "cli/bench_line.h"
#include "cli/startup.h"
#include "generate/program.h"
#include "base/system.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Timing {
  double *times; /* [1 + steps of the warm-up and timed steps]: before each step and after the last one */
  GenerationRequest request;
  int rows, begun;            /* texts at a time, and those that were begun */
  GenerationResult result;    /* of the last text */
  double first_token_seconds; /* of the first text */
} Timing;

static bool take_time(void *context, int64_t tokens, Error *error) {
  const Timing *t = context;
  t->times[tokens / t->rows] = clock_seconds();
  return startup_go_on("timing", error);
}

/* Text i has seed + i. */
static bool next_text(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Timing *t = context;
  (void)wait, (void)error;
  *given = t->begun < t->rows;
  if (!*given) return true;
  *out = t->request;
  out->sampling.seed += (uint64_t)t->begun++;
  return true;
}

static bool take_result(void *context, void *text, const GenerationResult *result, Error *error) {
  Timing *t = context;
  (void)text, (void)error;
  if (t->first_token_seconds == 0) t->first_token_seconds = result->first_token_seconds;
  t->result = *result;
  return true;
}

static bool time_tokens(Program *p, Timing *t, Quantiles *out, Error *error) {
  LoadedModel *m = &p->model;
  const int64_t timed = p->settings.bench, all = BENCH_WARM_UP + timed;
  t->request = request_make(p, &p->prompt.tokens);
  t->request.max_tokens = all;
  t->request.ignore_end = true;
  if (!decoder_open(&m->decoder, m->model, t->rows, error)) return false;
  const Generation generation = {.decoder = m->decoder,
                                 .rows = t->rows,
                                 .tokenizer = m->tokenizer,
                                 .context = t,
                                 .next = next_text,
                                 .done = take_result,
                                 .progress = {take_time, t}};
  if (!generation_run(&generation, error)) return false;
  if (t->result.tokens < all)
    return fail(error, EXIT_USAGE,
                "--on-full stop: the context is full after %" PRId64 " tokens, and --bench %" PRId64 " needs %" PRId64,
                t->result.tokens, timed, all);
  for (int64_t i = 0; i < all; i++) t->times[i] = t->times[i + 1] - t->times[i];
  *out = quantiles_of(t->times + BENCH_WARM_UP, (size_t)timed);
  return true;
}

/* Makes room for another token in every row. */
static bool make_room(Decoder *d, int rows, Error *error) {
  for (int row = 0; row < rows; row++)
    if (decoder_capacity_left(d, row) <= 1 && !decoder_slide(d, row, 1, error)) return false;
  return true;
}

/* Measures the median time of drawing a token for each row from existing logits. */
static bool time_sampling(LoadedModel *m, int rows, double *seconds, Error *error) {
  enum { TIMES = 64 };
  double times[TIMES];
  float *logits = malloc((size_t)rows * (size_t)m->config.vocab * sizeof *logits);
  int32_t *next = malloc((size_t)rows * sizeof *next);
  bool ok = (logits && next) || error_memory(error, "timings");
  for (int i = 0; ok && i < TIMES; i++) {
    ok = make_room(m->decoder, rows, error) && decoder_logits(m->decoder, logits, error) &&
         startup_go_on("timing", error);
    const double start = clock_seconds();
    ok = ok && decoder_next(m->decoder, next, error);
    times[i] = clock_seconds() - start;
  }
  free(logits);
  free(next);
  if (ok) *seconds = quantiles_of(times, TIMES).median;
  return ok;
}

bool program_bench(Program *p, Error *error) {
  const double loaded = clock_seconds();
  const int rows = p->settings.samples;
  BenchLine line = {.steps = p->settings.bench,
                    .tokens_per_step = rows,
                    .batch = rows,
                    .model = &p->model.config,
                    .backend = p->model.backend,
                    .context = p->model.context,
                    .commit = p->version};
  Timing timing = {.times = malloc((size_t)(BENCH_WARM_UP + line.steps + 1) * sizeof(double)), .rows = rows};
  double sampling = 0;
  bool ok =
      (timing.times || error_memory(error, "timings")) && time_tokens(p, &timing, &line.seconds, error) &&
      time_sampling(&p->model, rows, &sampling, error) &&
      bench_line_print(&line, error,
                       "\"prompt_tokens\": %zu, \"first_token_ms\": %.4f, \"load_ms\": %.4f, \"sample_ms\": %.4f, "
                       "\"sample_share\": %.4f",
                       p->prompt.tokens.decoder.count, 1e3 * timing.first_token_seconds, 1e3 * (loaded - p->launched),
                       1e3 * sampling, sampling / line.seconds.median);
  free(timing.times);
  return ok;
}
