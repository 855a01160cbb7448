/* Every Transformer that ModelConfig describes, against float64 PyTorch (tests/golden/architecture_*.safetensors):
 * logits, loss, every gradient, ten training steps; a token decoded from the caches against the whole pass; what the
 * positions are. */
#include "tests/model_helpers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const architectures[] = {"arcee",   "starcoder2", "stablelm", "gpt2",  "opt_before", "opt_after",
                                            "smollm3", "decoder",    "branch",   "gated", "rms_after"};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures, STEPS = 10, MICRO_BATCHES = 2, BATCH = 3 };

typedef struct Architecture {
  Setup setup;
  int32_t *positions; /* [BATCH][ctx] of packed documents, the same in every batch; or NULL */
} Architecture;

static Architecture architecture_read(Fixture *f, const char *name) {
  char file[64];
  snprintf(file, sizeof file, "architecture_%s", name);
  const Golden *g = golden_open(f, file);
  const int32_t *v = golden_ints(f, g, -1, "settings");
  Architecture a = {.setup = setup_read(f, false)}; /* the same training */
  a.setup.golden = a.setup.start = g;
  a.setup.config = (ModelConfig){.vocab = v[0],
                                 .ctx = v[1],
                                 .layers = v[2],
                                 .heads = v[3],
                                 .dim = v[4],
                                 .head_dim = v[5],
                                 .ffn = v[6],
                                 .kv_heads = v[7],
                                 .norm = (NormKind)v[8],
                                 .norm_place = (NormPlace)v[9],
                                 .activation = (Activation)v[10],
                                 .positions = (PositionKind)v[11],
                                 .gated = v[12],
                                 .bias = v[13],
                                 .qkv_bias = v[14],
                                 .head_bias = v[15],
                                 .tie = v[16],
                                 .rope_base = 10000,
                                 .norm_eps = (float)golden_value(f, g, -1, "eps")};
  a.setup.tokens = golden_ints(f, g, -1, "tokens");
  a.setup.targets = golden_ints(f, g, -1, "targets");
  if (!golden_has(g, -1, "positions")) return a;
  int batch_tokens = BATCH * v[1];
  const int32_t *positions = golden_ints(f, g, -1, "positions");
  a.positions = host_memory(f, (size_t)(MICRO_BATCHES * batch_tokens) * sizeof *a.positions);
  for (int i = 0; i < MICRO_BATCHES * batch_tokens; i++) a.positions[i] = positions[i % batch_tokens];
  return a;
}

/* In bf16 the rounding of a whole model adds up. */
static double tolerance(const Fixture *f, double wanted) { return f->dtype == DTYPE_BF16 ? 6e-2 : wanted; }

/* What rounding moves across 0 passes ReLU or does not: of small models' gradients that is a tenth. */
static double gradient_tolerance(const Fixture *f, const Model *m) {
  bool relu = model_config(m)->activation == ACTIVATION_RELU;
  return f->dtype == DTYPE_BF16 && relu ? 0.25 : tolerance(f, 1e-4);
}

static void expect_arena(Fixture *f, const char *name, const Model *m, const float *arena, const Golden *g,
                         const char *kind) {
  const ParameterTable *table = model_table(m);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    char what[160];
    snprintf(what, sizeof what, "%s: %s of %s", name, kind, t->name);
    expect_close_floor(f, what, widen(f, arena + t->offset, tensor_count(t)), named_values(f, g, kind, t),
                       tensor_count(t), gradient_tolerance(f, m), f->dtype == DTYPE_BF16 ? 1e-2 : 1e-3);
  }
}

static void gradients_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  a.setup.train.micro_batches = 1;
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = &a.setup.config;
  size_t count = (size_t)(BATCH * c->ctx * c->vocab);
  TokenBatch batch = {a.setup.tokens, a.setup.targets, a.positions};
  float *arena, *logits = host_memory(f, count * sizeof *logits);
  double loss = gradients(f, m, &batch, &arena), sum = 0;
  int64_t targets = 0;
  Error error = {0};
  expect_close(f, "loss", &loss, golden_values(f, a.setup.golden, -1, "loss", NULL), 1, tolerance(f, 1e-5));
  expect_arena(f, name, m, arena, a.setup.golden, "grad");
  need(model_evaluate(m, &batch, BATCH, c->ctx, &sum, &targets, logits, &error), &error);
  expect_close(f, "logits", widen(f, logits, count), golden_values(f, a.setup.golden, -1, "logits", NULL), count,
               tolerance(f, 1e-5));
  model_close(m);
}

static void test_gradients(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) gradients_case(*state, architectures[i]);
}

static void ten_steps_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const double *losses = golden_values(f, a.setup.golden, -1, "losses", NULL);
  int tokens = MICRO_BATCHES * BATCH * a.setup.config.ctx;
  for (int t = 0; t < STEPS; t++) {
    StepState report;
    Error error = {0};
    model_train_step(m, &(TokenBatch){a.setup.tokens + t * tokens, a.setup.targets + t * tokens, a.positions});
    assert_int_equal(model_reports(m, &report, 1, true, &error), 1);
    double loss = (double)report.loss;
    expect_close(f, name, &loss, &losses[t], 1, tolerance(f, 1e-5));
  }
  expect_arena(f, name, m, arena_read(f, m, ARENA_MASTER), a.setup.golden, "final");
  model_close(m);
}

