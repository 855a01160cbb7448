/* Every Transformer that ModelConfig describes, against float64 PyTorch (tests/golden/architecture_*.safetensors):
 * logits, loss, every gradient, ten training steps; a token decoded from the caches against the whole pass; what each
 * layer would say; what is computed on the way; what the positions are. */
#include "tests/model_helpers.h"
#include "model/parameters.h"
#include "model/attention_maps.h"
#include "model/hidden_states.h"
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const architectures[] = {"arcee",
                                            "starcoder2",
                                            "stablelm",
                                            "gpt2",
                                            "opt_before",
                                            "opt_after",
                                            "smollm3",
                                            "decoder",
                                            "branch",
                                            "gated",
                                            "rms_after",
                                            "marian",
                                            "blenderbot",
                                            "cross_branch",
                                            "cross_rope",
                                            "lfm2",
                                            "lfm2_packed",
                                            "qwen3",
                                            "nope",
                                            "partial",
                                            "partial_normed",
                                            "parallel",
                                            "parallel_rms",
                                            "convolutions",
                                            "convolution_after",
                                            "convolution_branch",
                                            "cross_convolution"};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures, STEPS = 10, MICRO_BATCHES = 2, BATCH = 3 };

typedef struct Architecture {
  Setup setup;
  int32_t *positions; /* [BATCH][ctx] of packed documents, the same in every batch; or NULL */
  int32_t *source;    /* of an encoder, as setup.tokens */
  TokenBatch ranges;  /* of the source, without tokens */
} Architecture;

/* [BATCH][ctx] of a golden for every micro-batch. */
static int32_t *repeated(Fixture *f, const Golden *g, const char *name, int ctx) {
  const int32_t *once = golden_ints(f, g, -1, name);
  int32_t *all = host_memory(f, (size_t)(MICRO_BATCHES * BATCH * ctx) * sizeof *all);
  for (int i = 0; i < MICRO_BATCHES * BATCH * ctx; i++) all[i] = once[i % (BATCH * ctx)];
  return all;
}

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
  if (golden_has(g, -1, "positions")) a.positions = repeated(f, g, "positions", v[1]);
  if (golden_has(g, -1, "mixing")) {
    const int32_t *mixing = golden_ints(f, g, -1, "mixing"); /* qk_norm, the number of mixers, their letters */
    a.setup.config.qk_norm = mixing[0];
    for (int i = 0; i < mixing[1]; i++) a.setup.config.mixers[i] = (char)mixing[2 + i];
  }
  if (golden_has(g, -1, "rotary")) a.setup.config.rotary_dims = golden_ints(f, g, -1, "rotary")[0];
  if (!golden_has(g, -1, "encoder")) return a;
  const int32_t *encoder = golden_ints(f, g, -1, "encoder");
  a.setup.config.encoder_layers = encoder[0];
  a.setup.config.source_vocab = encoder[1];
  a.source = golden_ints(f, g, -1, "source");
  a.ranges = (TokenBatch){.source_positions = repeated(f, g, "source_positions", v[1]),
                          .source_begin = repeated(f, g, "source_begin", v[1]),
                          .source_end = repeated(f, g, "source_end", v[1]),
                          .cross_begin = repeated(f, g, "cross_begin", v[1]),
                          .cross_end = repeated(f, g, "cross_end", v[1])};
  return a;
}

/* What step `step` reads. */
static TokenBatch step_batch(const Architecture *a, int step) {
  int at = step * MICRO_BATCHES * BATCH * a->setup.config.ctx;
  TokenBatch batch = a->ranges;
  batch.tokens = a->setup.tokens + at;
  batch.targets = a->setup.targets + at;
  batch.positions = a->positions;
  if (a->source) batch.source_tokens = a->source + at;
  return batch;
}

/* In bf16 the rounding of a whole model adds up. */
static double tolerance(const Fixture *f, double wanted) { return f->dtype == DTYPE_BF16 ? 6e-2 : wanted; }

/* What rounding moves across 0 passes ReLU or does not: of small models' gradients that is a tenth. A convolution
 * multiplies what was rounded, and a norm of heads divides by it: PyTorch, rounding in the same places, is 0.12 off
 * in a gradient of "lfm2_packed", 0.09 in one of "nope". */
