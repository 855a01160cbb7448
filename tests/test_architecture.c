/* train/architecture: what --arch names, what single options change, and what does not go together. */
#include "train/architecture.h"
#include "train/auto_settings.h"
#include "model/parameters.h"

#include <math.h>
#include <string.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What ./train has when nothing is given, for a model of 3 layers x 128. */
static TrainSettings defaults(ArchitectureKind arch) {
  TrainSettings s;
  Options options;
  memset(&s, 0, sizeof s);
  train_options(&options, &s);
  options_free(&options);
  s.arch = (int)arch, s.model.dim = 128, s.model.layers = 3;
  return s;
}

static ModelConfig made(TrainSettings s, bool pairs) {
  Error error = {0};
  architecture_fill(&s, pairs);
  if (!architecture_check(&s, false, &error)) fail_msg("%s", error.text);
  return s.model;
}

static void test_presets(void **state) {
  (void)state;
  const struct {
    ArchitectureKind arch;
    ModelConfig want;
    const char *words;
  } cases[] = {{ARCHITECTURE_LLAMA,
                {.tie = true, .gated = true},
                "RMSNorm before each sublayer, SwiGLU, rotary positions, no biases"},
               {ARCHITECTURE_QWEN3,
                {.tie = true, .gated = true, .qk_norm = true, .mixers = "AAA"},
                "RMSNorm before each sublayer, norms of queries and keys, SwiGLU, rotary positions, no biases"},
               {ARCHITECTURE_LFM2,
                {.tie = true, .gated = true, .qk_norm = true, .mixers = "CCA"},
                "RMSNorm before each sublayer, convolutions in 2 of 3 layers, norms of queries and keys, SwiGLU, "
                "rotary positions, no biases"},
               {ARCHITECTURE_GPT2,
                {.tie = true,
                 .norm = NORM_LAYER,
                 .activation = ACTIVATION_GELU_TANH,
                 .bias = true,
                 .qkv_bias = true,
                 .positions = POSITIONS_LEARNED},
                "LayerNorm before each sublayer, GELU (tanh), learned positions, biases"},
               {ARCHITECTURE_OPT,
                {.tie = true,
                 .norm = NORM_LAYER,
                 .activation = ACTIVATION_RELU,
                 .bias = true,
                 .qkv_bias = true,
                 .positions = POSITIONS_LEARNED},
                "LayerNorm before each sublayer, ReLU, learned positions, biases"},
               {ARCHITECTURE_ORIGINAL,
                {.norm = NORM_LAYER,
                 .norm_place = NORM_AFTER,
                 .activation = ACTIVATION_RELU,
                 .bias = true,
                 .qkv_bias = true,
                 .positions = POSITIONS_SINUSOIDAL},
                "LayerNorm after each sublayer, ReLU, sinusoidal positions, biases"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig got = made(defaults(cases[i].arch), false), want = cases[i].want;
    const bool rope = want.positions == POSITIONS_ROPE;
    assert_true(got.tie == want.tie && got.norm == want.norm && got.norm_place == want.norm_place);
    assert_true(got.activation == want.activation && got.gated == want.gated && got.bias == want.bias);
    assert_true(got.qkv_bias == want.qkv_bias && !got.head_bias && got.positions == want.positions);
    assert_true(got.qk_norm == want.qk_norm && model_same_mixers(got.mixers, want.mixers, 3));
    assert_true(got.norm_eps == 1e-5f && (rope ? got.rope_base == 10000 : isnan(got.rope_base)));
    assert_string_equal(architecture_words(&got).text, cases[i].words);
  }
}

static void test_components(void **state) {
  (void)state;
  TrainSettings s = defaults(ARCHITECTURE_GPT2);
  s.model.norm = NORM_RMS, s.model.norm_place = NORM_ON_BRANCH, s.model.activation = ACTIVATION_SILU,
  s.model.gated = true, s.model.bias = false;
  s.model.head_bias = true, s.model.positions = POSITIONS_ROPE, s.model.rope_base = 500, s.model.norm_eps = 1e-6f,
  s.model.tie = false;
  ModelConfig m = made(s, false);
  assert_true(m.norm == NORM_RMS && m.norm_place == NORM_ON_BRANCH && m.activation == ACTIVATION_SILU && m.gated);
  assert_true(!m.bias && !m.qkv_bias && m.head_bias && m.positions == POSITIONS_ROPE && !m.tie);
  assert_true(m.rope_base == 500 && m.norm_eps == 1e-6f);
  assert_string_equal(architecture_words(&m).text,
                      "RMSNorm on each branch, SwiGLU, rotary positions, a bias of the head");
  s = defaults(ARCHITECTURE_LLAMA);
  s.model.bias = true, s.model.qkv_bias = false, s.model.positions = POSITIONS_SINUSOIDAL;
  m = made(s, false);
  assert_true(m.bias && !m.qkv_bias && !m.tie);
  s = defaults(ARCHITECTURE_LLAMA);
  strcpy(s.model.mixers, "CNA");
  m = made(s, false);
  assert_string_equal(architecture_words(&m).text,
                      "RMSNorm before each sublayer, convolutions in 1 of 3 layers, SwiGLU, rotary positions in 1 of 3 "
                      "layers, no biases");
}

/* Widths, initial weights and encoders that follow from other settings. */
static void test_what_follows(void **state) {
  (void)state;
  TrainSettings s = defaults(ARCHITECTURE_LLAMA);
  architecture_fill(&s, true);
  assert_true(s.model.ffn == 352 && s.init_std == 0.02f && s.model.encoder_layers == 0);
  s = defaults(ARCHITECTURE_OPT);
  architecture_fill(&s, true);
  assert_true(s.model.ffn == 512 && fabs((double)s.init_std - 0.7 / sqrt(128)) < 1e-6 && s.model.encoder_layers == 0);
  s = defaults(ARCHITECTURE_ORIGINAL);
  assert_false(architecture_has_encoder(&s, false));
  assert_true(architecture_has_encoder(&s, true));
  assert_int_equal(made(s, true).encoder_layers, 3);
  s.model.encoder_layers = 0;
  assert_false(architecture_has_encoder(&s, true));
  s.model.encoder_layers = 5;
  assert_true(architecture_has_encoder(&s, false));
  assert_int_equal(made(s, true).encoder_layers, 5);
  s = defaults(ARCHITECTURE_LFM2);
  s.model.layers = 2;
  assert_string_equal(made(s, false).mixers, "CA");
  s = defaults(ARCHITECTURE_LFM2);
  s.model.layers = 1;
  assert_string_equal(made(s, false).mixers, "A");
  s = defaults(ARCHITECTURE_LLAMA);
  s.model.dim = ARCHITECTURE_TIE_DIM;
  assert_false(made(s, false).tie);
}

static void refused(TrainSettings s, const char *words) {
  Error error = {0};
  architecture_fill(&s, false);
  assert_false(architecture_check(&s, false, &error));
  assert_int_equal(error.code, EXIT_USAGE);
  if (!strstr(error.text, words)) fail_msg("%s", error.text);
}

static void test_contradictions(void **state) {
  (void)state;
  TrainSettings s = defaults(ARCHITECTURE_GPT2);
  s.model.rope_base = 500;
  refused(s, "--rope-base is for rotary positions, and these are learned");
  s = defaults(ARCHITECTURE_ORIGINAL);
  s.model.tie = true;
  refused(s, "--tie and --positions sinusoidal");
  s = defaults(ARCHITECTURE_LLAMA);
  s.init_like = INIT_TORCH, s.init_std = 0.1f;
  refused(s, "--init-std is for --init-like gpt2");
  s = defaults(ARCHITECTURE_LLAMA);
  strcpy(s.model.mixers, "CCCA");
  refused(s, "--mixer has 4 letters for 3 layers");
  s = defaults(ARCHITECTURE_GPT2);
  s.model.rotary_dims = 4;
  refused(s, "--rotary-dims is for rotary positions, and these are learned");
  s = defaults(ARCHITECTURE_LLAMA);
  s.model.heads = 4, s.model.rotary_dims = 32;
  refused(s, "--rotary-dims 32 is the whole head, as without the option; leave it out");
  s = defaults(ARCHITECTURE_LLAMA);
  s.model.norm_place = NORM_PARALLEL, s.model.encoder_layers = 2;
  refused(s, "--norm-place parallel is for a model without an encoder");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_presets), cmocka_unit_test(test_components),
                                     cmocka_unit_test(test_what_follows), cmocka_unit_test(test_contradictions)};
  return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
