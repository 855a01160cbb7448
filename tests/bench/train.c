/* Benchmarks of whole training steps, through model.h with random tokens: the same as ./train --bench, for any
 * vocabulary. */
#include "tests/bench/bench.h"
#include "base/system.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNKS = 11 };

/* Measures the seconds of one step in CHUNKS chunks of several steps, with a wait after every chunk; in at least three
 * chunks where a step takes longer than the time for a chunk. */
static bool time_training(Bench *b, Model *model, const int32_t *tokens, const int32_t *targets, Quantiles *out,
                          double *loss, Error *error) {
  double chunk[CHUNKS] = {0}, start;
  StepReport report = {0};
  const TokenBatch batch = {.tokens = tokens, .targets = targets};
  for (int i = 0; i < 3; i++) model_train_step(model, &batch); /* eager, recorded, replayed */
  if (model_reports(model, &report, 1, true, error) < 0) return false;
  start = clock_seconds();
  model_train_step(model, &batch);
  if (model_reports(model, &report, 1, true, error) < 0) return false;
  double once = clock_seconds() - start;
  double wanted = b->quick ? 0 : b->train_ms ? 1e-3 * b->train_ms / (double)CHUNKS : 0.25;
  int steps = once < wanted ? (int)ceil(wanted / once) : 1;
  int chunks = b->train_ms && once > wanted ? (int)fmin(CHUNKS, fmax(3, ceil((double)CHUNKS * wanted / once))) : CHUNKS;
  for (int i = 0; i < chunks; i++) {
    start = clock_seconds();
    for (int step = 0; step < steps; step++) {
      model_train_step(model, &batch);
      if (model_reports(model, &report, 1, false, error) < 0)
        return false; /* as a run does: it limits the number of submitted steps */
    }
    int taken;
    while ((taken = model_reports(model, &report, 1, true, error)) > 0) *loss = (double)report.state.loss;
    if (taken < 0) return false;
    chunk[i] = (clock_seconds() - start) / steps;
  }
  *out = quantiles_of(chunk, (size_t)chunks);
  return true;
}

static void print_training(Bench *b, const BenchModel *m, const TrainConfig *train, const Quantiles *s, double loss) {
  const ModelConfig *c = &m->config;
  double tokens = (double)train->batch * c->ctx,
         flops = model_step_flops(c, (int64_t)train->batch * c->ctx, OPTIMIZER_ADAMW, b->accelerator);
  printf("%-8s trains %.0f tokens/s: batch %d x %d, vocabulary %d, dropout %g, %.3f ms a step, %.3f TFLOP/s, %.2f GiB, "
         "loss %.4f\n",
         m->name, tokens / s->median, train->batch, c->ctx, c->vocab, (double)train->dropout.branch, 1e3 * s->median,
         1e-12 * flops / s->median, (double)bench_peak_bytes(b) / 1073741824.0, loss);
  bench_json(
      b,
      "{\"kind\": \"train\", \"system\": \"inkling%s%s\", \"model\": \"%s\", \"dtype\": \"%s\", \"batch\": %d, "
      "\"ctx\": %d, \"vocab\": %d, \"dropout\": %g, \"tokens_per_s\": %.1f, \"step_ms\": %.5f, \"step_ms_p10\": %.5f, "
      "\"step_ms_p90\": %.5f, \"flops_per_s\": %.5g, \"peak_memory_bytes\": %zu, \"params\": %" PRId64
      ", \"source\": \"bench_kernels\"}",
      b->autotune ? ", autotuned" : "", b->head_rows ? ", more rows of logits at once" : "", m->name,
      dtype_name(b->dtype), train->batch, c->ctx, c->vocab, (double)train->dropout.branch, tokens / s->median,
      1e3 * s->median, 1e3 * s->p10, 1e3 * s->p90, flops / s->median, bench_peak_bytes(b), model_parameters(c));
}

/* Returns false with EXIT_MEMORY when the batch does not fit. */
static bool train_once(Bench *b, const BenchModel *m, int batch, float dropout, Error *error) {
  const ModelConfig *c = &m->config;
  Model *model = NULL;
  TrainConfig train = {.batch = batch,
                       .micro_batches = 1,
                       .dropout = {dropout, dropout, dropout, 0},
                       .clip = 1,
                       .adamw = {0.9f, 0.95f, 1e-8f, 0.1f},
                       .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-4f, .min_lr_fraction = 1, .steps = 1 << 20},
                       .seed = 1,
                       .head_rows = b->head_rows};
  int32_t *tokens = bench_random_tokens((int64_t)batch * c->ctx + 1, c->vocab);
  Quantiles seconds;
  double loss = NAN;
  bench_reopen(b);
  bool ok = model_open(&model, b->ops, b->c, c, error) && model_train_begin(model, &train, error);
  if (ok) {
    float *weights = bench_weights(model_table(model));
    model_upload(model, ARENA_MASTER, weights);
    free(weights);
  }
  ok = ok && time_training(b, model, tokens, tokens + 1, &seconds, &loss, error);
  if (ok) print_training(b, m, &train, &seconds, loss);
  model_close(model);
  free(tokens);
  return ok;
}

/* Trains with the requested batch, and halves it until it fits into memory. */
void bench_train(Bench *b, BenchModel *m, bool dropout_too) {
  for (int dropped = 0; dropped < (dropout_too ? 2 : 1); dropped++)
    for (int batch = m->batch; batch >= 1; batch /= 2) {
      Error error = {0};
      int failures = b->failures;
      bool ok = train_once(b, m, batch, dropped ? 0.1f : 0, &error);
      if (!ok) {
        printf("%s, batch %d: %s\n", m->name, batch, error.text);
        bench_json(b, "{\"kind\": \"note\", \"text\": \"%s, batch %d: training failed with status %d\"}", m->name,
                   batch, (int)error.code);
        bench_alive(b, NULL);
        bool smaller = error.code == EXIT_MEMORY && batch > 1;
        b->failures = failures + !smaller;
      }
      fflush(stdout);
      if (ok || error.code != EXIT_MEMORY) break;
    }
}
