/* How well a model predicts a text: nats per token and bits per byte over windows of a token stream. */
#ifndef INKLING_TEXT_SCORE_H
#define INKLING_TEXT_SCORE_H

#include "cli/error.h"
#include "model.h"
#include "text/dataset.h"

typedef struct Score {
  double nats;    /* summed over the targets counted */
  int64_t tokens; /* targets counted */
  int64_t bytes;  /* of text that they stand for */
} Score;

static inline double score_loss(const Score *s) { return s->tokens ? s->nats / (double)s->tokens : 0.0 / 0.0; }
static inline double score_bits_per_byte(const Score *s) {
  return s->bytes ? s->nats / 0.6931471805599453 / (double)s->bytes : 0.0 / 0.0;
}

/* Windows of `ctx` tokens every `stride` tokens (1..ctx) from the start of the split; of each the last `stride` targets
 * count (of the first all), so that every token but the very first is scored once. stride = ctx: disjoint windows. */
typedef struct ScorePlan {
  Split split;
  int batch, ctx, stride;
  int64_t windows; /* at most this many; 0 = all */
} ScorePlan;

/* Windows that the whole split has. */
int64_t score_windows(const ScorePlan *plan);

/* model_evaluate_begin(model, plan->batch, plan->ctx) must have been called. `tick` (may be NULL) is called after every
 * batch with the windows done and their number; when it returns false the score stops there and is over what was done.
 */
bool score_split(Model *model, const ScorePlan *plan, Score *out, bool (*tick)(void *, int64_t, int64_t),
                 void *argument, Error *error);

#endif
