/* checkpoint: config.json, ours and that of others, also damaged and hostile. */
#include "tests/model_files_helpers.h"
#include "tests/checkpoint_helpers.h"
#include "tests/class_models.h"
#include "tests/config_helpers.h"
#include "files/formats/model_files.h"

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
  SpecialTokens special = {.start = -2, .end = -2};
  Error error = {0};
  expect_done(write_config(*state, &ours, (SpecialTokens){.start = 10, .end = 256}, &error), &error);
  expect_done(read_config(*state, &back, &special, &error), &error);
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
  expect_done(write_config(*state, &other, (SpecialTokens){.start = -1, .end = -1}, &error), &error);
  expect_done(read_config(*state, &back, &special, &error), &error);
  assert_true(back.rope_base == other.rope_base && back.norm_eps == other.norm_eps);
  assert_int_equal(special.start, -1);
  assert_int_equal(special.end, -1);
  assert_int_equal(entries(*state), 2);
  expect_error(write_config(at(state, "no").text, &ours, (SpecialTokens){.start = 10, .end = 256}, &error), &error,
               EXIT_OUTPUT, "create the directory");
}

static bool read_config_text(void **state, const char *text, ModelConfig *config, SpecialTokens *special,
                             Error *error) {
  *error = (Error){0};
  put(at(state, "config.json").text, text, strlen(text));
  return read_config(*state, config, special, error);
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
      {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}", "type is \"linear\"; scaling of rotary"},
      {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\"}}", "rope_type is \"llama3\""},
      {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", "rope_type is \"yarn\""},
      {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"type\":\"default\",\"factor\":2}}",
       "rope_type is \"linear\""},
      {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":1.0,\"attention_factor\":1.2}}", "\"yarn\""},
      {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":1.5}}", "rope_type is \"llama3\""},
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
      {"{" LLAMA ",\"bos_token_id\":32000}", "bos_token_id 32000 lies outside"},
      {"{" LLAMA ",\"eos_token_id\":[1,[2]]}", "eos_token_id is not an integer"},
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
  expect_error(read_config(at(state, "no").text, &config, &special, &error), &error, EXIT_CHECKPOINT, "No such file");
}

/* A text ends at each token of both files. One outside the vocabulary never comes, and null is none. */
static void test_end_tokens(void **state) {
  static const struct {
    const char *config, *generation;
    int ends[4]; /* up to -1 */
  } rows[] = {{"", NULL, {2, -1}},
              {",\"eos_token_id\":null", NULL, {-1}},
              {",\"eos_token_id\":[]", NULL, {-1}},
              {",\"eos_token_id\":[7,9]", NULL, {7, 9, -1}},
              {",\"eos_token_id\":7", "{\"eos_token_id\":[9,7,8]}", {7, 9, 8, -1}},
              {",\"eos_token_id\":null", "{\"eos_token_id\":5}", {5, -1}},
              {",\"eos_token_id\":[-1,32000,5]", "{\"eos_token_id\":50256}", {5, -1}},
              {",\"eos_token_id\":7", "{}", {7, -1}},
              {",\"eos_token_id\":7", "{\"eos_token_id\":null}", {7, -1}}};
  const Path path = at(state, "generation_config.json");
  ModelConfig config;
  SpecialTokens tokens;
  Error error;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[200];
    snprintf(text, sizeof text, "{" LLAMA "%s}", rows[i].config);
    unlink(path.text);
    if (rows[i].generation) put(path.text, rows[i].generation, strlen(rows[i].generation));
    expect_done(read_config_text(state, text, &config, &tokens, &error), &error);
    assert_int_equal(tokens.end, rows[i].ends[0]);
    for (int k = 0; rows[i].ends[k] >= 0; k++)
      assert_int_equal(rows[i].ends[k + 1], k < tokens.others.count ? tokens.others.ids[k] : -1);
  }
  static const char *const bad[][2] = {
      {"{", "generation_config.json is not valid JSON"},
      {"{\"eos_token_id\":\"</s>\"}", "generation_config.json: eos_token_id is not an integer"},
      {"{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "eos_token_id lists more than 16 tokens"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    put(path.text, bad[i][0], strlen(bad[i][0]));
    expect_error(read_config_text(state, "{" LLAMA "}", &config, &tokens, &error), &error, EXIT_CHECKPOINT, bad[i][1]);
  }
  /* generation_config.json has all, config.json the first: not every reader takes a list there */
  const SpecialTokens written = {.start = 1, .end = 5, .others = {2, {8, 3}}};
  unlink(path.text);
  expect_done(read_config_text(state, "{" LLAMA "}", &config, &tokens, &error), &error);
  expect_done(write_config(*state, &config, written, &error), &error);
  expect_done(read_config(*state, &config, &tokens, &error), &error);
  assert_memory_equal(&tokens, &written, sizeof tokens);
  json_t *root = config_object(state);
  assert_int_equal(json_integer_value(json_object_get(root, "eos_token_id")), 5);
  json_decref(root);
}

