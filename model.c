/* The Transformer as a list of operations. Forward and backward of each part stand next to each other; shapes are in
 * the comments (model/internal.h names the dimensions). */
#include "model/internal.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_encoder(const Pass *p) { return p->stack == &p->model->table.encoder; }

/* ---- dropout ---- */

typedef enum DropoutKind {
  DROPOUT_EMBEDDING,
  DROPOUT_ATTENTION,
  DROPOUT_ATTENTION_BRANCH,
  DROPOUT_MLP_BRANCH,
  DROPOUT_CROSS,
  DROPOUT_CROSS_BRANCH,
  DROPOUT_HIDDEN,
  DROPOUT_KINDS = 8 /* room for them in the numbers of sites */
} DropoutKind;

static float dropout_rate(const DropoutRates *rates, DropoutKind kind) {
  switch (kind) {
  case DROPOUT_EMBEDDING: return rates->embedding;
  case DROPOUT_ATTENTION:
  case DROPOUT_CROSS: return rates->attention;
  case DROPOUT_HIDDEN: return rates->hidden;
  default: return rates->branch;
  }
}

/* Fills `dropout` and returns it, or returns NULL when this pass drops nothing there. */
static const Dropout *dropout_at(const Pass *p, int layer, DropoutKind kind, Dropout *dropout) {
  const Model *m = p->model;
  float rate = dropout_rate(&m->settings.dropout, kind);
  if (!p->train || rate <= 0) return NULL;
  uint32_t site = SITE_DROPOUT + DROPOUT_KINDS * (uint32_t)(p->stack->first_layer + layer) + (uint32_t)kind;
  *dropout = (Dropout){rate, site, m->settings.seed, m->state};
  return dropout;
}

/* Of what a part adds to the residual stream. */
static const Dropout *branch_dropout(const Pass *p, int part, Dropout *dropout) {
  static const DropoutKind kinds[] = {
      [PART_SELF] = DROPOUT_ATTENTION_BRANCH, [PART_CROSS] = DROPOUT_CROSS_BRANCH, [PART_MLP] = DROPOUT_MLP_BRANCH};
  const Part *w = &p->stack->parts[part];
  return dropout_at(p, w->layer, kinds[w->kind], dropout);
}

/* ---- the parts: a branch from n [N][C], and the way back ---- */

typedef struct QkvViews {
  View q, k, v;
} QkvViews;

static View heads_view(const ModelConfig *c, void *array, int length) {
  int64_t row = query_width(c);
  return (View){array, (int64_t)length * row, row, c->head_dim};
}

/* Queries, keys and values inside a packed [B][T][H*D + 2*G*D] array. */
static QkvViews qkv_views(const Model *m, void *qkv, int length) {
  const ModelConfig *c = &m->config;
  int64_t row = qkv_width(c), batch = (int64_t)length * row, head = c->head_dim;
  return (QkvViews){{qkv, batch, row, head},
                    {element(m, qkv, query_width(c)), batch, row, head},
                    {element(m, qkv, query_width(c) + key_width(c)), batch, row, head}};
}

/* The decoder sees what stands before; an encoder the whole text. */
static Attention self_attention(const Pass *p, const Dropout *dropout) {
  const Model *m = p->model;
  const ModelConfig *c = &m->config;
  bool causal = !is_encoder(p);
  return (Attention){.batch = p->batch,
                     .heads = c->heads,
                     .kv_heads = c->kv_heads,
                     .head_dim = c->head_dim,
                     .queries = p->length,
                     .keys = p->length,
                     .scale = 1.0f / sqrtf((float)c->head_dim),
                     .causal = causal,
                     .key_begin = !p->packed ? NULL
                                  : causal   ? m->key_begin
                                             : m->source.begin,
                     .key_end = !p->packed || causal ? NULL : m->source.end,
                     .dropout = dropout};
}

