/* The operations that bench_kernels times. A row: a function that calls the operation once, what it needs, and the
 * bytes and FLOPs that the formula of the operation (kernels.h) implies.
 *
 * N rows, C width, T positions, dt the bytes of the compute dtype, u = N*C*dt. Which arrays are cold: all activations
 * (bench_sets), because in training too they come from far more than the cache; weights of GEMMs are warm; decoding
 * uses the layers of the model in turn, as generation does, so that small models do live in the cache. */
#include "kernels/philox.h"
#include "bench/bench.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- models ---- */

static int query_width(const ModelConfig *c) { return c->heads * c->head_dim; }
static int key_width(const ModelConfig *c) { return c->kv_heads * c->head_dim; }
static int qkv_width(const ModelConfig *c) { return query_width(c) + 2 * key_width(c); }

float small_number(size_t i) {
  PhiloxWords r = philox(99, (uint32_t)(i / 2), 0xFDu << 24, 0, 0);
  return 0.02f * ((float)(r.word[0] & 0xFFFF) + (float)(r.word[1] & 0xFFFF) - 65535.0f) / 26754.0f;
}

/* Random weights, and cos and sin of all positions; made again after an error has cost the context. */
static bool model_ready(Bench *b, BenchModel *m) {
  if (m->opened == b->opened) return true;
  model_free(b, m);
  Error error = {0};
  if (!parameter_table_make(&m->table, &m->config, &error)) {
    printf("%s: %s\n", m->name, error.text);
    return false;
  }
  m->params = (Parameters){.count = m->table.arena, .groups = m->table.groups, .group_count = m->table.group_count};
  size_t arena = m->table.arena * sizeof(float), pattern = b->quick ? 1 << 10 : 1 << 18;
  float *host = malloc(arena);
  if (!host) return out_of_memory();
  for (size_t i = 0; i < m->table.arena; i++) host[i] = i < pattern ? small_number(i) : host[i - pattern];
  for (int i = 0; i < m->table.count; i++)
    for (int j = 0; m->table.tensors[i].rank == 1 && j < m->table.tensors[i].cols; j++)
      host[m->table.tensors[i].offset + (size_t)j] = 1;
  float **arenas[] = {&m->params.master, &m->params.grad, &m->params.m, &m->params.v};
  for (int i = 0; i < (m->trains ? 4 : 1); i++) *arenas[i] = b->ops->alloc(b->c, "weights", arena);
  if (m->params.master) b->ops->upload(b->c, m->params.master, host, arena);
  free(host);
  b->ops->refresh_parameters(b->c, &m->params);

  const ModelConfig *c = &m->config;
  size_t count = (size_t)c->ctx * (size_t)c->head_dim;
  float *table = malloc(count * sizeof *table);
  if (!table) return out_of_memory();
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

void model_free(Bench *b, BenchModel *m) {
  if (m->opened == b->opened && b->opened) {
    b->ops->release_parameters(b->c, &m->params);
    void *memory[] = {m->params.master, m->params.grad, m->params.m, m->params.v, m->rope};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) b->ops->release(b->c, memory[i]);
  }
  if (m->opened) parameter_table_free(&m->table);
  m->opened = 0;
}

static const float *gain_of(const BenchModel *m) { return m->params.master + m->table.final_norm.offset; }

/* What most rows share: makes the sets, times, frees. */
static double row(Bench *b, Case k, Operands *o, const Need *needs, int count) {
  k.operands = o;
  double ms = 0;
  if (o->model && !model_ready(b, o->model)) bench_skip(b, &k, "the model does not fit");
  else if (!bench_sets(b, o, needs, count))
    bench_skip(b, &k, "skipped: its operands do not fit the memory that is free");
  else ms = bench_case(b, &k);
  bench_free(b);
  return ms;
}

static Case case_of(const char *group, const char *model, const char *operation,
                    void (*run)(Bench *, const Operands *, int)) {
  return (Case){.group = group, .model = model, .operation = operation, .run = run};
}

/* ---- what the device reaches ---- */

static void run_copy(Bench *b, const Operands *o, int set) {
  b->ops->copy(b->c, o->array[set][0], o->array[set][1], (size_t)o->rows * 1024);
}

static void run_square(Bench *b, const Operands *o, int set) {
  b->ops->linear(b->c, o->array[set][0], o->width, o->array[set][1], o->width, &o->model->params, o->w, o->rows);
}

static void run_write(Bench *b, const Operands *o, int set) {
  b->ops->embedding(b->c, o->array[set][0], &o->model->params, o->w, o->array[set][1], 1, o->rows, NULL);
}

