/* Benchmarks of the memory-bound operations of training, and of Muon, which is compute-bound. */
#include "bench/bench.h"
#include "kernels/philox.h"
#include "model/parameters.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void call_embedding(Bench *b, const Operands *o, int set) {
  const Embedding e = {.table = o->layer.weight, .scale = 1};
  b->ops->embedding(b->c, o->array[set][0], &o->model->params, &e, o->array[set][1], o->batch, o->length, NULL);
}

static void call_embedding_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->embedding_backward(b->c, &o->model->params, o->layer.weight, 1, a[0], a[1], a[2], o->model->config.vocab,
                             o->batch, o->length, NULL, o->flag);
}

static const Dropout *dropout_of(const Operands *o) { return o->dropout.p > 0 ? &o->dropout : NULL; }

/* x_out, y, x_in, branch, rstd */
static void call_norm(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const Norm norm = bench_norm(o->model, o->model->table.decoder.norm);
  b->ops->residual_norm(b->c, a[3] ? a[0] : NULL, a[1], (NormStats){.rstd = a[4]}, a[2], a[3], &norm, o->batch,
                        o->length, o->width, dropout_of(o));
}

/* dx, dbranch, dy, dres, x, rstd */
static void call_norm_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const NormParameters final = o->model->table.decoder.norm;
  const Norm norm = bench_norm(o->model, final);
  b->ops->residual_norm_backward(
      b->c, a[0], a[1], (NormGradient){.weight = o->model->params.grad + final.weight.offset}, a[2], a[3], a[4],
      (NormStats){.rstd = a[5]}, &norm, o->batch, o->length, o->width, dropout_of(o), true);
}

static void call_activation(Bench *b, const Operands *o, int set) {
  const MlpShape mlp = bench_mlp(&o->model->config);
  b->ops->activation(b->c, o->array[set][0], o->array[set][1], &mlp, o->batch, o->length, NULL);
}

static void call_activation_backward(Bench *b, const Operands *o, int set) {
  const MlpShape mlp = bench_mlp(&o->model->config);
  b->ops->activation_backward(b->c, o->array[set][0], o->array[set][1], o->array[set][2], &mlp, o->batch, o->length,
                              NULL);
}

static void call_loss(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->cross_entropy(b->c, a[0], a[1], o->width, a[2], o->rows, o->model->config.vocab, 0, b->state, o->flag);
}

static void call_loss_sum(Bench *b, const Operands *o, int set) {
  b->ops->loss_sum(b->c, b->state, o->array[set][0], o->array[set][1], o->rows);
}

static const AdamW ADAMW = {0.9f, 0.95f, 1e-8f, 0.1f};

static void call_clip(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->clip(b->c, b->state, &o->model->params, 1.0f, &ADAMW);
}

static void call_adamw(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->adamw(b->c, b->state, &o->model->params, &ADAMW);
}

static const Muon MUON = {1, 0.95f, 0.1f};

static void call_muon(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->muon(b->c, b->state, &o->model->params, &MUON);
}

/* Steps are counted in states of their own: lr and clip of b->state stay. */
static void call_step_begin(Bench *b, const Operands *o, int set) {
  b->ops->step_begin(b->c, o->array[set][0], NULL, NULL);
}

static void call_next_micro_batch(Bench *b, const Operands *o, int set) {
  b->ops->next_micro_batch(b->c, o->array[set][0], 1);
}

static void call_report(Bench *b, const Operands *o, int set) { b->ops->report(b->c, o->array[set][0]); }

/* Token ids on the device, uniform over the vocabulary, in place `at` of all sets (they may share them). With `order`
 * their counting sort in the next two places. */
static bool put_tokens(Bench *b, Operands *o, int at, int64_t count, int vocab, bool order) {
  int32_t *tokens = bench_random_tokens(count, vocab), *device = NULL, *offsets = NULL, *sorted = NULL;
  if (!order) device = bench_ints(b, tokens, count);
  else {
    int32_t *starts = calloc((size_t)vocab + 2, sizeof *starts), *places = malloc((size_t)count * sizeof *places);
    if (!starts || !places) bench_out_of_memory();
    for (int64_t i = 0; i < count; i++) starts[tokens[i] + 2]++;
    for (int v = 0; v < vocab; v++) starts[v + 2] += starts[v + 1]; /* starts[v + 1]: first place of token v */
    for (int64_t i = 0; i < count; i++) places[starts[tokens[i] + 1]++] = (int32_t)i;
    offsets = bench_ints(b, starts, vocab + 1);
    sorted = bench_ints(b, places, count);
    free(starts);
    free(places);
  }
  free(tokens);
  for (int set = 0; set < MAX_SETS; set++)
    if (!order) o->array[set][at] = device;
    else o->array[set][at] = offsets, o->array[set][at + 1] = sorted;
  return order ? offsets && sorted : device != NULL;
}