static const int32_t *positions_of(const Pass *p) {
  if (!p->packed) return NULL;
  return is_encoder(p) ? p->model->source.positions : p->model->positions;
}

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
  const Part *w = &p->stack->parts[part];
  const PartActivations *a = &p->parts[part];
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
  if (p->maps)
    model_take_map(p, is_encoder(p) ? ATTENTION_ENCODER : ATTENTION_SELF, w->layer, &shape, view.q, view.k, a->lse);
  k->linear(c, branch, a->middle, &m->params, w->out, rows);
}

static void self_backward(const Pass *p, int part, const void *dbranch, void *dn, bool add) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Part *w = &p->stack->parts[part];
  const PartActivations *a = &p->parts[part];
  const Activations *s = p->acts;
  int rows = p->batch * p->length;
  Rope table;
  Dropout drop;
  QkvViews view = qkv_views(m, a->in, p->length), d = qkv_views(m, s->din, p->length);
  Attention shape = self_attention(p, dropout_at(p, w->layer, DROPOUT_ATTENTION, &drop));
  k->linear_backward_weight(c, &m->params, w->out, dbranch, a->middle, rows, p->accumulate);
  k->linear_backward_input(c, s->dmiddle, dbranch, &m->params, w->out, rows, false);
  k->attention_backward(c, &shape, d.q, d.k, d.v, heads_view(g, s->dmiddle, p->length), view.q, view.k, view.v,
                        heads_view(g, a->middle, p->length), a->lse, rope_of(p, &table));
  k->linear_backward_weight(c, &m->params, w->in, s->din, a->n, rows, p->accumulate);
  k->linear_backward_input(c, dn, s->din, &m->params, w->in, rows, add);
}

/* Keys and values in cross-attention: of this pass or, after model_encode(), in the memories. */
static QkvViews memory_views(const Pass *p, int part) {
  const Model *m = p->model;
  const ModelConfig *c = &m->config;
  int64_t head = c->head_dim, row = key_width(c);
  if (!p->caches) {
    void *memory = p->parts[part].memory;
    int64_t batch = 2 * row * p->length;
    return (QkvViews){.k = {memory, batch, 2 * row, head}, .v = {element(m, memory, row), batch, 2 * row, head}};
  }
  const KvCache *cache = &p->memories[p->stack->parts[part].layer];
  int64_t slot = (int64_t)cache->capacity * row;
  return (QkvViews){.k = {element(m, cache->k, p->slot * slot), slot, row, head},
                    .v = {element(m, cache->v, p->slot * slot), slot, row, head}};
}

static Attention cross_attention(const Pass *p, const Dropout *dropout) {
  const ModelConfig *c = &p->model->config;
  return (Attention){.batch = p->batch,
                     .heads = c->heads,
                     .kv_heads = c->kv_heads,
                     .head_dim = c->head_dim,
                     .queries = p->length,
                     .keys = p->caches ? p->memory_length : p->length,
                     .scale = 1.0f / sqrtf((float)c->head_dim),
                     .key_begin = p->packed ? p->model->source.cross_begin : NULL,
                     .key_end = p->packed ? p->model->source.cross_end : NULL,
                     .dropout = dropout};
}

/* What the encoder has made of the source, [N][C]. */
static void *encoded(const Pass *p) { return p->acts->encoder[p->model->table.encoder.count].n; }

/* Wo attention(Wq n, Wkv encoded) */
static void cross_forward(const Pass *p, int part, void *branch) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const Part *w = &p->stack->parts[part];
  const PartActivations *a = &p->parts[part];
  int rows = p->batch * p->length;
  Dropout drop;
  QkvViews memory = memory_views(p, part);
  Attention shape = cross_attention(p, dropout_at(p, w->layer, DROPOUT_CROSS, &drop));
  k->linear(c, a->in, a->n, &m->params, w->in, rows);
  if (!p->caches) k->linear(c, a->memory, encoded(p), &m->params, w->memory, rows);
  k->attention(c, &shape, heads_view(&m->config, a->middle, p->length), heads_view(&m->config, a->in, p->length),
               memory.k, memory.v, a->lse);
  if (p->maps)
    model_take_map(p, ATTENTION_CROSS, w->layer, &shape, heads_view(&m->config, a->in, p->length), memory.k, a->lse);
  k->linear(c, branch, a->middle, &m->params, w->out, rows);
}

