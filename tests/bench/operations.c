/* Benchmarks of the operations of training: memory-bound ones and Muon, which is compute-bound; matrix products;
 * attention, RoPE, norms of heads and storing keys and values. */
#include "tests/bench/bench.h"
#include "kernels/philox.h"

#include <inttypes.h>
#include <math.h>

/* ---- memory-bound operations, and Muon ---- */

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
  const Norm norm = norm_of(o->model, o->model->table.decoder.norm);
  b->ops->residual_norm(b->c, a[3] ? a[0] : NULL, a[1], (NormStats){.rstd = a[4]}, a[2], a[3], &norm, o->batch,
                        o->length, o->width, dropout_of(o));
}

/* arrays: dx, dbranch, dy, dres, x, rstd */
static void call_norm_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const NormParameters final = o->model->table.decoder.norm;
  const Norm norm = norm_of(o->model, final);
  b->ops->residual_norm_backward(
      b->c, a[0], a[1], (NormGradient){.weight = o->model->params.grad + final.weight.matrix.offset}, a[2], a[3], a[4],
      (NormStats){.rstd = a[5]}, &norm, o->batch, o->length, o->width, dropout_of(o), true);
}

static void call_activation(Bench *b, const Operands *o, int set) {
  const MlpShape mlp = mlp_of(&o->model->config);
  b->ops->activation(b->c, o->array[set][0], o->array[set][1], &mlp, o->batch, o->length, NULL);
}

static void call_activation_backward(Bench *b, const Operands *o, int set) {
  const MlpShape mlp = mlp_of(&o->model->config);
  b->ops->activation_backward(b->c, o->array[set][0], o->array[set][1], o->array[set][2], &mlp, o->batch, o->length,
                              NULL);
}

/* arrays: y, bcx, kernel */
static void call_convolution(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->convolution(b->c, a[0], a[1], &(Convolution){a[2], o->width, NULL}, o->batch, o->length);
}

/* arrays: dbcx, dkernel, dy, bcx, kernel */
static void call_convolution_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->convolution_backward(b->c, a[0], a[1], a[2], a[3], &(Convolution){a[4], o->width, NULL}, o->batch, o->length,
                               true);
}

static void call_loss(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->cross_entropy(b->c, a[0], a[1], o->width, a[2], o->rows, o->model->config.vocab, 0, b->state, o->flag);
}

static void call_distill(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->distill(b->c, a[0], a[1], o->width, a[2], o->rows, o->model->config.vocab, 0, 0.5f, b->state);
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
  Operands o = {.of = m, .batch = m->batch, .length = c->ctx};
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
      .of = m, .batch = m->batch, .length = c->ctx, .width = c->dim, .dropout = {.site = SITE_DROPOUT, .seed = 42}};
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
  Operands o = {.of = m, .batch = m->batch, .length = c->ctx};
  const Group group = bench_group("elementwise", m->name, "%" PRId64 " x %d", rows, c->ffn);
  const Case cases[] = {
      {"activation, SwiGLU", call_activation, 3 * bytes, .needs = {half, both}},
      {"activation_backward, SwiGLU", call_activation_backward, 5 * bytes, .needs = {both, half, both}}};
  bench_rows(b, &group, &o, cases, 2);
}

static void convolution_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  const int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->dim;
  const double u = (double)count * (double)b->dt;
  const Need y = {FILL_COMPUTE, count}, bcx = {FILL_COMPUTE, 3 * count},
             kernel = {FILL_FLOATS, CONVOLUTION_TAPS * (int64_t)c->dim};
  Operands o = {.of = m, .batch = m->batch, .length = c->ctx, .width = c->dim};
  const Group group = bench_group("elementwise", m->name, "%" PRId64 " x %d", rows, c->dim);
  const Case cases[] = {
      {"convolution", call_convolution, 4 * u, .needs = {y, bcx, kernel}},
      {"convolution_backward (+=)", call_convolution_backward, 7 * u, .needs = {bcx, kernel, y, bcx, kernel}}};
  bench_rows(b, &group, &o, cases, 2);
}

