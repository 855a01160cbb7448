/* Benchmarks of decoding: every operation, a whole token, and sampling. */
#include "tests/bench/bench.h"
#include "inference/sampling.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* arrays: x, q, attention, h, logits, spare logits, weights of the norms of heads. There is only one set; `set` counts
 * layers. */
static void call_decode_embedding(Bench *b, const Operands *o, int set) {
  (void)set;
  const Embedding e = {.table = o->model->table.decoder.embedding};
  b->ops->decode_embedding(b->c, o->array[0][0], &o->model->params, &e, &o->sequences);
}

static int layer_of(const Operands *o, int set) { return set % o->model->config.layers; }

static void decode_qkv(Bench *b, const Operands *o, int set, const HeadNorm *head_norm) {
  int layer = layer_of(o, set);
  const Sublayer *sublayer = bench_sublayer(o->model, layer, SUBLAYER_SELF);
  const Norm norm = norm_of(o->model, sublayer->norm);
  const Rope rope = rope_table_of(o->model, NULL);
  b->ops->decode_qkv(b->c, o->array[0][1], &o->caches[layer], o->array[0][0], &norm, &o->model->params, sublayer->in,
                     head_norm, &rope, &o->sequences);
}

static void call_decode_qkv(Bench *b, const Operands *o, int set) { decode_qkv(b, o, set, NULL); }

static void call_decode_normed_qkv(Bench *b, const Operands *o, int set) {
  const ModelConfig *c = &o->model->config;
  decode_qkv(b, o, set, &(HeadNorm){o->array[0][6], 1e-5f, c->heads, c->kv_heads, c->head_dim});
}

static void call_decode_attention(Bench *b, const Operands *o, int set) {
  const ModelConfig *c = &o->model->config;
  const int layer = layer_of(o, set);
  const Upcoming next = weights_after_attention(o->model, bench_sublayer(o->model, layer, SUBLAYER_SELF));
  b->ops->decode_attention(b->c, o->array[0][2], o->array[0][1], &o->caches[layer], c->heads,
                           1.0f / sqrtf((float)c->head_dim), NULL, &next, &o->sequences);
}

static void call_decode_output(Bench *b, const Operands *o, int set) {
  b->ops->decode_residual(b->c, o->array[0][0], o->array[0][2], &o->model->params,
                          bench_sublayer(o->model, layer_of(o, set), SUBLAYER_SELF)->out, &o->sequences);
}

static void call_decode_mlp(Bench *b, const Operands *o, int set) {
  const Sublayer *sublayer = bench_sublayer(o->model, layer_of(o, set), SUBLAYER_MLP);
  const Norm norm = norm_of(o->model, sublayer->norm);
  const MlpShape mlp = mlp_of(&o->model->config);
  b->ops->decode_mlp(b->c, o->array[0][3], o->array[0][0], &norm, &o->model->params, sublayer->in, &mlp, &o->sequences);
}

static void call_decode_down(Bench *b, const Operands *o, int set) {
  b->ops->decode_residual(b->c, o->array[0][0], o->array[0][3], &o->model->params,
                          bench_sublayer(o->model, layer_of(o, set), SUBLAYER_MLP)->out, &o->sequences);
}

static void call_decode_logits(Bench *b, const Operands *o, int set) {
  (void)set;
  const Norm norm = norm_of(o->model, o->model->table.decoder.norm);
  b->ops->decode_logits(b->c, o->array[0][4], o->array[0][0], &norm, &o->model->params, o->model->table.head,
                        o->model->config.vocab, o->rows);
}

/* As decode_stack() of model/decoder.c. */
static void call_decode_token(Bench *b, const Operands *o, int set) {
  (void)set;
  call_decode_embedding(b, o, 0);
  for (int layer = 0; layer < o->model->config.layers; layer++) {
    call_decode_qkv(b, o, layer);
    call_decode_attention(b, o, layer);
    call_decode_output(b, o, layer);
    call_decode_mlp(b, o, layer);
    call_decode_down(b, o, layer);
  }
  call_decode_logits(b, o, 0);
}