static double gradient_tolerance(const Fixture *f, const Model *m) {
  const ModelConfig *c = model_config(m);
  if (f->dtype != DTYPE_BF16) return 1e-4;
  return c->activation == ACTIVATION_RELU                         ? 0.3
         : c->qk_norm || model_count_mixers(c, MIXER_CONVOLUTION) ? 0.2
                                                                  : tolerance(f, 1e-4);
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
  TokenBatch batch = step_batch(&a, 0);
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
  for (int t = 0; t < STEPS; t++) {
    StepReport report;
    Error error = {0};
    const TokenBatch batch = step_batch(&a, t);
    model_train_step(m, &batch);
    assert_int_equal(model_reports(m, &report, 1, true, &error), 1);
    double loss = (double)report.state.loss;
    expect_close(f, name, &loss, &losses[t], 1, tolerance(f, 1e-5));
  }
  expect_arena(f, name, m, arena_read(f, m, ARENA_MASTER), a.setup.golden, "final");
  model_close(m);
}

static void test_ten_steps(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) ten_steps_case(*state, architectures[i]);
}

enum { ROWS = 3, PROMPT = 3 };
static const int source_counts[ROWS] = {1, 7, 12}; /* of the rows of a decoder above an encoder */

/* Sources of `rows` rows from row `first` on into a decoder. */
static bool give_sources(const Architecture *a, Decoder *d, int first, int rows, Error *error) {
  bool ok = true;
  for (int r = 0; a->source && ok && r < rows; r++)
    ok = decoder_source(d, r, a->source + (first + r) * a->setup.config.ctx, source_counts[first + r], error);
  return ok;
}

/* All rows from the same prompt, each to draw the likeliest. */
static bool start_rows(Decoder *d, const int32_t *prompt, int count, int rows, Error *error) {
  const Sampling greedy = {.repeat_penalty = 1, .top_p = 1};
  bool ok = true;
  for (int r = 0; ok && r < rows; r++) {
    ok = decoder_prompt(d, r, prompt, count, error);
    decoder_sampling(d, r, &greedy, (uint32_t)r);
  }
  return ok;
}

/* The whole pass over the rows' tokens [ROWS][ctx], each with its source; what stands after that is hidden. */
static void evaluate_rows(Fixture *f, const Architecture *a, Model *m, const int32_t *tokens, float *logits) {
  const int ctx = a->setup.config.ctx, all = ROWS * ctx;
  int32_t *ranges[6];
  double sum = 0;
  int64_t count = 0;
  Error error = {0};
  for (int i = 0; i < 6; i++) ranges[i] = host_memory(f, (size_t)all * sizeof(int32_t));
  for (int i = 0; i < all; i++) {
    const int at = i % ctx, length = source_counts[i / ctx];
    ranges[0][i] = ranges[1][i] = at;    /* positions of both sides */
    ranges[2][i] = at < length ? 0 : at; /* padding sees itself */
    ranges[3][i] = at < length ? length : at + 1;
    ranges[5][i] = length;
  }
  const TokenBatch batch = {tokens,    a->setup.targets, ranges[0], a->source, ranges[1],
                            ranges[2], ranges[3],        ranges[4], ranges[5]};
  need(model_evaluate(m, &batch, ROWS, ctx, &sum, &count, logits, &error), &error);
}

/* Token by token from the caches, the likeliest each time: the logits of the whole pass at each position, and each row
 * bit for bit as if it were alone. */
static void decode_case(Fixture *f, const char *name, int prompt) {
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = &a.setup.config;
  const size_t vocab = (size_t)c->vocab, row = (size_t)c->ctx * vocab;
  float *want = host_memory(f, ROWS * row * sizeof *want), *got = host_memory(f, ROWS * row * sizeof *got);
  float *step = host_memory(f, ROWS * vocab * sizeof *step), *alone = host_memory(f, vocab * sizeof *alone);
  int32_t *tokens = host_memory(f, (size_t)(ROWS * c->ctx) * sizeof *tokens), next[ROWS];
  Decoder *d = NULL, *single = NULL;
  Error error = {0};
  for (int r = 0; r < ROWS; r++) memcpy(tokens + r * c->ctx, a.setup.tokens, (size_t)prompt * sizeof *tokens);
  need(decoder_open(&d, m, ROWS, &error) && decoder_open(&single, m, 1, &error), &error);
  need(give_sources(&a, d, 0, ROWS, &error) && start_rows(d, tokens, prompt, ROWS, &error), &error);
  need(give_sources(&a, single, 1, 1, &error) && start_rows(single, tokens, prompt, 1, &error), &error);
  for (int t = prompt; t < c->ctx; t++) {
    need(decoder_next(single, next, &error) && decoder_logits(single, alone, &error), &error);
    need(decoder_next(d, next, &error) && decoder_logits(d, step, &error), &error);
    assert_memory_equal(alone, step + vocab, vocab * sizeof *alone);
    for (int r = 0; r < ROWS; r++) {
      tokens[r * c->ctx + t] = next[r];
      memcpy(got + (size_t)r * row + (size_t)t * vocab, step + (size_t)r * vocab, vocab * sizeof *got);
    }
  }
  evaluate_rows(f, &a, m, tokens, want);
  for (int r = 0; r < ROWS; r++)
    for (size_t at = (size_t)r * row + (size_t)prompt * vocab; at < (size_t)(r + 1) * row; at += vocab)
      expect_close(f, name, widen(f, got + at, vocab), widen(f, want + at, vocab), vocab, tolerance(f, 1e-5));
  decoder_close(single);
  decoder_close(d);
  model_close(m);
}