static void embedding_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->dim;
  double u = (double)count * (double)b->dt, table = (double)c->vocab * c->dim;
  Case k = bench_case_of("elementwise", m->name, "embedding", call_embedding);
  Operands o = {.model = m, .batch = m->batch, .length = c->ctx, .rows = (int)rows};
  if (!bench_model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
  o.layer.weight = m->table.decoder.embedding;
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d, V %d", rows, c->dim, c->vocab);
  k.bytes = u + fmin(u, table * (double)b->dt) + 4.0 * (double)rows;
  k.operands = &o;
  Need out = {FILL_COMPUTE, count};
  if (bench_sets(b, &o, &out, 1) && put_tokens(b, &o, 1, rows, c->vocab, false)) bench_case(b, &k);
  else bench_skip(b, &k, "skipped: does not fit");
  bench_free(b);

  k.operation = "embedding_backward (+=)";
  k.run = call_embedding_backward;
  k.bytes = u + 8.0 * table + 8.0 * (double)rows;
  o.flag = true;
  if (!bench_model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
  if (bench_sets(b, &o, &out, 1) && put_tokens(b, &o, 1, rows, c->vocab, true)) bench_case(b, &k);
  else bench_skip(b, &k, "skipped: does not fit");
  bench_free(b);
}

static void norm_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->dim;
  double u = (double)count * (double)b->dt, r = 4.0 * (double)rows;
  Operands o = {.model = m, .batch = m->batch, .length = c->ctx, .width = c->dim};
  Case k = bench_case_of("elementwise", m->name, "residual_norm", call_norm);
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d", rows, c->dim);
  k.bytes = 4 * u + r;
  Need whole[] = {
      {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_FLOATS, rows}};
  bench_row(b, k, &o, whole, 5);
  Dropout dropout = {0.1f, SITE_DROPOUT, 42, b->state};
  o.dropout = dropout;
  k.operation = "residual_norm, dropout 0.1";
  bench_row(b, k, &o, whole, 5);
  o.dropout.p = 0;
  k.operation = "residual_norm, norm only";
  k.bytes = 2 * u + r;
  Need alone[] = {
      {FILL_COMPUTE, 0}, {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, 0}, {FILL_FLOATS, rows}};
  bench_row(b, k, &o, alone, 5);

  k.run = call_norm_backward;
  k.operation = "residual_norm_backward";
  k.bytes = 4 * u + r;
  Need back[] = {{FILL_COMPUTE, count}, {FILL_COMPUTE, 0},     {FILL_COMPUTE, count},
                 {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_FLOATS, rows}};
  bench_row(b, k, &o, back, 6);
  back[1].count = count;
  k.operation = "residual_norm_backward, dropout";
  k.bytes = 5 * u + r;
  o.dropout = dropout;
  o.dropout.state = b->state;
  bench_row(b, k, &o, back, 6);
}

static void mlp_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->ffn;
  Operands o = {.model = m, .batch = m->batch, .length = c->ctx};
  Case k = bench_case_of("elementwise", m->name, "activation, SwiGLU", call_activation);
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d", rows, c->ffn);
  k.bytes = 3.0 * (double)count * (double)b->dt;
  Need needs[] = {{FILL_COMPUTE, count}, {FILL_COMPUTE, 2 * count}};
  bench_row(b, k, &o, needs, 2);
  k.operation = "activation_backward, SwiGLU";
  k.run = call_activation_backward;
  k.bytes = 5.0 * (double)count * (double)b->dt;
  Need back[] = {{FILL_COMPUTE, 2 * count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, 2 * count}};
  bench_row(b, k, &o, back, 3);
}

