/* Generation: a prompt computed once, then one token at a time over the caches. */
#include "model/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Decoder {
  Model *model;
  Sequences sequences;
  KvCache *caches;   /* one a layer */
  KvCache *memories; /* of an encoder, one a layer: keys and values of the rows' sources; in the array of caches */
  void *cache_memory;
  int32_t *source_counts;      /* device [rows]: tokens of the sources */
  int32_t *host_source_counts; /* [rows]; 0: not given yet */
  void *x, *q, *middle;        /* [rows][C], [rows][larger of H*D and C], [rows][larger of H*D and F] */
  float *logits;               /* [rows][V] */
  int length, position;        /* of every row, as on the device */
  CapturedGraph *token;        /* decode_token and sample, for `sampling` */
  Sampling sampling;
  bool ready; /* logits of the next token have been computed */
};

static int larger(int a, int b) { return a > b ? a : b; }

static bool decoder_buffers(Decoder *d, int rows, Error *error) {
  Model *m = d->model;
  const ModelConfig *c = &m->config;
  size_t dt = m->dt, n = (size_t)rows, each = n * (size_t)c->ctx * (size_t)key_width(c) * dt;
  Sequences *s = &d->sequences;
  s->rows = rows;
  s->capacity = c->ctx > DECODER_LOOKBACK ? c->ctx : DECODER_LOOKBACK;
  s->tokens = m->ops->alloc(m->context, "generated tokens", n * (size_t)s->capacity * sizeof(int32_t));
  s->lengths = m->ops->alloc(m->context, "lengths", n * sizeof(int32_t));
  s->positions = m->ops->alloc(m->context, "positions", n * sizeof(int32_t));
  s->streams = m->ops->alloc(m->context, "streams", n * sizeof(int32_t));
  s->status = m->ops->alloc(m->context, "status", n * sizeof(int32_t));
  s->drawn = m->ops->alloc(m->context, "drawn tokens", n * sizeof(int32_t));
  d->x = m->ops->alloc(m->context, "decoded rows", n * (size_t)c->dim * dt);
  d->q = m->ops->alloc(m->context, "decoded queries", n * (size_t)larger(query_width(c), c->dim) * dt);
  d->middle = m->ops->alloc(m->context, "decoded attention or MLP", n * (size_t)larger(query_width(c), c->ffn) * dt);
  d->logits = m->ops->alloc(m->context, "decoded logits", n * (size_t)c->vocab * sizeof(float));
  const int caches = c->layers * (has_encoder(c) ? 2 : 1);
  d->cache_memory = m->ops->alloc(m->context, "key/value cache", 2 * each * (size_t)caches);
  d->caches = calloc((size_t)caches, sizeof *d->caches);
  if (!d->caches) return error_memory(error, "the decoder");
  if (!model_check_backend(m, error)) return false;
  for (int i = 0; i < caches; i++) {
    char *k = (char *)d->cache_memory + 2 * each * (size_t)i;
    d->caches[i] = (KvCache){k, k + each, c->ctx, c->kv_heads, c->head_dim};
  }
  if (!has_encoder(c)) return true;
  d->memories = d->caches + c->layers;
  d->source_counts = m->ops->alloc(m->context, "lengths of sources", n * sizeof(int32_t));
  d->host_source_counts = calloc(n, sizeof(int32_t));
  return d->host_source_counts ? model_check_backend(m, error) : error_memory(error, "the decoder");
}

bool decoder_open(Decoder **out, Model *model, int rows, Error *error) {
  *out = NULL;
  Decoder *d = calloc(1, sizeof *d);
  if (!d) return error_memory(error, "the decoder");
  d->model = model;
  if (!model_evaluate_begin(model, 1, model->config.ctx, error) || !decoder_buffers(d, rows, error)) {
    decoder_close(d);
    return false;
  }
  *out = d;
  return true;
}

