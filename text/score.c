#include "text/score.h"

#include <stdlib.h>

int64_t score_windows(const ScorePlan *plan) {
  int64_t targets = plan->split.end - plan->split.begin - 1;
  if (targets <= 0) return 0;
  if (targets <= plan->ctx) return 1;
  return 1 + (targets - plan->ctx + plan->stride - 1) / plan->stride;
}

/* Fills one window; targets that do not count, and what lies beyond the end of the split, are ignored. */
static void fill_window(const ScorePlan *plan, int64_t window, int32_t *tokens, int32_t *targets, int32_t *buffer) {
  int64_t begin = plan->split.begin + window * plan->stride, left = plan->split.end - begin;
  int64_t count = left < plan->ctx + 1 ? left : plan->ctx + 1;
  int first_counted = window == 0 ? 0 : plan->ctx - plan->stride;
  if (count > 1) dataset_read(plan->split.dataset, begin, count, buffer);
  for (int i = 0; i < plan->ctx; i++) {
    bool inside = i + 1 < count;
    tokens[i] = inside ? buffer[i] : 0;
    targets[i] = inside && i >= first_counted ? buffer[i + 1] : IGNORE_INDEX;
  }
}

bool score_split(Model *model, const ScorePlan *plan, Score *out, bool (*tick)(void *, int64_t, int64_t),
                 void *argument, Error *error) {
  *out = (Score){0};
  int64_t windows = score_windows(plan), end = plan->split.begin + 1;
  if (plan->windows > 0 && plan->windows < windows) windows = plan->windows;
  size_t room = (size_t)plan->batch * (size_t)plan->ctx;
  int32_t *tokens = malloc((2 * room + (size_t)plan->ctx + 1) * sizeof *tokens);
  if (!tokens) return fail(error, EXIT_MEMORY, "out of memory for the windows of an evaluation");
  bool ok = true;
  for (int64_t window = 0; ok && window < windows; window += plan->batch) {
    for (int i = 0; i < plan->batch; i++)
      fill_window(plan, window + i < windows ? window + i : INT64_MAX / plan->ctx / 2,
                  tokens + (size_t)i * (size_t)plan->ctx, tokens + room + (size_t)i * (size_t)plan->ctx,
                  tokens + 2 * room);
    ok = model_evaluate(model, &(TokenBatch){tokens, tokens + room, NULL}, plan->batch, plan->ctx, &out->nats,
                        &out->tokens, NULL, error);
    int64_t done = window + plan->batch < windows ? window + plan->batch : windows;
    end = plan->split.begin + (done - 1) * plan->stride + plan->ctx + 1;
    if (ok && tick && !tick(argument, done, windows)) break;
  }
  free(tokens);
  if (end > plan->split.end) end = plan->split.end;
  if (out->tokens) out->bytes = dataset_bytes(plan->split.dataset, plan->split.begin + 1, end);
  return ok;
}