/* sample() may change the logits, so it gets a copy. */
static void call_sample(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->copy(b->c, o->array[0][5], o->array[0][4], (size_t)o->rows * (size_t)o->width * sizeof(float));
  b->ops->sample(b->c, &o->sequences, o->array[0][5], o->width);
}

/* Makes an array on the device: first, first + step, ... */
static int32_t *put_numbers(Bench *b, int count, int first, int step) {
  int32_t *host = malloc((size_t)count * sizeof *host);
  if (!host) bench_out_of_memory();
  for (int i = 0; i < count; i++) host[i] = first + i * step;
  int32_t *device = bench_ints(b, host, count);
  free(host);
  return device;
}

static bool put_sequences(Bench *b, Operands *o, int rows, int position, int vocab, const Sampling *sampling) {
  int capacity = position < 4096 ? 4096 : position + 1;
  int32_t *tokens = bench_random_tokens((int64_t)rows * capacity, vocab);
  o->sequences = (Sequences){.rows = rows, .capacity = capacity};
  Sequences *s = &o->sequences;
  s->tokens = bench_ints(b, tokens, (int64_t)rows * capacity);
  s->lengths = put_numbers(b, rows, position + 1, 0);
  s->positions = put_numbers(b, rows, position, 0);
  s->streams = put_numbers(b, rows, 0, 1);
  s->status = bench_array(b, FILL_ZEROS, 4 * rows);
  s->drawn = bench_array(b, FILL_ZEROS, 2 * 4 * rows);
  s->sampling = bench_array(b, FILL_ZEROS, rows * (int64_t)sizeof *sampling);
  for (int r = 0; r < rows && s->sampling; r++) b->ops->upload(b->c, s->sampling + r, sampling, sizeof *sampling);
  free(tokens);
  return s->sampling && s->tokens && s->lengths && s->positions && s->streams && s->status && s->drawn;
}

/* Makes all operands; the context may be a new one. */
static bool decode_operands(Bench *b, Operands *o, BenchModel *m, int rows, KvCache *caches, const Sampling *sampling) {
  const ModelConfig *c = &m->config;
  if (!bench_load(b, m)) return false;
  *o = (Operands){.model = m->model, .sets = 1, .rows = rows, .width = c->vocab, .caches = caches};
  const Need needs[] = {{FILL_COMPUTE, (int64_t)rows * c->dim},         {FILL_COMPUTE, (int64_t)rows * query_width(c)},
                        {FILL_COMPUTE, (int64_t)rows * query_width(c)}, {FILL_COMPUTE, (int64_t)rows * c->ffn},
                        {FILL_FLOATS, (int64_t)rows * c->vocab},        {FILL_FLOATS, (int64_t)rows * c->vocab},
                        {FILL_FLOATS, 2 * (int64_t)c->head_dim}};
  for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
    if (!(o->array[0][i] = bench_array(b, needs[i].fill, needs[i].count))) return false;
  for (int layer = 0; layer < c->layers; layer++) {
    int64_t count = (int64_t)rows * c->ctx * key_width(c);
    caches[layer] = (KvCache){bench_array(b, FILL_COMPUTE, count), bench_array(b, FILL_COMPUTE, count), c->ctx,
                              c->kv_heads, c->head_dim};
    if (!caches[layer].k || !caches[layer].v) return false;
  }
  return put_sequences(b, o, rows, bench_position(m), c->vocab, sampling);
}

/* Bytes of each operation, for one layer and all rows. */
typedef struct TokenBytes {
  double embedding, qkv, cache, output, mlp, down, head;
} TokenBytes;

static TokenBytes token_bytes(const Bench *b, const BenchModel *m, int rows) {
  const ModelConfig *c = &m->config;
  double dt = (double)b->dt, dim = c->dim, seen = bench_position(m) + 1;
  double wt = b->weights == DTYPE_I8 ? 1.125 : (double)dtype_bytes(b->weights ? b->weights : b->dtype); /* a weight */
  return (TokenBytes){.embedding = 2.0 * rows * dim * dt,
                      .qkv = dim * qkv_width(c) * wt,
                      .cache = 2.0 * rows * seen * key_width(c) * dt,
                      .output = dim * query_width(c) * wt,
                      .mlp = 2.0 * dim * c->ffn * wt,
                      .down = dim * c->ffn * wt,
                      .head = dim * c->vocab * wt + 4.0 * rows * c->vocab};
}

