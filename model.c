/* The Transformer as a list of operations. Forward and backward of each part stand next to each other; shapes are in
 * the comments (model/internal.h names the dimensions). */
#include "model/internal.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- forward and backward ---- */

typedef enum DropoutKind {
  DROPOUT_EMBEDDING,
  DROPOUT_ATTENTION,
  DROPOUT_ATTENTION_BRANCH,
  DROPOUT_MLP_BRANCH
} DropoutKind;

/* Fills `dropout` and returns it, or returns NULL when this pass drops nothing. */
static const Dropout *dropout_at(const Pass *p, int layer, DropoutKind kind, Dropout *dropout) {
  const Model *m = p->model;
  if (!p->train || m->settings.dropout <= 0) return NULL;
  uint32_t site = SITE_DROPOUT + 8 * (uint32_t)layer + (uint32_t)kind;
  *dropout = (Dropout){m->settings.dropout, site, m->settings.seed, m->state};
  return dropout;
}

static float *norm_weight_gradient(const Model *m, Matrix norm) { return m->params.grad + norm.offset; }

typedef struct QkvViews {
  View q, k, v;
} QkvViews;

/* Queries, keys and values inside a packed [B][T][H*D + 2*G*D] array. */
static QkvViews qkv_views(const Model *m, void *qkv, int length) {
  const ModelConfig *c = &m->config;
  int64_t row = qkv_width(c), batch = (int64_t)length * row, head = c->head_dim;
  return (QkvViews){{qkv, batch, row, head},
                    {element(m, qkv, query_width(c)), batch, row, head},
                    {element(m, qkv, query_width(c) + key_width(c)), batch, row, head}};
}

static View heads_view(const ModelConfig *c, void *array, int length) {
  int64_t row = query_width(c);
  return (View){array, (int64_t)length * row, row, c->head_dim};
}

static Attention self_attention(const Pass *p, const Dropout *dropout) {
  const ModelConfig *c = &p->model->config;
  return (Attention){.batch = p->batch,
                     .heads = c->heads,
                     .kv_heads = c->kv_heads,
                     .head_dim = c->head_dim,
                     .queries = p->length,
                     .keys = p->length,
                     .scale = 1.0f / sqrtf((float)c->head_dim),
                     .causal = true,
                     .key_begin = p->packed ? p->model->key_begin : NULL,
                     .dropout = dropout};
}

/* branch = Wo attention(rope(Wqkv n)).  n = norm(x) [N][C] */
static void attention_forward(const Pass *p, int layer) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const LayerParameters *w = &m->table.layers[layer];
  const LayerActivations *a = &p->acts->layers[layer];
  int rows = p->batch * p->length;
  Rope rope = {m->rope_table, p->packed ? m->positions : NULL};
  Dropout drop;
  QkvViews view = qkv_views(m, a->qkv, p->length);
  Attention shape = self_attention(p, dropout_at(p, layer, DROPOUT_ATTENTION, &drop));
  k->linear(c, a->qkv, a->n_attention, &m->params, w->qkv, rows);
  k->rope(c, view.q, p->batch, p->length, g->heads + g->kv_heads, g->head_dim, &rope);
  if (p->caches) k->cache_store(c, &p->caches[layer], p->slot, 0, view.k, view.v, p->length);
  k->attention(c, &shape, heads_view(g, a->attention, p->length), view.q, view.k, view.v, a->lse);
  k->linear(c, p->acts->branch, a->attention, &m->params, w->output, rows);
}