static void cross_backward(const Pass *p, int part, const void *dbranch, void *dn, bool add) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Part *w = &p->stack->parts[part];
  const PartActivations *a = &p->parts[part];
  const Activations *s = p->acts;
  int rows = p->batch * p->length;
  bool first = w->layer == g->layers - 1; /* of the cross-attentions, the last comes first */
  Dropout drop;
  QkvViews memory = memory_views(p, part), d = memory;
  Attention shape = cross_attention(p, dropout_at(p, w->layer, DROPOUT_CROSS, &drop));
  d.k.data = s->dkeys, d.v.data = element(m, s->dkeys, key_width(g));
  k->linear_backward_weight(c, &m->params, w->out, dbranch, a->middle, rows, p->accumulate);
  k->linear_backward_input(c, s->dmiddle, dbranch, &m->params, w->out, rows, false);
  k->attention_backward(c, &shape, heads_view(g, s->din, p->length), d.k, d.v, heads_view(g, s->dmiddle, p->length),
                        heads_view(g, a->in, p->length), memory.k, memory.v, heads_view(g, a->middle, p->length),
                        a->lse, NULL);
  k->linear_backward_weight(c, &m->params, w->in, s->din, a->n, rows, p->accumulate);
  k->linear_backward_weight(c, &m->params, w->memory, s->dkeys, encoded(p), rows, p->accumulate);
  k->linear_backward_input(c, dn, s->din, &m->params, w->in, rows, add);
  k->linear_backward_input(c, s->dmemory, s->dkeys, &m->params, w->memory, rows, !first);
}

/* Wdown activation(Wup n) */
static void mlp_forward(const Pass *p, int part, void *branch) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const MlpShape mlp = mlp_of(&m->config);
  const Part *w = &p->stack->parts[part];
  const PartActivations *a = &p->parts[part];
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
  const Part *w = &p->stack->parts[part];
  const PartActivations *a = &p->parts[part];
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
} parts[] = {[PART_SELF] = {self_forward, self_backward},
             [PART_CROSS] = {cross_forward, cross_backward},
             [PART_MLP] = {mlp_forward, mlp_backward}};

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
static NormParameters norm_at(const Pass *p, int i) {
  return i < p->stack->count ? p->stack->parts[i].norm : p->stack->norm;
}

/* Adds the branch of part i to the residual stream: what part i + 1, or the head, reads. */
static void join(const Pass *p, int i) {
  const Model *m = p->model;
  const PartActivations *a = &p->parts[i], *next = a + 1;
  Dropout drop;
  const Dropout *dropout = branch_dropout(p, i, &drop);
  switch (m->config.norm_place) {
  case NORM_BEFORE:
    add_and_norm(p, next->x, next->n, next->stats, a->x, p->acts->branch, norm_at(p, i + 1), dropout);
    break;
  case NORM_AFTER: add_and_norm(p, a->x, next->n, a->stats, a->n, p->acts->branch, norm_at(p, i), dropout); break;
  case NORM_ON_BRANCH:
    add_and_norm(p, NULL, p->acts->branch, a->stats, a->x, NULL, norm_at(p, i), NULL);
    add_dropped(p, next->n, a->n, p->acts->branch, dropout);
    break;
  }
}

/* The gradients of part i's branch, which is returned, and of the residual stream beside it, dx: from those of what
 * join() made, dx (nothing yet where the last part meets the final norm) and, NORM_BEFORE, dn. */