static void test_decoding(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++)
    for (int prompt = 1; prompt <= PROMPT; prompt++) decode_case(*state, architectures[i], prompt);
}

/* Row `row` has the logits `want` [count][vocab], bit for bit, as all rows draw `count` tokens. */
static void expect_logits(Fixture *f, const char *what, Decoder *d, int row, int rows, const float *want, int count) {
  const size_t vocab = (size_t)model_config(decoder_model(d))->vocab;
  float *logits = host_memory(f, (size_t)rows * vocab * sizeof *logits);
  int32_t next[ROWS];
  Error error = {0};
  for (int t = 0; t < count; t++) {
    need(decoder_logits(d, logits, &error), &error);
    if (memcmp(logits + (size_t)row * vocab, want + (size_t)t * vocab, vocab * sizeof *want) != 0)
      fail_msg("%s: row %d, token %d", what, row, t);
    need(decoder_next(d, next, &error), &error);
  }
}

/* A row's text is the same, bit for bit, when another text had the row before, when it is copied from another row, and
 * when it begins as another row did, and when tokens are given instead of drawn; and what other rows begin changes nothing in a row whose logits were read. */
static void rows_case(Fixture *f, const char *name, int prompt) {
  enum { COUNT = 4, OTHER = 5, TWO = 2 };
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const int32_t *tokens = a.setup.tokens, *other = tokens + a.setup.config.ctx;
  const size_t vocab = (size_t)a.setup.config.vocab;
  float *want = host_memory(f, COUNT * vocab * sizeof *want), *read = host_memory(f, TWO * vocab * sizeof *read);
  int32_t next[TWO], drawn[COUNT];
  Decoder *d = NULL, *fresh = NULL;
  Error error = {0};
  need(decoder_open(&fresh, m, 1, &error) && give_sources(&a, fresh, 0, 1, &error), &error);
  need(start_rows(fresh, tokens, prompt, 1, &error), &error);
  for (int t = 0; t < COUNT; t++)
    need(decoder_logits(fresh, want + (size_t)t * vocab, &error) && decoder_next(fresh, &drawn[t], &error), &error);
  need(decoder_prompt(fresh, 0, tokens, prompt, &error) && decoder_next(fresh, next, &error), &error);
  need(decoder_extend(fresh, drawn + 1, 2, &error), &error);
  expect_logits(f, "extended", fresh, 0, 1, want + 3 * vocab, 1);
  need(decoder_open(&d, m, TWO, &error) && give_sources(&a, d, 0, TWO, &error), &error);
  need(start_rows(d, other, OTHER, TWO, &error), &error);
  for (int t = 0; t < 3; t++) need(decoder_next(d, next, &error), &error);
  need(decoder_prompt(d, 0, tokens, prompt, &error), &error);
  expect_logits(f, name, d, 0, TWO, want, 2);
  need(decoder_logits(d, read, &error), &error);
  decoder_copy(d, 1, 0);
  expect_logits(f, name, d, 0, TWO, want + 2 * vocab, 1);
  expect_logits(f, name, d, 1, TWO, want + 3 * vocab, 1);
  decoder_begin_as(d, 1, 0);
  expect_logits(f, name, d, 1, TWO, want, 1);
  decoder_begin_as(d, 0, 0);
  expect_logits(f, name, d, 1, TWO, want + vocab, 1);
  expect_logits(f, name, d, 0, TWO, want + vocab, COUNT - 1);
  decoder_close(fresh);
  decoder_close(d);
  model_close(m);
}

static void test_rows(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++)
    for (int prompt = 1; prompt <= PROMPT; prompt++) rows_case(*state, architectures[i], prompt);
}

