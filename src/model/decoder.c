/* Decoding: computes a prompt once, then one token at a time with the caches. */
#include "model/decoder.h"

#include "model/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Row {
  int length, position; /* copies of the device's */
  int prompt;           /* tokens of its prompt */
  int source;           /* tokens of its source; 0: none yet */
} Row;

struct Decoder {
  Model *model;
  Sequences sequences;
  int opened; /* rows with memory; sequences.rows of them are in use */
  bool accelerator;
  Row *rows;
  KvCache *caches;   /* one for each layer; without memory for a convolution */
  KvCache *memories; /* with an encoder, one for each layer: keys and values of the sources; in the array of caches */
  void *cache_memory;
  ConvolutionState *states; /* one for each layer; without memory for attention */
  void *state_memory;       /* [rows][2][convolutions][CONVOLUTION_TAPS][C]: after the last decoded token, and after the
                               prompt without its last token, where decoder_begin_as() goes on */
  int32_t *source_counts;   /* device [rows]: lengths of the sources */
  void *x, *q, *middle;     /* [rows][C], [rows][larger of H*D and C], [rows][largest of H*D, C and F] */
  float *logits;            /* [rows][V] */
  CapturedGraph *token;     /* decode_and_sample */
  bool ready;               /* the logits of every row's next token have been computed */
  bool ahead;               /* the device also draws the tokens after the next ones */
  int undisturbed;          /* calls of decoder_next() since anything else changed a row */
  void *memory[24];         /* [memory_count] all of the above on the device */
  int memory_count;
};

static int larger(int a, int b) { return a > b ? a : b; }

/* Allocates an array of `each` bytes for every row, which decoder_close() releases. */
static void *take(Decoder *d, const char *name, size_t each) {
  const Model *m = d->model;
  return d->memory[d->memory_count++] = m->ops->alloc(m->context, name, (size_t)d->opened * each);
}

/* Elements of the states of all convolutions of a row. */
static int64_t state_width(const ModelConfig *c) {
  return (int64_t)model_count_mixers(c, MIXER_CONVOLUTION) * CONVOLUTION_TAPS * c->dim;
}

/* Elements of the caches of a row. */
static int64_t cache_width(const ModelConfig *c) {
  const int caches = c->layers - model_count_mixers(c, MIXER_CONVOLUTION) + (has_encoder(c) ? c->layers : 0);
  return (int64_t)caches * 2 * c->ctx * key_width(c);
}

int64_t decoder_cache_bytes(const ModelConfig *c, size_t dtype_size) {
  return (cache_width(c) + 2 * state_width(c)) * (int64_t)dtype_size;
}

/* Divides the memory of caches and states among the layers. */
static void place_caches(Decoder *d) {
  const ModelConfig *c = &d->model->config;
  const size_t dt = d->model->dt, each = (size_t)d->opened * (size_t)c->ctx * (size_t)key_width(c) * dt;
  char *k = d->cache_memory, *z = d->state_memory;
  for (int i = 0; i < c->layers * (has_encoder(c) ? 2 : 1); i++) {
    if (i < c->layers && model_mixer(c, i) == MIXER_CONVOLUTION) {
      d->states[i] = (ConvolutionState){z, 2 * state_width(c)};
      z += CONVOLUTION_TAPS * (size_t)c->dim * dt;
    } else {
      d->caches[i] = (KvCache){k, k + each, c->ctx, c->kv_heads, c->head_dim};
      k += 2 * each;
    }
  }
}

