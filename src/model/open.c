/* Opening and closing a model, and what training allocates: buffers, learning rates. */
#include "model/internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- opening and closing ---- */

static bool upload_rope_table(Model *m, Error *error) {
  const ModelConfig *c = &m->config;
  if (c->positions != POSITIONS_ROPE) return model_check_backend(m, error);
  const int dims = model_rotary_dims(c);
  size_t count = (size_t)c->ctx * (size_t)dims;
  float *table = malloc(count * sizeof(float));
  if (!table) return error_memory(error, "the rotary table");
  for (int i = 0; i < dims / 2; i++) {
    const double frequency = pow((double)c->rope_base, -2.0 * i / dims);
    for (int t = 0; t < c->ctx; t++) {
      float *pair = table + (size_t)t * (size_t)dims + 2 * (size_t)i;
      pair[0] = (float)cos(t * frequency);
      pair[1] = (float)sin(t * frequency);
    }
  }
  m->rope_table = m->ops->alloc(m->context, "rotary table", count * sizeof(float));
  if (m->rope_table) m->ops->upload(m->context, m->rope_table, table, count * sizeof(float));
  free(table);
  return model_check_backend(m, error);
}

/* Makes a model without weights. */
static Model *make_model(const Backend *backend, Context *context, const ModelConfig *config, Error *error) {
  if (!model_config_check(config, EXIT_USAGE, error)) return NULL;
  Model *m = calloc(1, sizeof *m);
  if (!m) error_memory(error, "the model");
  if (!m) return NULL;
  m->ops = backend;
  m->context = context;
  ContextInfo info;
  backend->info(context, &info);
  m->dt = dtype_bytes(info.dtype);
  m->config = *config;
  if (parameter_table_make(&m->table, config, error)) {
    parameter_table_describe(&m->table, &m->params);
    m->eval_state = backend->alloc(context, "evaluation state", sizeof(StepState));
    if (upload_rope_table(m, error)) return m;
  }
  model_close(m);
  return NULL;
}

bool model_open(Model **out, const Backend *backend, Context *context, const ModelConfig *config, Error *error) {
  Model *m = *out = make_model(backend, context, config, error);
  if (!m) return false;
  m->params.master = backend->alloc(context, "weights", m->table.arena * sizeof(float));
  if (m->params.master) backend->refresh_parameters(context, &m->params);
  if (model_check_backend(m, error)) return true;
  model_close(m);
  *out = NULL;
  return false;
}

/* ---- images ---- */

size_t model_image_bytes(const Model *m) {
  return m->ops->image_bytes ? m->ops->image_bytes(m->context, &m->params) : 0;
}

void model_write_image(const Model *m, void *image) { m->ops->write_image(m->context, &m->params, image); }

bool model_open_image(Model **out, const Backend *backend, Context *context, const ModelConfig *config, void *image,
                      size_t bytes, Error *error) {
  Model *m = *out = make_model(backend, context, config, error);
  if (!m) return false;
  const size_t needed = model_image_bytes(m);
  if (needed != bytes) fail(error, EXIT_CHECKPOINT, "the image has %zu bytes, not %zu", bytes, needed);
  else backend->use_image(context, &m->params, image);
  if (!error->code && model_check_backend(m, error)) return true;
  model_close(m);
  *out = NULL;
  return false;
}

void model_close(Model *m) {
  if (!m) return;
  for (int i = 0; i < GRAPHS; i++) m->ops->drop(m->context, &m->graphs[i]);
  m->ops->release_parameters(m->context, &m->params);
  void *memory[] = {m->params.master, m->params.vectors, m->params.grad,  m->params.m,    m->params.v, m->rope_table,
                    m->state,         m->eval_state,     m->train_memory, m->eval_memory, m->lr_table, m->target_count};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) m->ops->release(m->context, memory[i]);
  for (const StackInput *in = m->inputs; in < m->inputs + STACKS; in++) {
    m->ops->release(m->context, in->order.offsets);
    m->ops->release(m->context, in->position_order.offsets);
  }
  free(m->train.all);
  free(m->eval.all);
  free(m->sorted);
  free(m->host_tokens);
  parameter_table_free(&m->table);
  free(m);
}

const ParameterTable *model_table(const Model *m) { return &m->table; }

const ModelConfig *model_config(const Model *m) { return &m->config; }

/* ---- training: buffers and learning rates ---- */

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
  int32_t *offsets = m->ops->alloc(m->context, name, ((size_t)kinds + 1 + (size_t)rows) * sizeof(int32_t));
  return (RowOrder){offsets, offsets ? offsets + kinds + 1 : NULL};
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
