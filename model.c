/* The Transformer as a list of operations. Forward and backward of each part stand next to each other; shapes are in
 * the comments (model/internal.h names the dimensions). */
#include "model/internal.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- dropout ---- */

typedef enum DropoutKind {
  DROPOUT_EMBEDDING,
  DROPOUT_ATTENTION,
  DROPOUT_ATTENTION_BRANCH,
  DROPOUT_MLP_BRANCH,
  DROPOUT_HIDDEN,
  DROPOUT_KINDS = 8 /* room for them in the numbers of sites */
} DropoutKind;

static float dropout_rate(const DropoutRates *rates, DropoutKind kind) {
  switch (kind) {
  case DROPOUT_EMBEDDING: return rates->embedding;
  case DROPOUT_ATTENTION: return rates->attention;
  case DROPOUT_HIDDEN: return rates->hidden;
  default: return rates->branch;
  }
}

/* Fills `dropout` and returns it, or returns NULL when this pass drops nothing there. */
static const Dropout *dropout_at(const Pass *p, int layer, DropoutKind kind, Dropout *dropout) {
  const Model *m = p->model;
  float rate = dropout_rate(&m->settings.dropout, kind);
  if (!p->train || rate <= 0) return NULL;
  uint32_t site = SITE_DROPOUT + DROPOUT_KINDS * (uint32_t)layer + (uint32_t)kind;
  *dropout = (Dropout){rate, site, m->settings.seed, m->state};
  return dropout;
}

/* Of what a part adds to the residual stream. */
static const Dropout *branch_dropout(const Pass *p, int part, Dropout *dropout) {
  const Part *w = &p->model->table.parts[part];
  return dropout_at(p, w->layer, w->kind == PART_SELF ? DROPOUT_ATTENTION_BRANCH : DROPOUT_MLP_BRANCH, dropout);
}

/* ---- the parts: a branch from n [N][C], and the way back ---- */

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

static const int32_t *positions_of(const Pass *p) { return p->packed ? p->model->positions : NULL; }

/* NULL where positions are none of attention's business. */
static const Rope *rope_of(const Pass *p, Rope *rope) {
  *rope = (Rope){p->model->rope_table, positions_of(p)};
  return p->model->config.positions == POSITIONS_ROPE ? rope : NULL;
}

/* Wo attention(rope(Wqkv n)) */
static void self_forward(const Pass *p, int part, void *branch) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Part *w = &m->table.parts[part];
  const PartActivations *a = &p->acts->parts[part];
  int rows = p->batch * p->length;
  Rope table;
  const Rope *rope = rope_of(p, &table);
  Dropout drop;
  QkvViews view = qkv_views(m, a->in, p->length);
  Attention shape = self_attention(p, dropout_at(p, w->layer, DROPOUT_ATTENTION, &drop));
  k->linear(c, a->in, a->n, &m->params, w->in, rows);
  if (rope) k->rope(c, view.q, p->batch, p->length, g->heads + g->kv_heads, g->head_dim, rope);
  if (p->caches) k->cache_store(c, &p->caches[w->layer], p->slot, 0, view.k, view.v, p->length);
  k->attention(c, &shape, heads_view(g, a->middle, p->length), view.q, view.k, view.v, a->lse);
  k->linear(c, branch, a->middle, &m->params, w->out, rows);
}

static void self_backward(const Pass *p, int part, const void *dbranch, void *dn, bool add) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Part *w = &m->table.parts[part];
  const PartActivations *a = &p->acts->parts[part];
  const Activations *s = p->acts;
  int rows = p->batch * p->length;
  Rope table;
  Dropout drop;
  QkvViews view = qkv_views(m, a->in, p->length), d = qkv_views(m, s->dqkv, p->length);
  Attention shape = self_attention(p, dropout_at(p, w->layer, DROPOUT_ATTENTION, &drop));
  k->linear_backward_weight(c, &m->params, w->out, dbranch, a->middle, rows, p->accumulate);
  k->linear_backward_input(c, s->dmiddle, dbranch, &m->params, w->out, rows, false);
  k->attention_backward(c, &shape, d.q, d.k, d.v, heads_view(g, s->dmiddle, p->length), view.q, view.k, view.v,
                        heads_view(g, a->middle, p->length), a->lse, rope_of(p, &table));
  k->linear_backward_weight(c, &m->params, w->in, s->dqkv, a->n, rows, p->accumulate);
  k->linear_backward_input(c, dn, s->dqkv, &m->params, w->in, rows, add);
}

/* Wdown activation(Wup n) */
static void mlp_forward(const Pass *p, int part, void *branch) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const MlpShape mlp = mlp_of(&m->config);
  const Part *w = &m->table.parts[part];
  const PartActivations *a = &p->acts->parts[part];
  int rows = p->batch * p->length;
  Dropout drop;
  const Dropout *dropout = dropout_at(p, w->layer, DROPOUT_HIDDEN, &drop);
  k->linear(c, a->in, a->n, &m->params, w->in, rows);
  k->activation(c, a->middle, a->in, &mlp, p->batch, p->length, dropout);
  k->linear(c, branch, a->middle, &m->params, w->out, rows);
}

