/* How well a model predicts a text: nats per token and bits per byte over windows of tokens. */
#ifndef INKLING_INFERENCE_EVALUATION_H
#define INKLING_INFERENCE_EVALUATION_H

#include "util/error.h"
#include "util/progress.h"
#include "model.h"
#include "tokenizer/tokenizer.h"
#include "dataset/windows.h"

#define NATS_PER_BIT 0.6931471805599453

typedef struct Evaluation {
  double nats;    /* summed over the targets counted */
  int64_t tokens; /* targets counted */
  int64_t bytes;  /* of their text; an end token has none */
} Evaluation;

static inline double evaluation_loss(const Evaluation *s) {
  return s->tokens ? s->nats / (double)s->tokens : 0.0 / 0.0;
}
static inline double evaluation_bits_per_byte(const Evaluation *s) {
  return s->bytes ? s->nats / NATS_PER_BIT / (double)s->bytes : 0.0 / 0.0;
}

/* Which targets are counted: those of all windows in order (dataset/windows.h), or of the first `limit`. */
typedef struct EvaluationPlan {
  Windows windows;
  int stride; /* of windows of the stream; ctx: disjoint ones */
  int batch;
  int64_t limit;   /* 0: none */
  int rank, ranks; /* of several processes, each of which counts its part of the batches; ranks 0: one */
  const Tokenizer *tokenizer;
} EvaluationPlan;

/* Windows that are read. */
int64_t evaluation_windows(const EvaluationPlan *plan);

/* model_evaluate_begin(model, plan->batch, ctx) must have been called. `progress` counts windows of all processes, as
 * often in each of them, after a batch or an error of this one. It may stop without an error, too: then the result is
 * true, and of the windows that were done. */
bool evaluation_run(Model *model, const EvaluationPlan *plan, Evaluation *out, Progress progress, Error *error);

#endif