double bench_token_bytes(const Bench *b, const BenchModel *m, int rows) {
  const TokenBytes bytes = token_bytes(b, m, rows);
  return bytes.embedding + bytes.head +
         m->config.layers * (bytes.qkv + bytes.cache + bytes.output + bytes.mlp + bytes.down);
}

static void print_tokens(Bench *b, const BenchModel *m, int rows, const Quantiles *ms) {
  printf("%-8s decodes %.0f tokens/s, %d at a time\n", m->name, 1e3 * rows / ms->median, rows);
  bench_json(b,
             "{\"kind\": \"decode\", \"model\": \"%s\", \"rows\": %d, \"dtype\": \"%s\", \"tokens_per_s\": %.1f, "
             "\"step_ms\": %.6g, \"step_ms_p10\": %.6g, \"step_ms_p90\": %.6g, \"bytes_per_s\": %.6g, "
             "\"peak_memory_bytes\": %zu, \"params\": %" PRId64 ", \"ctx\": %d, \"position\": %d}",
             m->name, rows, dtype_name(b->dtype), 1e3 * rows / ms->median, ms->median, ms->p10, ms->p90,
             1e3 * bench_token_bytes(b, m, rows) / ms->median, bench_peak_bytes(b), model_parameters(&m->config),
             m->config.ctx, bench_position(m));
}

void bench_decode(Bench *b, BenchModel *m, int rows, bool token_alone) {
  const ModelConfig *c = &m->config;
  const TokenBytes bytes = token_bytes(b, m, rows);
  const double logits = 12.0 * rows * c->vocab;
  static const char copies[] = "with a copy of the logits";
  Sampling greedy = sampling_greedy();
  greedy.seed = 1;
  Sampling none = greedy;
  none.temperature = 1;
  Sampling usual = none;
  usual.temperature = 0.8f, usual.top_k = 40, usual.top_p = 0.95f;
  const struct {
    Case k;
    int sets;
    const Sampling *sampling;
  } list[] = {{{"decode_embedding", call_decode_embedding, .bytes = bytes.embedding}, 1, &none},
              {{"decode_qkv", call_decode_qkv, .bytes = bytes.qkv}, c->layers, &none},
              {{"decode_attention", call_decode_attention, .bytes = bytes.cache}, c->layers, &none},
              {{"decode_residual, output", call_decode_output, .bytes = bytes.output}, c->layers, &none},
              {{"decode_mlp", call_decode_mlp, .bytes = bytes.mlp}, c->layers, &none},
              {{"decode_residual, down", call_decode_down, .bytes = bytes.down}, c->layers, &none},
              {{"decode_logits", call_decode_logits, .bytes = bytes.head}, 1, &none},
              {{"a token: all of the above", call_decode_token, .bytes = bench_token_bytes(b, m, rows)}, 1, &none},
              {{"decode_qkv, norms of heads", call_decode_normed_qkv, .bytes = bytes.qkv}, c->layers, &none},
              {{"sample, top-k 40 top-p 0.95", call_sample, .bytes = logits, .note = copies}, 1, &usual},
              {{"sample, no filter", call_sample, .bytes = logits, .note = copies}, 1, &none},
              {{"sample, greedy", call_sample, .bytes = logits, .note = copies}, 1, &greedy}};
  KvCache *caches = calloc((size_t)c->layers, sizeof *caches);
  if (!caches) bench_out_of_memory();
  Operands o;
  const Group group =
      bench_group("decode", m->name, "%d row%s, position %d", rows, rows == 1 ? "" : "s", bench_position(m));
  bench_reopen(b);
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    Case k = list[i].k;
    if (token_alone && k.run != call_decode_token) continue;
    k.group = &group;
    k.operands = &o;
    if (!decode_operands(b, &o, m, rows, caches, list[i].sampling)) bench_skip(b, &k, "skipped: does not fit");
    else {
      o.sets = list[i].sets;
      const Quantiles ms = bench_case(b, &k);
      if (k.run == call_decode_token && ms.median > 0) print_tokens(b, m, rows, &ms);
    }
    bench_free(b);
  }
  free(caches);
}
