/* The whole model against float64 PyTorch (tests/golden/model*.safetensors, which the script has compared with
 * LlamaForCausalLM): logits, loss, every gradient, ten optimizer steps; and what no golden can say: micro-batches, head
 * chunks, dropout, halting. */
#include "model.h"
#include "tests/backends.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "dims" and "adamw" of a golden. */
typedef struct Setup {
  const Golden *golden, *start; /* start: where weights and batches are, the same tied or not */
  ModelConfig config;
  TrainConfig train;
  int steps;
  int32_t *tokens, *targets; /* [steps][micro_batches][batch][ctx] */
} Setup;

static Setup setup_read(Fixture *f, bool tie) {
  Setup s = {.golden = golden_open(f, tie ? "model_tied" : "model"), .start = golden_open(f, "model")};
  const int32_t *d = golden_ints(f, s.golden, -1, "dims");
  const double *a = golden_values(f, s.golden, -1, "adamw", NULL);
  s.config = (ModelConfig){.vocab = d[0],
                           .ctx = d[1],
                           .layers = d[2],
                           .heads = d[3],
                           .kv_heads = d[4],
                           .dim = d[5],
                           .head_dim = d[6],
                           .ffn = d[7],
                           .tie = tie,
                           .rope_base = 10000,
                           .norm_eps = 1e-5f};
  s.steps = d[10];
  s.train = (TrainConfig){
      .batch = d[8], .micro_batches = d[11], .clip = (float)a[4], .label_smoothing = (float)a[5], .seed = 5};
  s.train.adamw = (AdamW){.beta1 = (float)a[0], .beta2 = (float)a[1], .eps = (float)a[2], .weight_decay = (float)a[3]};
  s.train.schedule =
      (Schedule){.kind = SCHEDULE_COSINE, .lr = 0.02f, .min_lr_fraction = 0.1f, .warmup = 3, .steps = s.steps};
  s.tokens = golden_ints(f, s.start, -1, "tokens");
  s.targets = golden_ints(f, s.start, -1, "targets");
  assert_int_equal(d[9], s.config.ctx);
  return s;
}

static double *named_values(Fixture *f, const Golden *g, const char *kind, const ParameterTensor *tensor) {
  char name[128];
  size_t count;
  snprintf(name, sizeof name, "%s.%s", kind, tensor->name);
  double *values = golden_values(f, g, -1, name, &count);
  assert_int_equal(count, (size_t)tensor->rows * (size_t)tensor->cols);
  return values;
}

static size_t tensor_count(const ParameterTensor *t) { return (size_t)t->rows * (size_t)t->cols; }

static double *widen(Fixture *f, const float *values, size_t count) {
  double *wide = host_values(f, count);
  for (size_t i = 0; i < count; i++) wide[i] = (double)values[i];
  return wide;
}

static float *arena_new(Fixture *f, const Model *m) { return host_memory(f, model_table(m)->arena * sizeof(float)); }

static void need(bool done, const Error *error) {
  if (!done) fail_msg("%s", error->text);
}

static float *arena_read(Fixture *f, Model *m, ArenaKind which) {
  float *arena = arena_new(f, m);
  Error error = {0};
  need(model_download(m, which, arena, &error), &error);
  return arena;
}

/* With the golden's weights, ready to train. */
static Model *model_start(Fixture *f, const Setup *s) {
  Model *m = NULL;
  Error error = {0};
  need(model_open(&m, f->backend, f->context, &s->config, &error), &error);
  need(model_train_begin(m, &s->train, &error), &error);
  const ParameterTable *table = model_table(m);
  float *arena = arena_new(f, m);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    const double *values = named_values(f, s->start, "weights", t);
    for (size_t j = 0; j < tensor_count(t); j++) arena[t->offset + j] = (float)values[j];
  }
  model_upload(m, ARENA_MASTER, arena);
  return m;
}

/* A whole model in bf16 adds up the rounding of all its operations: PyTorch, rounding in the same places, is 1.2e-2 off
 * in the logits of these models. */
static double whole_model(const Fixture *f, double tolerance) { return f->dtype == DTYPE_BF16 ? 4e-2 : tolerance; }