/* The first `layers` layers of m's decoder, with the same head. */
static Model *first_layers(Fixture *f, Model *m, int layers) {
  ModelConfig config = *model_config(m);
  Model *out = NULL;
  Error error = {0};
  config.layers = layers;
  need(model_open(&out, f->backend, f->context, &config, &error), &error);
  const ParameterTable *from = model_table(m), *to = model_table(out);
  float *all = arena_read(f, m, ARENA_MASTER), *some = arena_new(f, out);
  int copied = 0;
  for (int i = 0; i < from->count && copied < to->count; i++) { /* both in the same order */
    if (strcmp(from->tensors[i].name, to->tensors[copied].name) != 0) continue;
    const ParameterTensor *t = &to->tensors[copied++];
    memcpy(some + t->offset, all + from->tensors[i].offset, tensor_count(t) * sizeof *some);
  }
  assert_int_equal(copied, to->count);
  model_upload(out, ARENA_MASTER, some);
  return out;
}

/* The norm of x, [dim]; x itself where there is no norm. */
static double *norm_of(Fixture *f, Model *m, NormParameters norm, double *x) {
  const ModelConfig *c = model_config(m);
  const float *arena = arena_read(f, m, ARENA_MASTER);
  const int dim = c->dim;
  double *out = host_values(f, (size_t)dim), mean = 0, square = 0;
  if (!norm.weight.matrix.rows) return x;
  for (int i = 0; i < dim; i++) mean += c->norm == NORM_LAYER ? x[i] / dim : 0;
  for (int i = 0; i < dim; i++) square += (x[i] - mean) * (x[i] - mean) / dim;
  for (int i = 0; i < dim; i++) {
    out[i] = (x[i] - mean) / sqrt(square + (double)c->norm_eps) * (double)arena[norm.weight.matrix.offset + (size_t)i];
    if (norm.bias.matrix.rows) out[i] += (double)arena[norm.bias.matrix.offset + (size_t)i];
  }
  return out;
}

/* x W^T + b: [rows] */
static double *product_of(Fixture *f, Model *m, Linear w, int rows, const double *x) {
  const float *arena = arena_read(f, m, ARENA_MASTER);
  double *out = host_values(f, (size_t)rows);
  for (int k = 0; k < rows; k++) {
    out[k] = w.bias.rows ? (double)arena[w.bias.offset + (size_t)k] : 0;
    for (int i = 0; i < w.weight.cols; i++)
      out[k] += x[i] * (double)arena[w.weight.offset + (size_t)(k * w.weight.cols + i)];
  }
  return out;
}

/* What the head makes of the embedding of `token` at `position`: [vocab]. */
static double *head_of_embedding(Fixture *f, Model *m, int token, int position) {
  const ModelConfig *c = model_config(m);
  const ParameterTable *t = model_table(m);
  const float *arena = arena_read(f, m, ARENA_MASTER);
  const Stack *s = &t->decoder;
  const int dim = c->dim;
  double *x = host_values(f, (size_t)dim);
  for (int i = 0; i < dim; i++) {
    x[i] = (double)arena[s->embedding.offset + (size_t)(token * dim + i)];
    if (s->position_embedding.rows) x[i] += (double)arena[s->position_embedding.offset + (size_t)(position * dim + i)];
  }
  return product_of(f, m, t->head, c->vocab, norm_of(f, m, s->norm, x));
}

/* Below the first layer the head reads the embedding; after each one logits are those of a model that ends there, and
 * after the last one those that tokens are drawn from, bit for bit. */
static void lens_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = &a.setup.config;
  const int32_t *tokens = a.setup.tokens;
  const size_t vocab = (size_t)c->vocab, layer = ROWS * vocab;
  float *lens = host_memory(f, (size_t)(c->layers + 1) * layer * sizeof *lens);
  float *want = host_memory(f, layer * sizeof *want);
  int32_t next[2][ROWS];
  Error error = {0};
  for (int layers = c->layers; layers > 0; layers--) {
    Model *shorter = layers < c->layers ? first_layers(f, m, layers) : m;
    Decoder *d = NULL;
    need(decoder_open(&d, shorter, ROWS, &error) && give_sources(&a, d, 0, ROWS, &error), &error);
    need(start_rows(d, tokens, PROMPT, ROWS, &error), &error);
    if (layers == c->layers) need(decoder_lens(d, lens, &error), &error);
    need(decoder_logits(d, want, &error), &error);
    if (memcmp(want, lens + (size_t)layers * layer, layer * sizeof *want) != 0) fail_msg("%s: layer %d", name, layers);
    if (layers == c->layers) { /* looking changes nothing of what follows */
      need(decoder_next(d, next[0], &error), &error);
      need(start_rows(d, tokens, PROMPT, ROWS, &error) && decoder_next(d, next[1], &error), &error);
      assert_memory_equal(next[0], next[1], sizeof next[0]);
    }
    decoder_close(d);
    if (shorter != m) model_close(shorter);
  }
  const double *below = head_of_embedding(f, m, tokens[PROMPT - 1], PROMPT - 1);
  for (size_t r = 0; r < ROWS; r++)
    expect_close(f, name, widen(f, lens + r * vocab, vocab), below, vocab, tolerance(f, 1e-5));
  model_close(m);
}