static void mlp_backward(const Pass *p, int part, const void *dbranch, void *dn, bool add) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const MlpShape mlp = mlp_of(&m->config);
  const Part *w = &m->table.parts[part];
  const PartActivations *a = &p->acts->parts[part];
  const Activations *s = p->acts;
  int rows = p->batch * p->length;
  Dropout drop;
  const Dropout *dropout = dropout_at(p, w->layer, DROPOUT_HIDDEN, &drop);
  k->linear_backward_weight(c, &m->params, w->out, dbranch, a->middle, rows, p->accumulate);
  k->linear_backward_input(c, s->dmiddle, dbranch, &m->params, w->out, rows, false);
  k->activation_backward(c, a->in, s->dmiddle, a->in, &mlp, p->batch, p->length, dropout);
  k->linear_backward_weight(c, &m->params, w->in, a->in, a->n, rows, p->accumulate);
  k->linear_backward_input(c, dn, a->in, &m->params, w->in, rows, add);
}

static const struct {
  void (*forward)(const Pass *p, int part, void *branch);
  /* dn: gradient of the part's n, written, or with `add` added to. It may be dbranch, which is read before that. */
  void (*backward)(const Pass *p, int part, const void *dbranch, void *dn, bool add);
} parts[] = {[PART_SELF] = {self_forward, self_backward}, [PART_MLP] = {mlp_forward, mlp_backward}};

/* ---- where norms stand ---- */

/* x_out = x_in + branch; y = norm(x_out), which leaves its statistics in `stats`. */
static void add_and_norm(const Pass *p, void *x_out, void *y, NormStats stats, const void *x_in, const void *branch,
                         NormParameters weights, const Dropout *dropout) {
  const Model *m = p->model;
  Norm norm = norm_of(m, weights);
  m->ops->residual_norm(m->context, x_out, y, stats, x_in, branch, &norm, p->batch, p->length, m->config.dim, dropout);
}

static void norm_backward(const Pass *p, void *dx, void *dbranch, const void *dy, const void *dres,
                          const PartActivations *a, NormParameters weights, const Dropout *dropout) {
  const Model *m = p->model;
  Norm norm = norm_of(m, weights);
  NormGradient gradient = {m->params.grad + weights.weight.offset,
                           weights.bias.rows ? m->params.grad + weights.bias.offset : NULL};
  m->ops->residual_norm_backward(m->context, dx, dbranch, gradient, dy, dres, a->x, a->stats, &norm, p->batch,
                                 p->length, m->config.dim, dropout, p->accumulate);
}

static void add_dropped(const Pass *p, void *x_out, const void *x_in, const void *y, const Dropout *dropout) {
  const Model *m = p->model;
  m->ops->residual_add(m->context, x_out, x_in, y, p->batch, p->length, m->config.dim, dropout);
}

/* The norm that reads x of part `i`, or of what follows the last one. */
static NormParameters norm_at(const Model *m, int i) {
  return i < m->table.part_count ? m->table.parts[i].norm : m->table.final_norm;
}

/* Adds the branch of part i to the residual stream: what part i + 1, or the head, reads. */
static void join(const Pass *p, int i) {
  const Model *m = p->model;
  const PartActivations *a = &p->acts->parts[i], *next = a + 1;
  Dropout drop;
  const Dropout *dropout = branch_dropout(p, i, &drop);
  switch (m->config.norm_place) {
  case NORM_BEFORE:
    add_and_norm(p, next->x, next->n, next->stats, a->x, p->acts->branch, norm_at(m, i + 1), dropout);
    break;
  case NORM_AFTER: add_and_norm(p, a->x, next->n, a->stats, a->n, p->acts->branch, norm_at(m, i), dropout); break;
  case NORM_ON_BRANCH:
    add_and_norm(p, NULL, p->acts->branch, a->stats, a->x, NULL, norm_at(m, i), NULL);
    add_dropped(p, next->n, a->n, p->acts->branch, dropout);
    break;
  }
}

/* The gradients of part i's branch, which is returned, and of the residual stream beside it, dx: from those of what
 * join() made, dx (nothing yet where the last part meets the final norm) and, NORM_BEFORE, dn. */
static const void *unjoin(const Pass *p, int i) {
  const Model *m = p->model;
  const Activations *s = p->acts;
  const PartActivations *a = &s->parts[i];
  Dropout drop;
  const Dropout *dropout = branch_dropout(p, i, &drop);
  void *dbranch = dropout || m->config.norm_place == NORM_ON_BRANCH ? s->dbranch : NULL;
  switch (m->config.norm_place) {
  case NORM_BEFORE:
    norm_backward(p, s->dx, dbranch, s->dn, i + 1 < m->table.part_count ? s->dx : NULL, a + 1, norm_at(m, i + 1),
                  dropout);
    break;
  case NORM_AFTER: norm_backward(p, s->dx, dbranch, s->dx, NULL, a, norm_at(m, i), dropout); break;
  case NORM_ON_BRANCH:
    if (dropout) add_dropped(p, dbranch, NULL, s->dx, dropout);
    norm_backward(p, dbranch, NULL, dropout ? dbranch : s->dx, NULL, a, norm_at(m, i), NULL);
    break;
  }
  return dbranch ? dbranch : s->dx; /* without dropout they are the same numbers */
}