/* ---- every class ---- */

static const SpecialTokens no_tokens = {.start = -1, .end = -1};

/* The defaults of the classes' configurations in transformers. */
static void test_defaults(void **state) {
  static const struct {
    const char *type, *more;
    int vocab, ctx, layers, heads, kv_heads, dim, head_dim, ffn;
    bool tie;
    float eps, base;
    int end;
    const char *mixers;
    bool qk_norm;
  } rows[] = {
      {"arcee", ",\"hidden_act\":\"relu\"", 32000, 4096, 32, 32, 32, 2560, 80, 18432, false, 1e-5f, 1e4f, -1, "A",
       false},
      {"smollm3", ",\"no_rope_layer_interval\":1", 128256, 32768, 36, 16, 4, 2048, 128, 11008, true, 1e-6f, 2e6f,
       128001, "A", false},
      {"smollm3", ",\"no_rope_layer_interval\":50,\"num_key_value_heads\":null", 128256, 32768, 36, 16, 16, 2048, 128,
       11008, true, 1e-6f, 2e6f, 128001, "A", false},
      {"smollm3", "", 128256, 32768, 36, 16, 4, 2048, 128, 11008, true, 1e-6f, 2e6f, 128001, "AAAN", false},
      {"qwen2", ",\"num_attention_heads\":16,\"num_key_value_heads\":null", 151936, 32768, 32, 16, 16, 4096, 256, 22016,
       false, 1e-6f, 1e4f, -1, "A", false},
      {"mistral", ",\"sliding_window\":null,\"num_key_value_heads\":null", 32000, 131072, 32, 32, 32, 4096, 128, 14336,
       false, 1e-6f, 1e4f, 2, "A", false},
      {"ernie4_5", ",\"num_key_value_heads\":null,\"head_dim\":null,\"use_bias\":null", 103424, 131072, 18, 16, 16,
       1024, 64, 3072, true, 1e-5f, 5e5f, 2, "A", false},
      {"qwen3", "", 151936, 32768, 32, 32, 32, 4096, 128, 22016, false, 1e-6f, 1e4f, -1, "A", true},
      {"lfm2", "", 65536, 128000, 32, 32, 8, 2560, 80, 8192, true, 1e-5f, 1e6f, 2, "A", true},
      {"lfm2",
       ",\"full_attn_idxs\":[2,5],\"num_hidden_layers\":6,\"block_ff_dim\":6656,\"intermediate_size\":9,"
       "\"tie_embedding\":false,\"tie_word_embeddings\":true,\"block_ffn_dim_multiplier\":1.5,"
       "\"block_multiple_of\":100",
       65536, 128000, 6, 32, 8, 2560, 80, 6700, false, 1e-5f, 1e6f, 2, "CCA", true},
      {"lfm2",
       ",\"full_attn_idxs\":[],\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"conv\"],"
       "\"block_auto_adjust_ff_dim\":false",
       65536, 128000, 2, 32, 8, 2560, 80, 12288, true, 1e-5f, 1e6f, 2, "AC", true},
      {"lfm2", ",\"block_ff_dim\":15,\"block_ffn_dim_multiplier\":1.3,\"block_multiple_of\":1", 65536, 128000, 32, 32,
       8, 2560, 80, 13, true, 1e-5f, 1e6f, 2, "A", true},
      {"starcoder2", "", 49152, 4096, 30, 24, 2, 3072, 128, 12288, true, 1e-5f, 1e4f, -1, "A", false},
      {"stablelm", ",\"partial_rotary_factor\":1.0", 50304, 4096, 32, 32, 32, 2560, 80, 6912, false, 1e-5f, 1e4f, 0,
       "A", false},
      {"gpt_neox", "", 50432, 2048, 44, 64, 64, 6144, 96, 24576, false, 1e-5f, 1e4f, 2, "A", false},
      {"gpt_neox", ",\"rotary_emb_base\":500,\"rope_parameters\":{\"rope_theta\":50}", 50432, 2048, 44, 64, 64, 6144,
       96, 24576, false, 1e-5f, 50, 2, "A", false},
      {"gpt2", "", 50257, 1024, 12, 12, 12, 768, 64, 3072, true, 1e-5f, 1e4f, 50256, "A", false},
      {"opt", "", 50272, 2048, 12, 12, 12, 768, 64, 3072, true, 1e-5f, 1e4f, 2, "A", false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ModelConfig c;
    SpecialTokens tokens;
    Error error = {0};
    char text[400];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"%s}", rows[i].type, rows[i].more);
    put(at(state, "config.json").text, text, strlen(text));
    expect_done(read_config(*state, &c, &tokens, &error), &error);
    assert_true(c.vocab == rows[i].vocab && c.ctx == rows[i].ctx && c.layers == rows[i].layers);
    assert_true(c.heads == rows[i].heads && c.kv_heads == rows[i].kv_heads && c.dim == rows[i].dim);
    assert_true(c.head_dim == rows[i].head_dim && c.ffn == rows[i].ffn && c.tie == rows[i].tie);
    assert_true(c.norm_eps == rows[i].eps && c.rope_base == rows[i].base);
    assert_int_equal(tokens.end, rows[i].end);
    assert_string_equal(c.mixers, rows[i].mixers);
    assert_int_equal(c.qk_norm, rows[i].qk_norm);
  }
}

