/* checkpoint: config.json, ours and that of others, also damaged and hostile. */
#include "checkpoint/checkpoint.h"
#include "tests/checkpoint_helpers.h"

static void test_config_round_trip(void **state) {
  const ModelConfig ours = {.vocab = 257,
                            .ctx = 64,
                            .layers = 4,
                            .heads = 4,
                            .kv_heads = 2,
                            .dim = 128,
                            .head_dim = 32,
                            .ffn = 352,
                            .tie = true,
                            .rope_base = 10000.0f,
                            .norm_eps = 1e-5f,
                            .gated = true};
  ModelConfig back;
  SpecialTokens special = {-2, -2};
  Error error = {0};
  expect_done(checkpoint_write_config(*state, &ours, (SpecialTokens){10, 256}, &error), &error);
  expect_done(checkpoint_read_config(*state, &back, &special, &error), &error);
  assert_int_equal(special.start, 10);
  assert_int_equal(special.end, 256);
  assert_int_equal(back.vocab, 257);
  assert_int_equal(back.ctx, 64);
  assert_int_equal(back.layers, 4);
  assert_int_equal(back.heads, 4);
  assert_int_equal(back.kv_heads, 2);
  assert_int_equal(back.dim, 128);
  assert_int_equal(back.head_dim, 32);
  assert_int_equal(back.ffn, 352);
  assert_true(back.tie && back.gated && back.rope_base == ours.rope_base && back.norm_eps == ours.norm_eps);
  size_t size;
  uint8_t *text = get(at(state, "config.json").text, &size);
  assert_non_null(strstr((char *)text, "\"rms_norm_eps\": 1e-5"));
  assert_non_null(strstr((char *)text, "\"rope_theta\": 10000.0"));
  assert_non_null(strstr((char *)text, "\"pad_token_id\": null"));
  assert_int_equal(text[size - 1], '\n');
  free(text);
  text = get(at(state, "generation_config.json").text, &size);
  assert_non_null(strstr((char *)text, "\"eos_token_id\": 256"));
  free(text);
  ModelConfig other = ours;
  other.norm_eps = 0x1.abcdeep-20f, other.rope_base = 1234567.9f;
  expect_done(checkpoint_write_config(*state, &other, (SpecialTokens){-1, -1}, &error), &error);
  expect_done(checkpoint_read_config(*state, &back, &special, &error), &error);
  assert_true(back.rope_base == other.rope_base && back.norm_eps == other.norm_eps);
  assert_int_equal(special.start, -1);
  assert_int_equal(special.end, -1);
  assert_int_equal(entries(*state), 2);
  expect_error(checkpoint_write_config(at(state, "no").text, &ours, (SpecialTokens){10, 256}, &error), &error,
               EXIT_OUTPUT, "create the directory");
}

static bool read_config_text(void **state, const char *text, ModelConfig *config, SpecialTokens *special,
                             Error *error) {
  *error = (Error){0};
  put(at(state, "config.json").text, text, strlen(text));
  return checkpoint_read_config(*state, config, special, error);
}

#define LLAMA "\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\""

static void test_config_foreign(void **state) {
  ModelConfig c;
  SpecialTokens special;
  Error error;
  expect_done(read_config_text(state, "{" LLAMA "}", &c, &special, &error), &error); /* the defaults of LlamaConfig */
  assert_true(c.vocab == 32000 && c.dim == 4096 && c.ffn == 11008 && c.layers == 32 && c.heads == 32 &&
              c.kv_heads == 32);
  assert_true(c.head_dim == 128 && c.ctx == 2048 && !c.tie && special.end == 2 && c.rope_base == 10000.0f &&
              c.norm_eps == 1e-6f);
  expect_done(
      read_config_text(state,
                       "{" LLAMA ",\"hidden_size\":64,\"num_attention_heads\":4,\"num_key_value_heads\":null,"
                       "\"head_dim\":null,\"rope_theta\":500000,\"rope_scaling\":null,\"eos_token_id\":[7,8],"
                       "\"hidden_act\":\"silu\",\"attention_bias\":false,\"pretraining_tp\":1,\"pad_token_id\":-1}",
                       &c, &special, &error),
      &error);
  assert_true(c.kv_heads == 4 && c.head_dim == 16 && c.rope_base == 500000.0f && special.end == 7);
  expect_done(read_config_text(state,
                               "{\"model_type\":\"llama\",\"head_dim\":24,\"rope_theta\":1.0,\"eos_token_id\":null,"
                               "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":20000.0}}",
                               &c, &special, &error),
              &error);
  assert_true(c.head_dim == 24 && c.rope_base == 20000.0f && special.end == -1);
}