static void test_lens(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) lens_case(*state, architectures[i]);
}

/* Which of the first sequence's positions change any bit of their logits when `tokens[at]` does. */
static void changed_positions(Fixture *f, Model *m, const TokenBatch *batch, int32_t *token, bool changed[]) {
  const ModelConfig *c = model_config(m);
  const size_t row = (size_t)c->vocab, all = (size_t)(BATCH * c->ctx) * row;
  float *before = host_memory(f, all * sizeof *before), *after = host_memory(f, all * sizeof *after);
  double sum = 0;
  int64_t count = 0;
  Error error = {0};
  need(model_evaluate(m, batch, BATCH, c->ctx, &sum, &count, before, &error), &error);
  const int32_t kept = *token;
  *token = (kept + 1) % c->vocab;
  need(model_evaluate(m, batch, BATCH, c->ctx, &sum, &count, after, &error), &error);
  *token = kept;
  for (int t = 0; t < c->ctx; t++)
    changed[t] = memcmp(before + (size_t)t * row, after + (size_t)t * row, row * sizeof *before) != 0;
  assert_memory_equal(before + (size_t)c->ctx * row, after + (size_t)c->ctx * row,
                      (all - (size_t)c->ctx * row) * sizeof *before);
}

/* Packed texts and pairs: the first sequence has texts at 0, 5 and 6, which answer sources at 0, 3 and 10. A token
 * of a target changes what follows in its text, one of a source what answers it, and no bit of anything else;
 * padding of a source changes nothing (the third sequence's, from 7 on). */
static void visibility_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const TokenBatch batch = step_batch(&a, 0);
  const int ctx = a.setup.config.ctx;
  bool changed[32];
  changed_positions(f, m, &batch, &a.setup.tokens[2], changed);
  for (int t = 0; t < ctx; t++) assert_int_equal(changed[t], t >= 2 && t < 5);
  if (!a.source) {
    model_close(m);
    return;
  }
  changed_positions(f, m, &batch, &a.source[4], changed);
  for (int t = 0; t < ctx; t++) assert_int_equal(changed[t], t == 5);
  changed_positions(f, m, &batch, &a.source[11], changed);
  for (int t = 0; t < ctx; t++) assert_int_equal(changed[t], t >= 6);
  changed_positions(f, m, &batch, &a.source[2 * ctx + 8], changed);
  for (int t = 0; t < ctx; t++) assert_false(changed[t]);
  model_close(m);
}

static void test_visibility(void **state) {
  visibility_case(*state, "marian");
  visibility_case(*state, "blenderbot");
  visibility_case(*state, "cross_branch");
  visibility_case(*state, "cross_rope");
  visibility_case(*state, "cross_convolution");
  visibility_case(*state, "lfm2_packed");
  visibility_case(*state, "convolutions");
}

/* The maps of one pass: those that have to come, in order, and what came. */
typedef struct Seen {
  struct {
    AttentionKind kind;
    int layer;
  } expected[16];
  int count, maps, heads, source, text;
  bool even; /* the first map of the decoder's: all keys that a query sees weigh the same */
  bool compared;
} Seen;

static void expect_map(Seen *seen, AttentionKind kind, int layer) {
  seen->expected[seen->count].kind = kind;
  seen->expected[seen->count++].layer = layer;
}

/* What a query sees adds up to 1, and the decoder's own map ends at the diagonal. */
static bool look_at_map(void *context, AttentionKind kind, int layer, const float *weights, int queries, int keys,
                        Error *error) {
  Seen *seen = context;
  (void)error;
  assert_true(seen->maps < seen->count);
  assert_int_equal(kind, seen->expected[seen->maps].kind);
  assert_int_equal(layer, seen->expected[seen->maps++].layer);
  if (kind == ATTENTION_SELF && !seen->compared) {
    seen->even = seen->compared = true;
    for (int j = 1; j < keys; j++)
      seen->even = seen->even && fabsf(weights[(queries - 1) * keys + j] - weights[(queries - 1) * keys]) < 1e-6f;
  }
  assert_int_equal(queries, kind == ATTENTION_ENCODER ? seen->source : seen->text);
  assert_int_equal(keys, kind == ATTENTION_SELF ? seen->text : seen->source);
  for (int row = 0; row < seen->heads * queries; row++, weights += keys) {
    double sum = 0;
    for (int j = 0; j < keys; j++) sum += (double)weights[j];
    assert_true(fabs(sum - 1) < 1e-5);
    for (int j = row % queries + 1; kind == ATTENTION_SELF && j < keys; j++) assert_true(weights[j] == 0);
  }
  return true;
}