/* A fraction of a head is read from two places; a product of them with the head size is rounded down. */
static void test_rotary(void **state) {
  static const struct {
    const char *keys;
    int rotary;
  } rows[] = {{"", 20},
              {",\"partial_rotary_factor\":1.0", 0},
              {",\"partial_rotary_factor\":0.7", 56},
              {",\"partial_rotary_factor\":0.51", 40},
              {",\"rope_parameters\":{\"partial_rotary_factor\":0.5},\"partial_rotary_factor\":1.0", 40}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ModelConfig c;
    SpecialTokens tokens;
    Error error = {0};
    char text[200];
    snprintf(text, sizeof text, "{\"model_type\":\"stablelm\"%s}", rows[i].keys);
    put(at(state, "config.json").text, text, strlen(text));
    expect_done(read_config(*state, &c, &tokens, &error), &error);
    assert_int_equal(c.rotary_dims, rows[i].rotary);
  }
}

/* Windows without effect: no layer has one, or they are at least as long as the context. (transformers: layer_types and
 * sliding_window of AutoConfig.for_model(...).) */
static void test_no_windows(void **state) {
  static const char *const cases[] = {
      "{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"max_window_layers\":32}",
      "{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"num_hidden_layers\":28}",
      "{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"sliding_window\":null}",
      "{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"sliding_window\":32768}",
      "{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":8,\"num_hidden_layers\":2,"
      "\"max_window_layers\":0,\"layer_types\":[\"full_attention\",\"full_attention\"]}",
      "{\"model_type\":\"qwen2\",\"use_sliding_window\":null,\"sliding_window\":8,\"max_window_layers\":0}",
      "{\"model_type\":\"smollm3\",\"use_sliding_window\":true}",
      "{\"model_type\":\"smollm3\",\"use_sliding_window\":true,\"sliding_window\":8,\"no_rope_layer_interval\":40}",
      "{\"model_type\":\"starcoder2\",\"sliding_window\":4096}",
      "{\"model_type\":\"mistral\",\"max_position_embeddings\":4096}",
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config;
    SpecialTokens tokens;
    Error error;
    expect_done(read_config_text(state, cases[i], &config, &tokens, &error), &error);
  }
}

