/* Evaluation of a model on a text: nats per token and bits per byte over windows of tokens. */
#ifndef INKLING_INFERENCE_EVALUATION_H
#define INKLING_INFERENCE_EVALUATION_H

#include "text/dataset/windows.h"
#include "model.h"
#include "text/tokenizer/tokenizer.h"
#include "base/error.h"
#include "base/progress.h"

#define NATS_PER_BIT 0.6931471805599453

typedef struct Evaluation {
  double nats;    /* summed over the targets counted */
  int64_t tokens; /* targets counted */
  int64_t bytes;  /* bytes of their text; an end token has none */
} Evaluation;

static inline double evaluation_loss(const Evaluation *s) {
  return s->tokens ? s->nats / (double)s->tokens : 0.0 / 0.0;
}
static inline double evaluation_bits_per_byte(const Evaluation *s) {
  return s->bytes ? s->nats / NATS_PER_BIT / (double)s->bytes : 0.0 / 0.0;
}

/* Receives the targets of an evaluation, in order. False without an error ends it, as with a Progress. */
typedef struct TargetReader {
  /* targets [count], of which IGNORE_INDEX is not counted; losses [count], nats; logits [count][vocab], or NULL */
  bool (*take)(void *context, const int32_t *targets, const float *losses, const float *logits, int count,
               Error *error);
  void *context;
  bool logits; /* whether `take` needs them */
} TargetReader;

/* The targets that are counted: those of all windows in order (text/dataset/windows.h), or of the first `limit`. */
typedef struct EvaluationPlan {
  Windows windows;
  int stride; /* tokens between the beginnings of two windows of the stream; ctx: disjoint windows */
  int batch;
  int64_t limit;   /* 0: none */
  int rank, ranks; /* each process evaluates every ranks-th batch; ranks 0: one process */
  const Tokenizer *tokenizer;
  const TargetReader *reader; /* NULL: none */
} EvaluationPlan;

/* Returns the number of windows that are read. */
int64_t evaluation_windows(const EvaluationPlan *plan);

/* Evaluates the model after model_evaluate_begin(model, plan->batch, ctx). `progress` counts windows of all processes
 * and is called equally often in each, after a batch or an error of this process. It may also stop the work without an
 * error: then the result is true and covers the windows done. */
bool evaluation_run(Model *model, const EvaluationPlan *plan, Evaluation *out, Progress progress, Error *error);

#endif
