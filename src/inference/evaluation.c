#include "inference/evaluation.h"

#include "inference/batch.h"

#include <stdlib.h>

/* The target of a token is the token that follows it. */
static int64_t bytes_of(const Tokenizer *tokenizer, const int32_t *tokens, const int32_t *targets, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) {
    size_t size = 0;
    if (targets[i] != IGNORE_INDEX) tokenizer_decode_after(tokenizer, tokens[i], targets[i], &size);
    bytes += (int64_t)size;
  }
  return bytes;
}

/* Fills a batch that begins with window `first`; windows from `windows` on are empty. */
static bool fill_batch(const EvaluationPlan *plan, int64_t first, int64_t windows, const Batch *batch, int64_t *bytes,
                       Error *error) {
  const int ctx = plan->windows.ctx;
  for (int i = 0; i < plan->batch; i++) {
    const Window window = batch_window(batch, i);
    const int64_t wanted = first + i < windows ? first + i : INT64_MAX / ctx;
    if (!windows_read(&plan->windows, plan->stride, wanted, &window, error)) return false;
    *bytes += bytes_of(plan->tokenizer, window.tokens, window.targets, ctx);
  }
  return true;
}

/* Evaluates the batch; its targets and their losses go to the reader. */
static bool read_batch(Model *model, const EvaluationPlan *plan, const TokenBatch *tokens, Evaluation *out,
                       Error *error) {
  const TargetReader *reader = plan->reader;
  const int ctx = plan->windows.ctx, count = plan->batch * ctx;
  const size_t vocab = (size_t)model_config(model)->vocab;
  float *losses = malloc((size_t)count * sizeof *losses);
  float *logits = reader->logits ? malloc((size_t)count * vocab * sizeof *logits) : NULL;
  const bool ok = ((losses && (logits || !reader->logits)) || error_memory(error, "the logits of a window")) &&
                  model_losses(model, tokens, plan->batch, ctx, losses, &out->nats, &out->tokens, logits, error) &&
                  reader->take(reader->context, tokens->targets, losses, logits, count, error);
  free(losses);
  free(logits);
  return ok;
}

int64_t evaluation_windows(const EvaluationPlan *plan) {
  const int64_t windows = windows_count(&plan->windows, plan->stride);
  return plan->limit > 0 && plan->limit < windows ? plan->limit : windows;
}

bool evaluation_run(Model *model, const EvaluationPlan *plan, Evaluation *out, Progress progress, Error *error) {
  *out = (Evaluation){0};
  const int ctx = plan->windows.ctx;
  const int64_t windows = evaluation_windows(plan);
  Batch batch;
  if (!batch_make(&batch, &plan->windows, plan->batch, error)) {
    progress_report(progress, 0, error);
    return false;
  }
  const TokenBatch tokens = batch_tokens(&batch);
  const int64_t ranks = plan->ranks > 1 ? plan->ranks : 1, round = plan->batch * ranks;
  bool ok = true, go_on = true;
  for (int64_t first = 0; ok && go_on && first < windows; first += round) {
    const int64_t mine = first + (int64_t)plan->rank * plan->batch, done = first + round;
    if (mine < windows)
      ok = fill_batch(plan, mine, windows, &batch, &out->bytes, error) &&
           (plan->reader ? read_batch(model, plan, &tokens, out, error)
                         : model_evaluate(model, &tokens, plan->batch, ctx, &out->nats, &out->tokens, NULL, error));
    go_on = progress_report(progress, done < windows ? done : windows, error);
    ok = ok && !error->code;
  }
  batch_free(&batch);
  return !error->code;
}