static bool decoder_buffers(Decoder *d, Error *error) {
  const ModelConfig *c = &d->model->config;
  const size_t dt = d->model->dt;
  Sequences *s = &d->sequences;
  s->rows = d->opened;
  s->capacity = c->ctx > DECODER_LOOKBACK ? c->ctx : DECODER_LOOKBACK;
  s->capacity++; /* a token that is drawn ahead overwrites none that a penalty looks back at */
  s->tokens = take(d, "generated tokens", (size_t)s->capacity * sizeof(int32_t));
  s->lengths = take(d, "lengths", sizeof(int32_t));
  s->positions = take(d, "positions", sizeof(int32_t));
  s->streams = take(d, "streams", sizeof(int32_t));
  s->status = take(d, "status", sizeof(int32_t));
  s->drawn = d->memory[d->memory_count++] =
      d->model->ops->alloc_shared(d->model->context, "drawn tokens", 2 * (size_t)d->opened * sizeof(int32_t));
  s->sampling = take(d, "sampling", sizeof(Sampling));
  d->x = take(d, "decoded rows", (size_t)c->dim * dt);
  d->q = take(d, "decoded queries", (size_t)larger(query_width(c), c->dim) * dt);
  d->middle = take(d, "decoded branches", (size_t)larger(larger(query_width(c), c->dim), c->ffn) * dt);
  d->logits = take(d, "decoded logits", (size_t)c->vocab * sizeof(float));
  if (cache_width(c)) d->cache_memory = take(d, "key/value cache", (size_t)cache_width(c) * dt);
  if (state_width(c)) d->state_memory = take(d, "states of convolutions", 2 * (size_t)state_width(c) * dt);
  d->caches = calloc(2 * (size_t)c->layers, sizeof *d->caches);
  d->states = calloc((size_t)c->layers, sizeof *d->states);
  d->rows = calloc((size_t)d->opened, sizeof *d->rows);
  if (!d->caches || !d->states || !d->rows) return error_memory(error, "the decoder");
  if (!model_check_backend(d->model, error)) return false;
  place_caches(d);
  if (!has_encoder(c)) return true;
  d->memories = d->caches + c->layers;
  d->source_counts = take(d, "lengths of sources", sizeof(int32_t));
  return model_check_backend(d->model, error);
}