static void maps_case(Fixture *f, const char *name, int source, int text) {
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = &a.setup.config;
  Seen seen = {.heads = c->heads, .source = source, .text = text};
  Error error = {0};
  for (int i = 0; i < c->encoder_layers; i++) expect_map(&seen, ATTENTION_ENCODER, i);
  for (int i = 0; i < c->layers; i++) {
    if (model_mixer(c, i) != MIXER_CONVOLUTION) expect_map(&seen, ATTENTION_SELF, i);
    if (a.source) expect_map(&seen, ATTENTION_CROSS, i);
  }
  for (int i = 1; i < text; i++) a.setup.tokens[i] = a.setup.tokens[0]; /* which only their positions tell apart */
  need(model_attention(m, a.source, source, a.setup.tokens, text, look_at_map, &seen, &error), &error);
  assert_int_equal(seen.maps, seen.count);
  assert_true(!seen.even || text == 1);
  model_close(m);
}

/* A decoder above an encoder refuses a prompt without a source, and sources that are too short or too long. */
static void expect_source(const Architecture *a, Decoder *d) {
  Error error = {0};
  assert_false(decoder_prompt(d, 0, a->setup.tokens, PROMPT, &error));
  assert_int_equal(error.code, EXIT_INTERNAL);
  error = (Error){0};
  assert_false(decoder_source(d, 0, a->source, 0, &error));
  assert_int_equal(error.code, EXIT_INPUT);
  error = (Error){0};
  assert_false(decoder_source(d, 0, a->source, a->setup.config.ctx + 1, &error));
}

/* A decoder whose context is full goes on from its end, with the row's own source. */
static void slide_case(Fixture *f, const char *name) {
  enum { KEPT = 4, LAST = 1 };
  Architecture a = architecture_read(f, name);
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = &a.setup.config;
  const size_t vocab = (size_t)c->vocab;
  float *got = host_memory(f, ROWS * vocab * sizeof *got), *want = host_memory(f, vocab * sizeof *want);
  int32_t next[ROWS], tail[KEPT];
  Decoder *d = NULL, *fresh = NULL;
  Error error = {0};
  need(decoder_open(&d, m, ROWS, &error) && decoder_open(&fresh, m, 1, &error), &error);
  if (a.source) expect_source(&a, d);
  need(give_sources(&a, d, 0, ROWS, &error) && start_rows(d, a.setup.tokens, PROMPT, ROWS, &error), &error);
  for (int t = PROMPT; t < c->ctx; t++) {
    need(decoder_next(d, next, &error), &error);
    if (t >= c->ctx - KEPT) tail[t - (c->ctx - KEPT)] = next[LAST];
  }
  for (int r = 0; r < ROWS; r++) need(decoder_slide(d, r, KEPT, &error), &error);
  need(decoder_logits(d, got, &error), &error);
  need(give_sources(&a, fresh, LAST, 1, &error) && decoder_prompt(fresh, 0, tail, KEPT, &error), &error);
  need(decoder_logits(fresh, want, &error), &error);
  assert_memory_equal(got + LAST * vocab, want, vocab * sizeof *want);
  decoder_close(fresh);
  decoder_close(d);
  model_close(m);
}

static void test_slide(void **state) {
  slide_case(*state, "marian");
  slide_case(*state, "cross_rope");
  slide_case(*state, "cross_convolution");
  slide_case(*state, "lfm2");
  slide_case(*state, "convolutions");
  slide_case(*state, "nope");
}

static void test_attention_maps(void **state) {
  maps_case(*state, "gpt2", 0, 7);
  maps_case(*state, "starcoder2", 0, 1);
  maps_case(*state, "marian", 3, 8);
  maps_case(*state, "cross_rope", 12, 5);
  maps_case(*state, "cross_convolution", 12, 5);
  maps_case(*state, "lfm2", 0, 7);
  maps_case(*state, "nope", 0, 7);
  maps_case(*state, "convolutions", 0, 7);
}

/* What a model computed for the last token of a text. */
typedef struct Hidden {
  Fixture *f;
  const HiddenState *next; /* that has to come */
  double *states[HIDDEN_HEAD + 1][8];
} Hidden;

static bool keep_state(void *context, const HiddenState *state, float *rows, int count, Error *error) {
  Hidden *h = context;
  const size_t width = (size_t)state->width;
  (void)error;
  assert_memory_equal(state, h->next++, sizeof *state);
  h->states[state->kind][state->layer] = widen(h->f, rows + (size_t)(count - 1) * width, width);
  return true;
}

