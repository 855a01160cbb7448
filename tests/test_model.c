/* The whole model against float64 PyTorch (tests/golden/model*.safetensors, which the script has compared with
 * LlamaForCausalLM): logits, loss, every gradient; and what no golden can say: micro-batches, head chunks, dropout. */
#include "tests/model_helpers.h"
#include "model/decoder.h"
#include "model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
  assert_int_equal(model_parameters(c), parameters);
  assert_string_equal(table.tensors[0].name, "model.embed_tokens.weight");
  assert_string_equal(table.tensors[2].name, "model.layers.0.self_attn.q_proj.weight");
  assert_int_equal(table.tensors[3].offset - table.tensors[2].offset, query * c->dim);
  assert_int_equal(table.tensors[4].offset - table.tensors[3].offset, key * c->dim);
  assert_int_equal(table.decoder.count, 2 * c->layers);
  assert_int_equal(table.decoder.sublayers[0].in.weight.rows, query + 2 * key);
  assert_int_equal(table.decoder.sublayers[1].in.weight.rows, 2 * c->ffn);
  assert_int_equal(table.decoder.embedding.offset == table.head.weight.offset, tie);
  for (int i = 0; i < table.group_count; i++) {
    const ParameterGroup *segment = &table.groups[i];
    assert_int_equal(segment->matrix.offset % TENSOR_ALIGNMENT, 0);
    assert_int_equal(segment->decay, segment->matrix.rows > 1); /* no matrix of this model has one row */
  }
  expect_optimizers(&table, c);
  parameter_table_free(&table);
}

static void test_table(void **state) {
  table_case(*state, false);
  table_case(*state, true);
}

/* The standard deviation that a tensor should begin with; 0: constant. */
static double initial_std(const ParameterTensor *t, Initialization how, const ModelConfig *c) {
  const bool torch = how.kind == INIT_TORCH, source = strncmp(t->name, "model.encoder", strlen("model.encoder")) == 0;
  const double branches = source ? 2 * c->encoder_layers : c->layers * (c->encoder_layers ? 3 : 2);
  switch (t->role) {
  case ROLE_EMBEDDING:
  case ROLE_POSITIONS: return torch ? 1 : (double)how.std;
  case ROLE_WEIGHT: return torch ? 1 / sqrt(3.0 * t->cols) : (double)how.std;
  case ROLE_RESIDUAL: return torch ? 1 / sqrt(3.0 * t->cols) : (double)how.std / sqrt(branches);
  case ROLE_BIAS: return torch ? 1 / sqrt(3.0 * t->inputs) : 0;
  default: return 0;
  }
}

/* Mean 0, the right standard deviation and, of uniform numbers, limits; norms begin as 1 and 0, pads are 0; another
 * seed gives other numbers. */
static void initial_case(Fixture *f, const ModelConfig *config, Initialization how) {
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, config, &error), &error);
  float *arena = host_memory(f, table.arena * sizeof *arena), *other = host_memory(f, table.arena * sizeof *other);
  parameter_table_init(&table, how, arena, 1);
  parameter_table_init(&table, how, other, 2);
  for (int i = 0; i < table.count; i++) {
    const ParameterTensor *t = &table.tensors[i];
    double sum = 0, squares = 0, largest = 0, n = (double)tensor_count(t), want = initial_std(t, how, config);
    for (size_t j = 0; j < tensor_count(t); j++) {
      double x = (double)arena[t->offset + j];
      sum += x, squares += x * x, largest = fmax(largest, fabs(x));
      arena[t->offset + j] -= t->role == ROLE_NORM_WEIGHT ? 1 : 0;
    }
    if (want == 0) continue; /* looked at below: what is left must be 0 */
    double std = sqrt(squares / n);
    if (fabs(sum / n) > 5 * want / sqrt(n)) fail_msg("%s: mean %g", t->name, sum / n);
    if (fabs(std / want - 1) > 5 / sqrt(2 * n)) fail_msg("%s: std %g, not %g", t->name, std, want);
    if (how.kind == INIT_TORCH && t->role != ROLE_EMBEDDING && t->role != ROLE_POSITIONS)
      assert_true(largest <= want * sqrt(3) * (1 + 1e-6) && largest > want * sqrt(3) * (1 - 20 / n));
    assert_memory_not_equal(arena + t->offset, other + t->offset, tensor_count(t) * sizeof *arena);
    memset(arena + t->offset, 0, tensor_count(t) * sizeof *arena);
  }
  for (size_t i = 0; i < table.arena; i++) assert_true(arena[i] == 0);
  parameter_table_free(&table);
}