bool decoder_open(Decoder **out, Model *model, int rows, Error *error) {
  *out = NULL;
  Decoder *d = calloc(1, sizeof *d);
  if (!d) return error_memory(error, "the decoder");
  d->model = model;
  d->opened = rows;
  ContextInfo info;
  model->ops->info(model->context, &info);
  d->accelerator = info.accelerator;
  if (!model_prefill_begin(model, model->config.ctx, error) || !decoder_buffers(d, error)) {
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
  for (int i = 0; i < d->memory_count; i++) k->release(d->model->context, d->memory[i]);
  free(d->caches);
  free(d->states);
  free(d->rows);
  free(d);
}

/* Returns a pass that uses the caches of `row`. */
static Pass cached_pass(Decoder *d, int row, int length) {
  Pass pass = model_evaluation_pass(d->model, 1, length);
  pass.caches = d->caches;
  pass.states = d->states;
  pass.memories = d->memories;
  pass.slot = row;
  pass.memory_length = d->memories ? d->rows[row].source : 0;
  return pass;
}

static void put_number(Decoder *d, int32_t *array, int row, int32_t number) {
  d->model->ops->upload(d->model->context, array + row, &number, sizeof number);
}

/* A device draws tokens before the host has read the ones before them once nothing but decoder_next() was called
 * UNDISTURBED times for each row: a change of any row wastes the tokens that were drawn ahead. */
enum { UNDISTURBED = 8 };

static bool may_run_ahead(const Decoder *d) {
  for (int row = 0; row < d->sequences.rows; row++)
    if (decoder_capacity_left(d, row) < 2) return false;
  return d->accelerator && !d->ready && d->undisturbed >= UNDISTURBED * d->sequences.rows;
}

/* Takes the tokens that were drawn ahead back. Their keys, values and states stay where the next run writes the
 * same. */
static void take_back(Decoder *d) {
  d->undisturbed = 0;
  if (!d->ahead) return;
  d->ahead = false;
  for (int row = 0; row < d->sequences.rows; row++) {
    put_number(d, d->sequences.lengths, row, d->rows[row].length);
    put_number(d, d->sequences.positions, row, d->rows[row].position);
    put_number(d, d->sequences.status, row, SEQUENCE_OK);
  }
}

/* Prepares a change of a row: no logits have been computed, and no tokens drawn, from what it was. */
static void begin_change(Decoder *d) {
  take_back(d);
  d->ready = false;
}

void decoder_use_rows(Decoder *d, int rows) {
  if (rows == d->sequences.rows) return;
  begin_change(d);
  d->model->ops->drop(d->model->context, &d->token);
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
  begin_change(d);
  d->rows[row].source = count;
  put_number(d, d->source_counts, row, count);
  m->ops->upload(m->context, m->inputs[ENCODER_STACK].tokens, tokens, (size_t)count * sizeof(int32_t));
  const Pass pass = cached_pass(d, row, count);
  model_encode(&pass);
  return model_check_backend(m, error);
}

enum { STATE_NOW, STATE_OF_PROMPT };

/* Copies the states of all convolutions of a row within the row. */
static void copy_state(Decoder *d, int row, int to, int from) {
  const Model *m = d->model;
  const size_t bytes = (size_t)state_width(&m->config) * m->dt;
  char *states = (char *)d->state_memory + 2 * (size_t)row * bytes;
  if (bytes) m->ops->copy(m->context, states + (size_t)to * bytes, states + (size_t)from * bytes, bytes);
}

/* Stores keys and values, or states, of all tokens but the last in `row`; the last token is decoded later. */
static void prefill(Decoder *d, int row, const int32_t *tokens, int count) {
  Model *m = d->model;
  d->rows[row].position = count - 1;
  put_number(d, d->sequences.positions, row, count - 1);
  if (count < 2) return;
  m->ops->upload(m->context, m->inputs[DECODER_STACK].tokens, tokens, (size_t)(count - 1) * sizeof(int32_t));
  const Pass pass = cached_pass(d, row, count - 1);
  model_forward(&pass);
  copy_state(d, row, STATE_OF_PROMPT, STATE_NOW);
}

bool decoder_prompt(Decoder *d, int row, const int32_t *tokens, int count, Error *error) {
  const Model *m = d->model;
  const Sequences *s = &d->sequences;
  if (count < 1 || count > m->config.ctx)
    return fail(error, EXIT_INPUT, "a prompt of %d tokens does not fit: the context holds 1 to %d", count,
                m->config.ctx);
  if (d->memories && !d->rows[row].source) return fail(error, EXIT_INTERNAL, "row %d has no source", row);
  begin_change(d);
  m->ops->upload(m->context, s->tokens + (int64_t)row * s->capacity, tokens, (size_t)count * sizeof *tokens);
  d->rows[row].length = d->rows[row].prompt = count;
  put_number(d, s->lengths, row, count);
  put_number(d, s->status, row, SEQUENCE_OK);
  prefill(d, row, tokens, count);
  return model_check_backend(d->model, error);
}

void decoder_sampling(Decoder *d, int row, const Sampling *sampling, uint32_t stream) {
  const Model *m = d->model;
  take_back(d);
  m->ops->upload(m->context, d->sequences.sampling + row, sampling, sizeof *sampling);
  put_number(d, d->sequences.streams, row, (int32_t)stream);
}

/* Allocates the biases when the first row needs them: they are as large as the logits. */
static bool bias_buffers(Decoder *d, Error *error) {
  const Model *m = d->model;
  LogitBias *bias = &d->sequences.bias;
  const size_t n = (size_t)d->opened, vocab = (size_t)m->config.vocab;
  if (bias->counts) return true;
  int32_t *zeros = calloc(n, sizeof *zeros);
  if (!zeros) return error_memory(error, "the decoder");
  m->ops->drop(m->context, &d->token);
  bias->capacity = m->config.vocab;
  bias->counts = take(d, "biases", sizeof *bias->counts);
  bias->tokens = take(d, "tokens of biases", vocab * sizeof *bias->tokens);
  bias->values = take(d, "values of biases", vocab * sizeof *bias->values);
  bool ok = model_check_backend(d->model, error);
  if (ok) m->ops->upload(m->context, bias->counts, zeros, n * sizeof *zeros);
  free(zeros);
  return ok;
}

bool decoder_bias(Decoder *d, int row, const int32_t *tokens, const float *values, int count, Error *error) {
  const Model *m = d->model;
  LogitBias *bias = &d->sequences.bias;
  if (count == 0 && !bias->counts) return true;
  take_back(d);
  if (!bias_buffers(d, error)) return false;
  const int64_t first = (int64_t)row * bias->capacity;
  m->ops->upload(m->context, bias->tokens + first, tokens, (size_t)count * sizeof *tokens);
  m->ops->upload(m->context, bias->values + first, values, (size_t)count * sizeof *values);
  put_number(d, bias->counts, row, count);
  return model_check_backend(d->model, error);
}

/* Copies the first `used` bytes of a row of an array with `each` bytes for a row. */
static void copy_row(Decoder *d, void *array, size_t each, int to, int from, size_t used) {
  const Model *m = d->model;
  m->ops->copy(m->context, (char *)array + (size_t)to * each, (char *)array + (size_t)from * each, used);
}

/* Copies the first `count` keys and values of every head. */
static void copy_cache(Decoder *d, const KvCache *cache, int to, int from, int count) {
  const int heads = cache->kv_heads;
  const size_t key = (size_t)cache->head_dim * d->model->dt, each = (size_t)cache->capacity * key;
  for (int h = 0; h < heads; h++) {
    copy_row(d, cache->k, each, to * heads + h, from * heads + h, (size_t)count * key);
    copy_row(d, cache->v, each, to * heads + h, from * heads + h, (size_t)count * key);
  }
}

void decoder_copy(Decoder *d, int to, int from) {
  begin_change(d);
  const ModelConfig *c = &d->model->config;
  const Sequences *s = &d->sequences;
  const Row row = d->rows[from];
  const size_t ring = (size_t)s->capacity;
  const int kept = row.length < s->capacity ? row.length : s->capacity;
  int32_t *const numbers[] = {s->lengths, s->positions, s->streams, s->status, d->source_counts, s->bias.counts};
  const size_t states = 2 * (size_t)state_width(c) * d->model->dt;
  if (states) copy_row(d, d->state_memory, states, to, from, states);
  for (int i = 0; i < c->layers; i++) {
    if (d->caches[i].k) copy_cache(d, &d->caches[i], to, from, row.position);
    if (d->memories) copy_cache(d, &d->memories[i], to, from, row.source);
  }
  copy_row(d, s->tokens, ring * sizeof(int32_t), to, from, (size_t)kept * sizeof(int32_t));
  copy_row(d, s->sampling, sizeof(Sampling), to, from, sizeof(Sampling));
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i]) copy_row(d, numbers[i], sizeof(int32_t), to, from, sizeof(int32_t));
  if (s->bias.counts) {
    const size_t biases = (size_t)s->bias.capacity * 4;
    copy_row(d, s->bias.tokens, biases, to, from, biases);
    copy_row(d, s->bias.values, biases, to, from, biases);
  }
  d->rows[to] = row;
}