/* The residual stream after a branch. */
static double *after_branch(Fixture *f, Model *m, const Sublayer *w, const double *x, const double *branch) {
  const ModelConfig *c = model_config(m);
  double *sum = host_values(f, (size_t)c->dim), *added = host_values(f, (size_t)c->dim);
  memcpy(added, branch, (size_t)c->dim * sizeof *added);
  if (c->norm_place == NORM_ON_BRANCH) added = norm_of(f, m, w->norm, added);
  for (int i = 0; i < c->dim; i++) sum[i] = x[i] + added[i];
  return c->norm_place == NORM_AFTER ? norm_of(f, m, w->norm, sum) : sum;
}

/* The matrices and norms of a layer lead from each hidden state to the next ones. Attention and the convolution are
 * those that, added to the residual stream, lead to the logits. */
static void hidden_layer(Fixture *f, Model *m, const char *name, const Hidden *h, const Sublayer *mixer) {
  const ModelConfig *c = model_config(m);
  const Sublayer *mlp = mixer + 1;
  const int layer = mixer->layer, heads = c->heads * c->head_dim, keys = c->kv_heads * c->head_dim;
  const bool before = c->norm_place == NORM_BEFORE || c->norm_place == NORM_PARALLEL;
  const bool self = mixer->kind == SUBLAYER_SELF;
  double *x = h->states[HIDDEN_RESIDUAL][layer], *read = before ? norm_of(f, m, mixer->norm, x) : x;
  const double near = tolerance(f, 1e-5);
  if (self) {
    const double *in = product_of(f, m, mixer->in, heads + 2 * keys, read);
    expect_close(f, name, h->states[HIDDEN_QUERIES][layer], in, (size_t)heads, near);
    expect_close(f, name, h->states[HIDDEN_KEYS][layer], in + heads, (size_t)keys, near);
    expect_close(f, name, h->states[HIDDEN_VALUES][layer], in + heads + keys, (size_t)keys, near);
  }
  double *out = product_of(f, m, mlp->out, c->dim, h->states[HIDDEN_MLP_INNER][layer]);
  expect_close(f, name, h->states[HIDDEN_MLP][layer], out, (size_t)c->dim, near);
  x = after_branch(f, m, mixer, x, h->states[self ? HIDDEN_ATTENTION : HIDDEN_CONVOLUTION][layer]);
  x = after_branch(f, m, mlp, x, h->states[HIDDEN_MLP][layer]);
  expect_close(f, name, h->states[HIDDEN_RESIDUAL][layer + 1], x, (size_t)c->dim, near);
}

static void hidden_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  if (a.source) return;
  Model *m = model_start(f, &a.setup);
  const ModelConfig *c = model_config(m);
  const Stack *stack = &model_table(m)->decoder;
  const int count = c->ctx - 1, states = model_hidden_states(m, NULL);
  HiddenState *expected = host_memory(f, (size_t)states * sizeof *expected);
  Hidden h = {.f = f, .next = expected};
  const TokenBatch batch = {.tokens = a.setup.tokens, .targets = a.setup.targets};
  float *logits = host_memory(f, (size_t)(count * c->vocab) * sizeof *logits);
  double sum = 0;
  int64_t targets = 0;
  Error error = {0};
  assert_int_equal(model_hidden_states(m, expected), states);
  need(model_read_hidden_states(m, a.setup.tokens, count, keep_state, &h, &error), &error);
  assert_ptr_equal(h.next, expected + states);
  for (int i = 0; i < stack->count; i += 2) hidden_layer(f, m, name, &h, &stack->sublayers[i]);
  double *head = norm_of(f, m, stack->norm, h.states[HIDDEN_RESIDUAL][c->layers]);
  expect_close(f, name, h.states[HIDDEN_HEAD][c->layers], head, (size_t)c->dim, tolerance(f, 1e-5));
  need(model_evaluate(m, &batch, 1, count, &sum, &targets, logits, &error), &error);
  const double *want = widen(f, logits + (size_t)((count - 1) * c->vocab), (size_t)c->vocab);
  const double *got = product_of(f, m, model_table(m)->head, c->vocab, h.states[HIDDEN_HEAD][c->layers]);
  expect_close(f, name, got, want, (size_t)c->vocab, tolerance(f, 1e-5));
  model_close(m);
}

static void test_hidden_states(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) hidden_case(*state, architectures[i]);
}

/* Every place of a norm with dropout. ReLU's corners are no slopes. */
static void dropout_case(Fixture *f, const char *name) {
  Architecture a = architecture_read(f, name);
  float *grad;
  a.setup.config.activation = ACTIVATION_GELU;
  a.setup.train.micro_batches = 1;
  a.setup.train.dropout = (DropoutRates){0.3f, 0.3f, 0.3f, 0.3f};
  Model *m = model_start(f, &a.setup);
  const TokenBatch batch = step_batch(&a, 0);
  gradients(f, m, &batch, &grad);
  expect_slopes(f, m, &batch, grad);
  model_close(m);
}

