/* A training step and an evaluation: what is uploaded, and what is submitted to the device. */
#include "model/internal.h"

#include <stdlib.h>

/* ---- the training step ---- */

static void micro_batch(Context *c, Model *m, bool first, bool last) {
  Pass pass = {.model = m,
               .acts = &m->train,
               .batch = m->settings.batch,
               .length = m->config.ctx,
               .train = true,
               .packed = m->train_packed,
               .accumulate = !first,
               .hand_over = last && m->table.bucket_count > 0};
  model_forward(&pass);
  model_head(&pass, m->state, m->settings.label_smoothing, NULL);
  model_backward(&pass);
  m->ops->next_micro_batch(c, m->state, m->settings.batch);
}

static void first_micro_batch(Context *c, void *model) {
  Model *m = model;
  m->ops->step_begin(c, m->state, m->lr_table, m->target_count);
  if (m->settings.first_sequence) m->ops->next_micro_batch(c, m->state, m->settings.first_sequence);
  micro_batch(c, m, true, m->settings.micro_batches == 1);
}

static void middle_micro_batch(Context *c, void *model) { micro_batch(c, model, false, false); }

static void last_micro_batch(Context *c, void *model) { micro_batch(c, model, false, true); }

static void update(Context *c, void *model) {
  Model *m = model;
  const Share *share = &m->settings.share;
  m->ops->clip(c, m->state, &m->params, m->settings.clip, &m->settings.adamw);
  if (share->ranks > 1 && !share->shard) m->ops->peers_gather(c, &m->params, true);
  if (m->settings.optimizer == OPTIMIZER_MUON) m->ops->muon(c, m->state, &m->params, &m->settings.muon);
  m->ops->adamw(c, m->state, &m->params, &m->settings.adamw);
  if (is_sharded(share)) m->ops->peers_gather(c, &m->params, false);
  m->ops->report(c, m->state);
}

static bool upload_schedule(Model *m, Error *error) {
  int64_t steps = m->settings.schedule.steps;
  float *table = calloc((size_t)steps + 1, sizeof(float));
  if (!table) return fail(error, EXIT_MEMORY, "out of memory for the learning rates of %lld steps", (long long)steps);
  for (int64_t t = 1; t <= steps; t++) table[t] = schedule_lr(&m->settings.schedule, t);
  m->lr_table = m->ops->alloc(m->context, "learning rates", ((size_t)steps + 1) * sizeof(float));
  if (m->lr_table) m->ops->upload(m->context, m->lr_table, table, ((size_t)steps + 1) * sizeof(float));
  free(table);
  return model_check_backend(m, error);
}

/* Room for the order of `rows` numbers below `kinds`. */
static RowOrder reserve_order(Model *m, const char *name, int kinds, int64_t rows) {
  return (RowOrder){m->ops->alloc(m->context, name, ((size_t)kinds + 1) * sizeof(int32_t)),
                    m->ops->alloc(m->context, name, (size_t)rows * sizeof(int32_t))};
}

/* Without packed documents the order of positions is the same in every batch. */
static bool upload_natural_places(Model *m, int64_t rows, Error *error) {
  int32_t *natural = malloc((size_t)rows * sizeof *natural);
  if (!natural) return error_memory(error, "the order of positions");
  for (int64_t i = 0; i < rows; i++) natural[i] = (int32_t)(i % m->config.ctx);
  model_upload_order(m, natural, rows, m->config.ctx, m->place_order);
  free(natural);
  return true;
}

static bool reserve_orders(Model *m, int64_t rows, Error *error) {
  const ModelConfig *c = &m->config;
  const bool learned = c->positions == POSITIONS_LEARNED;
  int kinds = c->vocab > c->ctx ? c->vocab : c->ctx;
  m->order = reserve_order(m, "token order", c->vocab, rows);
  if (learned) m->place_order = reserve_order(m, "position order", c->ctx, rows);
  if (has_encoder(c)) {
    kinds = c->source_vocab > kinds ? c->source_vocab : kinds;
    m->source_order = reserve_order(m, "source token order", c->source_vocab, rows);
    if (learned) m->source_places = reserve_order(m, "source position order", c->ctx, rows);
  }
  m->sorted = malloc(((size_t)kinds + 1 + (size_t)rows) * sizeof(int32_t));
  if (!m->sorted) return error_memory(error, "the order of tokens");
  return model_check_backend(m, error) && (!learned || upload_natural_places(m, rows, error));
}

/* Where operations read copies of the weights, keeps only masters that this process updates. */
static void share_masters(Model *m) {
  ContextInfo device;
  m->ops->info(m->context, &device);
  if (!device.copies || !is_sharded(&m->settings.share)) return;
  m->ops->copy(m->context, m->params.grad, m->params.master, m->table.arena * sizeof(float)); /* refresh_parameters() */
  m->ops->release(m->context, m->params.master);
  m->params.master = m->ops->alloc(m->context, "weights", m->table.m_kept * sizeof(float));
  m->params.vectors = m->ops->alloc(m->context, "weights of norms", m->table.vectors * sizeof(float));
}