static void test_ten_steps(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) ten_steps_case(*state, architectures[i]);
}

/* Token by token from the caches, the likeliest each time: the logits of the whole pass at each position. */
static void decode_case(Fixture *f, const char *name) {
  enum { PROMPT = 3 };
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = &a.setup.config;
  size_t vocab = (size_t)c->vocab;
  float *want = host_memory(f, (size_t)c->ctx * vocab * sizeof *want), *got = host_memory(f, vocab * sizeof *got);
  double sum = 0, *decoded = host_values(f, (size_t)c->ctx * vocab);
  int64_t count = 0;
  int32_t *tokens = host_memory(f, (size_t)c->ctx * sizeof *tokens);
  Decoder *d = NULL;
  Error error = {0};
  const Sampling greedy = {.repeat_penalty = 1, .top_p = 1};
  memcpy(tokens, a.setup.tokens, (size_t)c->ctx * sizeof *tokens);
  need(decoder_open(&d, m, 1, &error) && decoder_prompt(d, tokens, PROMPT, 0, &error), &error);
  for (int t = PROMPT; t < c->ctx; t++) {
    need(decoder_next(d, &greedy, &tokens[t], &error) && decoder_logits(d, got, &error), &error);
    memcpy(decoded + (size_t)t * vocab, widen(f, got, vocab), vocab * sizeof *decoded);
  }
  need(model_evaluate(m, &(TokenBatch){tokens, a.setup.targets, NULL}, 1, c->ctx, &sum, &count, want, &error), &error);
  for (size_t at = PROMPT * vocab; at < (size_t)c->ctx * vocab; at += vocab)
    expect_close(f, name, decoded + at, widen(f, want + at, vocab), vocab, tolerance(f, 1e-5));
  decoder_close(d);
  model_close(m);
}

static void test_decoding(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) decode_case(*state, architectures[i]);
}

/* Every place of a norm with dropout. ReLU's corners are no slopes. */
static void dropout_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  float *grad;
  a.setup.config.activation = ACTIVATION_GELU;
  a.setup.train.micro_batches = 1;
  a.setup.train.dropout = (DropoutRates){0.3f, 0.3f, 0.3f, 0.3f};
  Model *m = model_start(f, &a.setup);
  gradients(f, m, &(TokenBatch){a.setup.tokens, a.setup.targets, NULL}, &grad);
  expect_slopes(f, m, &a.setup, grad);
  model_close(m);
}

static void test_dropout(void **state) {
  Fixture *f = *state;
  if (f->dtype != DTYPE_F32) return;
  dropout_case(f, "opt_before");
  dropout_case(f, "opt_after");
  dropout_case(f, "branch");
}

/* The table of sinusoids: its formula, and that the product of two rows depends on their distance alone. */
static void test_sinusoids(void **state) {
  Fixture *f = *state;
  Architecture a = architecture_read(f, "opt_before");
  const ModelConfig *c = &a.setup.config;
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, c, &error), &error);
  float *arena = host_memory(f, table.arena * sizeof *arena);
  parameter_table_init(&table, (Initialization){INIT_GPT2, INIT_DEFAULT_STD}, arena, 1);
  const float *places = arena + table.places.offset;
  size_t count = (size_t)(c->ctx * c->dim);
  double *want = host_values(f, count);
  for (int t = 0; t < c->ctx; t++)
    for (int i = 0; i < c->dim / 2; i++) {
      double angle = t / pow(10000, 2.0 * i / c->dim);
      want[t * c->dim + i] = sin(angle);
      want[t * c->dim + c->dim / 2 + i] = cos(angle);
    }
  expect_close(f, "sinusoids", widen(f, places, count), want, count, 1e-7);
  for (int distance = 0; distance < 3; distance++)
    for (int t = 0; t + distance < c->ctx; t++) {
      double first = 0, here = 0;
      for (int i = 0; i < c->dim; i++) {
        first += (double)places[i] * (double)places[distance * c->dim + i];
        here += (double)places[t * c->dim + i] * (double)places[(t + distance) * c->dim + i];
      }
      assert_true(fabs(first - here) < 1e-5);
    }
  parameter_table_free(&table);
}

/* The decoder of 6 layers x 512, 8 heads, with biases but for queries, keys and values, whose size is known. */
static void test_parameters(void **state) {
  (void)state;
  const ModelConfig decoder = {.vocab = 50000,
                               .ctx = 1024,
                               .layers = 6,
                               .heads = 8,
                               .kv_heads = 8,
                               .dim = 512,
                               .head_dim = 64,
                               .ffn = 2048,
                               .norm = NORM_LAYER,
                               .activation = ACTIVATION_RELU,
                               .bias = true,
                               .head_bias = true,
                               .positions = POSITIONS_SINUSOIDAL};
  assert_int_equal(model_parameters(&decoder), 70156112);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients), cmocka_unit_test(test_ten_steps),
                                     cmocka_unit_test(test_decoding),  cmocka_unit_test(test_dropout),
                                     cmocka_unit_test(test_sinusoids), cmocka_unit_test(test_parameters)};
  return run_on_backends("architectures", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