static void *host_buffer;
static void run_upload(Bench *b, const Operands *o, int set) {
  b->ops->upload(b->c, o->array[set][0], host_buffer, (size_t)o->rows * 1024);
}
static void run_download(Bench *b, const Operands *o, int set) {
  b->ops->download(b->c, host_buffer, o->array[set][0], (size_t)o->rows * 1024);
}

static void copy_rates(Bench *b) {
  int mega = b->quick ? 1 : 1024;
  Operands o = {.rows = mega * 1024};
  Need needs[] = {{FILL_FLOATS, (int64_t)mega << 18}, {FILL_FLOATS, (int64_t)mega << 18}};
  Case k = case_of("rates", "-", "copy", run_copy);
  k.bytes = 2.0 * mega * 1048576.0;
  k.note = "bytes read + bytes written";
  snprintf(k.shape, sizeof k.shape, "%d MiB", mega);
  double ms = row(b, k, &o, needs, 2);
  if (ms > 0) {
    b->copy_rate = 1e3 * k.bytes / ms;
    bench_json(b, "{\"kind\": \"rate\", \"name\": \"copy\", \"value\": %.6g, \"unit\": \"byte/s\"}", b->copy_rate);
  }
  mega = b->quick ? 1 : 64;
  o = (Operands){.rows = mega * 1024};
  host_buffer = malloc((size_t)mega << 20);
  if (!host_buffer) out_of_memory();
  memset(host_buffer, 1, (size_t)mega << 20);
  needs[0] = (Need){FILL_FLOATS, (int64_t)mega << 18};
  k = case_of("rates", "-", "upload", run_upload);
  k.bytes = (double)mega * 1048576.0;
  k.direct = true;
  k.note = "from pageable memory";
  snprintf(k.shape, sizeof k.shape, "%d MiB", mega);
  row(b, k, &o, needs, 1);
  k.operation = "download";
  k.run = run_download;
  row(b, k, &o, needs, 1);
  free(host_buffer);
}

/* The GEMM as training calls it: weights of one matrix, bf16 in and out, random numbers. */
static void gemm_rate(Bench *b) {
  int n = b->quick ? 64 : b->accelerator ? 8192 : 1024;
  BenchModel square = {.name = "-",
                       .trains = false,
                       .config = {.vocab = n,
                                  .ctx = 2,
                                  .layers = 1,
                                  .heads = 1,
                                  .kv_heads = 1,
                                  .dim = n,
                                  .head_dim = 2,
                                  .ffn = 32,
                                  .tie = true}};
  square.config.vocab = (n + 127) / 128 * 128;
  Operands o = {.model = &square, .rows = n, .width = n};
  if (!model_ready(b, &square)) return;
  o.w = (Matrix){square.table.embedding.offset, n, n};
  Need needs[] = {{FILL_COMPUTE, (int64_t)n * n}, {FILL_COMPUTE, (int64_t)n * n}};
  Case k = case_of("rates", "-", "linear", run_square);
  k.flops = 2.0 * n * n * n;
  snprintf(k.shape, sizeof k.shape, "%d x %d x %d", n, n, n);
  double ms = row(b, k, &o, needs, 2);
  if (ms > 0) {
    b->gemm_rate = 1e3 * k.flops / ms;
    bench_json(b, "{\"kind\": \"rate\", \"name\": \"gemm\", \"value\": %.6g, \"unit\": \"FLOP/s\"}", b->gemm_rate);
  }
  /* What has to be written is nearly all that moves: every row is the same row of the table. */
  Need one_row[] = {{FILL_COMPUTE, (int64_t)n * n}, {FILL_ZEROS, 4 * (int64_t)n}};
  o.w = (Matrix){square.table.embedding.offset, n, n};
  k = case_of("rates", "-", "write only (embedding)", run_write);
  k.bytes = (double)n * n * (double)b->dt;
  k.note = "one row of the table for every token";
  snprintf(k.shape, sizeof k.shape, "%d x %d", n, n);
  row(b, k, &o, one_row, 2);
  model_free(b, &square);
  if (b->quick) return;
  double peak = b->ops->peak_flops(b->c);
  if (!bench_alive(b, "peak_flops")) return;
  printf("peak_flops() of the backend: %.1f TFLOP/s\n", 1e-12 * peak);
  bench_json(b, "{\"kind\": \"rate\", \"name\": \"peak_flops\", \"value\": %.6g, \"unit\": \"FLOP/s\"}", peak);
}

void rate_rows(Bench *b) {
  copy_rates(b);
  gemm_rate(b);
}

/* ---- memory-bound operations of training ---- */