/* dn = gradient of the norm's output, from dbranch [N][C]. */
static void attention_backward(const Pass *p, int layer, const void *dbranch) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const LayerParameters *w = &m->table.layers[layer];
  const LayerActivations *a = &p->acts->layers[layer];
  const Activations *s = p->acts;
  int rows = p->batch * p->length;
  Rope rope = {m->rope_table, p->packed ? m->positions : NULL};
  Dropout drop;
  QkvViews view = qkv_views(m, a->qkv, p->length), d = qkv_views(m, s->dqkv, p->length);
  Attention shape = self_attention(p, dropout_at(p, layer, DROPOUT_ATTENTION, &drop));
  k->linear_backward_weight(c, &m->params, w->output, dbranch, a->attention, rows, p->accumulate);
  k->linear_backward_input(c, s->dattention, dbranch, &m->params, w->output, rows);
  k->attention_backward(c, &shape, d.q, d.k, d.v, heads_view(g, s->dattention, p->length), view.q, view.k, view.v,
                        heads_view(g, a->attention, p->length), a->lse, &rope);
  k->linear_backward_weight(c, &m->params, w->qkv, s->dqkv, a->n_attention, rows, p->accumulate);
  k->linear_backward_input(c, s->dn, s->dqkv, &m->params, w->qkv, rows);
}

/* branch = Wdown swiglu(Wgate n, Wup n).  n = norm(x) [N][C] */
static void mlp_forward(const Pass *p, int layer) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const LayerParameters *w = &m->table.layers[layer];
  const LayerActivations *a = &p->acts->layers[layer];
  int rows = p->batch * p->length;
  k->linear(c, a->gate_up, a->n_mlp, &m->params, w->gate_up, rows);
  k->swiglu(c, a->h, a->gate_up, rows, g->ffn);
  k->linear(c, p->acts->branch, a->h, &m->params, w->down, rows);
}

static void mlp_backward(const Pass *p, int layer, const void *dbranch) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const LayerParameters *w = &m->table.layers[layer];
  const LayerActivations *a = &p->acts->layers[layer];
  const Activations *s = p->acts;
  int rows = p->batch * p->length;
  k->linear_backward_weight(c, &m->params, w->down, dbranch, a->h, rows, p->accumulate);
  k->linear_backward_input(c, s->dh, dbranch, &m->params, w->down, rows);
  k->swiglu_backward(c, a->gate_up, s->dh, a->gate_up, rows, g->ffn);
  k->linear_backward_weight(c, &m->params, w->gate_up, a->gate_up, a->n_mlp, rows, p->accumulate);
  k->linear_backward_input(c, s->dn, a->gate_up, &m->params, w->gate_up, rows);
}

void model_forward_body(const Pass *p) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Activations *s = p->acts;
  Dropout drop;
  k->embedding(c, s->layers[0].x_attention, &m->params, m->table.embedding, m->tokens, p->batch, p->length,
               dropout_at(p, 0, DROPOUT_EMBEDDING, &drop));
  k->residual_norm(c, NULL, s->layers[0].n_attention, s->layers[0].rstd_attention, s->layers[0].x_attention, NULL,
                   norm_weight(m, m->table.layers[0].attention_norm), g->norm_eps, p->batch, p->length, g->dim, NULL);
  for (int layer = 0; layer < g->layers; layer++) {
    const LayerActivations *a = &s->layers[layer];
    bool last = layer + 1 == g->layers;
    const LayerActivations *next = last ? NULL : &s->layers[layer + 1];
    attention_forward(p, layer);
    k->residual_norm(c, a->x_mlp, a->n_mlp, a->rstd_mlp, a->x_attention, s->branch,
                     norm_weight(m, m->table.layers[layer].mlp_norm), g->norm_eps, p->batch, p->length, g->dim,
                     dropout_at(p, layer, DROPOUT_ATTENTION_BRANCH, &drop));
    mlp_forward(p, layer);
    k->residual_norm(c, last ? s->x_final : next->x_attention, last ? s->n_final : next->n_attention,
                     last ? s->rstd_final : next->rstd_attention, a->x_mlp, s->branch,
                     norm_weight(m, last ? m->table.final_norm : m->table.layers[layer + 1].attention_norm),
                     g->norm_eps, p->batch, p->length, g->dim, dropout_at(p, layer, DROPOUT_MLP_BRANCH, &drop));
  }
}

