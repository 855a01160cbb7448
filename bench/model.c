/* The benchmarked models. */
#include "bench/bench.h"
#include "kernels/philox.h"

#include <math.h>
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

/* An initial weight. */
static float small_number(size_t i) {
  PhiloxWords r = philox(99, (uint32_t)(i / 2), 0xFDu << 24, 0, 0);
  return 0.02f * ((float)(r.word[0] & 0xFFFF) + (float)(r.word[1] & 0xFFFF) - 65535.0f) / 26754.0f;
}

float *bench_random_weights(const ParameterTable *table) {
  enum { PERIOD = 65537 };
  float *weights = malloc(table->arena * sizeof *weights);
  if (!weights) bench_out_of_memory();
  for (size_t i = 0; i < table->arena; i++) weights[i] = i < PERIOD ? small_number(i) : weights[i - PERIOD];
  for (const ParameterTensor *t = table->tensors; t < table->tensors + table->count; t++)
    for (int j = 0; t->rank == 1 && j < t->cols; j++) weights[t->offset + (size_t)j] = 1;
  return weights;
}

bool bench_model_ready(Bench *b, BenchModel *m) {
  if (m->opened == b->opened) return true;
  bench_model_free(b, m);
  Error error = {0};
  if (!parameter_table_make(&m->table, &m->config, &error)) {
    printf("%s: %s\n", m->name, error.text);
    return false;
  }
  m->params = (Parameters){0};
  parameter_table_describe(&m->table, &m->params);
  const size_t arena = m->table.arena * sizeof(float);
  float *host = bench_random_weights(&m->table);
  float **arenas[] = {&m->params.master, &m->params.grad, &m->params.m, &m->params.v};
  for (int i = 0; i < (m->trains ? 4 : 1); i++) *arenas[i] = b->ops->alloc(b->c, "weights", arena);
  if (m->params.master) b->ops->upload(b->c, m->params.master, host, arena);
  free(host);
  b->ops->refresh_parameters(b->c, &m->params);

  const ModelConfig *c = &m->config;
  size_t count = (size_t)c->ctx * (size_t)c->head_dim;
  float *table = malloc(count * sizeof *table);
  if (!table) bench_out_of_memory();
  for (size_t i = 0; i < count; i++) {
    double angle =
        (double)(i / (size_t)c->head_dim) * pow(10000.0, -2.0 * (double)(i % (size_t)c->head_dim / 2) / c->head_dim);
    table[i] = (float)(i % 2 ? sin(angle) : cos(angle));
  }
  m->rope = b->ops->alloc(b->c, "rotary table", count * sizeof *table);
  if (m->rope) b->ops->upload(b->c, m->rope, table, count * sizeof *table);
  free(table);
  m->opened = b->opened;
  return bench_alive(b, m->name);
}

void bench_model_free(Bench *b, BenchModel *m) {
  if (m->opened == b->opened && b->opened) {
    b->ops->release_parameters(b->c, &m->params);
    void *memory[] = {m->params.master, m->params.grad, m->params.m, m->params.v, m->rope};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) b->ops->release(b->c, memory[i]);
  }
  if (m->opened) parameter_table_free(&m->table);
  m->opened = 0;
}

const Sublayer *bench_sublayer(const BenchModel *m, int layer, SublayerKind kind) {
  return &m->table.decoder.sublayers[2 * layer + (kind == SUBLAYER_MLP)];
}

Norm bench_norm(const BenchModel *m, NormParameters norm) {
  const float *master = m->params.master;
  return (Norm){.kind = m->config.norm,
                .weight = master + norm.weight.offset,
                .bias = norm.bias.rows ? master + norm.bias.offset : NULL,
                .eps = m->config.norm_eps};
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