static double gradients(Fixture *f, Model *m, const TokenBatch *batch, float **out) {
  double loss = (double)NAN;
  Error error = {0};
  need(model_gradients(m, batch, &loss, &error), &error);
  *out = arena_read(f, m, ARENA_GRADIENT);
  return loss;
}

/* Every tensor of an arena with its golden; everything else in the arena is zero. */
static void expect_tensors(Fixture *f, const Model *m, const float *arena, const Golden *g, const char *kind,
                           double tolerance) {
  const ParameterTable *table = model_table(m);
  float *rest = arena_new(f, m);
  memcpy(rest, arena, table->arena * sizeof *rest);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    expect_close(f, t->name, widen(f, arena + t->offset, tensor_count(t)), named_values(f, g, kind, t), tensor_count(t),
                 whole_model(f, tolerance));
    memset(rest + t->offset, 0, tensor_count(t) * sizeof *rest);
  }
  for (size_t i = 0; i < table->arena; i++)
    if (rest[i] != 0) fail_msg("element %zu of the arena belongs to no tensor and is %g", i, (double)rest[i]);
}

/* ---- the table ---- */

/* Names, shapes and order of the checkpoint are those of LLaMA; groups are aligned, tensors inside them contiguous. */
static void table_case(Fixture *f, bool tie) {
  Setup s = setup_read(f, tie);
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, &s.config, &error), &error);
  const ModelConfig *c = &s.config;
  int query = c->heads * c->head_dim, key = c->kv_heads * c->head_dim;
  assert_int_equal(table.count, 2 + 9 * c->layers + !tie);
  int64_t parameters = 0;
  for (int i = 0; i < table.count; i++) {
    named_values(f, s.golden, "grad", &table.tensors[i]); /* there, and as long as it must be */
    parameters += table.tensors[i].rows * table.tensors[i].cols;
    if (i > 0)
      assert_true(table.tensors[i].offset >= table.tensors[i - 1].offset + tensor_count(&table.tensors[i - 1]));
  }
  assert_int_equal(table.parameters, parameters);
  assert_string_equal(table.tensors[0].name, "model.embed_tokens.weight");
  assert_string_equal(table.tensors[2].name, "model.layers.0.self_attn.q_proj.weight");
  assert_int_equal(table.tensors[3].offset - table.tensors[2].offset, query * c->dim);
  assert_int_equal(table.tensors[4].offset - table.tensors[3].offset, key * c->dim);
  assert_int_equal(table.layers[0].qkv.rows, query + 2 * key);
  assert_int_equal(table.layers[0].gate_up.rows, 2 * c->ffn);
  assert_int_equal(table.embedding.offset == table.head.offset, tie);
  for (int i = 0; i < table.group_count; i++) {
    const ParameterGroup *segment = &table.groups[i];
    assert_int_equal(segment->matrix.offset % TENSOR_ALIGNMENT, 0);
    assert_int_equal(segment->decay, segment->matrix.rows > 1); /* no matrix of this model has one row */
  }
  parameter_table_free(&table);
}

static void test_table(void **state) {
  table_case(*state, false);
  table_case(*state, true);
}

/* Mean 0, the table's standard deviation, norm weights 1, pads 0; another seed gives other numbers. */
static void test_initial_weights(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false);
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, &s.config, &error), &error);
  float *arena = host_memory(f, table.arena * sizeof *arena), *other = host_memory(f, table.arena * sizeof *other);
  parameter_table_init(&table, arena, 1);
  parameter_table_init(&table, other, 2);
  for (int i = 0; i < table.count; i++) {
    const ParameterTensor *t = &table.tensors[i];
    double sum = 0, squares = 0, n = (double)tensor_count(t);
    for (size_t j = 0; j < tensor_count(t); j++) {
      double x = (double)arena[t->offset + j];
      sum += x, squares += x * x;
      arena[t->offset + j] -= t->rank == 1 ? 1 : 0;
    }
    if (t->rank == 1) continue; /* looked at below: what is left must be 0 */
    double std = sqrt(squares / n), want = (double)t->init_std;
    if (fabs(sum / n) > 5 * want / sqrt(n)) fail_msg("%s: mean %g", t->name, sum / n);
    if (fabs(std / want - 1) > 5 / sqrt(2 * n)) fail_msg("%s: std %g, not %g", t->name, std, want);
    assert_memory_not_equal(arena + t->offset, other + t->offset, tensor_count(t) * sizeof *arena);
    memset(arena + t->offset, 0, tensor_count(t) * sizeof *arena);
  }
  for (size_t i = 0; i < table.arena; i++) assert_true(arena[i] == 0);
  parameter_table_free(&table);
}