/* From dn, the gradient of the final norm's output, to the gradient of every parameter below the head. */
static void backward_body(const Pass *p) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Activations *s = p->acts;
  Dropout drop;
  bool tied = g->tie; /* then the head has already written the embedding's gradient */
  const void *dbranch = s->dbranch ? s->dbranch : s->dx; /* without dropout they are the same numbers */
  k->residual_norm_backward(c, s->dx, s->dbranch, norm_weight_gradient(m, m->table.final_norm), s->dn, NULL, s->x_final,
                            s->rstd_final, norm_weight(m, m->table.final_norm), p->batch, p->length, g->dim,
                            dropout_at(p, g->layers - 1, DROPOUT_MLP_BRANCH, &drop), p->accumulate);
  for (int layer = g->layers - 1; layer >= 0; layer--) {
    const LayerActivations *a = &s->layers[layer];
    const LayerParameters *w = &m->table.layers[layer];
    mlp_backward(p, layer, dbranch);
    k->residual_norm_backward(c, s->dx, s->dbranch, norm_weight_gradient(m, w->mlp_norm), s->dn, s->dx, a->x_mlp,
                              a->rstd_mlp, norm_weight(m, w->mlp_norm), p->batch, p->length, g->dim,
                              dropout_at(p, layer, DROPOUT_ATTENTION_BRANCH, &drop), p->accumulate);
    attention_backward(p, layer, dbranch);
    const Dropout *below = layer > 0 ? dropout_at(p, layer - 1, DROPOUT_MLP_BRANCH, &drop) : NULL;
    k->residual_norm_backward(c, s->dx, layer > 0 ? s->dbranch : NULL, norm_weight_gradient(m, w->attention_norm),
                              s->dn, s->dx, a->x_attention, a->rstd_attention, norm_weight(m, w->attention_norm),
                              p->batch, p->length, g->dim, below, p->accumulate);
  }
  k->embedding_backward(c, &m->params, m->table.embedding, s->dx, m->offsets, m->order, g->vocab, p->batch, p->length,
                        dropout_at(p, 0, DROPOUT_EMBEDDING, &drop), p->accumulate || tied);
}

/* One row of dt numbers, widened in place from its end: bf16 is the upper half of an fp32. */
static void widen(const Model *m, float *row, int count) {
  if (m->dt == sizeof(float)) return;
  for (int i = count - 1; i >= 0; i--) {
    uint16_t narrow;
    memcpy(&narrow, (const char *)row + (size_t)i * sizeof narrow, sizeof narrow);
    uint32_t bits = (uint32_t)narrow << 16;
    memcpy(&row[i], &bits, sizeof bits);
  }
}

/* Rows of the chunk that begins at `row`, without their pads, to host [N][V]. */
static void download_logits(const Pass *p, int row, int count, float *logits) {
  const Model *m = p->model;
  int vocab = m->config.vocab;
  for (int i = 0; i < count; i++) {
    float *to = logits + (int64_t)(row + i) * vocab;
    m->ops->download(m->context, to, element(m, p->acts->logits, (int64_t)i * padded_vocab(&m->config)),
                     (size_t)vocab * m->dt);
    widen(m, to, vocab);
  }
}

/* The head and the loss in chunks of rows, so that the logits of the whole batch never exist at once. Training also
 * makes dn and the head's gradient. `logits` NULL, or host [N][V]. */
static void head_and_loss(const Pass *p, StepState *state, float smoothing, float *logits) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Activations *s = p->acts;
  int rows = p->batch * p->length, padded = padded_vocab(g);
  for (int row = 0; row < rows; row += s->head_rows) {
    int count = rows - row < s->head_rows ? rows - row : s->head_rows;
    void *n = element(m, s->n_final, (int64_t)row * g->dim);
    k->linear(c, s->logits, n, &m->params, m->table.head, count);
    if (logits) download_logits(p, row, count, logits);
    k->cross_entropy(c, s->losses + row, s->logits, padded, m->targets + row, count, g->vocab, smoothing, state,
                     p->train);
    if (!p->train) continue;
    k->linear_backward_weight(c, &m->params, m->table.head, s->logits, n, count, p->accumulate || row > 0);
    k->linear_backward_input(c, element(m, s->dn, (int64_t)row * g->dim), s->logits, &m->params, m->table.head, count);
  }
  k->loss_sum(c, state, s->losses, m->targets, rows);
}