static void loss_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  const int64_t rows = (int64_t)m->batch * c->ctx, chunk = rows < 8192 ? rows : 8192,
                stride = (c->vocab + 127) / 128 * 128;
  const double logits = (double)(chunk * stride) * (double)b->dt, sums = 8.0 * (double)chunk;
  const Need losses = {FILL_FLOATS, chunk}, scores = {FILL_COMPUTE, chunk * stride}, targets = {FILL_TOKENS, chunk};
  Operands o = {.of = m, .rows = (int)chunk, .width = (int)stride};
  Group group = bench_group("elementwise", m->name, "%" PRId64 " x %" PRId64, chunk, stride);
  const Case cases[] = {
      {"cross_entropy, gradient", call_loss, 2 * logits + sums, .needs = {losses, scores, targets}, .flag = true},
      {"cross_entropy, loss only", call_loss, logits + sums, .needs = {losses, scores, targets}},
      {"distill", call_distill, 3 * logits, .needs = {scores, scores, targets}}};
  bench_rows(b, &group, &o, cases, 3);
  o.rows = (int)rows;
  group = bench_group("elementwise", m->name, "%" PRId64, rows);
  bench_row(b, &group, &o,
            (Case){"loss_sum", call_loss_sum, 8.0 * (double)rows, .needs = {{FILL_FLOATS, rows}, {FILL_TOKENS, rows}}});
}

/* Bytes of a parameter in the compute dtype that an update writes beside the master weight. */
static double copy_bytes(const Bench *b) { return b->dtype == DTYPE_F32 ? 0 : (double)b->dt; }

static void choose_optimizer(Bench *b, BenchModel *m, OptimizerKind optimizer) {
  parameter_table_set_optimizer(&m->model->table, optimizer);
  if (!parameter_table_partition(&m->model->table, &(Sharding){0}, NULL)) return;
  parameter_table_describe(&m->model->table, &m->model->params);
  b->ops->release_parameters(b->c, &m->model->params);
  b->ops->refresh_parameters(b->c, &m->model->params);
}

static void optimizer_rows(Bench *b, BenchModel *m) {
  if (!bench_load(b, m)) return;
  choose_optimizer(b, m, OPTIMIZER_ADAMW);
  const double count = (double)m->model->table.arena;
  Operands o = {.of = m, .warm = true};
  const Group group = bench_group("elementwise", m->name, "%.0f", count);
  /* Random gradients where the rows before have written none, so that they are not zero. */
  for (size_t done = 0; done < m->model->table.arena * 4; done += b->random_bytes) {
    size_t left = m->model->table.arena * 4 - done;
    b->ops->copy(b->c, (char *)m->model->params.grad + done, b->random_floats,
                 left < b->random_bytes ? left : b->random_bytes);
  }
  bench_row(b, &group, &o, (Case){"clip", call_clip, .bytes = 4 * count});
  choose_optimizer(b, m, OPTIMIZER_ADAMW); /* of a model that was loaded again if "clip" failed */
  bench_row(b, &group, &o, (Case){"adamw", call_adamw, .bytes = (28 + copy_bytes(b)) * count});
  StepState state = {0};
  b->ops->download(b->c, &state, b->state, sizeof state);
  if (state.halted) printf("%-8s the step was halted: adamw did nothing, its time says nothing\n", m->name);
}

/* Bytes: gradients, momentum, weights and their copy, once each. FLOPs of a matrix with sides s <= l in every step:
 * products s x s over l, s x s over s, and s x l over s. */
static void muon_row(Bench *b, BenchModel *m) {
  if (!bench_load(b, m)) return;
  Operands o = {.of = m, .warm = true};
  Case k = {"muon", call_muon, .against_gemm = true};
  double count = 0;
  choose_optimizer(b, m, OPTIMIZER_MUON);
  for (int i = 0; i < m->model->params.muon_count; i++) {
    const MuonMatrix *matrix = &m->model->params.muon[i];
    count += (double)matrix->rows * matrix->cols;
    k.flops += muon_flops(matrix->rows, matrix->cols, b->accelerator);
  }
  k.bytes = (20 + copy_bytes(b)) * count;
  const Group group = bench_group("elementwise", m->name, "%.0f", count);
  bench_row(b, &group, &o, k);
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
  convolution_rows(b, m);
  loss_rows(b, m);
  optimizer_rows(b, m);
  muon_row(b, m);
  bookkeeping_rows(b, m);
}

/* ---- matrix products ---- */

/* arrays: y [N][M], x [N][K] */
static void call_linear_input(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_input(b->c, o->array[set][1], o->array[set][0], &o->model->params, o->layer, o->rows, false);
}

static void call_linear_weight(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_weight(b->c, &o->model->params, o->layer, o->array[set][0], o->array[set][1], o->rows,
                                 o->flag);
}