/* ---- forward ---- */

/* Sum of the unsmoothed losses of golden logits. */
static double plain_loss(const double *logits, const int32_t *targets, int rows, int vocab, int64_t *count) {
  double total = 0;
  for (int n = 0; n < rows; n++) {
    double sum = 0;
    if (targets[n] < 0) continue;
    for (int k = 0; k < vocab; k++) sum += exp(logits[n * vocab + k]);
    total += log(sum) - logits[n * vocab + targets[n]];
    ++*count;
  }
  return total;
}

static void evaluate_case(Fixture *f, bool tie) {
  Setup s = setup_read(f, tie);
  Model *m = model_start(f, &s);
  Error error = {0};
  int rows = s.train.batch * s.config.ctx;
  size_t count = (size_t)rows * (size_t)s.config.vocab;
  float *logits = host_memory(f, count * sizeof *logits);
  const double *want = golden_values(f, s.golden, -1, "logits", NULL);
  double sum = 100, loss;
  int64_t targets = 7, expected = 7;
  loss = 100 + plain_loss(want, s.targets, rows, s.config.vocab, &expected); /* both are added to */
  need(model_evaluate(m, &(TokenBatch){s.tokens, s.targets, NULL}, s.train.batch, s.config.ctx, &sum, &targets, logits,
                      &error),
       &error);
  expect_close(f, "logits", widen(f, logits, count), want, count, whole_model(f, TOLERANCE_F32));
  expect_close(f, "unsmoothed loss", &sum, &loss, 1, 1e-6);
  assert_int_equal(targets, expected);

  enum { SHORT = 7 }; /* the second sequence's beginning, alone: nothing depends on later tokens or other sequences */
  size_t from = (size_t)(s.config.ctx * s.config.vocab), part = (size_t)(SHORT * s.config.vocab);
  need(model_evaluate(m, &(TokenBatch){s.tokens + s.config.ctx, s.targets + s.config.ctx, NULL}, 1, SHORT, &sum,
                      &targets, logits, &error),
       &error);
  expect_close(f, "logits of a beginning", widen(f, logits, part), want + from, part, whole_model(f, TOLERANCE_F32));
  model_close(m);
}

static void test_evaluate(void **state) {
  evaluate_case(*state, false);
  evaluate_case(*state, true);
}

/* ---- gradients ---- */

static void gradient_case(Fixture *f, bool tie) {
  const int head_rows[] = {0, 7, 1}; /* chunks of the head: one, uneven ones, single rows */
  double losses[3];
  for (int i = 0; i < 3; i++) {
    float *grad;
    Setup s = setup_read(f, tie);
    s.train.micro_batches = 1;
    s.train.head_rows = head_rows[i];
    Model *m = model_start(f, &s);
    losses[i] = gradients(f, m, &(TokenBatch){s.tokens, s.targets, NULL}, &grad);
    expect_close(f, "loss", &losses[i], golden_values(f, s.golden, -1, "loss", NULL), 1, 1e-6);
    expect_tensors(f, m, grad, s.golden, "grad", 1e-4);
    float *again;
    double loss = gradients(f, m, &(TokenBatch){s.tokens, s.targets, NULL}, &again);
    assert_true(loss == losses[i]);
    assert_memory_equal(again, grad, model_table(m)->arena * sizeof *grad);
    model_close(m);
  }
  /* A GEMM library may sum in another order for another number of rows: rounding, no more. */
  for (int i = 1; i < 3; i++) expect_close(f, "loss in chunks", &losses[i], &losses[0], 1, 1e-6);
}