static void loss_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, chunk = rows < 8192 ? rows : 8192, stride = (c->vocab + 127) / 128 * 128;
  Operands o = {.model = m, .rows = (int)chunk, .width = (int)stride};
  Case k = bench_case_of("elementwise", m->name, "cross_entropy, gradient", call_loss);
  k.operands = &o;
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %" PRId64, chunk, stride);
  Need needs[] = {{FILL_FLOATS, chunk}, {FILL_COMPUTE, chunk * stride}};
  for (int gradient = 1; gradient >= 0; gradient--) {
    o.flag = gradient != 0;
    k.operation = gradient ? "cross_entropy, gradient" : "cross_entropy, loss only";
    k.bytes = (gradient ? 2.0 : 1.0) * (double)(chunk * stride) * (double)b->dt + 8.0 * (double)chunk;
    if (!bench_model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
    if (bench_sets(b, &o, needs, 2) && put_tokens(b, &o, 2, chunk, c->vocab, false)) bench_case(b, &k);
    else bench_skip(b, &k, "skipped: does not fit");
    bench_free(b);
  }
  o.rows = (int)rows;
  k.operation = "loss_sum";
  k.run = call_loss_sum;
  k.bytes = 8.0 * (double)rows;
  snprintf(k.shape, sizeof k.shape, "%" PRId64, rows);
  needs[0].count = rows;
  if (bench_sets(b, &o, needs, 1) && put_tokens(b, &o, 1, rows, c->vocab, false)) bench_case(b, &k);
  else bench_skip(b, &k, "skipped: does not fit");
  bench_free(b);
}

static void optimizer_rows(Bench *b, BenchModel *m) {
  if (!bench_model_ready(b, m)) return;
  double count = (double)m->table.arena;
  Operands o = {.model = m, .sets = 1};
  Case k = bench_case_of("elementwise", m->name, "clip", call_clip);
  k.operands = &o;
  snprintf(k.shape, sizeof k.shape, "%.0f", count);
  k.bytes = 4 * count;
  /* gradients that are not zero: those that the other rows left, and random ones where they have written none */
  for (size_t done = 0; done < m->table.arena * 4; done += b->random_bytes) {
    size_t left = m->table.arena * 4 - done;
    b->ops->copy(b->c, (char *)m->params.grad + done, b->random_floats,
                 left < b->random_bytes ? left : b->random_bytes);
  }
  bench_case(b, &k);
  if (!bench_model_ready(b, m)) return;
  k.operation = "adamw";
  k.run = call_adamw;
  k.bytes = (28 + (b->dtype == DTYPE_F32 ? 0 : (double)b->dt)) * count;
  bench_case(b, &k);
  StepState state = {0};
  b->ops->download(b->c, &state, b->state, sizeof state);
  if (state.halted) printf("%-8s the step was halted: adamw did nothing, its time says nothing\n", m->name);
}

static void choose_optimizer(Bench *b, BenchModel *m, OptimizerKind optimizer) {
  parameter_table_set_optimizer(&m->table, optimizer);
  if (!parameter_table_partition(&m->table, &(Sharding){0}, NULL)) return;
  parameter_table_describe(&m->table, &m->params);
  b->ops->release_parameters(b->c, &m->params);
  b->ops->refresh_parameters(b->c, &m->params);
}

/* Bytes: gradients, momentum, weights and their copy, each once. FLOPs of a matrix of sides s <= l: s x s products over
 * l, over s, and one over s with l columns, in every step. */
static void muon_row(Bench *b, BenchModel *m) {
  if (!bench_model_ready(b, m)) return;
  Operands o = {.model = m, .sets = 1};
  Case k = bench_case_of("elementwise", m->name, "muon", call_muon);
  double count = 0;
  choose_optimizer(b, m, OPTIMIZER_MUON);
  for (int i = 0; i < m->params.muon_count; i++) {
    const MuonMatrix *matrix = &m->params.muon[i];
    count += (double)matrix->rows * matrix->cols;
    k.flops += muon_flops(matrix->rows, matrix->cols, b->accelerator);
  }
  snprintf(k.shape, sizeof k.shape, "%.0f", count);
  k.bytes = (20 + (b->dtype == DTYPE_F32 ? 0 : (double)b->dt)) * count;
  k.against_gemm = true;
  k.operands = &o;
  bench_case(b, &k);
  if (m->opened == b->opened) choose_optimizer(b, m, OPTIMIZER_ADAMW);
}

static void bookkeeping_rows(Bench *b, BenchModel *m) {
  Operands o = {0};
  Need state = {FILL_ZEROS, sizeof(StepState)};
  Case k = bench_case_of("elementwise", m->name, "step_begin", call_step_begin);
  snprintf(k.shape, sizeof k.shape, "latency");
  bench_row(b, k, &o, &state, 1);
  k.operation = "next_micro_batch";
  k.run = call_next_micro_batch;
  bench_row(b, k, &o, &state, 1);
  k.operation = "report";
  k.run = call_report;
  bench_row(b, k, &o, &state, 1);
}

void bench_elementwise(Bench *b, BenchModel *m) {
  embedding_rows(b, m);
  norm_rows(b, m);
  mlp_rows(b, m);
  loss_rows(b, m);
  optimizer_rows(b, m);
  muon_row(b, m);
  bookkeeping_rows(b, m);
}