static void test_config_refused(void **state) {
  static const char *const cases[][2] = {
      {"", "has 0 bytes"},
      {"{", "not valid JSON"},
      {"[]", "is not a JSON object"},
      {"{}", "neither model_type nor architectures"},
      {"{\"model_type\":\"bert\"}", "model_type is \"bert\"; supported are models whose model_type is one of llama,"},
      {"{\"model_type\":7}", "model_type is not a string"},
      {"{\"architectures\":[\"BertModel\"]}", "architectures is \"BertModel\""},
      {"{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"llama\"}",
       "architectures is \"GPT2LMHeadModel\"; of model_type \"llama\" only \"LlamaForCausalLM\" is supported"},
      {"{\"architectures\":[7]}", "architectures is not a string"},
      {"{\"architectures\":[]}", "architectures is not a list"},
      {"{" LLAMA ",\"vocab_size\":1,\"vocab_size\":2}", "not valid JSON"},
      {"{" LLAMA ",\"hidden_act\":\"mish\"}", "hidden_act is \"mish\"; supported: silu, gelu, gelu_pytorch_tanh, relu"},
      {"{" LLAMA ",\"hidden_act\":true}", "hidden_act is true"},
      {"{" LLAMA ",\"hidden_act\":[\"silu\"]}", "hidden_act is [\"silu\"]"},
      {"{" LLAMA ",\"mlp_bias\":1}", "mlp_bias is neither true nor false"},
      {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}", "rope type is \"linear\""},
      {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "rope_type is \"llama3\""},
      {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", "rope_type is \"yarn\""},
      {"{" LLAMA ",\"rope_parameters\":5}", "rope_parameters is not an object"},
      {"{" LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", "partial_rotary_factor is 0.5"},
      {"{" LLAMA ",\"quantization_config\":{}}", "quantized"},
      {"{" LLAMA ",\"vocab_size\":32000.0}", "vocab_size is not an integer"},
      {"{" LLAMA ",\"vocab_size\":\"32000\"}", "vocab_size is not an integer"},
      {"{" LLAMA ",\"vocab_size\":0}", "vocab_size is 0; it must be from 1 to"},
      {"{" LLAMA ",\"hidden_size\":-4}", "hidden_size is -4"},
      {"{" LLAMA ",\"intermediate_size\":9223372036854775807}", "intermediate_size is 9223372036854775807"},
      {"{" LLAMA ",\"num_hidden_layers\":4097}", "num_hidden_layers is 4097; it must be from 1 to 1024"},
      {"{" LLAMA ",\"num_attention_heads\":65537}", "num_attention_heads is 65537"},
      {"{" LLAMA ",\"max_position_embeddings\":4294967296}", "max_position_embeddings is 4294967296"},
      {"{" LLAMA ",\"head_dim\":0}", "head_dim is 0"},
      {"{" LLAMA ",\"num_attention_heads\":3}", "the width 4096 is not a multiple of the 3 heads"},
      {"{" LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps is 0"},
      {"{" LLAMA ",\"rms_norm_eps\":\"small\"}", "rms_norm_eps is not a number"},
      {"{" LLAMA ",\"rope_theta\":1e300}", "rope_theta is 1e+300"},
      {"{" LLAMA ",\"rope_theta\":NaN}", "not valid JSON"},
      {"{" LLAMA ",\"eos_token_id\":32000}", "eos_token_id 32000 lies outside"},
      {"{" LLAMA ",\"eos_token_id\":\"a\"}", "eos_token_id is not an integer"},
      {"{" LLAMA ",\"num_key_value_heads\":5}", "kv"}, /* model_config_check() */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ModelConfig config;
    SpecialTokens special;
    Error error;
    bool done = read_config_text(state, cases[i][0], &config, &special, &error);
    expect_error(done, &error, EXIT_CHECKPOINT, cases[i][1]);
  }
  Error error = {0};
  ModelConfig config;
  SpecialTokens special;
  expect_error(checkpoint_read_config(at(state, "no").text, &config, &special, &error), &error, EXIT_CHECKPOINT,
               "No such file");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_config_round_trip),
      TEST(test_config_foreign),
      TEST(test_config_refused),
  };
  return cmocka_run_group_tests_name("checkpoint_config", tests, NULL, NULL);
}