const Model *decoder_model(const Decoder *d) { return d->model; }

int decoder_capacity_left(const Decoder *d, int row) { return d->model->config.ctx - d->rows[row].position; }

void decoder_begin_as(Decoder *d, int to, int from) {
  begin_change(d);
  const int count = d->rows[from].prompt;
  if (to != from) decoder_copy(d, to, from);
  copy_state(d, to, STATE_NOW, STATE_OF_PROMPT);
  d->rows[to].length = count;
  d->rows[to].position = count - 1;
  put_number(d, d->sequences.lengths, to, count);
  put_number(d, d->sequences.positions, to, count - 1);
  put_number(d, d->sequences.status, to, SEQUENCE_OK);
}

/* Computes a sublayer up to its last product: d->middle from x. `norm` NULL: x is not normalized. */
static void decode_sublayer(Decoder *d, const Sublayer *w, const Norm *norm) {
  const Model *m = d->model;
  const Backend *k = m->ops;
  const ModelConfig *g = &m->config;
  const Sequences *s = &d->sequences;
  const MlpShape mlp = mlp_of(g);
  const float scale = 1.0f / sqrtf((float)g->head_dim);
  const Rope rope = rope_table_of(m, NULL);
  const HeadNorm heads = head_norm_of(m, w);
  const Convolution convolution = convolution_of(m, w, NULL);
  const bool attends = w->kind == SUBLAYER_SELF || w->kind == SUBLAYER_CROSS;
  const Upcoming next = attends ? weights_after_attention(m, w) : (Upcoming){NULL, 0, 0};
  switch (w->kind) {
  case SUBLAYER_SELF:
    k->decode_qkv(m->context, d->q, &d->caches[w->layer], d->x, norm, &m->params, w->in, g->qk_norm ? &heads : NULL,
                  w->rope ? &rope : NULL, s);
    k->decode_attention(m->context, d->middle, d->q, &d->caches[w->layer], g->heads, scale, NULL, &next, s);
    break;
  case SUBLAYER_CONVOLUTION:
    k->decode_convolution(m->context, d->middle, &d->states[w->layer], d->x, norm, &m->params, w->in, &convolution, s);
    break;
  case SUBLAYER_CROSS:
    k->decode_linear(m->context, d->q, d->x, norm, &m->params, w->in, s);
    k->decode_attention(m->context, d->middle, d->q, &d->memories[w->layer], g->heads, scale, d->source_counts, &next,
                        s);
    break;
  default: k->decode_mlp(m->context, d->middle, d->x, norm, &m->params, w->in, &mlp, s);
  }
}

