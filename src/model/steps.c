/* Training: its buffers, learning rates, and a step (forward, loss, backward, clip, update). */
#include "model/internal.h"

#include <stdlib.h>

/* ---- training: buffers and the learning rates ---- */

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

/* Allocates the order of `rows` numbers below `kinds`. */
static RowOrder reserve_order(Model *m, const char *name, int kinds, int64_t rows) {
  return (RowOrder){m->ops->alloc(m->context, name, ((size_t)kinds + 1) * sizeof(int32_t)),
                    m->ops->alloc(m->context, name, (size_t)rows * sizeof(int32_t))};
}

/* Without packed documents the positions are the same in every batch. */
static bool upload_natural_positions(Model *m, int64_t rows, Error *error) {
  int32_t *natural = malloc((size_t)rows * sizeof *natural);
  if (!natural) return error_memory(error, "the order of positions");
  for (int64_t i = 0; i < rows; i++) natural[i] = (int32_t)(i % m->config.ctx);
  model_upload_order(m, natural, rows, m->config.ctx, m->inputs[DECODER_STACK].position_order);
  free(natural);
  return true;
}

static bool reserve_orders(Model *m, int64_t rows, Error *error) {
  const ModelConfig *c = &m->config;
  const Stack *const stacks[STACKS] = {[DECODER_STACK] = &m->table.decoder, [ENCODER_STACK] = &m->table.encoder};
  const bool learned = c->positions == POSITIONS_LEARNED;
  int kinds = c->ctx;
  for (int i = 0; i < STACKS; i++) {
    if (!stacks[i]->count) continue;
    m->inputs[i].order = reserve_order(m, "token order", stacks[i]->vocab, rows);
    if (learned) m->inputs[i].position_order = reserve_order(m, "position order", c->ctx, rows);
    kinds = stacks[i]->vocab > kinds ? stacks[i]->vocab : kinds;
  }
  m->sorted = malloc(((size_t)kinds + 1 + (size_t)rows) * sizeof(int32_t));
  if (!m->sorted) return error_memory(error, "the order of tokens");
  return model_check_backend(m, error) && (!learned || upload_natural_positions(m, rows, error));
}

/* Keeps only the masters that this process updates, if operations read copies of the weights. */
static void keep_own_masters(Model *m) {
  ContextInfo device;
  m->ops->info(m->context, &device);
  if (!device.copies || !is_sharded(&m->settings.sharding)) return;
  m->ops->copy(m->context, m->params.grad, m->params.master, m->table.arena * sizeof(float)); /* refresh_parameters() */
  m->ops->release(m->context, m->params.master);
  m->params.master = m->ops->alloc(m->context, "weights", m->table.m_kept * sizeof(float));
  m->params.vectors = m->ops->alloc(m->context, "weights of norms", m->table.vectors * sizeof(float));
}

bool model_train_begin(Model *m, const TrainConfig *settings, Error *error) {
  m->settings = *settings;
  m->ops->drop(m->context, &m->graphs[GRAPH_EVALUATION]); /* evaluation moves into the training buffers */
  int64_t rows = (int64_t)settings->batch * m->config.ctx;
  if (rows > INT32_MAX / 2)
    return fail(error, EXIT_USAGE, "a micro-batch of %lld tokens is too large; use a smaller batch", (long long)rows);
  if (settings->teacher && !model_evaluate_begin(settings->teacher, settings->batch, m->config.ctx, error))
    return false;
  parameter_table_set_optimizer(&m->table, settings->optimizer);
  if (!parameter_table_partition(&m->table, &settings->sharding, error)) return false;
  parameter_table_describe(&m->table, &m->params);
  m->params.grad = m->ops->alloc(m->context, "gradients", m->table.arena * sizeof(float));
  keep_own_masters(m);
  m->params.m = m->ops->alloc(m->context, "first moments", m->table.m_kept * sizeof(float));
  m->params.v = m->ops->alloc(m->context, "second moments", m->table.v_kept * sizeof(float));
  m->state = m->ops->alloc(m->context, "step state", sizeof(StepState));
  m->target_count = m->ops->alloc(m->context, "target count", sizeof(int32_t));
  if (!reserve_orders(m, rows, error)) return false;
  m->ops->refresh_parameters(m->context, &m->params); /* with the optimizer's memory */
  return model_reserve_tokens(m, rows, error) && upload_schedule(m, error) &&
         activations_allocate(m, &m->train, &m->train_memory, rows, true, settings->head_rows, error);
}

bool model_set_schedule(Model *m, const Schedule *schedule, Error *error) {
  m->settings.schedule = *schedule;
  m->ops->drop(m->context, &m->graphs[GRAPH_FIRST]); /* it reads the table */
  m->ops->release(m->context, m->lr_table);
  m->lr_table = NULL;
  return upload_schedule(m, error);
}

