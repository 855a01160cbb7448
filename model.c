/* The Transformer as a list of operations. A training step from top to bottom: the tokens of a batch are uploaded;
 * forward through embedding and sublayers (each with its backward beside it) with the norms around them; head and loss;
 * backward; clip and update. The training step itself is at the end. Shapes are in the comments; model/internal.h names
 * the dimensions and the other files of model/. */
#include "model/internal.h"

#include "kernels/philox.h"
#include "model/attention_maps.h"

#include <math.h>
#include <string.h>

/* ---- upload: the tokens of a batch, and their order for the gradient of the embedding ---- */

void model_upload_tokens(Model *m, const TokenBatch *b, int64_t from, int64_t rows, int length) {
  const int32_t *arrays[TOKEN_ARRAYS] = {b->tokens,        b->targets,          b->positions,    NULL,
                                         b->source_tokens, b->source_positions, b->source_begin, b->source_end,
                                         b->cross_begin,   b->cross_end};
  const int count = !b->positions ? 2 : has_encoder(&m->config) ? TOKEN_ARRAYS : TEXT_ARRAYS;
  int32_t *to = m->host_tokens + TOKENS_AT;
  for (int i = 0; i < count; i++, to += m->token_capacity) {
    if (arrays[i]) memcpy(to, arrays[i] + from, (size_t)rows * sizeof *to);
    else /* key_begin */
      for (int64_t row = 0; row < rows; row++) to[row] = (int32_t)(row % length) - b->positions[from + row];
  }
  const int64_t numbers = TOKENS_AT + (count - 1) * m->token_capacity + rows;
  m->ops->upload(m->context, m->target_count, m->host_tokens, (size_t)numbers * sizeof *to);
}

/* Writes the indices of token v, ascending, to order[offsets[v] .. offsets[v+1]). */
static void counting_sort(const int32_t *tokens, int64_t count, int vocab, int32_t *offsets, int32_t *order) {
  memset(offsets, 0, ((size_t)vocab + 1) * sizeof *offsets);
  for (int64_t i = 0; i < count; i++) offsets[tokens[i] + 1]++;
  for (int v = 0; v < vocab; v++) offsets[v + 1] += offsets[v];
  for (int64_t i = 0; i < count; i++) order[offsets[tokens[i]]++] = (int32_t)i;
  memmove(offsets + 1, offsets, (size_t)vocab * sizeof *offsets); /* filling moved each start to its end */
  offsets[0] = 0;
}