/* Documents packed into sequences: logits, loss and gradients are those of PyTorch with a block-diagonal mask. */
static void test_packed(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false);
  const Golden *g = golden_open(f, "model_packed");
  TokenBatch batch = {s.tokens, s.targets, golden_ints(f, g, -1, "positions")};
  s.train.micro_batches = 1;
  Model *m = model_start(f, &s);
  Error error = {0};
  size_t count = (size_t)(s.train.batch * s.config.ctx * s.config.vocab);
  float *logits = host_memory(f, count * sizeof *logits), *grad;
  double sum = 0;
  int64_t targets = 0;
  need(model_evaluate(m, &batch, s.train.batch, s.config.ctx, &sum, &targets, logits, &error), &error);
  expect_close(f, "logits", widen(f, logits, count), golden_values(f, g, -1, "logits", NULL), count,
               whole_model(f, TOLERANCE_F32));
  for (int run = 0; run < 3; run++) { /* eager, recorded, replayed */
    double loss = gradients(f, m, &batch, &grad);
    expect_close(f, "loss", &loss, golden_values(f, g, -1, "loss", NULL), 1, 1e-6);
    expect_tensors(f, m, grad, g, "grad", 1e-4);
  }
  model_close(m);
}

static void test_gradients(void **state) {
  gradient_case(*state, false);
  gradient_case(*state, true);
}

/* Six sequences at once, in two micro-batches or in six: the same masks, and the same sums but for their order. */
static void test_micro_batches(void **state) {
  Fixture *f = *state;
  const int micro_batches[] = {1, 2, 6};
  double *first = NULL, first_loss = 0;
  for (int i = 0; i < 3; i++) {
    float *grad;
    Setup s = setup_read(f, false);
    s.train.batch = s.train.batch * s.train.micro_batches / micro_batches[i];
    s.train.micro_batches = micro_batches[i];
    s.train.dropout = 0.2f;
    Model *m = model_start(f, &s);
    size_t count = model_table(m)->arena;
    double loss = gradients(f, m, &(TokenBatch){s.tokens, s.targets, NULL}, &grad);
    if (i == 0) first = widen(f, grad, count), first_loss = loss;
    expect_close(f, "gradients", widen(f, grad, count), first, count, 1e-6);
    expect_close(f, "loss", &loss, &first_loss, 1, 1e-7);
    model_close(m);
  }
}

static double loss_at(Fixture *f, Model *m, const Setup *s, const float *weights) {
  float *ignored;
  model_upload(m, ARENA_MASTER, weights);
  return gradients(f, m, &(TokenBatch){s->tokens, s->targets, NULL}, &ignored);
}

/* With dropout there is no golden: along each tensor's gradient the loss has to rise by the gradient's length. A
 * forward and a backward that drop different elements do not agree. A step of 0.01 leaves 3e-5 of fp32 noise and its
 * own square. */
static void test_dropout_gradients(void **state) {
  Fixture *f = *state;
  if (f->dtype != DTYPE_F32) return; /* a difference of rounded numbers says nothing */
  const double h = 0.01;
  float *grad;
  Setup s = setup_read(f, true);
  s.train.dropout = 0.3f;
  Model *m = model_start(f, &s);
  const ParameterTable *table = model_table(m);
  double loss = gradients(f, m, &(TokenBatch){s.tokens, s.targets, NULL}, &grad),
         smooth = golden_value(f, s.golden, -1, "losses");
  if (fabs(loss - smooth) < 1e-3) fail_msg("the loss with dropout, %g, is the one without", loss);
  float *weights = arena_read(f, m, ARENA_MASTER), *moved = arena_new(f, m);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    double norm = 0, sides[2];
    for (size_t j = 0; j < tensor_count(t); j++) norm += (double)grad[t->offset + j] * (double)grad[t->offset + j];
    norm = sqrt(norm);
    for (int side = 0; side < 2; side++) {
      memcpy(moved, weights, table->arena * sizeof *moved);
      for (size_t j = t->offset; j < t->offset + tensor_count(t); j++)
        moved[j] += (float)((side ? h : -h) * (double)grad[j] / norm);
      sides[side] = loss_at(f, m, &s, moved);
    }
    double slope = (sides[1] - sides[0]) / (2 * h);
    if (!(fabs(slope - norm) < 2e-3 * norm + 1e-4))
      fail_msg("%s: the loss rises by %g, the gradient says %g", t->name, slope, norm);
  }
  model_close(m);
}