static void test_dropout(void **state) {
  Fixture *f = *state;
  if (f->dtype != DTYPE_F32) return;
  dropout_case(f, "opt_before");
  dropout_case(f, "opt_after");
  dropout_case(f, "branch");
  dropout_case(f, "marian");
  dropout_case(f, "blenderbot");
  dropout_case(f, "cross_branch");
  dropout_case(f, "nope");
  dropout_case(f, "convolutions");
  dropout_case(f, "convolution_after");
  dropout_case(f, "parallel");
  dropout_case(f, "partial");
  dropout_case(f, "cross_convolution");
}

typedef enum Kept { KEPT_NOTHING, KEPT_SELF, KEPT_CROSS, KEPT_MLP, KEPT_MLP_BIAS } Kept;

/* The golden's weights, but branches that are not kept give zeros. */
static float *weights_with(Fixture *f, Model *m, Kept kept) {
  static const char *const modules[] = {[KEPT_NOTHING] = "none",
                                        [KEPT_SELF] = "self_attn.",
                                        [KEPT_CROSS] = "cross_attn.",
                                        [KEPT_MLP] = "mlp.down_proj.w",
                                        [KEPT_MLP_BIAS] = "mlp.down_proj.b"};
  float *arena = arena_read(f, m, ARENA_MASTER);
  const ParameterTable *table = model_table(m);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    const bool of_branch = strstr(t->name, "o_proj") || strstr(t->name, "down_proj");
    if (of_branch && !strstr(t->name, modules[kept])) memset(arena + t->offset, 0, tensor_count(t) * sizeof *arena);
  }
  return arena;
}

/* Each rate is that of its place: where a place has nothing to drop, its rate changes nothing. */
static void test_dropout_places(void **state) {
  Fixture *f = *state;
  static const struct {
    Kept kept;
    bool embedding, attention, branch, hidden; /* that the rate is felt */
  } cases[] = {{KEPT_NOTHING, true, false, false, false},
               {KEPT_SELF, true, true, true, false},
               {KEPT_CROSS, true, true, true, false},
               {KEPT_MLP, true, false, true, true},
               {KEPT_MLP_BIAS, true, false, true, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bool felt[] = {cases[i].embedding, cases[i].attention, cases[i].branch, cases[i].hidden};
    double losses[5];
    for (int place = -1; place < 4; place++) {
      Architecture a = architecture_read(f, "marian");
      float rates[4] = {0}, *ignored;
      const TokenBatch batch = step_batch(&a, 0);
      if (place >= 0) rates[place] = 0.5f;
      a.setup.train.micro_batches = 1;
      a.setup.train.dropout = (DropoutRates){rates[0], rates[1], rates[2], rates[3]};
      Model *m = model_start(f, &a.setup);
      model_upload(m, ARENA_MASTER, weights_with(f, m, cases[i].kept));
      losses[place + 1] = gradients(f, m, &batch, &ignored);
      model_close(m);
      if (place >= 0 && (losses[place + 1] != losses[0]) != felt[place]) fail_msg("case %zu, place %d", i, place);
    }
  }
}

/* Of every model: an encoder, heads of their own, biases, tables of positions. */
static void test_optimizers(void **state) {
  for (int i = 0; i < ARCHITECTURES; i++) {
    const ModelConfig config = architecture_read(*state, architectures[i]).setup.config;
    ParameterTable table;
    Error error = {0};
    need(parameter_table_make(&table, &config, &error), &error);
    expect_optimizers(&table, &config);
    parameter_table_free(&table);
  }
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
  const float *places = arena + table.decoder.position_embedding.offset;
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
  assert_int_equal(model_parameters_without_embeddings(&decoder), 70156112 - 50000 * 512); /* the head is its own */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),      cmocka_unit_test(test_ten_steps),      cmocka_unit_test(test_decoding),
      cmocka_unit_test(test_rows),           cmocka_unit_test(test_dropout),        cmocka_unit_test(test_sinusoids),
      cmocka_unit_test(test_visibility),     cmocka_unit_test(test_attention_maps), cmocka_unit_test(test_slide),
      cmocka_unit_test(test_dropout_places), cmocka_unit_test(test_lens),           cmocka_unit_test(test_parameters),
      cmocka_unit_test(test_optimizers),     cmocka_unit_test(test_hidden_states)};
  return run_on_backends("architectures", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