/* Adds to x [rows][C] the branch whose last product reads d->middle. */
static void decode_add_branch(Decoder *d, const Sublayer *w, const Norm *norm) {
  const Model *m = d->model;
  const Backend *k = m->ops;
  const Sequences *s = &d->sequences;
  int dim = m->config.dim;
  const bool parallel = m->config.norm_place == NORM_PARALLEL;
  if (parallel && w->kind != SUBLAYER_MLP) { /* added after the MLP, which reads the same x */
    k->decode_linear(m->context, d->q, d->middle, NULL, &m->params, w->out, s);
    return;
  }
  if (m->config.norm_place == NORM_ON_BRANCH) {
    k->decode_linear(m->context, d->q, d->middle, NULL, &m->params, w->out, s);
    k->decode_norm(m->context, d->q, d->q, norm, s->rows, dim);
    k->residual_add(m->context, d->x, d->x, d->q, s->rows, 1, dim, NULL);
    return;
  }
  k->decode_residual(m->context, d->x, d->middle, &m->params, w->out, s);
  if (parallel) k->residual_add(m->context, d->x, d->x, d->q, s->rows, 1, dim, NULL);
  if (m->config.norm_place == NORM_AFTER) k->decode_norm(m->context, d->x, d->x, norm, s->rows, dim);
}

/* Computes the logits: x through the final norm and the head. */
static void decode_head(Decoder *d) {
  const Model *m = d->model;
  const NormParameters final = m->table.decoder.norm;
  const Norm norm = norm_of(m, final);
  m->ops->decode_logits(m->context, d->logits, d->x, norms_inputs(&m->config) ? &norm : NULL, &m->params, m->table.head,
                        m->config.vocab, d->sequences.rows);
}

static void download_logits(const Decoder *d, float *to) {
  const Model *m = d->model;
  const size_t count = (size_t)d->sequences.rows * (size_t)m->config.vocab;
  m->ops->download(m->context, to, d->logits, count * sizeof *to);
}

/* Writes the logits of x after `layer` layers to `lens` of decode_stack(). */
static void read_lens(Decoder *d, int layer, float *lens) {
  decode_head(d);
  download_logits(d, lens + (size_t)layer * (size_t)d->sequences.rows * (size_t)d->model->config.vocab);
}

/* Computes x after the last token of every row, with its keys, values and states. `lens` NULL, or host
 * [layers + 1][rows][V]: also the logits there and after fewer layers. */
static void decode_stack(Decoder *d, float *lens) {
  const Model *m = d->model;
  bool before = norms_inputs(&m->config);
  const Stack *stack = &m->table.decoder;
  Embedding embedding = embedding_of(stack, NULL);
  m->ops->decode_embedding(m->context, d->x, &m->params, &embedding, &d->sequences);
  if (lens) read_lens(d, 0, lens);
  for (int i = 0; i < stack->count; i++) {
    const Sublayer *w = &stack->sublayers[i];
    Norm norm = norm_of(m, w->norm);
    decode_sublayer(d, w, before ? &norm : NULL);
    decode_add_branch(d, w, &norm);
    if (lens && w->kind == SUBLAYER_MLP) read_lens(d, w->layer + 1, lens); /* the last sublayer of a layer */
  }
}