void decoder_close(Decoder *d) {
  if (!d) return;
  const Backend *k = d->model->ops;
  k->drop(d->model->context, &d->token);
  void *memory[] = {d->sequences.tokens,
                    d->sequences.lengths,
                    d->sequences.positions,
                    d->sequences.streams,
                    d->sequences.status,
                    d->sequences.drawn,
                    d->x,
                    d->q,
                    d->middle,
                    d->logits,
                    d->source_counts,
                    d->cache_memory};
  for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) k->release(d->model->context, memory[i]);
  free(d->caches);
  free(d->host_source_counts);
  free(d);
}

/* A pass over the caches of `row`. */
static Pass cached_pass(Decoder *d, int row, int length) {
  Pass pass = model_evaluation_pass(d->model, 1, length);
  pass.caches = d->caches;
  pass.memories = d->memories;
  pass.slot = row;
  pass.memory_length = d->memories ? d->host_source_counts[row] : 0;
  return pass;
}

void decoder_use_rows(Decoder *d, int rows) {
  if (rows != d->sequences.rows) d->model->ops->drop(d->model->context, &d->token);
  d->sequences.rows = rows;
}

bool decoder_source(Decoder *d, int row, const int32_t *tokens, int count, Error *error) {
  Model *m = d->model;
  if (count < 1 || count > m->config.ctx)
    return fail(error, EXIT_INPUT, "a source of %d tokens does not fit: the context holds 1 to %d", count,
                m->config.ctx);
  for (int i = 0; i < count; i++) /* targets may have more tokens than sources */
    if (tokens[i] < 0 || tokens[i] >= m->config.source_vocab)
      return fail(error, EXIT_INTERNAL, "token %d in a source, whose vocabulary is %d", tokens[i],
                  m->config.source_vocab);
  d->host_source_counts[row] = count;
  m->ops->upload(m->context, d->source_counts, d->host_source_counts, (size_t)d->sequences.rows * sizeof(int32_t));
  m->ops->upload(m->context, m->source.tokens, tokens, (size_t)count * sizeof(int32_t));
  const Pass pass = cached_pass(d, row, count);
  model_encode(&pass);
  return model_check_backend(m, error);
}

/* Computes the prompt's keys and values into the caches of `row`, and the logits after its last token. */
static void prefill(Decoder *d, int row, const int32_t *tokens, int count) {
  Model *m = d->model;
  const Backend *k = m->ops;
  k->upload(m->context, m->tokens, tokens, (size_t)count * sizeof(int32_t));
  const Pass pass = cached_pass(d, row, count);
  model_forward(&pass);
  const PartActivations *last = &pass.acts->decoder[m->table.decoder.count];
  Norm room;
  const Norm *norm = final_norm(m, &room);
  k->decode_logits(m->context, d->logits + (int64_t)row * m->config.vocab,
                   element(m, norm ? last->x : last->n, (int64_t)(count - 1) * m->config.dim), norm, &m->params,
                   m->table.head, m->config.vocab, 1);
}

/* The prompt of row 0 becomes every row's. */
static void share_prompt(Decoder *d) {
  Model *m = d->model;
  const ModelConfig *c = &m->config;
  size_t slot = (size_t)c->ctx * (size_t)key_width(c), dt = m->dt, used = (size_t)d->length * (size_t)key_width(c) * dt;
  for (int row = 1; row < d->sequences.rows; row++) {
    for (int layer = 0; layer < c->layers; layer++) {
      m->ops->copy(m->context, (char *)d->caches[layer].k + (size_t)row * slot * dt, d->caches[layer].k, used);
      m->ops->copy(m->context, (char *)d->caches[layer].v + (size_t)row * slot * dt, d->caches[layer].v, used);
    }
    m->ops->copy(m->context, d->logits + (int64_t)row * c->vocab, d->logits, (size_t)c->vocab * sizeof(float));
  }
}