/* ---- steps ---- */

static StepState one_report(Model *m) {
  StepState report;
  Error error = {0};
  int taken = model_reports(m, &report, 1, true, &error);
  if (taken != 1) fail_msg("%d reports: %s", taken, error.text);
  return report;
}

/* Two micro-batches a step, clipping that bites in some steps and not in others, decay, warm-up and cosine. */
static void ten_steps_case(Fixture *f, bool tie) {
  Setup s = setup_read(f, tie);
  Model *m = model_start(f, &s);
  const double *losses = golden_values(f, s.golden, -1, "losses", NULL),
               *norms = golden_values(f, s.golden, -1, "grad_norms", NULL);
  const double *rates = golden_values(f, s.golden, -1, "lr", NULL);
  int step_tokens = s.train.micro_batches * s.train.batch * s.config.ctx, clipped = 0;
  for (int t = 0; t < s.steps; t++) {
    model_train_step(m, &(TokenBatch){s.tokens + t * step_tokens, s.targets + t * step_tokens, NULL});
    StepState report = one_report(m);
    double loss = (double)report.loss, norm = (double)report.grad_norm, rate = (double)report.lr;
    expect_close(f, "loss", &loss, &losses[t], 1, whole_model(f, 1e-5));
    expect_close(f, "grad_norm", &norm, &norms[t], 1, whole_model(f, 1e-4));
    expect_close_floor(f, "lr", &rate, &rates[t], 1, 1e-6, 0);
    assert_int_equal(report.step, t + 1);
    assert_int_equal(report.halted, 0);
    clipped += norm > (double)s.train.clip;
  }
  assert_true(clipped > 0 && clipped < s.steps);
  expect_tensors(f, m, arena_read(f, m, ARENA_MASTER), s.golden, "final", 1e-4);
  model_close(m);
}

static void test_ten_steps(void **state) {
  ten_steps_case(*state, false);
  ten_steps_case(*state, true);
}

static float *train_some(Fixture *f, int from, int steps, const float *arenas[3]) {
  Setup s = setup_read(f, false);
  s.train.dropout = 0.1f;
  Model *m = model_start(f, &s);
  int step_tokens = s.train.micro_batches * s.train.batch * s.config.ctx;
  float *out = host_memory(f, 3 * model_table(m)->arena * sizeof *out);
  for (int i = 0; i < 3 && arenas; i++)
    model_upload(m, (ArenaKind[]){ARENA_MASTER, ARENA_MOMENT1, ARENA_MOMENT2}[i], arenas[i]);
  model_set_step(m, from);
  for (int t = from; t < from + steps; t++) {
    model_train_step(m, &(TokenBatch){s.tokens + t * step_tokens, s.targets + t * step_tokens, NULL});
    assert_int_equal(one_report(m).step, t + 1);
  }
  Error error = {0};
  need(model_download(m, ARENA_MASTER, out, &error), &error);
  need(model_download(m, ARENA_MOMENT1, out + model_table(m)->arena, &error), &error);
  need(model_download(m, ARENA_MOMENT2, out + 2 * model_table(m)->arena, &error), &error);
  model_close(m);
  return out;
}

/* The same bits a second time, and when training goes on in a new model from masters, moments and the step number. */
static void test_same_bits_and_resume(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false);
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, &s.config, &error), &error);
  size_t arena = table.arena, bytes = 3 * arena * sizeof(float);
  parameter_table_free(&table);
  float *whole = train_some(f, 0, 6, NULL), *again = train_some(f, 0, 6, NULL), *half = train_some(f, 0, 2, NULL);
  assert_memory_equal(again, whole, bytes);
  assert_memory_not_equal(half, whole, bytes);
  float *resumed = train_some(f, 2, 4, (const float *[]){half, half + arena, half + 2 * arena});
  assert_memory_equal(resumed, whole, bytes);
}