void bench_gemm(Bench *b, BenchModel *m) {
  static const char *const names[] = {"qkv", "output", "gate_up", "down", "head"};
  static const struct {
    const char *name;
    BenchCall *run;
  } products[] = {{"forward", bench_call_linear}, {"dgrad", call_linear_input}, {"wgrad", call_linear_weight}};
  for (int i = 0; i < 5; i++) {
    if (!bench_load(b, m))
      return bench_skip(b, &(Case){.operation = names[i], .group = &(Group){"gemm", m->name, ""}},
                        "the model does not fit");
    const Sublayer *self = bench_sublayer(m->model, 0, SUBLAYER_SELF), *mlp = bench_sublayer(m->model, 0, SUBLAYER_MLP);
    const Linear layers[] = {self->in, self->out, mlp->in, mlp->out, m->model->table.head};
    const Matrix w = layers[i].weight;
    int64_t rows = (int64_t)m->batch * m->config.ctx;
    if (i == 4 && rows > 8192) rows = 8192; /* the head computes the logits of so many rows at a time */
    Operands o = {.of = m, .layer = layers[i], .rows = (int)rows};
    const Group group = bench_group("gemm", m->name, "%" PRId64 " x %d x %d", rows, w.rows, w.cols);
    const double weights = (double)w.rows * w.cols, in_out = (double)rows * (w.rows + w.cols) * (double)b->dt;
    for (int j = 0; j < 3; j++) {
      char operation[40];
      snprintf(operation, sizeof operation, "linear %s %s", names[i], products[j].name);
      bench_row(b, &group, &o,
                (Case){operation, products[j].run,
                       .bytes = in_out + weights * (products[j].run == call_linear_weight ? 4.0 : (double)b->dt),
                       .flops = 2.0 * (double)rows * weights,
                       .needs = {{FILL_COMPUTE, rows * w.rows}, {FILL_COMPUTE, rows * w.cols}}, .against_gemm = true,
                       .note = b->autotune ? "autotuned" : NULL});
    }
  }
}

/* ---- attention ---- */

typedef struct HeadViews {
  View q, k, v;
} HeadViews;

/* The heads in packed QKV, the layout of the model. */
static HeadViews packed(const Bench *b, const Attention *a, void *qkv) {
  int64_t q = (int64_t)a->heads * a->head_dim, kv = (int64_t)a->kv_heads * a->head_dim, width = q + 2 * kv;
  int64_t batch = width * a->queries, head = a->head_dim;
  char *at = qkv;
  return (HeadViews){{at, batch, width, head},
                     {at + (size_t)q * b->dt, batch, width, head},
                     {at + (size_t)(q + kv) * b->dt, batch, width, head}};
}

static View heads_of(const Attention *a, void *data) {
  int64_t width = (int64_t)a->heads * a->head_dim;
  return (View){data, width * a->queries, width, a->head_dim};
}

static Attention attention_of(const Operands *o) {
  Attention a = o->attention;
  a.dropout = o->dropout.p > 0 ? &o->dropout : NULL;
  return a;
}

/* Returns `rope`, or NULL for a model without rotary positions. */
static const Rope *rope_of(const Operands *o, Rope *rope) {
  if (!o->model || !o->model->rope_table) return NULL;
  *rope = rope_table_of(o->model, NULL);
  return rope;
}

/* arrays: qkv, out, lse, dqkv, dout */
static void call_attention(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const Attention attention = attention_of(o);
  HeadViews in = packed(b, &attention, a[0]);
  b->ops->attention(b->c, &attention, heads_of(&attention, a[1]), in.q, in.k, in.v, a[2]);
}

static void call_attention_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const Attention attention = attention_of(o);
  HeadViews in = packed(b, &attention, a[0]), d = packed(b, &attention, a[3]);
  Rope rope;
  b->ops->attention_backward(b->c, &attention, d.q, d.k, d.v, heads_of(&attention, a[4]), in.q, in.k, in.v,
                             heads_of(&attention, a[1]), a[2], rope_of(o, &rope));
}

static void call_rope(Bench *b, const Operands *o, int set) {
  const Attention *a = &o->attention;
  const Rope rope = rope_table_of(o->model, NULL);
  b->ops->rope(b->c, packed(b, a, o->array[set][0]).q, a->batch, a->queries, a->heads + a->kv_heads, a->head_dim,
               &rope);
}

static HeadNorm head_norm_with(const Attention *a, const float *weight) {
  return (HeadNorm){weight, 1e-5f, a->heads, a->kv_heads, a->head_dim};
}

/* arrays: out, rstd, qkv, weight */
static void call_head_norm(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const HeadNorm norm = head_norm_with(&o->attention, a[3]);
  Rope rope;
  b->ops->head_norm(b->c, a[0], a[1], a[2], &norm, o->attention.batch, o->attention.queries, rope_of(o, &rope));
}

/* arrays: dqkv, dweight, qkv, rstd, weight. In place: the numbers become 0, infinite or NaN, which takes as long. */
static void call_head_norm_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  const HeadNorm norm = head_norm_with(&o->attention, a[4]);
  b->ops->head_norm_backward(b->c, a[0], a[1], a[2], a[3], &norm, o->attention.batch * o->attention.queries, true);
}