bool model_train_begin(Model *m, const TrainConfig *settings, Error *error) {
  m->settings = *settings;
  m->ops->drop(m->context, &m->evaluation); /* evaluation moves into the training buffers */
  int64_t rows = (int64_t)settings->batch * m->config.ctx;
  if (rows > INT32_MAX / 2)
    return fail(error, EXIT_USAGE, "a micro-batch of %lld tokens is too large; use a smaller batch", (long long)rows);
  parameter_table_set_optimizer(&m->table, settings->optimizer);
  if (!parameter_table_share(&m->table, &settings->share, error)) return false;
  parameter_table_describe(&m->table, &m->params);
  m->params.grad = m->ops->alloc(m->context, "gradients", m->table.arena * sizeof(float));
  share_masters(m);
  m->params.m = m->ops->alloc(m->context, "first moments", m->table.m_kept * sizeof(float));
  m->params.v = m->ops->alloc(m->context, "second moments", m->table.v_kept * sizeof(float));
  m->state = m->ops->alloc(m->context, "step state", sizeof(StepState));
  m->target_count = m->ops->alloc(m->context, "target count", sizeof(int32_t));
  if (!reserve_orders(m, rows, error)) return false;
  m->ops->refresh_parameters(m->context, &m->params); /* now with what the optimizer needs */
  return model_reserve_tokens(m, rows, error) && upload_schedule(m, error) &&
         activations_allocate(m, &m->train, &m->train_memory, rows, true, settings->head_rows, error);
}

bool model_set_schedule(Model *m, const Schedule *schedule, Error *error) {
  m->settings.schedule = *schedule;
  m->ops->drop(m->context, &m->first); /* it reads the table */
  m->ops->release(m->context, m->lr_table);
  m->lr_table = NULL;
  return upload_schedule(m, error);
}

void model_set_step(Model *m, int64_t step) {
  StepState state = {.step = step};
  m->ops->upload(m->context, m->state, &state, sizeof state);
}

static void upload_orders(Model *m, const TokenBatch *step, int64_t from, int64_t rows) {
  const ModelConfig *c = &m->config;
  const bool learned = c->positions == POSITIONS_LEARNED;
  model_upload_order(m, step->tokens + from, rows, c->vocab, m->order);
  if (learned && step->positions) model_upload_order(m, step->positions + from, rows, c->ctx, m->place_order);
  if (!has_encoder(c)) return;
  model_upload_order(m, step->source->tokens + from, rows, c->source_vocab, m->source_order);
  if (learned) model_upload_order(m, step->source->positions + from, rows, c->ctx, m->source_places);
}

/* Gradients of all micro-batches of a step. */
static void submit_micro_batches(Model *m, const TokenBatch *step) {
  int64_t rows = (int64_t)m->settings.batch * m->config.ctx;
  int32_t count = 0;
  for (int64_t i = 0; i < rows * m->settings.micro_batches; i++) count += step->targets[i] >= 0;
  m->train_packed = step->positions;
  m->ops->upload(m->context, m->target_count, &count, sizeof count);
  const int last = m->settings.micro_batches - 1;
  for (int i = 0; i <= last; i++) {
    CapturedGraph **slot = i == 0 ? &m->first : i < last ? &m->middle : &m->last;
    model_upload_tokens(m, step, i * rows, rows, m->config.ctx);
    upload_orders(m, step, i * rows, rows);
    m->ops->submit(m->context, slot, i == 0 ? first_micro_batch : i < last ? middle_micro_batch : last_micro_batch, m);
  }
}

void model_train_step(Model *m, const TokenBatch *step) {
  submit_micro_batches(m, step);
  m->ops->submit(m->context, &m->update, update, m);
}

bool model_gradients(Model *m, const TokenBatch *step, double *loss, Error *error) {
  submit_micro_batches(m, step);
  StepState state = {0};
  m->ops->download(m->context, &state, m->state, sizeof state);
  *loss = state.loss_sum * (double)state.inv_targets;
  return model_check_backend(m, error);
}

int model_reports(Model *m, StepState *out, int capacity, bool wait, Error *error) {
  return m->ops->poll(m->context, out, capacity, wait, error);
}

/* ---- evaluation ---- */

bool model_evaluate_begin(Model *m, int batch, int length, Error *error) {
  int64_t rows = (int64_t)batch * length;
  if (m->train.rows >= rows || m->eval.rows >= rows) return true;
  m->ops->drop(m->context, &m->evaluation);
  m->ops->release(m->context, m->eval_memory);
  free(m->eval.parts);
  m->eval_memory = NULL;
  m->eval = (Activations){0};
  return model_reserve_tokens(m, rows, error) &&
         activations_allocate(m, &m->eval, &m->eval_memory, rows, false, 0, error);
}

Pass model_evaluation_pass(Model *m, int batch, int length) {
  const Activations *acts = m->train.rows >= (int64_t)batch * length ? &m->train : &m->eval;
  return (Pass){.model = m, .acts = acts, .batch = batch, .length = length};
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
    m->ops->drop(m->context, &m->evaluation);
  m->evaluation_batch = batch;
  m->evaluation_length = length;
  m->evaluation_packed = packed;
  if (logits) evaluate(m->context, &evaluation); /* copies to the host in the middle: cannot be recorded */
  else m->ops->submit(m->context, &m->evaluation, evaluate, &evaluation);
  StepState state = {0};
  m->ops->download(m->context, &state, m->eval_state, sizeof state);
  *sum += state.loss_sum;
  *count += state.loss_count;
  return model_check_backend(m, error);
}
