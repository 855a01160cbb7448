/* Benchmarks of the memory-bound operations of training, and of Muon, which is compute-bound. */
#include "bench/bench.h"
#include "kernels/philox.h"

#include <inttypes.h>
#include <math.h>

static void call_embedding(Bench *b, const Operands *o, int set) {
  const Embedding e = {.table = o->model->table.decoder.embedding};
  b->ops->embedding(b->c, o->array[set][0], &o->model->params, &e, o->array[set][1], o->batch, o->length, NULL);
}

static void call_embedding_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->embedding_backward(b->c, &o->model->params, o->model->table.decoder.embedding, a[0], a[1], a[2],
                             o->model->config.vocab, o->batch, o->length, NULL, o->flag);
}

static const Dropout *dropout_of(const Operands *o) { return o->dropout.p > 0 ? &o->dropout : NULL; }

/* arrays: x_out, y, x_in, branch, rstd */
static void call_norm(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const Norm norm = bench_norm(o->model, o->model->table.decoder.norm);
  b->ops->residual_norm(b->c, a[3] ? a[0] : NULL, a[1], (NormStats){.rstd = a[4]}, a[2], a[3], &norm, o->batch,
                        o->length, o->width, dropout_of(o));
}

/* arrays: dx, dbranch, dy, dres, x, rstd */
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

/* Each set has its own state, so that lr and clip of b->state do not change. */
static void call_step_begin(Bench *b, const Operands *o, int set) {
  b->ops->step_begin(b->c, o->array[set][0], NULL, NULL);
}

static void call_next_micro_batch(Bench *b, const Operands *o, int set) {
  b->ops->next_micro_batch(b->c, o->array[set][0], 1);
}

static void call_report(Bench *b, const Operands *o, int set) { b->ops->report(b->c, o->array[set][0]); }

static void embedding_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  const int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->dim;
  const double u = (double)count * (double)b->dt, table = (double)c->vocab * c->dim, ids = 4.0 * (double)rows;
  Operands o = {.model = m, .batch = m->batch, .length = c->ctx};
  const Group group = bench_group("elementwise", m->name, "%" PRId64 " x %d, V %d", rows, c->dim, c->vocab);
  const Case cases[] = {{"embedding", call_embedding, u + fmin(u, table * (double)b->dt) + ids,
                         .needs = {{FILL_COMPUTE, count}, {FILL_TOKENS, rows}}},
                        {"embedding_backward (+=)", call_embedding_backward, u + 8.0 * table + 2 * ids,
                         .needs = {{FILL_COMPUTE, count}, {FILL_OFFSETS, rows}, {FILL_SORTED, rows}}, .flag = true}};
  bench_rows(b, &group, &o, cases, 2);
}

static void norm_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  const int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->dim;
  const double u = (double)count * (double)b->dt, r = 4.0 * (double)rows;
  const Need x = {FILL_COMPUTE, count}, none = {FILL_COMPUTE, 0}, rstd = {FILL_FLOATS, rows};
  Operands o = {
      .model = m, .batch = m->batch, .length = c->ctx, .width = c->dim, .dropout = {.site = SITE_DROPOUT, .seed = 42}};
  const Group group = bench_group("elementwise", m->name, "%" PRId64 " x %d", rows, c->dim);
  const Case cases[] = {
      {"residual_norm", call_norm, 4 * u + r, .needs = {x, x, x, x, rstd}},
      {"residual_norm, dropout 0.1", call_norm, 4 * u + r, .needs = {x, x, x, x, rstd}, .dropout = 0.1f},
      {"residual_norm, norm only", call_norm, 2 * u + r, .needs = {none, x, x, none, rstd}},
      {"residual_norm_backward", call_norm_backward, 4 * u + r, .needs = {x, none, x, x, x, rstd}},
      {"residual_norm_backward, dropout", call_norm_backward, 5 * u + r, .needs = {x, x, x, x, x, rstd},
       .dropout = 0.1f}};
  bench_rows(b, &group, &o, cases, sizeof cases / sizeof *cases);
}