static void call_cache_store(Bench *b, const Operands *o, int set) {
  const Attention *a = &o->attention;
  HeadViews in = packed(b, a, o->array[set][0]);
  KvCache cache = {o->array[set][1], o->array[set][2], a->queries, a->kv_heads, a->head_dim};
  b->ops->cache_store(b->c, &cache, 0, in.k, in.v, a->queries);
}

/* Times forward and backward. Before the timing of backward, a forward call computes its `out` and `lse`. */
static void attention_pair(Bench *b, BenchModel *m, const char *model, Attention a, float p) {
  const int64_t rows = (int64_t)a.batch * a.queries, q = rows * a.heads * a.head_dim,
                qkv = rows * (a.heads + 2 * a.kv_heads) * a.head_dim;
  const double dt = (double)b->dt;
  /* 4 T^2 D H B, of which the causal mask leaves half */
  const double forward = 2.0 * a.queries * (double)a.queries * a.head_dim * a.heads * a.batch;
  const Need in = {FILL_COMPUTE, qkv}, out = {FILL_COMPUTE, q}, lse = {FILL_FLOATS, rows * a.heads};
  const Case cases[] = {{p > 0 ? "attention, dropout" : "attention", call_attention, dt * (double)(qkv + q), forward,
                         .needs = {in, out, lse}, .dropout = p, .against_gemm = true},
                        {p > 0 ? "attention_backward, dropout" : "attention_backward", call_attention_backward,
                         dt * (double)(2 * qkv + 2 * q), 2.5 * forward, .needs = {in, out, lse, in, out}, .dropout = p,
                         .against_gemm = true, .prepare = call_attention}};
  Operands o = {.of = m, .attention = a, .dropout = {.site = SITE_DROPOUT + 1, .seed = 42}};
  const Group group = bench_group("attention", model, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  bench_rows(b, &group, &o, cases, 2);
}

static Attention causal(int batch, int heads, int head_dim, int length) {
  return (Attention){.batch = batch,
                     .heads = heads,
                     .kv_heads = heads,
                     .head_dim = head_dim,
                     .queries = length,
                     .keys = length,
                     .scale = 1.0f / sqrtf((float)head_dim),
                     .causal = true};
}

void bench_attention(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  Attention a = causal(m->batch, c->heads, c->head_dim, c->ctx);
  attention_pair(b, m, m->name, a, 0);
  const int64_t rows = (int64_t)m->batch * c->ctx, keys = (int64_t)c->ctx * key_width(c);
  const int64_t normed = rows * (query_width(c) + key_width(c)), heads = rows * (c->heads + c->kv_heads);
  const double u = (double)normed * (double)b->dt, r = 4.0 * (double)heads;
  const Need all = {FILL_COMPUTE, rows * qkv_width(c)}, out = {FILL_COMPUTE, normed}, rstd = {FILL_FLOATS, heads},
             weight = {FILL_FLOATS, 2 * (int64_t)c->head_dim};
  Operands o = {.of = m, .attention = a};
  Group group = bench_group("attention", m->name, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  const Case cases[] = {
      {"rope, queries and keys", call_rope, 2 * u, .needs = {all}},
      {"head_norm", call_head_norm, 2 * u + r, .needs = {out, rstd, all, weight}},
      {"head_norm_backward (+=)", call_head_norm_backward, 3 * u + r, .needs = {all, weight, all, rstd, weight}}};
  const int first = c->positions != POSITIONS_ROPE;
  bench_rows(b, &group, &o, cases + first, (size_t)(3 - first));
  o.attention.batch = 1;
  group = bench_group("attention", m->name, "T%d H%d D%d", a.queries, a.kv_heads, a.head_dim);
  const Need qkv = {FILL_COMPUTE, (int64_t)c->ctx * qkv_width(c)}, cache = {FILL_COMPUTE, keys};
  bench_row(b, &group, &o,
            (Case){"cache_store", call_cache_store, 4.0 * (double)keys * (double)b->dt, .needs = {qkv, cache, cache}});
}

/* The shapes of the FlashAttention papers: 16384 tokens, width 2048. */
void bench_attention_sweep(Bench *b) {
  const int lengths[] = {256, 1024, 4096}, sizes[] = {64, 128};
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < 3; i++) {
      Attention a = causal(16384 / lengths[i], 2048 / sizes[d], sizes[d], lengths[i]);
      if (b->quick) a = causal(1, 2, 8 << d, 8 << i);
      attention_pair(b, NULL, "sweep", a, 0);
      if (i == 1 && d == 0) attention_pair(b, NULL, "sweep", a, 0.1f);
    }
}