/* ---- the training step ---- */

static void micro_batch(Context *c, Model *m, bool first) {
  Pass pass = {.model = m,
               .acts = &m->train,
               .batch = m->settings.batch,
               .length = m->config.ctx,
               .train = true,
               .packed = m->train_packed,
               .accumulate = !first};
  model_forward_body(&pass);
  head_and_loss(&pass, m->state, m->settings.label_smoothing, NULL);
  backward_body(&pass);
  m->ops->next_micro_batch(c, m->state, m->settings.batch);
}

static void first_micro_batch(Context *c, void *model) {
  Model *m = model;
  m->ops->step_begin(c, m->state, m->lr_table, m->target_count);
  micro_batch(c, m, true);
}

static void later_micro_batch(Context *c, void *model) { micro_batch(c, model, false); }

static void update(Context *c, void *model) {
  Model *m = model;
  m->ops->clip(c, m->state, &m->params, m->settings.clip, &m->settings.adamw);
  m->ops->adamw(c, m->state, &m->params, &m->settings.adamw);
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

bool model_train_begin(Model *m, const TrainConfig *settings, Error *error) {
  m->settings = *settings;
  m->ops->drop(m->context, &m->evaluation); /* evaluation moves into the training buffers */
  int64_t rows = (int64_t)settings->batch * m->config.ctx;
  if (rows > INT32_MAX / 2)
    return fail(error, EXIT_USAGE, "a micro-batch of %lld tokens is too large; use a smaller batch", (long long)rows);
  size_t arena = m->table.arena * sizeof(float), offsets = (size_t)m->config.vocab + 1;
  m->params.grad = m->ops->alloc(m->context, "gradients", arena);
  m->params.m = m->ops->alloc(m->context, "first moments of AdamW", arena);
  m->params.v = m->ops->alloc(m->context, "second moments of AdamW", arena);
  m->state = m->ops->alloc(m->context, "step state", sizeof(StepState));
  m->target_count = m->ops->alloc(m->context, "target count", sizeof(int32_t));
  m->offsets = m->ops->alloc(m->context, "token offsets", offsets * sizeof(int32_t));
  m->order = m->ops->alloc(m->context, "token order", (size_t)rows * sizeof(int32_t));
  m->sorted = malloc((offsets + (size_t)rows) * sizeof(int32_t));
  if (!m->sorted) return error_memory(error, "the order of tokens");
  if (!model_check_backend(m, error)) return false;
  m->ops->refresh_parameters(m->context, &m->params); /* now with what the optimizer needs */
  return model_reserve_tokens(m, rows, error) && upload_schedule(m, error) &&
         activations_allocate(m, &m->train, &m->train_memory, rows, true, settings->head_rows, error);
}

void model_set_step(Model *m, int64_t step) {
  StepState state = {.step = step};
  m->ops->upload(m->context, m->state, &state, sizeof state);
}

/* Gradients of all micro-batches of a step. */
static void submit_micro_batches(Model *m, const TokenBatch *step) {
  int64_t rows = (int64_t)m->settings.batch * m->config.ctx;
  int32_t count = 0;
  for (int64_t i = 0; i < rows * m->settings.micro_batches; i++) count += step->targets[i] >= 0;
  m->train_packed = step->positions;
  m->ops->upload(m->context, m->target_count, &count, sizeof count);
  for (int i = 0; i < m->settings.micro_batches; i++) {
    model_upload_tokens(m, step, i * rows, rows, m->config.ctx);
    model_upload_token_order(m, step->tokens + i * rows, rows);
    m->ops->submit(m->context, i ? &m->later : &m->first, i ? later_micro_batch : first_micro_batch, m);
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
  free(m->eval.layers);
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
  model_forward_body(&e->pass);
  head_and_loss(&e->pass, m->eval_state, 0.0f, e->logits);
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