/* Scalings of RoPE that change nothing within the context. (transformers: the same logits as without.) */
static void test_no_scaling(void **state) {
  static const char *const cases[] = {"null",
                                      "{}",
                                      "{\"factor\":2.0}",
                                      "{\"type\":\"default\",\"factor\":4.0}",
                                      "{\"type\":\"linear\",\"factor\":1.0}",
                                      "{\"type\":\"linear\",\"rope_type\":\"default\",\"factor\":2.0}",
                                      "{\"type\":\"dynamic\",\"factor\":4.0}",
                                      "{\"rope_type\":\"llama3\",\"factor\":1,\"low_freq_factor\":1.0}",
                                      "{\"rope_type\":\"yarn\",\"factor\":1.0,\"attention_factor\":null}"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config;
    SpecialTokens tokens;
    Error error;
    char text[200];
    snprintf(text, sizeof text, "{" LLAMA ",\"%s\":%s}", i % 2 ? "rope_parameters" : "rope_scaling", cases[i]);
    expect_done(read_config_text(state, text, &config, &tokens, &error), &error);
  }
}

/* ---- what cannot be read ---- */

static void test_classes_refused(void **state) {
  static const char *const cases[][2] = {
      {"{\"model_type\":\"arcee\"}", "hidden_act is relu2; supported: silu, gelu, gelu_pytorch_tanh, relu"},
      {"{\"model_type\":\"gpt2\",\"activation_function\":\"tanh\"}", "activation_function is \"tanh\""},
      {"{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}",
       "scale_attn_by_inverse_layer_idx is true; only false is supported"},
      {"{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}", "scale_attn_weights is false; only true"},
      {"{\"model_type\":\"gpt2\",\"add_cross_attention\":1}", "add_cross_attention is 1; only false"},
      {"{\"model_type\":\"gpt2\",\"quantization_config\":{}}", "quantized"},
      {"{\"model_type\":\"gpt2\",\"n_head\":5}", "the width 768 is not a multiple of the 5 heads"},
      {"{\"model_type\":\"gpt2\",\"n_embd\":65537}", "n_embd is 65537; it must be from 1 to 65536"},
      {"{\"model_type\":\"gpt2\",\"n_inner\":0}", "n_inner is 0"},
      {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":-1}", "layer_norm_epsilon is -1"},
      {"{\"model_type\":\"gpt2\",\"missing_biases\":\"qkv\"}", "missing_biases is not a list"},
      {"{\"model_type\":\"gpt2\",\"missing_biases\":[\"qkv\",\"all\"]}", "missing_biases has a name other"},
      {"{\"model_type\":\"gpt2\",\"missing_biases\":[[]]}", "missing_biases has a name other"},
      {"{\"model_type\":\"opt\",\"word_embed_proj_dim\":512}", "word_embed_proj_dim is 512; only 768"},
      {"{\"model_type\":\"opt\",\"word_embed_proj_dim\":\"768\"}", "word_embed_proj_dim is \"768\"; only 768"},
      {"{\"model_type\":\"opt\",\"layer_norm_elementwise_affine\":false}", "layer_norm_elementwise_affine is false"},
      {"{\"model_type\":\"opt\",\"_remove_final_layer_norm\":true}", "_remove_final_layer_norm is true"},
      {"{\"model_type\":\"opt\",\"do_layer_norm_before\":\"true\"}", "do_layer_norm_before is \"true\""},
      {"{\"model_type\":\"opt\",\"positions\":\"rope\"}", "positions is \"rope\"; supported: learned, sinusoidal"},
      {"{\"model_type\":\"opt\",\"enable_bias\":0}", "enable_bias is neither true nor false"},
      {"{\"model_type\":\"stablelm\",\"partial_rotary_factor\":0.0375}",
       "partial_rotary_factor is 0.0375, which is 3 numbers of a head of 80; only an even number"},
      {"{\"model_type\":\"stablelm\",\"partial_rotary_factor\":1.5}",
       "partial_rotary_factor is 1.5; it must not be above 1"},
      {"{\"model_type\":\"stablelm\",\"rope_parameters\":{\"partial_rotary_factor\":0.01},\"partial_rotary_factor\":1."
       "0}",
       "partial_rotary_factor is 0.01, which is 0 numbers"},
      {"{\"model_type\":\"stablelm\",\"partial_rotary_factor\":1,\"use_parallel_residual\":true}",
       "use_parallel_residual is true"},
      {"{\"model_type\":\"stablelm\",\"partial_rotary_factor\":1,\"qk_layernorm\":true}", "qk_layernorm is true"},
      {"{\"model_type\":\"llama\",\"partial_rotary_factor\":0.5}", "partial_rotary_factor is 0.5"},
      {"{\"model_type\":\"gpt_neox\",\"use_parallel_residual\":1}",
       "use_parallel_residual is 1; supported: true, false"},
      {"{\"model_type\":\"gpt_neox\",\"rotary_pct\":0}", "rotary_pct is 0; it must be positive"},
      {"{\"model_type\":\"gpt_neox\",\"rotary_pct\":2}", "rotary_pct is 2; it must not be above 1"},
      {"{\"model_type\":\"gpt_neox\",\"rope_scaling\":{\"type\":\"linear\"}}",
       "type is \"linear\"; scaling of rotary positions within the context is not supported"},
      {"{\"model_type\":\"gpt_neox\",\"hidden_act\":\"gelu_fast2\"}", "hidden_act is \"gelu_fast2\""},
      {"{\"model_type\":\"starcoder2\",\"sliding_window\":4095}",
       "layer 0 attends to a window of 4095 tokens (sliding_window), less than the context of 4096"},
      {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[1,0,1]}", "no_rope_layers does not have an integer for each"},
      {"{\"model_type\":\"qwen3\",\"use_sliding_window\":true}",
       "layer 28 attends to a window of 4096 tokens (sliding_window, by default)"},
      {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"max_window_layers\":31}",
       "layer 31 attends to a window"},
      {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"num_hidden_layers\":2,\"layer_types\":"
       "[\"full_attention\",\"sliding_attention\"]}",
       "layer 1 attends to a window of 4096 tokens (sliding_window, by default), less than the context of 32768"},
      {"{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"sliding_window\":\"8\"}", "is not an integer"},
      {"{\"model_type\":\"lfm2\",\"conv_bias\":true}", "conv_bias is true; only false is supported"},
      {"{\"model_type\":\"lfm2\",\"conv_L_cache\":4}", "conv_L_cache is 4; only 3 is supported"},
      {"{\"model_type\":\"lfm2\",\"layer_types\":\"conv\"}", "layer_types is not a list"},
      {"{\"model_type\":\"lfm2\",\"layer_types\":[\"conv\"]}", "layer_types has 1 entries for 32 layers"},
      {"{\"model_type\":\"lfm2\",\"num_hidden_layers\":1,\"layer_types\":[\"conv\",\"conv\"]}",
       "layer_types has 2 entries for 1 layers"},
      {"{\"model_type\":\"lfm2\",\"num_hidden_layers\":2,\"layer_types\":[\"conv\",\"sliding_attention\"]}",
       "layer_types is \"sliding_attention\"; supported: full_attention, conv"},
      {"{\"model_type\":\"lfm2\",\"num_hidden_layers\":1,\"layer_types\":[7]}", "layer_types is 7; supported: full"},
      {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":2}", "full_attn_idxs is not a list"},
      {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[2,32]}",
       "full_attn_idxs has 32, which is none of the layers 0 to 31"},
      {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[-1]}", "full_attn_idxs has -1, which is none"},
      {"{\"model_type\":\"lfm2\",\"full_attn_idxs\":[\"2\"]}", "full_attn_idxs has \"2\", which is none"},
      {"{\"model_type\":\"lfm2\",\"block_auto_adjust_ff_dim\":1}",
       "block_auto_adjust_ff_dim is neither true nor false"},
      {"{\"model_type\":\"lfm2\",\"block_multiple_of\":0}", "block_multiple_of is 0; it must be from 1 to"},
      {"{\"model_type\":\"lfm2\",\"block_multiple_of\":\"256\"}", "block_multiple_of is \"256\"; it must be from 1 to"},
      {"{\"model_type\":\"lfm2\",\"block_ffn_dim_multiplier\":1e9}",
       "block_auto_adjust_ff_dim makes the MLP 8.192e+12 wide; it must be from 1 to 1048576"},
      {"{\"model_type\":\"lfm2\",\"block_ff_dim\":1}", "block_auto_adjust_ff_dim makes the MLP 0 wide"},
      {"{\"model_type\":\"lfm2\",\"block_ff_dim\":-1}", "block_ff_dim is -1; it must be from 1 to"},
      {"{\"model_type\":\"lfm2\",\"tie_embedding\":\"yes\"}", "tie_embedding is neither true nor false"},
      {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[0]}", "no_rope_layers does not have an integer for each layer"},
      {"{\"model_type\":\"smollm3\",\"no_rope_layers\":0}", "no_rope_layers is not a list"},
      {"{\"model_type\":\"smollm3\",\"no_rope_layer_interval\":0}", "no_rope_layer_interval is not a positive"},
      {"{\"model_type\":\"smollm3\",\"use_sliding_window\":true,\"sliding_window\":8}",
       "layer 3 attends to a window of 8 tokens (sliding_window)"},
      {"{\"model_type\":\"inkling_parts\",\"norm\":\"batch\"}", "norm is \"batch\"; supported: rms, layer"},
      {"{\"model_type\":\"inkling_parts\",\"norm_place\":7}",
       "norm_place is 7; supported: before, after, branch, parallel"},
      {"{\"model_type\":\"inkling_parts\",\"gated\":\"yes\"}", "gated is neither true nor false"},
      {"{\"model_type\":\"inkling_parts\",\"qk_norm\":1}", "qk_norm is neither true nor false"},
      {"{\"model_type\":\"inkling_parts\",\"mixers\":[\"convolution\",\"conv\"]}",
       "mixers is \"conv\"; supported: attention, attention_without_rope, convolution"},
      {"{\"model_type\":\"inkling_parts\",\"mixers\":[\"convolution\"]}", "mixers has 1 entries for 2 layers"},
      {"{\"model_type\":\"inkling_parts\",\"mixers\":\"CA\"}", "mixers is not a list"},
      {"{\"model_type\":\"inkling_parts\",\"positions\":\"none\",\"mixers\":[\"attention\",\"attention_without_rope\"]"
       "}",
       "mixer N needs rotary positions, but the positions are none"},
      {"{\"architectures\":[\"InklingPartsForConditionalGeneration\"],\"norm_place\":\"parallel\"}",
       "parallel sublayers and an encoder exclude each other"},
      {"{\"model_type\":\"inkling_parts\",\"head_dim\":7}", "config.json: head size 7 is odd"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ModelConfig config;
    SpecialTokens tokens;
    Error error = {0};
    put(at(state, "config.json").text, cases[i][0], strlen(cases[i][0]));
    expect_error(read_config(*state, &config, &tokens, &error), &error, EXIT_CHECKPOINT, cases[i][1]);
    if (!strstr(error.text, "config.json: ")) fail_msg("no file is named: %s", error.text);
  }
}