static void test_initial_weights(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false);
  ModelConfig c = s.config;
  initial_case(f, &c, (Initialization){INIT_GPT2, INIT_DEFAULT_STD});
  c.norm = NORM_LAYER, c.bias = c.qkv_bias = c.head_bias = true, c.positions = POSITIONS_LEARNED;
  initial_case(f, &c, (Initialization){INIT_GPT2, 0.1f});
  initial_case(f, &c, (Initialization){.kind = INIT_TORCH});
  c.encoder_layers = 3, c.source_vocab = 40, c.positions = POSITIONS_ROPE;
  initial_case(f, &c, (Initialization){INIT_GPT2, INIT_DEFAULT_STD});
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
  need(model_evaluate(m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, s.train.batch, s.config.ctx, &sum,
                      &targets, logits, &error),
       &error);
  expect_close(f, "logits", widen(f, logits, count), want, count, whole_model(f, TOLERANCE_F32));
  expect_close(f, "unsmoothed loss", &sum, &loss, 1, 1e-6);
  assert_int_equal(targets, expected);

  enum { SHORT = 7 }; /* the second sequence's beginning, alone: nothing depends on later tokens or other sequences */
  size_t from = (size_t)(s.config.ctx * s.config.vocab), part = (size_t)(SHORT * s.config.vocab);
  need(model_evaluate(m, &(TokenBatch){.tokens = s.tokens + s.config.ctx, .targets = s.targets + s.config.ctx}, 1,
                      SHORT, &sum, &targets, logits, &error),
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
    losses[i] = gradients(f, m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, &grad);
    expect_close(f, "loss", &losses[i], golden_values(f, s.golden, -1, "loss", NULL), 1, 1e-6);
    expect_tensors(f, m, grad, s.golden, "grad", 1e-4);
    float *again;
    double loss = gradients(f, m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, &again);
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
  TokenBatch batch = {.tokens = s.tokens, .targets = s.targets, .positions = golden_ints(f, g, -1, "positions")};
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

/* The gradients of model `s`, as they are in fp64. */
static double *gradients_of(Fixture *f, const Setup *s, const TokenBatch *batch, size_t *count) {
  Model *m = model_start(f, s);
  float *grad = NULL;
  for (int run = 0; run < 3; run++) gradients(f, m, batch, &grad); /* eager, recorded, replayed */
  *count = model_table(m)->arena;
  double *out = widen(f, grad, *count);
  model_close(m);
  return out;
}

/* A teacher with the same weights scales the gradient by 1 - weight: it agrees with the model. One that knows nothing
 * smooths the labels. */
static void teacher_case(Fixture *f, int head_rows, const int32_t *positions) {
  const double weight = 0.3;
  Setup s = setup_read(f, false);
  const TokenBatch batch = {.tokens = s.tokens, .targets = s.targets, .positions = positions};
  Error error = {0};
  size_t count;
  s.train.head_rows = head_rows;
  if (positions) s.train.micro_batches = 1; /* the golden has those of one */
  double *alone = gradients_of(f, &s, &batch, &count);
  for (size_t i = 0; i < count; i++) alone[i] *= 1 - weight;
  Setup taught = s;
  taught.train.teacher = model_start(f, &s);
  taught.train.teacher_weight = (float)weight;
  expect_close(f, "gradients with an equal teacher", gradients_of(f, &taught, &batch, &count), alone, count,
               whole_model(f, 1e-4));
  model_close(taught.train.teacher);
  ModelConfig small = s.config; /* with weights of 0 */
  small.layers = 1, small.ctx += 3;
  need(model_open(&taught.train.teacher, f->backend, f->context, &small, &error), &error);
  s.train.label_smoothing = (float)(1 - (1 - (double)s.train.label_smoothing) * (1 - weight));
  expect_close(f, "gradients with a teacher that knows nothing", gradients_of(f, &taught, &batch, &count),
               gradients_of(f, &s, &batch, &count), count, whole_model(f, 1e-4));
  model_close(taught.train.teacher);
}

static void test_teacher(void **state) {
  Fixture *f = *state;
  teacher_case(f, 0, NULL);
  teacher_case(f, 3, golden_ints(f, golden_open(f, "model_packed"), -1, "positions"));
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
    s.train.dropout = (DropoutRates){0.2f, 0.2f, 0.2f, 0};
    Model *m = model_start(f, &s);
    size_t count = model_table(m)->arena;
    double loss = gradients(f, m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, &grad);
    if (i == 0) first = widen(f, grad, count), first_loss = loss;
    expect_close(f, "gradients", widen(f, grad, count), first, count, 1e-6);
    expect_close(f, "loss", &loss, &first_loss, 1, 1e-7);
    model_close(m);
  }
}