static void run_embedding(Bench *b, const Operands *o, int set) {
  b->ops->embedding(b->c, o->array[set][0], &o->model->params, o->w, o->array[set][1], o->batch, o->length, NULL);
}

static void run_embedding_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->embedding_backward(b->c, &o->model->params, o->w, a[0], a[1], a[2], o->model->config.vocab, o->batch,
                             o->length, NULL, o->flag);
}

static const Dropout *dropout_of(const Operands *o) { return o->dropout.p > 0 ? &o->dropout : NULL; }

/* x_out, y, x_in, branch, rstd */
static void run_norm(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->residual_norm(b->c, a[3] ? a[0] : NULL, a[1], a[4], a[2], a[3], gain_of(o->model), 1e-5f, o->batch, o->length,
                        o->width, dropout_of(o));
}

/* dx, dbranch, dy, dres, x, rstd */
static void run_norm_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->residual_norm_backward(b->c, a[0], a[1], o->model->params.grad + o->model->table.final_norm.offset, a[2],
                                 a[3], a[4], a[5], gain_of(o->model), o->batch, o->length, o->width, dropout_of(o),
                                 true);
}

static void run_swiglu(Bench *b, const Operands *o, int set) {
  b->ops->swiglu(b->c, o->array[set][0], o->array[set][1], o->rows, o->width);
}

static void run_swiglu_backward(Bench *b, const Operands *o, int set) {
  b->ops->swiglu_backward(b->c, o->array[set][0], o->array[set][1], o->array[set][2], o->rows, o->width);
}

static void run_loss(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  b->ops->cross_entropy(b->c, a[0], a[1], o->width, a[2], o->rows, o->model->config.vocab, 0, b->state, o->flag);
}

static void run_loss_sum(Bench *b, const Operands *o, int set) {
  b->ops->loss_sum(b->c, b->state, o->array[set][0], o->array[set][1], o->rows);
}

static const AdamW ADAMW = {0.9f, 0.95f, 1e-8f, 0.1f};

static void run_clip(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->clip(b->c, b->state, &o->model->params, 1.0f, &ADAMW);
}

static void run_adamw(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->adamw(b->c, b->state, &o->model->params, &ADAMW);
}

/* Steps are counted in states of their own: lr and clip of b->state stay. */
static void run_step_begin(Bench *b, const Operands *o, int set) {
  b->ops->step_begin(b->c, o->array[set][0], NULL, NULL);
}

static void run_next_micro_batch(Bench *b, const Operands *o, int set) {
  b->ops->next_micro_batch(b->c, o->array[set][0], 1);
}

static void run_report(Bench *b, const Operands *o, int set) { b->ops->report(b->c, o->array[set][0]); }

int32_t *random_tokens(int64_t count, int vocab) {
  int32_t *tokens = malloc((size_t)count * sizeof *tokens);
  if (!tokens) return out_of_memory();
  for (int64_t i = 0; i < count; i++)
    tokens[i] = (int32_t)(philox(7, (uint32_t)(i & 0xFFFFFFFF), 0xFCu << 24, 0, 0).word[0] % (uint32_t)vocab);
  return tokens;
}

/* Token ids on the device, uniform over the vocabulary, in place `at` of all sets (they may share them). With `order`
 * their counting sort in the next two places. */