void model_upload_order(Model *m, const int32_t *numbers, int64_t rows, int kinds, RowOrder out) {
  size_t count = (size_t)kinds + 1;
  counting_sort(numbers, rows, kinds, m->sorted, m->sorted + count);
  m->ops->upload(m->context, out.offsets, m->sorted, (count + (size_t)rows) * sizeof(int32_t));
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

/* ---- dropout ---- */

static bool is_encoder(const Pass *p) { return p->stack == &p->model->table.encoder; }

static const StackInput *input_of(const Pass *p) {
  return &p->model->inputs[is_encoder(p) ? ENCODER_STACK : DECODER_STACK];
}

typedef enum DropoutKind {
  DROPOUT_EMBEDDING,
  DROPOUT_ATTENTION,
  DROPOUT_ATTENTION_BRANCH,
  DROPOUT_MLP_BRANCH,
  DROPOUT_CROSS,
  DROPOUT_CROSS_BRANCH,
  DROPOUT_HIDDEN,
  DROPOUT_KINDS = 8 /* site numbers reserved for each layer */
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

/* Returns the dropout of the branch that sublayer w adds to the residual stream, or NULL. */
static const Dropout *branch_dropout(const Pass *p, const Sublayer *w, Dropout *dropout) {
  static const DropoutKind kinds[] = {[SUBLAYER_SELF] = DROPOUT_ATTENTION_BRANCH,
                                      [SUBLAYER_CONVOLUTION] = DROPOUT_ATTENTION_BRANCH,
                                      [SUBLAYER_CROSS] = DROPOUT_CROSS_BRANCH,
                                      [SUBLAYER_MLP] = DROPOUT_MLP_BRANCH};
  return dropout_at(p, w->layer, kinds[w->kind], dropout);
}

/* ---- products of a sublayer ---- */

static void linear(const Pass *p, void *out, const void *in, Linear w) {
  p->ops->linear(p->context, out, in, p->params, w, p->rows);
}

/* Computes the gradient of w from dout [N][outputs] and in [N][inputs], on a GPU beside later operations. So what it
 * reads is overwritten only after Backend.join(): before each sublayer in stack_backward(), all calls but the last are
 * over. The last one of a sublayer reads an array that the next sublayer does not overwrite: `in`, din or dkeys. */
static void weight_gradient(const Pass *p, Linear w, const void *dout, const void *in) {
  p->ops->linear_backward_weight(p->context, p->params, w, dout, in, p->rows, p->accumulate);
}

/* Computes din [N][inputs] from dout [N][outputs]; `add`: adds it to din. */
static void input_gradient(const Pass *p, void *din, const void *dout, Linear w, bool add) {
  if (add) p->ops->join(p->context, 1); /* din may be the dbranch of the sublayer */
  p->ops->linear_backward_input(p->context, din, dout, p->params, w, p->rows, add);
}

/* ---- attention ---- */

typedef struct QkvViews {
  View q, k, v;
} QkvViews;

/* Views a plain [N][H*D] array. */
static View heads_view(const Pass *p, void *array) {
  int64_t row = query_width(p->config);
  return (View){array, (int64_t)p->length * row, row, p->config->head_dim};
}

/* Views the queries, keys and values of a packed [B][T][H*D + 2*G*D] array. */
static QkvViews qkv_views(const Pass *p, void *qkv) {
  const ModelConfig *c = p->config;
  int64_t row = qkv_width(c), batch = (int64_t)p->length * row, head = c->head_dim;
  return (QkvViews){{qkv, batch, row, head},
                    {element(p->model, qkv, query_width(c)), batch, row, head},
                    {element(p->model, qkv, query_width(c) + key_width(c)), batch, row, head}};
}

/* Views what attention reads of a SUBLAYER_SELF; with qk_norm queries and keys are in an array of their own. */
static QkvViews self_views(const Pass *p, const SublayerActivations *a) {
  QkvViews view = qkv_views(p, a->in);
  if (!p->config->qk_norm) return view;
  const int64_t row = query_width(p->config) + key_width(p->config), head = p->config->head_dim;
  view.q = (View){a->heads, (int64_t)p->length * row, row, head};
  view.k = (View){element(p->model, a->heads, query_width(p->config)), (int64_t)p->length * row, row, head};
  return view;
}

static Attention attention_over(const Pass *p, int keys, const Dropout *dropout) {
  const ModelConfig *c = p->config;
  return (Attention){.batch = p->batch,
                     .heads = c->heads,
                     .kv_heads = c->kv_heads,
                     .head_dim = c->head_dim,
                     .queries = p->length,
                     .keys = keys,
                     .scale = 1.0f / sqrtf((float)c->head_dim),
                     .dropout = dropout};
}

/* A token of a decoder attends to itself and the tokens before it, a token of an encoder to its whole text. */
static Attention self_attention(const Pass *p, const Dropout *dropout) {
  Attention shape = attention_over(p, p->length, dropout);
  shape.causal = !is_encoder(p);
  if (!p->packed) return shape;
  shape.key_begin = input_of(p)->key_begin;
  shape.key_end = input_of(p)->key_end;
  return shape;
}

static Attention cross_attention(const Pass *p, const Dropout *dropout) {
  Attention shape = attention_over(p, p->caches ? p->memory_length : p->length, dropout);
  if (!p->packed) return shape;
  shape.key_begin = p->model->cross_begin;
  shape.key_end = p->model->cross_end;
  return shape;
}

static const int32_t *positions_of(const Pass *p) { return p->packed ? input_of(p)->positions : NULL; }

/* Fills `rope` and returns it, or returns NULL when the sublayer has no rotary positions. */
static const Rope *rope_of(const Pass *p, const Sublayer *w, Rope *rope) {
  *rope = rope_table_of(p->model, positions_of(p));
  return w->rope ? rope : NULL;
}

/* Normalizes and rotates the queries and keys of a->in, as the model has it. */
static void prepare_heads(const Pass *p, const Sublayer *w, const SublayerActivations *a) {
  const ModelConfig *c = p->config;
  Rope table;
  const Rope *rope = rope_of(p, w, &table);
  if (c->qk_norm) {
    const HeadNorm norm = head_norm_of(p->model, w);
    p->ops->head_norm(p->context, a->heads, a->heads_rstd, a->in, &norm, p->batch, p->length, rope);
  } else if (rope)
    p->ops->rope(p->context, qkv_views(p, a->in).q, p->batch, p->length, c->heads + c->kv_heads, c->head_dim, rope);
}

static void take_queries_keys_values(const Pass *p, const Sublayer *w, const SublayerActivations *a) {
  const QkvViews view = qkv_views(p, a->in);
  const int row = qkv_width(p->config);
  model_take_hidden(p, HIDDEN_QUERIES, w->layer, view.q.data, row);
  model_take_hidden(p, HIDDEN_KEYS, w->layer, view.k.data, row);
  model_take_hidden(p, HIDDEN_VALUES, w->layer, view.v.data, row);
}

/* branch = Wo attention(rope(norm(Wqkv n))) */
static void self_forward(const Pass *p, const Sublayer *w, const SublayerActivations *a, void *branch) {
  Dropout drop;
  QkvViews view = self_views(p, a);
  Attention shape = self_attention(p, dropout_at(p, w->layer, DROPOUT_ATTENTION, &drop));
  linear(p, a->in, a->n, w->in);
  if (p->hidden) take_queries_keys_values(p, w, a);
  prepare_heads(p, w, a);
  if (p->caches) p->ops->cache_store(p->context, &p->caches[w->layer], p->slot, view.k, view.v, p->length);
  p->ops->attention(p->context, &shape, heads_view(p, a->middle), view.q, view.k, view.v, a->lse);
  if (p->maps)
    model_take_map(p, is_encoder(p) ? ATTENTION_ENCODER : ATTENTION_SELF, w->layer, &shape, view.q, view.k, a->lse);
  linear(p, branch, a->middle, w->out);
}

static void self_backward(const Pass *p, const Sublayer *w, const SublayerActivations *a, const void *dbranch, void *dn,
                          bool add) {
  const Activations *s = p->acts;
  Rope table;
  Dropout drop;
  QkvViews view = self_views(p, a), d = qkv_views(p, s->din);
  Attention shape = self_attention(p, dropout_at(p, w->layer, DROPOUT_ATTENTION, &drop));
  weight_gradient(p, w->out, dbranch, a->middle);
  input_gradient(p, s->dmiddle, dbranch, w->out, false);
  p->ops->attention_backward(p->context, &shape, d.q, d.k, d.v, heads_view(p, s->dmiddle), view.q, view.k, view.v,
                             heads_view(p, a->middle), a->lse, rope_of(p, w, &table));
  if (p->config->qk_norm) {
    const HeadNorm norm = head_norm_of(p->model, w);
    p->ops->head_norm_backward(p->context, s->din, gradient_of(p->model, w->head_norm), a->in, a->heads_rstd, &norm,
                               p->rows, p->accumulate);
  }
  weight_gradient(p, w->in, s->din, a->n);
  input_gradient(p, dn, s->din, w->in, add);
}

/* The keys and values of cross-attention: computed in this pass, or by model_encode() and kept in p->memories. */
static QkvViews memory_views(const Pass *p, const Sublayer *w, const SublayerActivations *a) {
  int64_t head = p->config->head_dim, row = key_width(p->config);
  if (!p->caches) {
    int64_t batch = 2 * row * p->length;
    return (QkvViews){.k = {a->memory, batch, 2 * row, head},
                      .v = {element(p->model, a->memory, row), batch, 2 * row, head}};
  }
  const KvCache *cache = &p->memories[w->layer];
  int64_t slot = cache->capacity * row, keys = cache->capacity * head;
  return (QkvViews){.k = {element(p->model, cache->k, p->slot * slot), slot, head, keys},
                    .v = {element(p->model, cache->v, p->slot * slot), slot, head, keys}};
}

/* The encoder's output, [N][C]. */
static void *encoded(const Pass *p) { return p->acts->encoder[p->model->table.encoder.count].n; }

/* branch = Wo attention(Wq n, Wkv encoded) */
static void cross_forward(const Pass *p, const Sublayer *w, const SublayerActivations *a, void *branch) {
  Dropout drop;
  QkvViews memory = memory_views(p, w, a);
  View queries = heads_view(p, a->in);
  Attention shape = cross_attention(p, dropout_at(p, w->layer, DROPOUT_CROSS, &drop));
  linear(p, a->in, a->n, w->in);
  if (!p->caches) linear(p, a->memory, encoded(p), w->memory);
  p->ops->attention(p->context, &shape, heads_view(p, a->middle), queries, memory.k, memory.v, a->lse);
  if (p->maps) model_take_map(p, ATTENTION_CROSS, w->layer, &shape, queries, memory.k, a->lse);
  linear(p, branch, a->middle, w->out);
}

static void cross_backward(const Pass *p, const Sublayer *w, const SublayerActivations *a, const void *dbranch,
                           void *dn, bool add) {
  const Activations *s = p->acts;
  bool first = w->layer == p->config->layers - 1; /* backward starts with the last layer */
  Dropout drop;
  QkvViews memory = memory_views(p, w, a), d = memory;
  Attention shape = cross_attention(p, dropout_at(p, w->layer, DROPOUT_CROSS, &drop));
  d.k.data = s->dkeys, d.v.data = element(p->model, s->dkeys, key_width(p->config));
  weight_gradient(p, w->out, dbranch, a->middle);
  input_gradient(p, s->dmiddle, dbranch, w->out, false);
  p->ops->attention_backward(p->context, &shape, heads_view(p, s->din), d.k, d.v, heads_view(p, s->dmiddle),
                             heads_view(p, a->in), memory.k, memory.v, heads_view(p, a->middle), a->lse, NULL);
  weight_gradient(p, w->in, s->din, a->n);
  weight_gradient(p, w->memory, s->dkeys, encoded(p));
  input_gradient(p, dn, s->din, w->in, add);
  input_gradient(p, s->dmemory, s->dkeys, w->memory, !first);
}

/* ---- convolution ---- */

/* branch = Wout convolution(Win n) */
static void convolution_forward(const Pass *p, const Sublayer *w, const SublayerActivations *a, void *branch) {
  const Convolution convolution = convolution_of(p->model, w, positions_of(p));
  linear(p, a->in, a->n, w->in);
  if (p->states)
    p->ops->convolution_store(p->context, &p->states[w->layer], p->slot, a->in, convolution.dim, p->length);
  p->ops->convolution(p->context, a->middle, a->in, &convolution, p->batch, p->length);
  linear(p, branch, a->middle, w->out);
}

static void convolution_backward(const Pass *p, const Sublayer *w, const SublayerActivations *a, const void *dbranch,
                                 void *dn, bool add) {
  const Activations *s = p->acts;
  const Convolution convolution = convolution_of(p->model, w, positions_of(p));
  weight_gradient(p, w->out, dbranch, a->middle);
  input_gradient(p, s->dmiddle, dbranch, w->out, false);
  p->ops->convolution_backward(p->context, s->din, gradient_of(p->model, w->kernel), s->dmiddle, a->in, &convolution,
                               p->batch, p->length, p->accumulate);
  weight_gradient(p, w->in, s->din, a->n);
  input_gradient(p, dn, s->din, w->in, add);
}

/* ---- MLP ---- */

/* branch = Wdown activation(Wup n) */
static void mlp_forward(const Pass *p, const Sublayer *w, const SublayerActivations *a, void *branch) {
  const MlpShape mlp = mlp_of(p->config);
  Dropout drop;
  const Dropout *dropout = dropout_at(p, w->layer, DROPOUT_HIDDEN, &drop);
  linear(p, a->in, a->n, w->in);
  p->ops->activation(p->context, a->middle, a->in, &mlp, p->batch, p->length, dropout);
  if (p->hidden) model_take_hidden(p, HIDDEN_MLP_INNER, w->layer, a->middle, mlp.ffn);
  linear(p, branch, a->middle, w->out);
}

static void mlp_backward(const Pass *p, const Sublayer *w, const SublayerActivations *a, const void *dbranch, void *dn,
                         bool add) {
  const MlpShape mlp = mlp_of(p->config);
  void *dmiddle = p->acts->dmiddle;
  Dropout drop;
  const Dropout *dropout = dropout_at(p, w->layer, DROPOUT_HIDDEN, &drop);
  weight_gradient(p, w->out, dbranch, a->middle);
  input_gradient(p, dmiddle, dbranch, w->out, false);
  p->ops->activation_backward(p->context, a->in, dmiddle, a->in, &mlp, p->batch, p->length, dropout);
  weight_gradient(p, w->in, a->in, a->n);
  input_gradient(p, dn, a->in, w->in, add);
}

static const struct {
  void (*forward)(const Pass *p, const Sublayer *w, const SublayerActivations *a, void *branch);
  /* dn: the gradient of the sublayer's n is written to it, or added with `add`. It may be dbranch. */
  void (*backward)(const Pass *p, const Sublayer *w, const SublayerActivations *a, const void *dbranch, void *dn,
                   bool add);
} sublayers[] = {[SUBLAYER_SELF] = {self_forward, self_backward},
                 [SUBLAYER_CONVOLUTION] = {convolution_forward, convolution_backward},
                 [SUBLAYER_CROSS] = {cross_forward, cross_backward},
                 [SUBLAYER_MLP] = {mlp_forward, mlp_backward}};

/* ---- norms around a branch ---- */

/* x_out = x_in + branch; y = norm(x_out), which stores its statistics in `stats`. */
static void add_and_norm(const Pass *p, void *x_out, void *y, NormStats stats, const void *x_in, const void *branch,
                         NormParameters weights, const Dropout *dropout) {
  Norm norm = norm_of(p->model, weights);
  p->ops->residual_norm(p->context, x_out, y, stats, x_in, branch, &norm, p->batch, p->length, p->config->dim, dropout);
}

static void norm_backward(const Pass *p, void *dx, void *dbranch, const void *dy, const void *dres,
                          const SublayerActivations *a, NormParameters weights, const Dropout *dropout) {
  Norm norm = norm_of(p->model, weights);
  NormGradient gradient = {gradient_of(p->model, weights.weight), gradient_of(p->model, weights.bias)};
  p->ops->residual_norm_backward(p->context, dx, dbranch, gradient, dy, dres, a->x, a->stats, &norm, p->batch,
                                 p->length, p->config->dim, dropout, p->accumulate);
}

static void add_dropped(const Pass *p, void *x_out, const void *x_in, const void *y, const Dropout *dropout) {
  p->ops->residual_add(p->context, x_out, x_in, y, p->batch, p->length, p->config->dim, dropout);
}

/* The norm of sublayer `i`; after the last sublayer, the final norm. */
static NormParameters norm_at(const Pass *p, int i) {
  return i < p->stack->count ? p->stack->sublayers[i].norm : p->stack->norm;
}

/* Returns whether the MLP after sublayer i reads the same residual stream. */
static bool is_first_of_parallel(const Pass *p, int i) {
  return p->config->norm_place == NORM_PARALLEL && p->stack->sublayers[i].kind != SUBLAYER_MLP;
}

/* Adds the branch of sublayer i to the residual stream, which sublayer i + 1 or the head reads. */
static void add_branch(const Pass *p, int i) {
  const SublayerActivations *a = &p->activations[i], *next = a + 1;
  void *branch = p->acts->branch;
  Dropout drop;
  const Dropout *dropout = branch_dropout(p, &p->stack->sublayers[i], &drop);
  if (is_first_of_parallel(p, i)) {
    add_and_norm(p, NULL, next->n, next->stats, a->x, NULL, norm_at(p, i + 1), NULL);
    add_dropped(p, next->x, a->x, branch, dropout);
    return;
  }
  switch (p->config->norm_place) {
  case NORM_PARALLEL:
  case NORM_BEFORE: add_and_norm(p, next->x, next->n, next->stats, a->x, branch, norm_at(p, i + 1), dropout); break;
  case NORM_AFTER: add_and_norm(p, a->x, next->n, a->stats, a->n, branch, norm_at(p, i), dropout); break;
  case NORM_ON_BRANCH:
    add_and_norm(p, NULL, branch, a->stats, a->x, NULL, norm_at(p, i), NULL);
    add_dropped(p, next->n, a->n, branch, dropout);
    break;
  }
}

/* The backward of add_branch(i): returns the gradient of the branch and writes the gradient of the residual stream to
 * dx. It reads dx, except before a final norm, and with NORM_BEFORE and NORM_PARALLEL dn. */
static const void *add_branch_backward(const Pass *p, int i) {
  const Activations *s = p->acts;
  const SublayerActivations *a = &p->activations[i];
  Dropout drop;
  const Dropout *dropout = branch_dropout(p, &p->stack->sublayers[i], &drop);
  void *dbranch = dropout || p->config->norm_place == NORM_ON_BRANCH ? s->dbranch : NULL;
  if (is_first_of_parallel(p, i)) { /* both branches have the gradient of their sum; the norm has read the x of i */
    const SublayerActivations same = {.x = a->x, .stats = a[1].stats};
    add_dropped(p, s->dbranch, NULL, s->dx, dropout);
    norm_backward(p, s->dx, NULL, s->dn, s->dx, &same, norm_at(p, i + 1), NULL);
    return s->dbranch;
  }
  switch (p->config->norm_place) {
  case NORM_PARALLEL:
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

/* ---- a stack: embedding and layers ---- */

/* Returns the same pass for the stack of the encoder, or of the decoder. */
static Pass through(const Pass *p, bool encoder) {
  Pass pass = *p;
  pass.stack = encoder ? &p->model->table.encoder : &p->model->table.decoder;
  pass.activations = encoder ? p->acts->encoder : p->acts->decoder;
  return pass;
}

/* Takes the residual stream that sublayer i reads. */
static void take_residual(const Pass *p, int i, int layer) {
  const SublayerActivations *a = &p->activations[i];
  model_take_hidden(p, HIDDEN_RESIDUAL, layer, norms_inputs(p->config) ? a->x : a->n, p->config->dim);
}

static void stack_forward(const Pass *p) {
  const SublayerActivations *first = &p->activations[0];
  bool before = norms_inputs(p->config);
  Embedding embedding = embedding_of(p->stack, positions_of(p));
  Dropout drop;
  p->ops->embedding(p->context, before ? first->x : first->n, p->params, &embedding, input_of(p)->tokens, p->batch,
                    p->length, dropout_at(p, 0, DROPOUT_EMBEDDING, &drop));
  if (before) add_and_norm(p, NULL, first->n, first->stats, first->x, NULL, norm_at(p, 0), NULL);
  if (p->hidden) take_residual(p, 0, 0);
  for (int i = 0; i < p->stack->count; i++) {
    const Sublayer *w = &p->stack->sublayers[i];
    const SublayerActivations *a = &p->activations[i];
    bool keep = p->config->norm_place == NORM_ON_BRANCH; /* the norm of the branch needs it in the backward */
    void *branch = keep ? a->x : p->acts->branch;
    sublayers[w->kind].forward(p, w, a, branch);
    if (p->hidden) model_take_hidden(p, model_branch_kind(w), w->layer, branch, p->config->dim);
    add_branch(p, i);
    if (p->hidden && w->kind == SUBLAYER_MLP) take_residual(p, i + 1, w->layer + 1);
  }
  if (p->hidden)
    model_take_hidden(p, HIDDEN_HEAD, p->config->layers, p->activations[p->stack->count].n, p->config->dim);
}

/* Where the head, or a decoder for its encoder, writes the gradient of the stack's output. */
static void *output_gradient(const Pass *p) { return norms_inputs(p->config) ? p->acts->dn : p->acts->dx; }

/* `written`: the gradient of the token embedding has been begun, by the head or by another stack. */
static void embedding_backward(const Pass *p, bool written) {
  const Stack *s = p->stack;
  const RowOrder *tokens = &input_of(p)->order, *positions = &input_of(p)->position_order;
  Dropout drop;
  const Dropout *dropout = dropout_at(p, 0, DROPOUT_EMBEDDING, &drop);
  p->ops->embedding_backward(p->context, p->params, s->embedding, p->acts->dx, tokens->offsets, tokens->order, s->vocab,
                             p->batch, p->length, dropout, p->accumulate || written);
  if (p->config->positions == POSITIONS_LEARNED)
    p->ops->embedding_backward(p->context, p->params, s->position_embedding, p->acts->dx, positions->offsets,
                               positions->order, p->config->ctx, p->batch, p->length, dropout, p->accumulate);
}

/* Sums the complete gradients of a layer, or of the rest of the model, over all processes. */
static void reduce_bucket(const Pass *p, int bucket) {
  const ParameterTable *t = &p->model->table;
  if (!p->reduce) return;
  p->ops->join(p->context, 0);
  const int first = bucket ? t->bucket_ends[bucket - 1] : 0;
  p->ops->peers_reduce(p->context, p->params, first, t->bucket_ends[bucket] - first);
}

/* Computes the gradients of the stack's parameters from output_gradient(). */
static void stack_backward(const Pass *p) {
  const Activations *s = p->acts;
  const Stack *stack = p->stack;
  bool before = norms_inputs(p->config);
  for (int i = stack->count - 1; i >= 0; i--) {
    const Sublayer *w = &stack->sublayers[i];
    p->ops->join(p->context, 1);
    const void *dbranch = add_branch_backward(p, i);
    if (i + 1 < stack->count && w[1].layer > w->layer) reduce_bucket(p, stack->first_layer + w[1].layer);
    sublayers[w->kind].backward(p, w, &p->activations[i], dbranch, before ? s->dn : s->dx, !before);
  }
  p->ops->join(p->context, 1);
  if (before) norm_backward(p, s->dx, NULL, s->dn, s->dx, &p->activations[0], norm_at(p, 0), NULL);
  p->ops->join(p->context, 0); /* a tied head and the embedding have one gradient */
  if (stack->count) reduce_bucket(p, stack->first_layer);
  embedding_backward(p, p->config->tie); /* a tied head has begun the gradient */
}

/* ---- forward, head and loss, backward of the whole model ---- */

Pass model_pass(Model *m, const Activations *acts, int batch, int length) {
  return (Pass){.model = m,
                .ops = m->ops,
                .context = m->context,
                .config = &m->config,
                .params = &m->params,
                .acts = acts,
                .batch = batch,
                .length = length,
                .rows = batch * length};
}

void model_encode(const Pass *pass) {
  Pass p = through(pass, true);
  p.caches = NULL;
  stack_forward(&p);
  if (!pass->caches) return;
  p = through(pass, false);
  for (int i = 0; i < p.stack->count; i++) {
    const Sublayer *w = &p.stack->sublayers[i];
    const SublayerActivations *a = &p.activations[i];
    if (w->kind != SUBLAYER_CROSS) continue;
    Pass fresh = p;
    fresh.caches = NULL;
    QkvViews memory = memory_views(&fresh, w, a);
    linear(&p, a->memory, encoded(&p), w->memory);
    p.ops->cache_store(p.context, &p.memories[w->layer], p.slot, memory.k, memory.v, p.length);
  }
}

void model_forward(const Pass *pass) {
  if (has_encoder(pass->config) && !pass->caches) model_encode(pass);
  Pass p = through(pass, false);
  stack_forward(&p);
}

/* Copies the chunk of rows that begins at `row`, without pads, to host [N][V]. */
static void download_logits(const Pass *p, int row, int count, float *logits) {
  const Model *m = p->model;
  int vocab = p->config->vocab;
  for (int i = 0; i < count; i++) {
    float *to = logits + (int64_t)(row + i) * vocab;
    p->ops->download(p->context, to, element(m, p->acts->logits, (int64_t)i * padded_vocab(vocab)),
                     (size_t)vocab * m->dt);
    model_widen(m, to, vocab);
  }
}

/* Returns the teacher's pass over the micro-batch; model_forward() of it makes the output that add_distillation()
 * reads. */
static Pass teacher_pass(const Model *m, int batch, int length, bool packed) {
  Pass p = model_evaluation_pass(m->settings.teacher, batch, length);
  p.packed = packed;
  return through(&p, false);
}

/* Adds the teacher's part to the gradient of a chunk of logits that begins at `row`. */
static void add_distillation(const Pass *p, int row) {
  const Model *m = p->model, *teacher = m->settings.teacher;
  const int vocab = p->config->vocab;
  Pass other = teacher_pass(m, p->batch, p->length, p->packed);
  other.rows = p->rows;
  void *n = element(teacher, other.activations[other.stack->count].n, (int64_t)row * teacher->config.dim);
  linear(&other, other.acts->logits, n, teacher->table.head);
  p->ops->distill(p->context, p->acts->logits, other.acts->logits, padded_vocab(vocab), m->targets + row, p->rows,
                  vocab, m->settings.label_smoothing, m->settings.teacher_weight, m->state);
}

/* Works in chunks of rows: the logits of a whole batch would take too much memory. */
void model_head(const Pass *pass, StepState *state, float smoothing, float *logits) {
  Pass p = through(pass, false); /* .rows: of a chunk */
  const Model *m = p.model;
  const Activations *s = p.acts;
  const Linear head = m->table.head;
  const int rows = p.rows, vocab = p.config->vocab;
  for (int row = 0; row < rows; row += s->head_rows) {
    void *n = element(m, p.activations[p.stack->count].n, (int64_t)row * p.config->dim);
    if (row && p.train) p.ops->join(p.context, 0); /* the gradient of the head has read the logits */
    p.rows = rows - row < s->head_rows ? rows - row : s->head_rows;
    linear(&p, s->logits, n, head);
    if (logits) download_logits(&p, row, p.rows, logits);
    p.ops->cross_entropy(p.context, s->losses + row, s->logits, padded_vocab(vocab), m->targets + row, p.rows, vocab,
                         smoothing, state, p.train);
    if (!p.train) continue;
    if (m->settings.teacher) add_distillation(&p, row);
    weight_gradient(&p, head, s->logits, n);
    input_gradient(&p, element(m, output_gradient(&p), (int64_t)row * p.config->dim), s->logits, head, false);
    p.accumulate = true;
  }
  p.ops->loss_sum(p.context, state, s->losses, m->targets, rows);
}

/* Computes the gradients of all parameters below the head from the gradient that model_head() left. */
static void model_backward(const Pass *pass) {
  const int rest = pass->model->table.bucket_count - 1;
  Pass p = through(pass, false);
  stack_backward(&p);
  if (has_encoder(p.config)) {
    Activations above = *pass->acts; /* the gradient of the encoder's output is dmemory */
    if (p.config->norm_place == NORM_BEFORE) above.dn = above.dmemory;
    else above.dx = above.dmemory;
    p = through(pass, true);
    p.acts = &above;
    stack_backward(&p);
  }
  reduce_bucket(&p, rest);
}

/* ---- the training step: forward, loss, backward of each micro-batch; clip, update ---- */

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
    const Pass other = teacher_pass(m, s->batch, m->config.ctx, m->train_packed);
    model_forward(&other);
  }
  model_forward(&pass);
  model_head(&pass, m->state, s->label_smoothing, NULL);
  model_backward(&pass);
  m->ops->next_micro_batch(c, m->state, s->batch);
}

/* Replicas that update all parameters would drift apart by Muon, whose matrix products differ in the last bits between
 * devices: the owners' weights count. AdamW gives equal weights from equal gradients. */
static void update(Context *c, void *model) {
  Model *m = model;
  const Sharding *sharding = &m->settings.sharding;
  const bool replicas = sharding->ranks > 1 && !sharding->shard, muon = m->settings.optimizer == OPTIMIZER_MUON;
  m->ops->clip(c, m->state, &m->params, m->settings.clip, &m->settings.adamw);
  if (replicas) m->ops->peers_gather(c, &m->params, true);
  if (muon) m->ops->muon(c, m->state, &m->params, &m->settings.muon);
  m->ops->adamw(c, m->state, &m->params, &m->settings.adamw);
  if (is_sharded(sharding) || (replicas && muon)) m->ops->peers_gather(c, &m->params, false);
  m->ops->report(c, m->state);
}

/* Computes the gradients of all micro-batches of a step. */
static void submit_micro_batches(Model *m, const TokenBatch *step) {
  int64_t rows = (int64_t)m->settings.batch * m->config.ctx;
  m->host_tokens[0] = 0; /* the count of targets */
  for (int64_t i = 0; i < rows * m->settings.micro_batches; i++) m->host_tokens[0] += step->targets[i] >= 0;
  m->train_packed = step->positions;
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

void model_set_step(Model *m, int64_t step) {
  StepState state = {.step = step};
  m->ops->upload(m->context, m->state, &state, sizeof state);
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