/* ---- a pass ---- */

void model_forward_body(const Pass *p) {
  const Model *m = p->model;
  const PartActivations *first = &p->acts->parts[0];
  bool before = m->config.norm_place == NORM_BEFORE;
  Embedding embedding = embedding_of(m, positions_of(p));
  Dropout drop;
  m->ops->embedding(m->context, before ? first->x : first->n, &m->params, &embedding, m->tokens, p->batch, p->length,
                    dropout_at(p, 0, DROPOUT_EMBEDDING, &drop));
  if (before) add_and_norm(p, NULL, first->n, first->stats, first->x, NULL, norm_at(m, 0), NULL);
  for (int i = 0; i < m->table.part_count; i++) {
    bool keep = m->config.norm_place == NORM_ON_BRANCH; /* the branch is what the norm reads */
    parts[m->table.parts[i].kind].forward(p, i, keep ? p->acts->parts[i].x : p->acts->branch);
    join(p, i);
  }
}

/* Where the head leaves the gradient of what it reads. */
static void *head_gradient(const Pass *p) {
  return p->model->config.norm_place == NORM_BEFORE ? p->acts->dn : p->acts->dx;
}

static void embedding_backward(const Pass *p) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  const ModelConfig *g = &m->config;
  Dropout drop;
  const Dropout *dropout = dropout_at(p, 0, DROPOUT_EMBEDDING, &drop);
  bool tied = g->tie; /* then the head has already written the embedding's gradient */
  k->embedding_backward(m->context, &m->params, m->table.embedding, 1.0f, p->acts->dx, m->offsets, m->order, g->vocab,
                        p->batch, p->length, dropout, p->accumulate || tied);
  if (g->positions == POSITIONS_LEARNED)
    k->embedding_backward(m->context, &m->params, m->table.places, 1.0f, p->acts->dx, m->place_offsets, m->place_order,
                          g->ctx, p->batch, p->length, dropout, p->accumulate);
}

/* From head_gradient() to the gradient of every parameter below the head. */
static void backward_body(const Pass *p) {
  const Model *m = p->model;
  const Activations *s = p->acts;
  bool before = m->config.norm_place == NORM_BEFORE;
  for (int i = m->table.part_count - 1; i >= 0; i--) {
    const void *dbranch = unjoin(p, i);
    parts[m->table.parts[i].kind].backward(p, i, dbranch, before ? s->dn : s->dx, !before);
  }
  if (before) norm_backward(p, s->dx, NULL, s->dn, s->dx, &s->parts[0], norm_at(m, 0), NULL);
  embedding_backward(p);
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
    void *n = element(m, s->parts[m->table.part_count].n, (int64_t)row * g->dim);
    k->linear(c, s->logits, n, &m->params, m->table.head, count);
    if (logits) download_logits(p, row, count, logits);
    k->cross_entropy(c, s->losses + row, s->logits, padded, m->targets + row, count, g->vocab, smoothing, state,
                     p->train);
    if (!p->train) continue;
    k->linear_backward_weight(c, &m->params, m->table.head, s->logits, n, count, p->accumulate || row > 0);
    k->linear_backward_input(c, element(m, head_gradient(p), (int64_t)row * g->dim), s->logits, &m->params,
                             m->table.head, count, false);
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

/* The order of positions, which without packed documents is the same in every batch. */
static bool reserve_places(Model *m, int64_t rows, Error *error) {
  int ctx = m->config.ctx;
  m->place_offsets = m->ops->alloc(m->context, "position offsets", ((size_t)ctx + 1) * sizeof(int32_t));
  m->place_order = m->ops->alloc(m->context, "position order", (size_t)rows * sizeof(int32_t));
  int32_t *natural = malloc((size_t)rows * sizeof *natural);
  if (!natural) return error_memory(error, "the order of positions");
  for (int64_t i = 0; i < rows; i++) natural[i] = (int32_t)(i % ctx);
  if (model_check_backend(m, NULL)) model_upload_order(m, natural, rows, ctx, m->place_offsets, m->place_order);
  free(natural);
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
  size_t kinds = offsets > (size_t)m->config.ctx + 1 ? offsets : (size_t)m->config.ctx + 1;
  m->sorted = malloc((kinds + (size_t)rows) * sizeof(int32_t));
  if (!m->sorted) return error_memory(error, "the order of tokens");
  if (m->config.positions == POSITIONS_LEARNED && !reserve_places(m, rows, error)) return false;
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
    model_upload_order(m, step->tokens + i * rows, rows, m->config.vocab, m->offsets, m->order);
    if (step->positions && m->place_order)
      model_upload_order(m, step->positions + i * rows, rows, m->config.ctx, m->place_offsets, m->place_order);
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