/* One key with a value that makes no sense: a model within the limits, or one error (true). */
static bool refuses(void **state, json_t *root, const char *key, const char *value) {
  ModelConfig config;
  SpecialTokens tokens;
  Error error = {0};
  json_t *changed = json_copy(root);
  json_object_set_new(changed, key, json_loads(value, JSON_DECODE_ANY, NULL));
  put_config(state, changed);
  json_decref(changed);
  if (read_config(*state, &config, &tokens, &error)) {
    expect_done(model_config_check(&config, EXIT_CHECKPOINT, &error), &error);
    assert_true(tokens.start < config.vocab && tokens.end < config.vocab);
    return false;
  }
  assert_int_equal(error.code, EXIT_CHECKPOINT);
  if (!strstr(error.text, "config.json")) fail_msg("%s: %s gives %s", key, value, error.text);
  return true;
}

/* Every key of every class with a third of the values, another third for the next key and class. */
static void test_hostile_values(void **state) {
  static const char *const values[] = {"null",      "true",    "false",
                                       "0",         "-1",      "1",
                                       "3",         "1048577", "9223372036854775807",
                                       "0.0",       "-0.5",    "1e308",
                                       "1e-320",    "\"\"",    "\"none\"",
                                       "[]",        "{}",      "[0]",
                                       "[\"qkv\"]", "[[[]]]",  "{\"rope_type\":\"default\",\"rope_theta\":[]}"};
  enum { VALUES = sizeof values / sizeof *values };
  const ModelConfig models[] = {plain,
                                rope(NORM_RMS, false),
                                rope(NORM_LAYER, false),
                                rope(NORM_LAYER, true),
                                gpt2(),
                                opt(NORM_BEFORE, POSITIONS_SINUSOIDAL),
                                encoder_decoder(NORM_AFTER, POSITIONS_SINUSOIDAL),
                                encoder_decoder(NORM_BEFORE, POSITIONS_SINUSOIDAL),
                                encoder_decoder(NORM_BEFORE, POSITIONS_LEARNED),
                                encoder_decoder(NORM_AFTER, POSITIONS_ROPE),
                                own(),
                                mixed("NA", false),
                                mixed("A", true),
                                mixed("CA", true),
                                mixed("C", false)};
  int refused = 0, turn = 0;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    const char *key;
    json_t *value, *root;
    Error error = {0};
    expect_done(write_config(*state, &models[i], no_tokens, &error), &error);
    root = config_object(state);
    json_object_set_new(root, "missing_biases", json_array());
    json_object_foreach(root, key, value) {
      for (int v = turn++ % 3; v < VALUES; v += 3) refused += refuses(state, root, key, values[v]);
    }
    json_decref(root);
  }
  assert_in_range(refused, 400, 4000);
}