static bool upload_sequences(Decoder *d, const int32_t *prompt, uint32_t first_stream, Error *error) {
  Model *m = d->model;
  const Sequences *s = &d->sequences;
  int32_t *host = calloc((size_t)s->rows * 2, sizeof *host);
  if (!host) return error_memory(error, "the decoder");
  int32_t *streams = host + s->rows;
  for (int row = 0; row < s->rows; row++) streams[row] = (int32_t)(first_stream + (uint32_t)row);
  size_t bytes = (size_t)s->rows * sizeof(int32_t);
  m->ops->upload(m->context, s->status, host, bytes);
  m->ops->upload(m->context, s->streams, streams, bytes);
  for (int row = 0; row < s->rows; row++) {
    m->ops->upload(m->context, s->tokens + (int64_t)row * s->capacity, prompt, (size_t)d->length * sizeof(int32_t));
    host[row] = d->length;
  }
  m->ops->upload(m->context, s->lengths, host, bytes);
  for (int row = 0; row < s->rows; row++) host[row] = d->position;
  m->ops->upload(m->context, s->positions, host, bytes);
  free(host);
  return true;
}

bool decoder_prompt(Decoder *d, const int32_t *tokens, int count, uint32_t first_stream, Error *error) {
  const ModelConfig *c = &d->model->config;
  if (count < 1 || count > c->ctx)
    return fail(error, EXIT_INPUT, "a prompt of %d tokens does not fit: the context holds 1 to %d", count, c->ctx);
  for (int row = 0; d->memories && row < d->sequences.rows; row++)
    if (!d->host_source_counts[row]) return fail(error, EXIT_INTERNAL, "row %d has no source", row);
  d->length = count;
  d->position = count - 1;
  d->ready = true;
  prefill(d, 0, tokens, count);
  if (!d->memories) share_prompt(d);
  for (int row = 1; d->memories && row < d->sequences.rows; row++) prefill(d, row, tokens, count);
  return upload_sequences(d, tokens, first_stream, error) && model_check_backend(d->model, error);
}

int decoder_context(const Decoder *d) { return d->model->config.ctx; }

int decoder_room(const Decoder *d) { return d->model->config.ctx - d->position; }

/* What a part makes of x, up to its last product: d->middle. `norm` NULL: x is normalized. */
static void decode_part(Decoder *d, const Part *w, const Norm *norm) {
  const Model *m = d->model;
  const Backend *k = m->ops;
  const ModelConfig *g = &m->config;
  const Sequences *s = &d->sequences;
  const MlpShape mlp = mlp_of(g);
  const float scale = 1.0f / sqrtf((float)g->head_dim);
  const Rope rope = {m->rope_table, NULL};
  switch (w->kind) {
  case PART_SELF:
    k->decode_qkv(m->context, d->q, &d->caches[w->layer], d->x, norm, &m->params, w->in,
                  g->positions == POSITIONS_ROPE ? &rope : NULL, s);
    k->decode_attention(m->context, d->middle, d->q, &d->caches[w->layer], g->heads, scale, NULL, s);
    break;
  case PART_CROSS:
    k->decode_linear(m->context, d->q, d->x, norm, &m->params, w->in, s);
    k->decode_attention(m->context, d->middle, d->q, &d->memories[w->layer], g->heads, scale, d->source_counts, s);
    break;
  default: k->decode_mlp(m->context, d->middle, d->x, norm, &m->params, w->in, &mlp, s);
  }
}

/* x [rows][C] plus the branch that ends with d->middle. */
static void decode_join(Decoder *d, const Part *w, const Norm *norm) {
  const Model *m = d->model;
  const Backend *k = m->ops;
  const Sequences *s = &d->sequences;
  int dim = m->config.dim;
  if (m->config.norm_place == NORM_ON_BRANCH) {
    k->decode_linear(m->context, d->q, d->middle, NULL, &m->params, w->out, s);
    k->decode_norm(m->context, d->q, d->q, norm, s->rows, dim);
    k->residual_add(m->context, d->x, d->x, d->q, s->rows, 1, dim, NULL);
    return;
  }
  k->decode_residual(m->context, d->x, d->middle, &m->params, w->out, s);
  if (m->config.norm_place == NORM_AFTER) k->decode_norm(m->context, d->x, d->x, norm, s->rows, dim);
}

