/* Whole training steps, through model.h with random tokens: what ./train --bench does, for any vocabulary. */
#include "bench/bench.h"
#include "util/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNKS = 11 };

/* Seconds of one step: the median over CHUNKS chunks of some steps each, a wait after every chunk. */
static double time_training(Bench *b, Model *model, const int32_t *tokens, const int32_t *targets, double *loss,
                            Error *error) {
  double chunk[CHUNKS] = {0}, start;
  StepState report = {0};
  const TokenBatch batch = {tokens, targets, NULL};
  for (int i = 0; i < 3; i++) model_train_step(model, &batch); /* eager, recorded, replayed */
  if (model_reports(model, &report, 1, true, error) < 0) return 0;
  start = clock_seconds();
  model_train_step(model, &batch);
  if (model_reports(model, &report, 1, true, error) < 0) return 0;
  double wanted = b->quick ? 0 : 0.25, once = clock_seconds() - start;
  int steps = once < wanted ? (int)ceil(wanted / once) : 1;
  for (int i = 0; i < CHUNKS; i++) {
    start = clock_seconds();
    for (int step = 0; step < steps; step++) {
      model_train_step(model, &batch);
      if (model_reports(model, &report, 1, false, error) < 0)
        return 0; /* as a run does: it bounds how far ahead we are */
    }
    int taken;
    while ((taken = model_reports(model, &report, 1, true, error)) > 0) *loss = (double)report.loss;
    if (taken < 0) return 0;
    chunk[i] = (clock_seconds() - start) / steps;
  }
  qsort(chunk, CHUNKS, sizeof *chunk, bench_compare_doubles);
  return chunk[CHUNKS / 2];
}

/* One attempt; false with EXIT_MEMORY where the batch does not fit. */
static bool train_once(Bench *b, const BenchModel *m, int batch, float dropout, Error *error) {
  const ModelConfig *c = &m->config;
  Model *model = NULL;
  TrainConfig train = {.batch = batch,
                       .micro_batches = 1,
                       .dropout = dropout,
                       .clip = 1,
                       .adamw = {0.9f, 0.95f, 1e-8f, 0.1f},
                       .schedule = {SCHEDULE_CONSTANT, 1e-4f, 1, 0, 1 << 20},
                       .seed = 1,
                       .head_rows = b->head_rows};
  int64_t rows = (int64_t)batch * c->ctx;
  int32_t *tokens = bench_random_tokens(rows + 1, c->vocab);
  bool ok = model_open(&model, b->ops, b->c, c, error) && model_train_begin(model, &train, error);
  if (ok) {
    size_t arena = model_table(model)->arena;
    float *host = calloc(arena, sizeof *host);
    if (!host) bench_out_of_memory();
    for (int i = 0; i < model_table(model)->count; i++) {
      const ParameterTensor *t = &model_table(model)->tensors[i];
      for (size_t j = 0; j < (size_t)t->rows * (size_t)t->cols; j++)
        host[t->offset + j] = t->rank == 1 ? 1
                              : j < 65536  ? bench_small_number(j + 7919 * (size_t)i)
                                           : host[t->offset + j - 65536];
    }
    model_upload(model, ARENA_MASTER, host);
    free(host);
    double loss = NAN, s = time_training(b, model, tokens, tokens + 1, &loss, error);
    ok = error->code == EXIT_DONE;
    ContextInfo info;
    b->ops->info(b->c, &info);
    double flops = model_step_flops(c, rows);
    if (ok) {
      printf("%-8s trains %.0f tokens/s: batch %d x %d, vocabulary %d, dropout %g, %.3f ms a step, %.1f TFLOP/s, %.1f "
             "GiB, loss "
             "%.4f\n",
             m->name, (double)rows / s, batch, c->ctx, c->vocab, (double)dropout, 1e3 * s, 1e-12 * flops / s,
             (double)info.peak_bytes / 1073741824.0, loss);
      bench_json(
          b,
          "{\"kind\": \"train\", \"system\": \"inkling%s%s\", \"model\": \"%s\", \"dtype\": \"%s\", \"batch\": %d, "
          "\"ctx\": %d, \"vocab\": %d, \"dropout\": %g, \"tokens_per_s\": %.1f, \"step_ms\": %.5f, "
          "\"flops_per_s\": %.5g, \"peak_memory_bytes\": %zu, \"params\": %" PRId64 ", \"source\": \"bench_kernels\"}",
          b->autotune ? ", autotuned" : "", b->head_rows ? ", more rows of logits at once" : "", m->name,
          bench_dtype(b), batch, c->ctx, c->vocab, (double)dropout, (double)rows / s, 1e3 * s, flops / s,
          info.peak_bytes, model_parameters(c));
    }
  }
  model_close(model);
  free(tokens);
  return ok;
}

/* With the batch asked for, or half of it as often as memory wants. Dropout 0.1 as well for a small model. */
void bench_train(Bench *b, BenchModel *m) {
  for (int dropped = 0; dropped < (m->config.dim < 512 ? 2 : 1); dropped++)
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