static const void *unjoin(const Pass *p, int i) {
  const Model *m = p->model;
  const Activations *s = p->acts;
  const PartActivations *a = &p->parts[i];
  Dropout drop;
  const Dropout *dropout = branch_dropout(p, i, &drop);
  void *dbranch = dropout || m->config.norm_place == NORM_ON_BRANCH ? s->dbranch : NULL;
  switch (m->config.norm_place) {
  case NORM_BEFORE:
    norm_backward(p, s->dx, dbranch, s->dn, i + 1 < p->stack->count ? s->dx : NULL, a + 1, norm_at(p, i + 1), dropout);
    break;
  case NORM_AFTER: norm_backward(p, s->dx, dbranch, s->dx, NULL, a, norm_at(p, i), dropout); break;
  case NORM_ON_BRANCH:
    if (dropout) add_dropped(p, dbranch, NULL, s->dx, dropout);
    norm_backward(p, dbranch, NULL, dropout ? dbranch : s->dx, NULL, a, norm_at(p, i), NULL);
    break;
  }
  return dbranch ? dbranch : s->dx; /* without dropout they are the same numbers */
}

/* ---- a stack ---- */

/* The part of a pass that goes through the decoder, or through the encoder. */
static Pass through(const Pass *p, bool encoder) {
  Pass pass = *p;
  pass.stack = encoder ? &p->model->table.encoder : &p->model->table.decoder;
  pass.parts = encoder ? p->acts->encoder : p->acts->decoder;
  return pass;
}

static void stack_forward(const Pass *p) {
  const Model *m = p->model;
  const PartActivations *first = &p->parts[0];
  const int32_t *tokens = is_encoder(p) ? m->source.tokens : m->tokens;
  bool before = m->config.norm_place == NORM_BEFORE;
  Embedding embedding = embedding_of(p->stack, positions_of(p));
  Dropout drop;
  m->ops->embedding(m->context, before ? first->x : first->n, &m->params, &embedding, tokens, p->batch, p->length,
                    dropout_at(p, 0, DROPOUT_EMBEDDING, &drop));
  if (before) add_and_norm(p, NULL, first->n, first->stats, first->x, NULL, norm_at(p, 0), NULL);
  for (int i = 0; i < p->stack->count; i++) {
    bool keep = m->config.norm_place == NORM_ON_BRANCH; /* the branch is what the norm reads */
    parts[p->stack->parts[i].kind].forward(p, i, keep ? p->parts[i].x : p->acts->branch);
    join(p, i);
  }
}

/* Where what stands above a stack leaves the gradient of its output. */
static void *output_gradient(const Pass *p) {
  return p->model->config.norm_place == NORM_BEFORE ? p->acts->dn : p->acts->dx;
}

/* `written`: the table's gradient has been begun by others. */
static void embedding_backward(const Pass *p, bool written) {
  const Model *m = p->model;
  const Backend *k = m->ops;
  const Stack *s = p->stack;
  const RowOrder *order = is_encoder(p) ? &m->source_order : &m->order;
  const RowOrder *places = is_encoder(p) ? &m->source_places : &m->place_order;
  Dropout drop;
  const Dropout *dropout = dropout_at(p, 0, DROPOUT_EMBEDDING, &drop);
  k->embedding_backward(m->context, &m->params, s->embedding, 1.0f, p->acts->dx, order->offsets, order->order, s->vocab,
                        p->batch, p->length, dropout, p->accumulate || written);
  if (m->config.positions == POSITIONS_LEARNED)
    k->embedding_backward(m->context, &m->params, s->places, 1.0f, p->acts->dx, places->offsets, places->order,
                          m->config.ctx, p->batch, p->length, dropout, p->accumulate);
}

/* All gradients of a layer, or of the rest of the model, are complete. */
static void hand_over(const Pass *p, int bucket) {
  const Model *m = p->model;
  if (!p->hand_over) return;
  const int first = bucket ? m->table.bucket_ends[bucket - 1] : 0;
  m->ops->peers_reduce(m->context, &m->params, first, m->table.bucket_ends[bucket] - first);
}