/* A weight that is not a number: reported, sticky, and no master moves. */
static void test_halts(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false);
  Model *m = model_start(f, &s);
  size_t bytes = model_table(m)->arena * sizeof(float);
  float *weights = arena_read(f, m, ARENA_MASTER);
  float *poisoned = arena_read(f, m, ARENA_MASTER);
  poisoned[model_table(m)->layers[1].down.offset] = NAN;
  model_upload(m, ARENA_MASTER, poisoned);
  model_train_step(m, &(TokenBatch){s.tokens, s.targets, NULL});
  StepState report = one_report(m);
  assert_true(report.halted != 0);
  assert_int_equal(report.step, 0);
  assert_memory_equal(arena_read(f, m, ARENA_MASTER), poisoned, bytes);
  model_upload(m, ARENA_MASTER, weights); /* healthy again, but nobody has read the report and started over */
  model_train_step(m, &(TokenBatch){s.tokens, s.targets, NULL});
  report = one_report(m);
  assert_true(report.halted != 0);
  assert_int_equal(report.step, 0);
  assert_memory_equal(arena_read(f, m, ARENA_MASTER), weights, bytes);
  model_close(m);
}

/* No target at all: loss 0, no gradient, and only the decay moves anything. */
static void test_no_targets(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, true);
  Model *m = model_start(f, &s);
  for (int i = 0; i < s.train.micro_batches * s.train.batch * s.config.ctx; i++) s.targets[i] = IGNORE_INDEX;
  float *grad;
  assert_true(gradients(f, m, &(TokenBatch){s.tokens, s.targets, NULL}, &grad) == 0);
  for (size_t i = 0; i < model_table(m)->arena; i++) assert_true(grad[i] == 0);
  model_train_step(m, &(TokenBatch){s.tokens, s.targets, NULL});
  StepState report = one_report(m);
  assert_int_equal(report.halted, 0);
  assert_true(report.loss == 0 && report.grad_norm == 0);
  assert_int_equal(report.step, 1);
  model_close(m);
}

/* ---- schedules ---- */

static void test_schedules(void **state) {
  (void)state;
  Schedule s = {.kind = SCHEDULE_COSINE, .lr = 0.5f, .min_lr_fraction = 0.1f, .warmup = 4, .steps = 20};
  const ScheduleKind falling[] = {SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD};
  for (int i = 0; i < 3; i++) {
    s.kind = falling[i];
    assert_true(schedule_lr(&s, 1) == 0.125f);
    assert_true(schedule_lr(&s, 4) == 0.5f);
    assert_true(schedule_lr(&s, 20) == 0.5f * 0.1f);
    assert_true(schedule_lr(&s, 1000) == 0.5f * 0.1f);
    for (int64_t t = 5; t <= 20; t++) assert_true(schedule_lr(&s, t) <= schedule_lr(&s, t - 1));
  }
  s.kind = SCHEDULE_COSINE; /* half way: half way between lr and its end */
  assert_true(fabsf(schedule_lr(&s, 12) - 0.275f) < 1e-6f);
  s.kind = SCHEDULE_LINEAR; /* a quarter of the way */
  assert_true(fabsf(schedule_lr(&s, 8) - 0.3875f) < 1e-6f);
  s.kind = SCHEDULE_WSD;
  assert_true(schedule_lr(&s, 16) == 0.5f && schedule_lr(&s, 17) < 0.5f);
  s.kind = SCHEDULE_CONSTANT;
  assert_true(schedule_lr(&s, 2) == 0.25f && schedule_lr(&s, 20) == 0.5f && schedule_lr(&s, 1000) == 0.5f);
  s.warmup = 0;
  assert_true(schedule_lr(&s, 1) == 0.5f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),         cmocka_unit_test(test_initial_weights),
      cmocka_unit_test(test_schedules),     cmocka_unit_test(test_evaluate),
      cmocka_unit_test(test_gradients),     cmocka_unit_test(test_packed),
      cmocka_unit_test(test_micro_batches), cmocka_unit_test(test_dropout_gradients),
      cmocka_unit_test(test_ten_steps),     cmocka_unit_test(test_same_bits_and_resume),
      cmocka_unit_test(test_halts),         cmocka_unit_test(test_no_targets),
  };
  return run_on_backends("model", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
