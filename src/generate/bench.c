/* Timing of token generation (--bench). */
#include "cli/bench_line.h"
#include "cli/startup.h"
#include "generate/program.h"
#include "base/system.h"

#include <inttypes.h>
#include <stdlib.h>

/* Steps until each of the texts [rows] has `all` tokens. times [1 + all]: before each step, and after the last one. */
static bool make_texts(Generation *generation, Text *texts, int rows, double *times, int64_t all, Error *error) {
  for (int i = 0; i < rows; i++)
    if (!generation_add(generation, &texts[i], error)) return false;
  for (int64_t step = 0; step <= all && !texts[0].ended; step++) {
    times[step] = clock_seconds();
    if (!startup_go_on("timing", error) || !generation_step(generation, error)) return false;
  }
  return true;
}

/* Text i has seed + i. *first: seconds to the first token of the first text. */
static bool time_tokens(Program *p, int rows, double *times, Quantiles *out, double *first, Error *error) {
  LoadedModel *m = &p->model;
  Generation *generation = NULL;
  const int64_t timed = p->settings.bench, all = BENCH_WARM_UP + timed;
  Text *texts = calloc((size_t)rows, sizeof *texts);
  bool ok = texts || error_memory(error, "timings");
  for (int i = 0; ok && i < rows; i++) {
    texts[i] = i ? texts[i - 1] : prompt_text(p, &p->prompt.tokens);
    texts[i].sampling.seed += i > 0;
    texts[i].max_tokens = all;
    texts[i].ignore_end = true;
  }
  ok = ok && decoder_open(&m->decoder, m->model, rows, error) &&
       generation_open(&generation, m->decoder, rows, m->tokenizer, error) &&
       make_texts(generation, texts, rows, times, all, error);
  generation_close(generation);
  if (ok && texts[0].count < all)
    ok = fail(error, EXIT_USAGE,
              "--on-full stop: the context is full after %" PRId64 " tokens, and --bench %" PRId64 " needs %" PRId64,
              texts[0].count, timed, all);
  if (ok) *first = texts[0].first_token_seconds;
  for (int i = 0; texts && i < rows; i++) generation_free_text(&texts[i]);
  free(texts);
  if (!ok) return false;
  for (int64_t i = 0; i < all; i++) times[i] = times[i + 1] - times[i];
  *out = quantiles_of(times + BENCH_WARM_UP, (size_t)timed);
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
                    .version = p->version};
  double *times = calloc((size_t)(BENCH_WARM_UP + line.steps + 1), sizeof *times), first = 0, sampling = 0;
  bool ok =
      (times || error_memory(error, "timings")) && time_tokens(p, rows, times, &line.seconds, &first, error) &&
      time_sampling(&p->model, rows, &sampling, error) &&
      bench_line_print(&line, error,
                       "\"prompt_tokens\": %zu, \"first_token_ms\": %.4f, \"load_ms\": %.4f, \"sample_ms\": %.4f, "
                       "\"sample_share\": %.4f",
                       p->prompt.tokens.decoder.count, 1e3 * first, 1e3 * (loaded - p->launched), 1e3 * sampling,
                       sampling / line.seconds.median);
  free(times);
  return ok;
}