/* Computes the logits after the last token of every row. */
static void decode_tokens(Decoder *d) {
  decode_stack(d, NULL);
  decode_head(d);
}

bool decoder_logits(Decoder *d, float *logits, Error *error) {
  take_back(d);
  if (!d->ready) decode_tokens(d);
  d->ready = true;
  download_logits(d, logits);
  return model_check_backend(d->model, error);
}

bool decoder_lens(Decoder *d, float *logits, Error *error) {
  take_back(d);
  decode_stack(d, logits);
  d->ready = true;
  return model_check_backend(d->model, error);
}

bool decoder_extend(Decoder *d, const int32_t *tokens, int count, Error *error) {
  const Sequences *s = &d->sequences;
  Row *row = &d->rows[0];
  if (s->rows != 1 || row->length < 1) return fail(error, EXIT_INTERNAL, "%d rows to extend", s->rows);
  if (count > decoder_capacity_left(d, 0))
    return fail(error, EXIT_INPUT, "%d more tokens do not fit: the context has room for %d", count,
                decoder_capacity_left(d, 0));
  begin_change(d);
  for (int i = 0; i < count; i++) {
    decode_stack(d, NULL);
    put_number(d, s->tokens, row->length % s->capacity, tokens[i]);
    put_number(d, s->lengths, 0, ++row->length);
    put_number(d, s->positions, 0, ++row->position);
  }
  return model_check_backend(d->model, error);
}

static void sample_token(Context *c, void *decoder) {
  const Decoder *d = decoder;
  d->model->ops->sample(c, &d->sequences, d->logits, d->model->config.vocab);
}

static void decode_and_sample(Context *c, void *decoder) {
  decode_tokens(decoder);
  sample_token(c, decoder);
}

bool decoder_next(Decoder *d, int32_t *next, Error *error) {
  const Model *m = d->model;
  const Sequences *s = &d->sequences;
  for (int row = 0; row < s->rows; row++)
    if (decoder_capacity_left(d, row) < 1) return fail(error, EXIT_INTERNAL, "a context is full; call decoder_slide()");
  if (d->ready) sample_token(m->context, d);
  else if (!d->ahead) m->ops->submit(m->context, &d->token, decode_and_sample, d);
  m->ops->mark(m->context);
  d->ahead = may_run_ahead(d);
  if (d->ahead) m->ops->submit(m->context, &d->token, decode_and_sample, d);
  d->ready = false;
  d->undisturbed++;
  m->ops->wait(m->context);
  if (!model_check_backend(d->model, error)) return false;
  for (int row = 0; row < s->rows; row++) {
    next[row] = s->drawn[2 * row + d->rows[row].length % 2];
    d->rows[row].length++;
    d->rows[row].position++;
    if (next[row] < 0)
      return fail(error, EXIT_NONFINITE,
                  "the logits of token %d are not finite: the weights are damaged, or the training diverged",
                  d->rows[row].length);
  }
  return true;
}

bool decoder_slide(Decoder *d, int row, int keep, Error *error) {
  const Model *m = d->model;
  const Sequences *s = &d->sequences;
  const int length = d->rows[row].length;
  begin_change(d);
  if (keep < 1 || keep > length || keep > m->config.ctx)
    return fail(error, EXIT_INTERNAL, "cannot keep %d of %d tokens", keep, length);
  int32_t *tail = malloc((size_t)keep * sizeof *tail);
  if (!tail) return error_memory(error, "the decoder");
  const int32_t *ring = s->tokens + (int64_t)row * s->capacity;
  const int first = (length - keep) % s->capacity, whole = keep < s->capacity - first ? keep : s->capacity - first;
  m->ops->download(m->context, tail, ring + first, (size_t)whole * sizeof *tail);
  m->ops->download(m->context, tail + whole, ring, (size_t)(keep - whole) * sizeof *tail);
  prefill(d, row, tail, keep);
  free(tail);
  return model_check_backend(d->model, error);
}