static bool put_tokens(Bench *b, Operands *o, int at, int64_t count, int vocab, bool order) {
  int32_t *tokens = random_tokens(count, vocab), *device = NULL, *offsets = NULL, *sorted = NULL;
  if (!order) device = bench_ints(b, tokens, count);
  else {
    int32_t *starts = calloc((size_t)vocab + 2, sizeof *starts), *places = malloc((size_t)count * sizeof *places);
    if (!starts || !places) return out_of_memory();
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
  Case k = case_of("elementwise", m->name, "embedding", run_embedding);
  Operands o = {.model = m, .w = m->table.embedding, .batch = m->batch, .length = c->ctx, .rows = (int)rows};
  if (!model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
  o.w = m->table.embedding;
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d, V %d", rows, c->dim, c->vocab);
  k.bytes = u + fmin(u, table * (double)b->dt) + 4.0 * (double)rows;
  k.operands = &o;
  Need out = {FILL_COMPUTE, count};
  if (bench_sets(b, &o, &out, 1) && put_tokens(b, &o, 1, rows, c->vocab, false)) bench_case(b, &k);
  else bench_skip(b, &k, "skipped: does not fit");
  bench_free(b);

  k.operation = "embedding_backward (+=)";
  k.run = run_embedding_backward;
  k.bytes = u + 8.0 * table + 8.0 * (double)rows;
  o.flag = true;
  if (!model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
  if (bench_sets(b, &o, &out, 1) && put_tokens(b, &o, 1, rows, c->vocab, true)) bench_case(b, &k);
  else bench_skip(b, &k, "skipped: does not fit");
  bench_free(b);
}

static void norm_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->dim;
  double u = (double)count * (double)b->dt, r = 4.0 * (double)rows;
  Operands o = {.model = m, .batch = m->batch, .length = c->ctx, .width = c->dim};
  Case k = case_of("elementwise", m->name, "residual_norm", run_norm);
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d", rows, c->dim);
  k.bytes = 4 * u + r;
  Need whole[] = {
      {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_FLOATS, rows}};
  row(b, k, &o, whole, 5);
  Dropout dropout = {0.1f, SITE_DROPOUT, 42, b->state};
  o.dropout = dropout;
  k.operation = "residual_norm, dropout 0.1";
  row(b, k, &o, whole, 5);
  o.dropout.p = 0;
  k.operation = "residual_norm, norm only";
  k.bytes = 2 * u + r;
  Need alone[] = {
      {FILL_COMPUTE, 0}, {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, 0}, {FILL_FLOATS, rows}};
  row(b, k, &o, alone, 5);

  k.run = run_norm_backward;
  k.operation = "residual_norm_backward";
  k.bytes = 4 * u + r;
  Need back[] = {{FILL_COMPUTE, count}, {FILL_COMPUTE, 0},     {FILL_COMPUTE, count},
                 {FILL_COMPUTE, count}, {FILL_COMPUTE, count}, {FILL_FLOATS, rows}};
  row(b, k, &o, back, 6);
  back[1].count = count;
  k.operation = "residual_norm_backward, dropout";
  k.bytes = 5 * u + r;
  o.dropout = dropout;
  o.dropout.state = b->state;
  row(b, k, &o, back, 6);
}

static void mlp_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, count = rows * c->ffn;
  Operands o = {.model = m, .rows = (int)rows, .width = c->ffn};
  Case k = case_of("elementwise", m->name, "swiglu", run_swiglu);
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d", rows, c->ffn);
  k.bytes = 3.0 * (double)count * (double)b->dt;
  Need needs[] = {{FILL_COMPUTE, count}, {FILL_COMPUTE, 2 * count}};
  row(b, k, &o, needs, 2);
  k.operation = "swiglu_backward";
  k.run = run_swiglu_backward;
  k.bytes = 5.0 * (double)count * (double)b->dt;
  Need back[] = {{FILL_COMPUTE, 2 * count}, {FILL_COMPUTE, count}, {FILL_COMPUTE, 2 * count}};
  row(b, k, &o, back, 3);
}

static void loss_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  int64_t rows = (int64_t)m->batch * c->ctx, chunk = rows < 8192 ? rows : 8192, stride = (c->vocab + 127) / 128 * 128;
  Operands o = {.model = m, .rows = (int)chunk, .width = (int)stride};
  Case k = case_of("elementwise", m->name, "cross_entropy, gradient", run_loss);
  k.operands = &o;
  snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %" PRId64, chunk, stride);
  Need needs[] = {{FILL_FLOATS, chunk}, {FILL_COMPUTE, chunk * stride}};
  for (int gradient = 1; gradient >= 0; gradient--) {
    o.flag = gradient != 0;
    k.operation = gradient ? "cross_entropy, gradient" : "cross_entropy, loss only";
    k.bytes = (gradient ? 2.0 : 1.0) * (double)(chunk * stride) * (double)b->dt + 8.0 * (double)chunk;
    if (!model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
    if (bench_sets(b, &o, needs, 2) && put_tokens(b, &o, 2, chunk, c->vocab, false)) bench_case(b, &k);
    else bench_skip(b, &k, "skipped: does not fit");
    bench_free(b);
  }
  o.rows = (int)rows;
  k.operation = "loss_sum";
  k.run = run_loss_sum;
  k.bytes = 8.0 * (double)rows;
  snprintf(k.shape, sizeof k.shape, "%" PRId64, rows);
  needs[0].count = rows;
  if (bench_sets(b, &o, needs, 1) && put_tokens(b, &o, 1, rows, c->vocab, false)) bench_case(b, &k);
  else bench_skip(b, &k, "skipped: does not fit");
  bench_free(b);
}

static void optimizer_rows(Bench *b, BenchModel *m) {
  if (!model_ready(b, m)) return;
  double count = (double)m->table.arena;
  Operands o = {.model = m, .sets = 1};
  Case k = case_of("elementwise", m->name, "clip", run_clip);
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
  if (!model_ready(b, m)) return;
  k.operation = "adamw";
  k.run = run_adamw;
  k.bytes = (28 + (b->dtype == DTYPE_F32 ? 0 : (double)b->dt)) * count;
  bench_case(b, &k);
  StepState state = {0};
  b->ops->download(b->c, &state, b->state, sizeof state);
  if (state.halted) printf("%-8s the step was halted: adamw did nothing, its time says nothing\n", m->name);
}

static void bookkeeping_rows(Bench *b, BenchModel *m) {
  Operands o = {0};
  Need state = {FILL_ZEROS, sizeof(StepState)};
  Case k = case_of("elementwise", m->name, "step_begin", run_step_begin);
  snprintf(k.shape, sizeof k.shape, "latency");
  row(b, k, &o, &state, 1);
  k.operation = "next_micro_batch";
  k.run = run_next_micro_batch;
  row(b, k, &o, &state, 1);
  k.operation = "report";
  k.run = run_report;
  row(b, k, &o, &state, 1);
}

void elementwise_rows(Bench *b, BenchModel *m) {
  embedding_rows(b, m);
  norm_rows(b, m);
  mlp_rows(b, m);
  loss_rows(b, m);
  optimizer_rows(b, m);
  bookkeeping_rows(b, m);
}

/* ---- GEMM ---- */

/* y [N][M], x [N][K] */
static void run_linear(Bench *b, const Operands *o, int set) {
  b->ops->linear(b->c, o->array[set][0], o->w.rows, o->array[set][1], o->w.cols, &o->model->params, o->w, o->rows);
}

static void run_linear_input(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_input(b->c, o->array[set][1], o->w.cols, o->array[set][0], o->w.rows, &o->model->params, o->w,
                                o->rows);
}

static void run_linear_weight(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_weight(b->c, &o->model->params, o->w, o->array[set][0], o->w.rows, o->array[set][1],
                                 o->w.cols, o->rows, o->flag);
}

void gemm_rows(Bench *b, BenchModel *m) {
  static const char *const names[] = {"qkv", "output", "gate_up", "down", "head"};
  static char operation[15][40];
  for (int i = 0; i < 5; i++) {
    Case k = case_of("gemm", m->name, names[i], run_linear);
    if (!model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
    const LayerParameters *l = &m->table.layers[0];
    const Matrix matrices[] = {l->qkv, l->output, l->gate_up, l->down, m->table.head};
    int64_t rows = (int64_t)m->batch * m->config.ctx;
    if (i == 4 && rows > 8192) rows = 8192; /* a chunk of the head */
    Operands o = {.model = m, .w = matrices[i], .rows = (int)rows};
    Need needs[] = {{FILL_COMPUTE, rows * o.w.rows}, {FILL_COMPUTE, rows * o.w.cols}};
    snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d x %d", rows, o.w.rows, o.w.cols);
    double weights = (double)o.w.rows * o.w.cols, in_out = (double)rows * (o.w.rows + o.w.cols) * (double)b->dt;
    k.flops = 2.0 * (double)rows * weights;
    k.against_gemm = true;
    k.note = b->autotune ? "autotuned" : NULL;
    void (*const runs[])(Bench *, const Operands *, int) = {run_linear, run_linear_input, run_linear_weight};
    static const char *const kinds[] = {"forward", "dgrad", "wgrad"};
    for (int kind = 0; kind < 3; kind++) {
      snprintf(operation[3 * i + kind], sizeof operation[0], "linear %s %s", names[i], kinds[kind]);
      k.operation = operation[3 * i + kind];
      k.run = runs[kind];
      k.bytes = in_out + weights * (kind == 2 ? 4.0 : (double)b->dt);
      row(b, k, &o, needs, 2);
    }
  }
}

/* ---- attention ---- */

typedef struct HeadViews {
  View q, k, v;
} HeadViews;

/* Packed QKV, as the model has it. */
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

/* arrays: qkv, out, lse, dqkv, dout */
static void run_attention(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  HeadViews in = packed(b, &o->attention, a[0]);
  b->ops->attention(b->c, &o->attention, heads_of(&o->attention, a[1]), in.q, in.k, in.v, a[2]);
}

static void run_attention_backward(Bench *b, const Operands *o, int set) {
  void *const *a = o->array[set];
  HeadViews in = packed(b, &o->attention, a[0]), d = packed(b, &o->attention, a[3]);
  Rope rope = {o->model ? o->model->rope : NULL, NULL};
  b->ops->attention_backward(b->c, &o->attention, d.q, d.k, d.v, heads_of(&o->attention, a[4]), in.q, in.k, in.v,
                             heads_of(&o->attention, a[1]), a[2], o->model ? &rope : NULL);
}

static void run_rope(Bench *b, const Operands *o, int set) {
  const Attention *a = &o->attention;
  Rope rope = {o->model->rope, NULL};
  b->ops->rope(b->c, packed(b, a, o->array[set][0]).q, a->batch, a->queries, a->heads + a->kv_heads, a->head_dim,
               &rope);
}

static void run_cache_store(Bench *b, const Operands *o, int set) {
  const Attention *a = &o->attention;
  HeadViews in = packed(b, a, o->array[set][0]);
  KvCache cache = {o->array[set][1], o->array[set][2], a->queries, a->kv_heads, a->head_dim};
  b->ops->cache_store(b->c, &cache, 0, 0, in.k, in.v, a->queries);
}

/* Forward, then backward of what the forward left (its lse has to belong to the scores). The backward's arrays are made
 * at once with the forward's, and lse and out come from a call before the timing. */
static void attention_pair(Bench *b, BenchModel *m, const char *model, Attention a, float p) {
  static char names[2][32];
  int64_t rows = (int64_t)a.batch * a.queries, q = rows * a.heads * a.head_dim,
          qkv = rows * (a.heads + 2 * a.kv_heads) * a.head_dim;
  double forward = 2.0 * a.queries * (double)a.queries * a.head_dim * a.heads * a.batch; /* 4 T^2 D H B, half seen */
  Dropout dropout = {p, SITE_DROPOUT + 1, 42, b->state};
  Operands o = {.model = m, .attention = a};
  Case k = {.group = "attention", .model = model, .against_gemm = true};
  k.operands = &o;
  snprintf(k.shape, sizeof k.shape, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  Need needs[] = {
      {FILL_COMPUTE, qkv}, {FILL_COMPUTE, q}, {FILL_FLOATS, rows * a.heads}, {FILL_COMPUTE, qkv}, {FILL_COMPUTE, q}};
  for (int backward = 0; backward < 2; backward++) {
    snprintf(names[backward], sizeof names[0], "%s%s", backward ? "attention_backward" : "attention",
             p > 0 ? ", dropout" : "");
    k.operation = names[backward];
    k.run = backward ? run_attention_backward : run_attention;
    k.flops = backward ? 2.5 * forward : forward;
    k.bytes = (double)b->dt * (double)(backward ? 2 * qkv + 2 * q : qkv + q);
    if (m && !model_ready(b, m)) {
      bench_skip(b, &k, "the model does not fit");
      continue;
    }
    dropout.state = b->state;
    o.attention.dropout = p > 0 ? &dropout : NULL;
    if (!bench_sets(b, &o, needs, backward ? 5 : 3)) bench_skip(b, &k, "skipped: does not fit");
    else {
      for (int set = 0; backward && set < o.sets; set++) run_attention(b, &o, set);
      bench_case(b, &k);
    }
    bench_free(b);
  }
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

void attention_rows(Bench *b, BenchModel *m) {
  const ModelConfig *c = &m->config;
  Attention a = causal(m->batch, c->heads, c->head_dim, c->ctx);
  attention_pair(b, m, m->name, a, 0);
  int64_t rows = (int64_t)m->batch * c->ctx, qkv = rows * qkv_width(c);
  Operands o = {.model = m, .attention = a};
  Case k = case_of("attention", m->name, "rope, queries and keys", run_rope);
  snprintf(k.shape, sizeof k.shape, "B%d T%d H%d D%d", a.batch, a.queries, a.heads, a.head_dim);
  k.bytes = 2.0 * (double)(rows * (query_width(c) + key_width(c))) * (double)b->dt;
  Need needs[] = {{FILL_COMPUTE, qkv}, {FILL_COMPUTE, 0}, {FILL_COMPUTE, 0}};
  row(b, k, &o, needs, 1);
  k.operation = "cache_store";
  k.run = run_cache_store;
  k.bytes = 4.0 * c->ctx * key_width(c) * (double)b->dt;
  o.attention.batch = 1;
  needs[0].count = (int64_t)c->ctx * qkv_width(c);
  needs[1].count = needs[2].count = (int64_t)c->ctx * key_width(c);
  snprintf(k.shape, sizeof k.shape, "T%d H%d D%d", a.queries, a.kv_heads, a.head_dim);
  row(b, k, &o, needs, 3);
}

/* The shapes of the FlashAttention papers: 16384 tokens, width 2048. */
void attention_sweep(Bench *b) {
  const int lengths[] = {256, 1024, 4096}, sizes[] = {64, 128};
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < 3; i++) {
      Attention a = causal(16384 / lengths[i], 2048 / sizes[d], sizes[d], lengths[i]);
      if (b->quick) a = causal(1, 2, 8 << d, 8 << i);
      attention_pair(b, NULL, "sweep", a, 0);
      if (i == 1 && d == 0) attention_pair(b, NULL, "sweep", a, 0.1f);
    }
}

/* ---- decoding ---- */

/* arrays: x, q, attention, h, logits, spare logits; one set only, `set` counts layers */
static void run_decode_embedding(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->decode_embedding(b->c, o->array[0][0], &o->model->params, o->model->table.embedding, &o->sequences);
}

static const float *attention_gain(const Operands *o, int layer) {
  return o->model->params.master + o->model->table.layers[layer].attention_norm.offset;
}

static int layer_of(const Operands *o, int set) { return set % o->model->config.layers; }

static void run_decode_qkv(Bench *b, const Operands *o, int set) {
  int layer = layer_of(o, set);
  Rope rope = {o->model->rope, NULL};
  b->ops->decode_qkv(b->c, o->array[0][1], &o->caches[layer], o->array[0][0], attention_gain(o, layer), 1e-5f,
                     &o->model->params, o->model->table.layers[layer].qkv, &rope, &o->sequences);
}

static void run_decode_attention(Bench *b, const Operands *o, int set) {
  const ModelConfig *c = &o->model->config;
  b->ops->decode_attention(b->c, o->array[0][2], o->array[0][1], &o->caches[layer_of(o, set)], c->heads,
                           1.0f / sqrtf((float)c->head_dim), &o->sequences);
}

static void run_decode_output(Bench *b, const Operands *o, int set) {
  b->ops->decode_residual(b->c, o->array[0][0], o->array[0][2], &o->model->params,
                          o->model->table.layers[layer_of(o, set)].output, &o->sequences);
}

static void run_decode_mlp(Bench *b, const Operands *o, int set) {
  int layer = layer_of(o, set);
  b->ops->decode_mlp(b->c, o->array[0][3], o->array[0][0], attention_gain(o, layer), 1e-5f, &o->model->params,
                     o->model->table.layers[layer].gate_up, &o->sequences);
}

static void run_decode_down(Bench *b, const Operands *o, int set) {
  b->ops->decode_residual(b->c, o->array[0][0], o->array[0][3], &o->model->params,
                          o->model->table.layers[layer_of(o, set)].down, &o->sequences);
}

static void run_decode_logits(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->decode_logits(b->c, o->array[0][4], o->array[0][0], gain_of(o->model), 1e-5f, &o->model->params,
                        o->model->table.head, o->model->config.vocab, o->rows);
}

/* As decode_token() of model/decoder.c. */
static void run_decode_token(Bench *b, const Operands *o, int set) {
  (void)set;
  run_decode_embedding(b, o, 0);
  for (int layer = 0; layer < o->model->config.layers; layer++) {
    run_decode_qkv(b, o, layer);
    run_decode_attention(b, o, layer);
    run_decode_output(b, o, layer);
    run_decode_mlp(b, o, layer);
    run_decode_down(b, o, layer);
  }
  run_decode_logits(b, o, 0);
}

/* sample() may use the logits up: they are copied first. */
static void run_sample(Bench *b, const Operands *o, int set) {
  (void)set;
  b->ops->copy(b->c, o->array[0][5], o->array[0][4], (size_t)o->rows * (size_t)o->width * sizeof(float));
  b->ops->sample(b->c, &o->sequences, o->array[0][5], o->width, &o->sampling);
}

static bool put_sequences(Bench *b, Operands *o, int rows, int position, int vocab) {
  int capacity = 4096;
  int32_t *tokens = random_tokens((int64_t)rows * capacity, vocab), host[3][64];
  for (int i = 0; i < rows; i++) host[0][i] = position + 1, host[1][i] = position, host[2][i] = i;
  o->sequences = (Sequences){.rows = rows, .capacity = capacity};
  Sequences *s = &o->sequences;
  s->tokens = bench_ints(b, tokens, (int64_t)rows * capacity);
  s->lengths = bench_ints(b, host[0], rows);
  s->positions = bench_ints(b, host[1], rows);
  s->streams = bench_ints(b, host[2], rows);
  s->status = bench_array(b, FILL_ZEROS, 4 * rows);
  s->drawn = bench_array(b, FILL_ZEROS, 4 * rows);
  free(tokens);
  return s->tokens && s->lengths && s->positions && s->streams && s->status && s->drawn;
}

/* Everything a decoded token needs; the context may be a new one. */
static bool decode_operands(Bench *b, Operands *o, BenchModel *m, int rows, KvCache *caches) {
  const ModelConfig *c = &m->config;
  if (!model_ready(b, m)) return false;
  *o = (Operands){.model = m, .sets = 1, .rows = rows, .width = c->vocab, .caches = caches};
  const Need needs[] = {{FILL_COMPUTE, (int64_t)rows * c->dim},         {FILL_COMPUTE, (int64_t)rows * query_width(c)},
                        {FILL_COMPUTE, (int64_t)rows * query_width(c)}, {FILL_COMPUTE, (int64_t)rows * c->ffn},
                        {FILL_FLOATS, (int64_t)rows * c->vocab},        {FILL_FLOATS, (int64_t)rows * c->vocab}};
  for (int i = 0; i < 6; i++)
    if (!(o->array[0][i] = bench_array(b, needs[i].fill, needs[i].count))) return false;
  for (int layer = 0; layer < c->layers; layer++) {
    int64_t count = (int64_t)rows * c->ctx * key_width(c);
    caches[layer] = (KvCache){bench_array(b, FILL_COMPUTE, count), bench_array(b, FILL_COMPUTE, count), c->ctx,
                              c->kv_heads, c->head_dim};
    if (!caches[layer].k || !caches[layer].v) return false;
  }
  return put_sequences(b, o, rows, c->ctx / 2, c->vocab);
}

void decode_rows(Bench *b, BenchModel *m, int rows) {
  const ModelConfig *c = &m->config;
  double dt = (double)b->dt, dim = c->dim, seen = c->ctx / 2 + 1;
  double qkv = dim * qkv_width(c) * dt, output = dim * query_width(c) * dt, mlp = 2.0 * dim * c->ffn * dt,
         down = dim * c->ffn * dt, head = dim * c->vocab * dt + 4.0 * rows * c->vocab,
         embedding = 2.0 * rows * dim * dt, cache = 2.0 * rows * seen * key_width(c) * dt;
  double token = embedding + head + c->layers * (qkv + cache + output + mlp + down);
  const Sampling usual = {1, 0, 40, 0.95f, 0, 0.8f, 1}, none = {1, 0, 0, 1, 0, 1, 1}, greedy = {1, 0, 0, 1, 0, 0, 1};
  struct {
    const char *name;
    void (*run)(Bench *, const Operands *, int);
    double bytes;
    int sets;
    Sampling sampling;
  } list[] = {{"decode_embedding", run_decode_embedding, embedding, 1, none},
              {"decode_qkv", run_decode_qkv, qkv, c->layers, none},
              {"decode_attention", run_decode_attention, cache, c->layers, none},
              {"decode_residual, output", run_decode_output, output, c->layers, none},
              {"decode_mlp", run_decode_mlp, mlp, c->layers, none},
              {"decode_residual, down", run_decode_down, down, c->layers, none},
              {"decode_logits", run_decode_logits, head, 1, none},
              {"a token: all of the above", run_decode_token, token, 1, none},
              {"sample, top-k 40 top-p 0.95", run_sample, 12.0 * rows * c->vocab, 1, usual},
              {"sample, no filter", run_sample, 12.0 * rows * c->vocab, 1, none},
              {"sample, greedy", run_sample, 12.0 * rows * c->vocab, 1, greedy}};
  KvCache *caches = calloc((size_t)c->layers, sizeof *caches);
  if (!caches) out_of_memory();
  Operands o;
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    Case k = case_of("decode", m->name, list[i].name, list[i].run);
    snprintf(k.shape, sizeof k.shape, "%d row%s, position %d", rows, rows == 1 ? "" : "s", c->ctx / 2);
    k.bytes = list[i].bytes;
    if (list[i].run == run_sample) k.note = "with a copy of the logits";
    if (!decode_operands(b, &o, m, rows, caches)) bench_skip(b, &k, "skipped: does not fit");
    else {
      o.sets = list[i].sets;
      o.sampling = list[i].sampling;
      k.operands = &o;
      double ms = bench_case(b, &k);
      if (list[i].run == run_decode_token && ms > 0) {
        printf("%-8s decodes %.0f tokens/s, %d at a time\n", m->name, 1e3 * rows / ms, rows);
        bench_json(b,
                   "{\"kind\": \"decode\", \"model\": \"%s\", \"rows\": %d, \"dtype\": \"%s\", \"tokens_per_s\": %.1f}",
                   m->name, rows, b->dtype == DTYPE_F32 ? "f32" : "bf16", 1e3 * rows / ms);
      }
    }
    bench_free(b);
  }
  free(caches);
}