/* The logits after the last token of every row. */
static void decode_token(Context *c, void *decoder) {
  Decoder *d = decoder;
  const Model *m = d->model;
  bool before = m->config.norm_place == NORM_BEFORE;
  const Stack *stack = &m->table.decoder;
  Embedding embedding = embedding_of(stack, NULL);
  Norm room;
  m->ops->decode_embedding(c, d->x, &m->params, &embedding, &d->sequences);
  for (int i = 0; i < stack->count; i++) {
    const Part *w = &stack->parts[i];
    Norm norm = norm_of(m, w->norm);
    decode_part(d, w, before ? &norm : NULL);
    decode_join(d, w, &norm);
  }
  m->ops->decode_logits(c, d->logits, d->x, final_norm(m, &room), &m->params, m->table.head, m->config.vocab,
                        d->sequences.rows);
}

static void decode_if_needed(Decoder *d) {
  if (!d->ready) decode_token(d->model->context, d);
  d->ready = true;
}

bool decoder_logits(Decoder *d, float *logits, Error *error) {
  Model *m = d->model;
  decode_if_needed(d);
  m->ops->download(m->context, logits, d->logits, (size_t)d->sequences.rows * (size_t)m->config.vocab * sizeof(float));
  return model_check_backend(m, error);
}

static void sample_token(Context *c, void *decoder) {
  Decoder *d = decoder;
  d->model->ops->sample(c, &d->sequences, d->logits, d->model->config.vocab, &d->sampling);
}

static void decode_and_sample(Context *c, void *decoder) {
  decode_token(c, decoder);
  sample_token(c, decoder);
}

/* The captured graph holds the sampling parameters. */
static void set_sampling(Decoder *d, const Sampling *sampling) {
  if (memcmp(&d->sampling, sampling, sizeof *sampling) != 0) d->model->ops->drop(d->model->context, &d->token);
  d->sampling = *sampling;
}

bool decoder_next(Decoder *d, const Sampling *sampling, int32_t *next, Error *error) {
  Model *m = d->model;
  const Sequences *s = &d->sequences;
  if (decoder_room(d) < 1) return fail(error, EXIT_INTERNAL, "the context is full; call decoder_slide()");
  set_sampling(d, sampling);
  if (d->ready) sample_token(m->context, d);
  else m->ops->submit(m->context, &d->token, decode_and_sample, d);
  d->ready = false;
  d->length++;
  d->position++;
  m->ops->download(m->context, next, s->drawn, (size_t)s->rows * sizeof *next);
  if (!model_check_backend(m, error)) return false;
  for (int row = 0; row < s->rows; row++)
    if (next[row] < 0)
      return fail(error, EXIT_NONFINITE,
                  "the logits of token %d are not finite: the weights are damaged, or the training diverged",
                  d->length);
  return true;
}

bool decoder_slide(Decoder *d, int keep, Error *error) {
  Model *m = d->model;
  const Sequences *s = &d->sequences;
  if (keep < 1 || keep > d->length || keep > m->config.ctx)
    return fail(error, EXIT_INTERNAL, "cannot keep %d of %d tokens", keep, d->length);
  int32_t *tail = malloc((size_t)(keep + s->rows) * sizeof *tail);
  if (!tail) return error_memory(error, "the decoder");
  d->position = keep - 1;
  d->ready = true;
  for (int row = 0; row < s->rows; row++) {
    const int32_t *ring = s->tokens + (int64_t)row * s->capacity;
    int first = (d->length - keep) % s->capacity, whole = keep < s->capacity - first ? keep : s->capacity - first;
    m->ops->download(m->context, tail, ring + first, (size_t)whole * sizeof *tail);
    m->ops->download(m->context, tail + whole, ring, (size_t)(keep - whole) * sizeof *tail);
    prefill(d, row, tail, keep);
    tail[keep + row] = d->position;
  }
  m->ops->upload(m->context, s->positions, tail + keep, (size_t)s->rows * sizeof *tail);
  free(tail);
  return model_check_backend(m, error);
}
