/* training/architecture: what --arch names, what single options change, and what does not go together. */
#include "training/architecture.h"
#include "training/choices.h"
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
  settings_options(&options, &s);
  options_free(&options);
  s.arch = (int)arch, s.dim = 128, s.layers = 3;
  return s;
}

static ModelConfig made(TrainSettings s, bool pairs) {
  ModelConfig model = {.vocab = 100};
  Error error = {0};
  architecture_fill(&s, pairs);
  if (!architecture_check(&s, false, &error)) fail_msg("%s", error.text);
  architecture_apply(&s, &model);
  return model;
}

static void test_wholes(void **state) {
  (void)state;
  const struct {
    ArchitectureKind arch;
    ModelConfig want;
    const char *words;
  } cases[] = {{ARCHITECTURE_LLAMA,
                {.tie = true, .gated = true},
                "RMSNorm before each part, SwiGLU, rotary positions, no biases"},
               {ARCHITECTURE_GPT2,
                {.tie = true,
                 .norm = NORM_LAYER,
                 .activation = ACTIVATION_GELU_TANH,
                 .bias = true,
                 .qkv_bias = true,
                 .positions = POSITIONS_LEARNED},
                "LayerNorm before each part, GELU (tanh), learned positions, biases"},
               {ARCHITECTURE_OPT,
                {.tie = true,
                 .norm = NORM_LAYER,
                 .activation = ACTIVATION_RELU,
                 .bias = true,
                 .qkv_bias = true,
                 .positions = POSITIONS_LEARNED},
                "LayerNorm before each part, ReLU, learned positions, biases"},
               {ARCHITECTURE_ORIGINAL,
                {.norm = NORM_LAYER,
                 .norm_place = NORM_AFTER,
                 .activation = ACTIVATION_RELU,
                 .bias = true,
                 .qkv_bias = true,
                 .positions = POSITIONS_SINUSOIDAL},
                "LayerNorm after each part, ReLU, sinusoidal positions, biases"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig got = made(defaults(cases[i].arch), false), want = cases[i].want;
    want.vocab = 100, want.rope_base = 10000, want.norm_eps = 1e-5f;
    assert_memory_equal(&got, &want, sizeof got); /* both were zero before */
    assert_string_equal(architecture_words(&got).text, cases[i].words);
  }
}

static void test_parts(void **state) {
  (void)state;
  TrainSettings s = defaults(ARCHITECTURE_GPT2);
  s.norm = NORM_RMS, s.norm_place = NORM_ON_BRANCH, s.activation = ACTIVATION_SILU, s.gated = true, s.bias = false;
  s.head_bias = true, s.positions = POSITIONS_ROPE, s.rope_base = 500, s.norm_eps = 1e-6f, s.tie = false;
  ModelConfig m = made(s, false);
  assert_true(m.norm == NORM_RMS && m.norm_place == NORM_ON_BRANCH && m.activation == ACTIVATION_SILU && m.gated);
  assert_true(!m.bias && !m.qkv_bias && m.head_bias && m.positions == POSITIONS_ROPE && !m.tie);
  assert_true(m.rope_base == 500 && m.norm_eps == 1e-6f);
  assert_string_equal(architecture_words(&m).text,
                      "RMSNorm on each branch, SwiGLU, rotary positions, a bias of the head");
  s = defaults(ARCHITECTURE_LLAMA);
  s.bias = true, s.qkv_bias = false, s.positions = POSITIONS_SINUSOIDAL;
  m = made(s, false);
  assert_true(m.bias && !m.qkv_bias && !m.tie);
}

/* Widths, initial weights and encoders that follow from other settings. */
static void test_what_follows(void **state) {
  (void)state;
  TrainSettings s = defaults(ARCHITECTURE_LLAMA);
  architecture_fill(&s, true);
  assert_true(s.ffn == 352 && s.init_std == 0.02f && s.encoder_layers == 0);
  s = defaults(ARCHITECTURE_OPT);
  architecture_fill(&s, true);
  assert_true(s.ffn == 512 && fabs((double)s.init_std - 0.7 / sqrt(128)) < 1e-6 && s.encoder_layers == 0);
  s = defaults(ARCHITECTURE_ORIGINAL);
  assert_false(architecture_has_encoder(&s, false));
  assert_true(architecture_has_encoder(&s, true));
  assert_int_equal(made(s, true).encoder_layers, 3);
  s.encoder_layers = 0;
  assert_false(architecture_has_encoder(&s, true));
  s.encoder_layers = 5;
  assert_true(architecture_has_encoder(&s, false));
  assert_int_equal(made(s, true).encoder_layers, 5);
  s = defaults(ARCHITECTURE_LLAMA);
  s.dim = CHOICES_TIE_DIM;
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
  s.rope_base = 500;
  refused(s, "--rope-base is for rotary positions, and these are learned");
  s = defaults(ARCHITECTURE_ORIGINAL);
  s.tie = true;
  refused(s, "--tie and --positions sinusoidal");
  s = defaults(ARCHITECTURE_LLAMA);
  s.init_like = INIT_TORCH, s.init_std = 0.1f;
  refused(s, "--init-std is for --init-like gpt2");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_wholes), cmocka_unit_test(test_parts),
                                     cmocka_unit_test(test_what_follows), cmocka_unit_test(test_contradictions)};
  return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
