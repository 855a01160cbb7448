/* Evaluation: losses and logits of a batch, without gradients. */
#include "model/internal.h"

#include <stdlib.h>

/* head_rows: of activations_allocate() */
static bool reserve_passes(Model *m, int64_t rows, int head_rows, Error *error) {
  if (m->train.rows >= rows || (m->eval.rows >= rows && (m->eval.head_rows || head_rows == NO_LOGITS))) return true;
  if (rows < m->eval.rows) rows = m->eval.rows; /* a decoder may need them */
  if (m->eval.head_rows) head_rows = 0;         /* and an evaluation the logits */
  m->ops->drop(m->context, &m->graphs[GRAPH_EVALUATION]);
  m->ops->release(m->context, m->eval_memory);
  free(m->eval.all);
  m->eval_memory = NULL;
  m->eval = (Activations){0};
  return model_reserve_tokens(m, rows, error) &&
         activations_allocate(m, &m->eval, &m->eval_memory, rows, false, head_rows, error);
}

bool model_evaluate_begin(Model *m, int batch, int length, Error *error) {
  return reserve_passes(m, (int64_t)batch * length, 0, error);
}

bool model_prefill_begin(Model *m, int length, Error *error) { return reserve_passes(m, length, NO_LOGITS, error); }

Pass model_evaluation_pass(Model *m, int batch, int length) {
  const Activations *acts = m->train.rows >= (int64_t)batch * length ? &m->train : &m->eval;
  return model_pass(m, acts, batch, length);
}

typedef struct EvaluationPass {
  Pass pass;
  float *logits;
} EvaluationPass;

static void evaluate(Context *c, void *argument) {
  const EvaluationPass *e = argument;
  Model *m = e->pass.model;
  m->ops->step_begin(c, m->eval_state, NULL, NULL);
  model_forward(&e->pass);
  model_head(&e->pass, m->eval_state, 0.0f, e->logits);
}

bool model_evaluate(Model *m, const TokenBatch *tokens, int batch, int length, double *sum, int64_t *count,
                    float *logits, Error *error) {
  bool packed = tokens->positions;
  model_upload_tokens(m, tokens, 0, (int64_t)batch * length, length);
  EvaluationPass evaluation = {model_evaluation_pass(m, batch, length), logits};
  evaluation.pass.packed = packed;
  if (batch != m->evaluation_batch || length != m->evaluation_length || packed != m->evaluation_packed)
    m->ops->drop(m->context, &m->graphs[GRAPH_EVALUATION]);
  m->evaluation_batch = batch;
  m->evaluation_length = length;
  m->evaluation_packed = packed;
  if (logits) evaluate(m->context, &evaluation); /* copies to the host, which a graph cannot */
  else m->ops->submit(m->context, &m->graphs[GRAPH_EVALUATION], evaluate, &evaluation);
  StepState state = {0};
  m->ops->download(m->context, &state, m->eval_state, sizeof state);
  if (sum) *sum += state.loss_sum;
  if (count) *count += state.loss_count;
  return model_check_backend(m, error);
}

bool model_losses(Model *m, const TokenBatch *tokens, int batch, int length, float *losses, double *sum, int64_t *count,
                  float *logits, Error *error) {
  if (!model_evaluate(m, tokens, batch, length, sum, count, logits, error)) return false;
  const Pass pass = model_evaluation_pass(m, batch, length);
  m->ops->download(m->context, losses, pass.acts->losses, (size_t)batch * (size_t)length * sizeof *losses);
  return model_check_backend(m, error);
}