/* From output_gradient() to the gradient of every parameter of the stack. */
static void stack_backward(const Pass *p) {
  const Model *m = p->model;
  const Activations *s = p->acts;
  bool before = m->config.norm_place == NORM_BEFORE;
  for (int i = p->stack->count - 1; i >= 0; i--) {
    const void *dbranch = unjoin(p, i);
    if (i + 1 < p->stack->count && p->stack->parts[i + 1].layer > p->stack->parts[i].layer)
      hand_over(p, p->stack->first_layer + p->stack->parts[i + 1].layer);
    parts[p->stack->parts[i].kind].backward(p, i, dbranch, before ? s->dn : s->dx, !before);
  }
  if (before) norm_backward(p, s->dx, NULL, s->dn, s->dx, &p->parts[0], norm_at(p, 0), NULL);
  if (p->stack->count) hand_over(p, p->stack->first_layer);
  embedding_backward(p, m->config.tie); /* then the head has begun */
}

/* ---- a pass ---- */

void model_encode(const Pass *pass) {
  const Model *m = pass->model;
  Pass p = through(pass, true);
  p.caches = NULL;
  stack_forward(&p);
  if (!pass->caches) return;
  p = through(pass, false);
  for (int i = 0; i < p.stack->count; i++) {
    const Part *w = &p.stack->parts[i];
    if (w->kind != PART_CROSS) continue;
    Pass fresh = p;
    fresh.caches = NULL;
    QkvViews memory = memory_views(&fresh, i);
    m->ops->linear(m->context, p.parts[i].memory, encoded(&p), &m->params, w->memory, p.length);
    m->ops->cache_store(m->context, &p.memories[w->layer], p.slot, 0, memory.k, memory.v, p.length);
  }
}

void model_forward(const Pass *pass) {
  if (has_encoder(&pass->model->config) && !pass->caches) model_encode(pass);
  Pass p = through(pass, false);
  stack_forward(&p);
}

void model_backward(const Pass *pass) {
  const Model *m = pass->model;
  Pass p = through(pass, false);
  stack_backward(&p);
  if (!has_encoder(&m->config)) {
    hand_over(&p, m->table.bucket_count - 1);
    return;
  }
  Activations above = *pass->acts; /* whose gradient is the memory's */
  if (m->config.norm_place == NORM_BEFORE) above.dn = above.dmemory;
  else above.dx = above.dmemory;
  p = through(pass, true);
  p.acts = &above;
  stack_backward(&p);
  hand_over(&p, m->table.bucket_count - 1);
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
    m->ops->download(m->context, to, element(m, p->acts->logits, (int64_t)i * padded_vocab(m->config.vocab)),
                     (size_t)vocab * m->dt);
    widen(m, to, vocab);
  }
}

/* In chunks of rows, so that the logits of the whole batch never exist at once. */
void model_head(const Pass *pass, StepState *state, float smoothing, float *logits) {
  const Pass through_decoder = through(pass, false), *p = &through_decoder;
  const Model *m = p->model;
  const Backend *k = m->ops;
  Context *c = m->context;
  const ModelConfig *g = &m->config;
  const Activations *s = p->acts;
  int rows = p->batch * p->length, padded = padded_vocab(g->vocab);
  for (int row = 0; row < rows; row += s->head_rows) {
    int count = rows - row < s->head_rows ? rows - row : s->head_rows;
    void *n = element(m, p->parts[p->stack->count].n, (int64_t)row * g->dim);
    k->linear(c, s->logits, n, &m->params, m->table.head, count);
    if (logits) download_logits(p, row, count, logits);
    k->cross_entropy(c, s->losses + row, s->logits, padded, m->targets + row, count, g->vocab, smoothing, state,
                     p->train);
    if (!p->train) continue;
    k->linear_backward_weight(c, &m->params, m->table.head, s->logits, n, count, p->accumulate || row > 0);
    k->linear_backward_input(c, element(m, output_gradient(p), (int64_t)row * g->dim), s->logits, &m->params,
                             m->table.head, count, false);
  }
  k->loss_sum(c, state, s->losses, m->targets, rows);
}