void model_set_step(Model *m, int64_t step) {
  StepState state = {.step = step};
  m->ops->upload(m->context, m->state, &state, sizeof state);
}

/* ---- the training step ---- */

typedef struct MicroBatch {
  Model *model;
  bool first, last;
} MicroBatch;

static void micro_batch(Context *c, void *argument) {
  const MicroBatch *part = argument;
  Model *m = part->model;
  const TrainConfig *s = &m->settings;
  Pass pass = model_pass(m, &m->train, s->batch, m->config.ctx);
  pass.train = true;
  pass.packed = m->train_packed;
  pass.accumulate = !part->first;
  pass.reduce = part->last && m->table.bucket_count > 0;
  if (part->first) m->ops->step_begin(c, m->state, m->lr_table, m->target_count);
  if (part->first && s->first_sequence) m->ops->next_micro_batch(c, m->state, s->first_sequence);
  if (s->teacher) {
    const Pass other = model_teacher_pass(m, s->batch, m->config.ctx, m->train_packed);
    model_forward(&other);
  }
  model_forward(&pass);
  model_head(&pass, m->state, s->label_smoothing, NULL);
  model_backward(&pass);
  m->ops->next_micro_batch(c, m->state, s->batch);
}

static void update(Context *c, void *model) {
  Model *m = model;
  const Sharding *sharding = &m->settings.sharding;
  m->ops->clip(c, m->state, &m->params, m->settings.clip, &m->settings.adamw);
  if (sharding->ranks > 1 && !sharding->shard) m->ops->peers_gather(c, &m->params, true);
  if (m->settings.optimizer == OPTIMIZER_MUON) m->ops->muon(c, m->state, &m->params, &m->settings.muon);
  m->ops->adamw(c, m->state, &m->params, &m->settings.adamw);
  if (is_sharded(sharding)) m->ops->peers_gather(c, &m->params, false);
  m->ops->report(c, m->state);
}

static void upload_orders(Model *m, const TokenBatch *step, int64_t from, int64_t rows) {
  const ModelConfig *c = &m->config;
  const int32_t *tokens[STACKS] = {[DECODER_STACK] = step->tokens, [ENCODER_STACK] = step->source_tokens};
  const int32_t *positions[STACKS] = {[DECODER_STACK] = step->positions, [ENCODER_STACK] = step->source_positions};
  const int vocabs[STACKS] = {[DECODER_STACK] = c->vocab, [ENCODER_STACK] = c->source_vocab};
  for (int i = 0; i < (has_encoder(c) ? STACKS : 1); i++) {
    model_upload_order(m, tokens[i] + from, rows, vocabs[i], m->inputs[i].order);
    if (c->positions == POSITIONS_LEARNED && positions[i])
      model_upload_order(m, positions[i] + from, rows, c->ctx, m->inputs[i].position_order);
  }
}

/* Computes the gradients of all micro-batches of a step. */
static void submit_micro_batches(Model *m, const TokenBatch *step) {
  int64_t rows = (int64_t)m->settings.batch * m->config.ctx;
  int32_t count = 0;
  for (int64_t i = 0; i < rows * m->settings.micro_batches; i++) count += step->targets[i] >= 0;
  m->train_packed = step->positions;
  m->ops->upload(m->context, m->target_count, &count, sizeof count);
  const int last = m->settings.micro_batches - 1;
  for (int i = 0; i <= last; i++) {
    MicroBatch part = {m, i == 0, i == last};
    CapturedGraph **slot = &m->graphs[part.first ? GRAPH_FIRST : part.last ? GRAPH_LAST : GRAPH_MIDDLE];
    model_upload_tokens(m, step, i * rows, rows, m->config.ctx);
    if (m->settings.teacher) model_upload_tokens(m->settings.teacher, step, i * rows, rows, m->config.ctx);
    upload_orders(m, step, i * rows, rows);
    m->ops->submit(m->context, slot, micro_batch, &part);
  }
}

void model_train_step(Model *m, const TokenBatch *step) {
  submit_micro_batches(m, step);
  m->ops->submit(m->context, &m->graphs[GRAPH_UPDATE], update, m);
}

bool model_gradients(Model *m, const TokenBatch *step, double *loss, Error *error) {
  submit_micro_batches(m, step);
  StepState state = {0};
  m->ops->download(m->context, &state, m->state, sizeof state);
  *loss = state.loss_sum * (double)state.inv_targets;
  return model_check_backend(m, error);
}

int model_reports(Model *m, StepReport *out, int capacity, bool wait, Error *error) {
  return m->ops->poll(m->context, out, capacity, wait, error);
}