static void mlp_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  const int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->ffn;
  const double bytes = (double)count * (double)b->dt;
  const Need half = {FILL_COMPUTE, count}, both = {FILL_COMPUTE, 2 * count};
  Operands o = {.model = m, .batch = m->batch, .length = c->ctx};
  const Group group = bench_group("elementwise", m->name, "%" PRId64 " x %d", rows, c->ffn);
  const Case cases[] = {
      {"activation, SwiGLU", call_activation, 3 * bytes, .needs = {half, both}},
      {"activation_backward, SwiGLU", call_activation_backward, 5 * bytes, .needs = {both, half, both}}};
  bench_rows(b, &group, &o, cases, 2);
}

static void loss_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  const int64_t rows = (int64_t)m->batch * c->ctx, chunk = rows < 8192 ? rows : 8192,
                stride = (c->vocab + 127) / 128 * 128;
  const double logits = (double)(chunk * stride) * (double)b->dt, sums = 8.0 * (double)chunk;
  const Need losses = {FILL_FLOATS, chunk}, scores = {FILL_COMPUTE, chunk * stride}, targets = {FILL_TOKENS, chunk};
  Operands o = {.model = m, .rows = (int)chunk, .width = (int)stride};
  Group group = bench_group("elementwise", m->name, "%" PRId64 " x %" PRId64, chunk, stride);
  const Case cases[] = {
      {"cross_entropy, gradient", call_loss, 2 * logits + sums, .needs = {losses, scores, targets}, .flag = true},
      {"cross_entropy, loss only", call_loss, logits + sums, .needs = {losses, scores, targets}}};
  bench_rows(b, &group, &o, cases, 2);
  o.rows = (int)rows;
  group = bench_group("elementwise", m->name, "%" PRId64, rows);
  bench_row(b, &group, &o,
            (Case){"loss_sum", call_loss_sum, 8.0 * (double)rows, .needs = {{FILL_FLOATS, rows}, {FILL_TOKENS, rows}}});
}

/* Bytes of a parameter in the compute dtype that an update writes beside the master weight. */
static double copy_bytes(const Bench *b) { return b->dtype == DTYPE_F32 ? 0 : (double)b->dt; }

static void optimizer_rows(Bench *b, BenchModel *m) {
  if (!bench_model_ready(b, m)) return;
  const double count = (double)m->table.arena;
  Operands o = {.model = m, .warm = true};
  const Group group = bench_group("elementwise", m->name, "%.0f", count);
  /* Random gradients where the rows before have written none, so that they are not zero. */
  for (size_t done = 0; done < m->table.arena * 4; done += b->random_bytes) {
    size_t left = m->table.arena * 4 - done;
    b->ops->copy(b->c, (char *)m->params.grad + done, b->random_floats,
                 left < b->random_bytes ? left : b->random_bytes);
  }
  bench_row(b, &group, &o, (Case){"clip", call_clip, .bytes = 4 * count});
  bench_row(b, &group, &o, (Case){"adamw", call_adamw, .bytes = (28 + copy_bytes(b)) * count});
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

/* Bytes: gradients, momentum, weights and their copy, once each. FLOPs of a matrix with sides s <= l in every step:
 * products s x s over l, s x s over s, and s x l over s. */
static void muon_row(Bench *b, BenchModel *m) {
  if (!bench_model_ready(b, m)) return;
  Operands o = {.model = m, .warm = true};
  Case k = {"muon", call_muon, .against_gemm = true};
  double count = 0;
  choose_optimizer(b, m, OPTIMIZER_MUON);
  for (int i = 0; i < m->params.muon_count; i++) {
    const MuonMatrix *matrix = &m->params.muon[i];
    count += (double)matrix->rows * matrix->cols;
    k.flops += muon_flops(matrix->rows, matrix->cols, b->accelerator);
  }
  k.bytes = (20 + copy_bytes(b)) * count;
  const Group group = bench_group("elementwise", m->name, "%.0f", count);
  bench_row(b, &group, &o, k);
  if (m->opened == b->opened) choose_optimizer(b, m, OPTIMIZER_ADAMW);
}

static void bookkeeping_rows(Bench *b, const BenchModel *m) {
  Operands o = {0};
  const Need state = {FILL_ZEROS, sizeof(StepState)};
  const Group group = bench_group("elementwise", m->name, "latency");
  const Case cases[] = {{"step_begin", call_step_begin, .needs = {state}},
                        {"next_micro_batch", call_next_micro_batch, .needs = {state}},
                        {"report", call_report, .needs = {state}}};
  bench_rows(b, &group, &o, cases, 3);
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
