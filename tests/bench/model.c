/* The benchmarked models. */
#include "tests/bench/bench.h"
#include "kernels/philox.h"

#include <stdlib.h>
#include <string.h>

bool bench_shape(BenchModel *m, const char *text) {
  ModelConfig *c = &m->config;
  const struct {
    const char *name;
    int *number;
  } list[] = {{"layers", &c->layers}, {"heads", &c->heads}, {"kv_heads", &c->kv_heads},
              {"dim", &c->dim},       {"ffn", &c->ffn},     {"ctx", &c->ctx},
              {"vocab", &c->vocab},   {"batch", &m->batch}, {"position", &m->position}};
  const size_t count = sizeof list / sizeof list[0];
  c->kv_heads = c->ffn = 0;
  for (const char *at = text; *at;) {
    const size_t name = strcspn(at, "=,");
    size_t i = 0;
    while (i < count && (strlen(list[i].name) != name || strncmp(list[i].name, at, name) != 0)) i++;
    if (i == count || at[name] != '=') return false;
    char *end;
    const long number = strtol(at + name + 1, &end, 10);
    if (number < 1 || number > MODEL_MAX_VOCAB || (*end && (*end != ',' || !end[1]))) return false;
    *list[i].number = (int)number;
    at = *end ? end + 1 : end;
  }
  if (c->dim % c->heads) return false;
  if (!c->kv_heads) c->kv_heads = c->heads;
  if (!c->ffn) c->ffn = model_default_ffn(c->dim);
  c->head_dim = c->dim / c->heads;
  return m->position < c->ctx && model_config_check(c, EXIT_USAGE, &(Error){0});
}

int bench_position(const BenchModel *m) { return m->position ? m->position : m->config.ctx / 2; }

BenchModel bench_model(const char *name, int layers, int heads, int dim, int ctx, int vocab, int batch) {
  return (BenchModel){.name = name,
                      .batch = batch,
                      .config = {.vocab = vocab,
                                 .ctx = ctx,
                                 .layers = layers,
                                 .heads = heads,
                                 .kv_heads = heads,
                                 .dim = dim,
                                 .head_dim = dim / heads,
                                 .ffn = model_default_ffn(dim),
                                 .tie = true,
                                 .rope_base = 10000.0f,
                                 .norm_eps = 1e-5f,
                                 .gated = true}};
}

float *bench_weights(const ParameterTable *table) {
  float *weights = calloc(table->arena, sizeof *weights);
  if (!weights) bench_out_of_memory();
  parameter_table_init(table, (Initialization){INIT_GPT2, INIT_DEFAULT_STD}, weights, 99);
  return weights;
}

bool bench_load(Bench *b, BenchModel *m) {
  if (m->model) return true;
  Error error = {0};
  if (!model_open(&m->model, b->ops, b->c, &m->config, &error)) {
    printf("%s: %s\n", m->name, error.text);
    bench_alive(b, NULL);
    return false;
  }
  b->loaded = m;
  Parameters *p = &m->model->params;
  float **arenas[] = {&p->grad, &p->m, &p->v};
  for (int i = 0; i < 3 && m->trains; i++) *arenas[i] = b->ops->alloc(b->c, "weights", p->count * sizeof(float));
  float *weights = bench_weights(&m->model->table);
  model_upload(m->model, ARENA_MASTER, weights);
  free(weights);
  return bench_alive(b, m->name);
}

void bench_unload(Bench *b, BenchModel *m) {
  model_close(m->model);
  m->model = NULL;
  b->loaded = NULL;
}

const Sublayer *bench_sublayer(const Model *m, int layer, SublayerKind kind) {
  return &m->table.decoder.sublayers[2 * layer + (kind == SUBLAYER_MLP)];
}

void bench_call_linear(Bench *b, const Operands *o, int set) {
  b->ops->linear(b->c, o->array[set][0], o->array[set][1], &o->model->params, o->layer, o->rows);
}

int32_t *bench_random_tokens(int64_t count, int vocab) {
  int32_t *tokens = malloc((size_t)count * sizeof *tokens);
  if (!tokens) bench_out_of_memory();
  for (int64_t i = 0; i < count; i++)
    tokens[i] = (int32_t)(philox(7, (uint32_t)(i & 0xFFFFFFFF), 0xFCu << 24, 0, 0).word[0] % (uint32_t)vocab);
  return tokens;
}