/* ---- our own class ---- */

static void test_modeling_file(void **state) {
  const ModelConfig c = own();
  Error error = {0};
  size_t size, source_size;
  expect_done(write_config(*state, &c, no_tokens, &error), &error);
  char *file = (char *)get(at(state, "modeling_inkling.py").text, &size);
  char *source = (char *)get("src/files/formats/modeling_inkling.py", &source_size);
  assert_int_equal(size, source_size);
  assert_memory_equal(file, source, size);
  free(file);
  free(source);
  char *text = config_text(state);
  assert_non_null(strstr(text, "\"AutoConfig\": \"modeling_inkling.InklingPartsConfig\""));
  assert_non_null(strstr(text, "\"AutoModelForCausalLM\": \"modeling_inkling.InklingPartsForCausalLM\""));
  free(text);
  expect_done(write_config(*state, &plain, no_tokens, &error), &error); /* another run, another class */
  assert_int_equal(access(at(state, "modeling_inkling.py").text, F_OK), -1);
  text = config_text(state);
  assert_null(strstr(text, "auto_map"));
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_config_round_trip), TEST(test_config_foreign), TEST(test_config_refused),
      TEST(test_defaults),          TEST(test_rotary),         TEST(test_classes_refused),
      TEST(test_no_windows),        TEST(test_no_scaling),     TEST(test_end_tokens),
      TEST(test_hostile_values),    TEST(test_modeling_file),
  };
  return cmocka_run_group_tests_name("checkpoint_config", tests, NULL, NULL);
}