/* With dropout there is no golden: the gradients are slopes of the loss. */
static void test_dropout_gradients(void **state) {
  Fixture *f = *state;
  if (f->dtype != DTYPE_F32) return; /* a difference of rounded numbers says nothing */
  float *grad;
  Setup s = setup_read(f, true);
  s.train.dropout = (DropoutRates){0.3f, 0.3f, 0.3f, 0};
  Model *m = model_start(f, &s);
  double loss = gradients(f, m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, &grad),
         smooth = golden_value(f, s.golden, -1, "losses");
  if (fabs(loss - smooth) < 1e-3) fail_msg("the loss with dropout, %g, is the one without", loss);
  expect_slopes(f, m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, grad);
  model_close(m);
}

/* ---- decoding ---- */

enum { AHEAD = 18, SEQUENCES = 2 }; /* tokens after which others are being drawn */

static void begin_rows(Decoder *d, const int32_t *first, int rows) {
  const Sampling sampling = {.seed = 3, .temperature = 1, .top_p = 1, .repeat_penalty = 1};
  Error error = {0};
  for (int r = 0; r < rows; r++) {
    need(decoder_prompt(d, r, first, 1, &error), &error);
    decoder_sampling(d, r, &sampling, 0);
  }
}

static void change_nothing(Decoder *d) { (void)d; }
static void change_rows(Decoder *d) { decoder_use_rows(d, 1); }
static void change_copy(Decoder *d) { decoder_copy(d, 1, 0); }
static void change_begin(Decoder *d) { decoder_begin_as(d, 1, 1); }
static void change_sampling(Decoder *d) { decoder_sampling(d, 1, &(Sampling){.top_p = 1, .repeat_penalty = 1}, 5); }
static void change_bias(Decoder *d) {
  Error error = {0};
  need(decoder_bias(d, 1, (int32_t[]){1}, (float[]){0.5f}, 1, &error), &error);
}

/* A device that draws tokens before they are asked for takes them back when something changes: row 0 goes on, bit for
 * bit, as where the logits are read before every token, so that none is drawn ahead. */
static void ahead_case(Fixture *f, const ModelConfig *config) {
  static void (*const changes[])(Decoder *) = {change_nothing, change_rows,     change_copy,
                                               change_begin,   change_sampling, change_bias};
  const size_t vocab = (size_t)config->vocab;
  float *want = host_memory(f, 2 * vocab * sizeof *want), *got = host_memory(f, SEQUENCES * vocab * sizeof *got);
  int32_t drawn[AHEAD + 2], next[SEQUENCES];
  const int32_t first = 2;
  Model *m = NULL;
  Decoder *d = NULL, *slow = NULL;
  Error error = {0};
  need(model_open(&m, f->backend, f->context, config, &error), &error);
  float *weights = arena_new(f, m);
  parameter_table_init(model_table(m), (Initialization){.std = 0.3f}, weights, 11);
  model_upload(m, ARENA_MASTER, weights);
  need(decoder_open(&slow, m, 1, &error) && decoder_open(&d, m, SEQUENCES, &error), &error);
  begin_rows(slow, &first, 1);
  for (int t = 0; t < AHEAD + 2; t++) {
    need(decoder_logits(slow, want + (size_t)(t % 2) * vocab, &error), &error);
    need(decoder_next(slow, &drawn[t], &error), &error);
  }
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    decoder_use_rows(d, SEQUENCES);
    begin_rows(d, &first, SEQUENCES);
    for (int t = 0; t < AHEAD; t++) {
      need(decoder_next(d, next, &error), &error);
      assert_int_equal(next[0], drawn[t]);
    }
    changes[i](d);
    for (int t = 0; t < 2; t++) {
      need(decoder_logits(d, got, &error) && decoder_next(d, next, &error), &error);
      assert_memory_equal(got, want + (size_t)((AHEAD + t) % 2) * vocab, vocab * sizeof *got);
      assert_int_equal(next[0], drawn[AHEAD + t]);
    }
  }
  decoder_close(slow);
  decoder_close(d);
  model_close(m);
}

static void test_ahead(void **state) {
  Setup s = setup_read(*state, false);
  s.config.ctx = AHEAD + 4;
  ahead_case(*state, &s.config);
  strcpy(s.config.mixers, "CA");
  ahead_case(*state, &s.config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),         cmocka_unit_test(test_initial_weights),
      cmocka_unit_test(test_evaluate),      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_packed),        cmocka_unit_test(test_teacher),
      cmocka_unit_test(test_micro_batches), cmocka_unit_test(test_dropout_gradients),
      cmocka_unit_test(test_ahead),
  };
  return run_on_backends("model", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
