/* checkpoint: every model that ModelConfig can say as the class of transformers that computes it: which one, its
 * tensors, and back to the same model; directories of others. */
#include "tests/class_weights.h"
#include "model/parameters.h"

/* ---- which class ---- */

static void test_classes(void **state) {
  (void)state;
  ModelConfig c = plain;
  expect_class(c, "LlamaForCausalLM");
  c.bias = c.tie = true, c.kv_heads = 1, c.head_dim = 8, c.activation = ACTIVATION_GELU, c.norm_eps = 1e-8f;
  expect_class(c, "LlamaForCausalLM");
  c.gated = false;
  expect_class(c, "ArceeForCausalLM");
  c.norm = NORM_LAYER;
  expect_class(c, "Starcoder2ForCausalLM");
  c.head_bias = true;
  expect_class(c, "InklingPartsForCausalLM");
  c = rope(NORM_LAYER, true), c.qkv_bias = true;
  expect_class(c, "StableLmForCausalLM");
  c.bias = true;
  expect_class(c, "InklingPartsForCausalLM");
  c.bias = false, c.head_dim = 4; /* it has no key for that */
  expect_class(c, "InklingPartsForCausalLM");
  expect_class(partial(NORM_LAYER, 16), "StableLmForCausalLM");
  c = gpt2(), c.positions = POSITIONS_ROPE, c.norm_place = NORM_PARALLEL;
  expect_class(c, "GPTNeoXForCausalLM");
  c.kv_heads = 1;
  expect_class(c, "InklingPartsForCausalLM");
  c = partial(NORM_LAYER, 16), c.gated = false;
  expect_class(c, "GPTNeoXForCausalLM");
  expect_class(partial(NORM_RMS, 16), "InklingPartsForCausalLM");
  c = plain, c.positions = POSITIONS_NONE, c.kv_heads = 1;
  expect_class(c, "SmolLM3ForCausalLM");
  c.positions = POSITIONS_LEARNED;
  expect_class(c, "InklingPartsForCausalLM");
  c = plain, c.positions = POSITIONS_NONE, c.gated = false;
  expect_class(c, "InklingPartsForCausalLM");
  c = plain, c.norm_place = NORM_AFTER;
  expect_class(c, "InklingPartsForCausalLM");
  c = plain, c.dim = 6, c.heads = 4, c.kv_heads = 4; /* transformers refuses heads that do not divide the width */
  expect_class(c, "InklingPartsForCausalLM");
  c = gpt2(), c.norm_eps = 1e-8f;
  expect_class(c, "GPT2LMHeadModel");
  c.kv_heads = 1;
  expect_class(c, "InklingPartsForCausalLM");
  c = gpt2(), c.head_dim = 4;
  expect_class(c, "InklingPartsForCausalLM");
  expect_class(opt(NORM_BEFORE, POSITIONS_SINUSOIDAL), "OPTForCausalLM");
  expect_class(opt(NORM_BEFORE, POSITIONS_NONE), "OPTForCausalLM");
  expect_class(opt(NORM_AFTER, POSITIONS_LEARNED), "OPTForCausalLM");
  expect_class(opt(NORM_AFTER, POSITIONS_ROPE), "InklingPartsForCausalLM");
  expect_class(opt(NORM_ON_BRANCH, POSITIONS_LEARNED), "InklingPartsForCausalLM");
  c = opt(NORM_BEFORE, POSITIONS_SINUSOIDAL), c.norm_eps = 1e-6f;
  expect_class(c, "InklingPartsForCausalLM");
}

static void test_classes_of_mixers(void **state) {
  (void)state;
  expect_class(mixed("A", false), "LlamaForCausalLM");
  expect_class(mixed("AAAN", false), "LlamaForCausalLM"); /* of two layers */
  expect_class(mixed("NA", false), "SmolLM3ForCausalLM");
  expect_class(mixed("N", false), "InklingPartsForCausalLM"); /* would be read as a model without positions */
  expect_class(mixed("NA", true), "InklingPartsForCausalLM");
  expect_class(mixed("A", true), "Qwen3ForCausalLM");
  expect_class(mixed("CA", true), "Lfm2ForCausalLM");
  expect_class(mixed("CA", false), "InklingPartsForCausalLM");
  expect_class(mixed("C", true), "InklingPartsForCausalLM");
  expect_class(mixed("CN", true), "InklingPartsForCausalLM");
  ModelConfig c = mixed("A", true);
  c.dim = 6, c.heads = 4, c.kv_heads = 2, c.qkv_bias = true, c.activation = ACTIVATION_RELU;
  expect_class(c, "Qwen3ForCausalLM"); /* the heads need not divide the width */
  c.bias = true;
  expect_class(c, "InklingPartsForCausalLM");
  c = mixed("A", true), c.norm = NORM_LAYER;
  expect_class(c, "InklingPartsForCausalLM");
  c = gpt2(), c.qk_norm = true;
  expect_class(c, "InklingPartsForCausalLM");
  c = mixed("AC", true), c.dim = 6, c.heads = 4, c.kv_heads = 4, c.tie = true, c.norm_eps = 1e-8f;
  expect_class(c, "Lfm2ForCausalLM");
  c.activation = ACTIVATION_GELU;
  expect_class(c, "InklingPartsForCausalLM");
  c.activation = ACTIVATION_SILU, c.qkv_bias = true;
  expect_class(c, "InklingPartsForCausalLM");
  c = mixed("AC", true), c.positions = POSITIONS_NONE;
  expect_class(c, "InklingPartsForCausalLM");
  c = encoder_decoder(NORM_BEFORE, POSITIONS_LEARNED), c.qk_norm = true;
  expect_class(c, "InklingPartsForConditionalGeneration");
  c.qk_norm = false, snprintf(c.mixers, sizeof c.mixers, "AC");
  expect_class(c, "InklingPartsForConditionalGeneration");
}

/* ---- round trips ---- */

/* Every 97th of them: each value of each part many times. */
static void test_round_trips(void **state) {
  for (int n = 0; n < NUMBERED_MODELS; n += 97) {
    ModelConfig c = numbered(n);
    if (n % 5 == 0) c.norm_eps = 1e-8f;
    if (n % 3 == 0) c.kv_heads = 1;
    if (c.positions == POSITIONS_ROPE) c.rope_base = 5e5f;
    expect_round_trip(state, &c);
  }
}

/* The fraction in the file gives the same number of rotated numbers of a head, whatever it is. */
static void test_partial_rotation(void **state) {
  for (int dims = 2; dims < 48; dims += 2)
    for (int norm = 0; norm < NORM_KINDS; norm++) {
      const ModelConfig c = partial((NormKind)norm, dims);
      expect_round_trip(state, &c);
    }
}

/* Each class with each set of biases, as both are said by the same keys. */
static void test_missing_biases(void **state) {
  const ModelConfig classes[] = {plain,
                                 rope(NORM_RMS, false),
                                 rope(NORM_LAYER, false),
                                 rope(NORM_LAYER, true),
                                 gpt2(),
                                 opt(NORM_BEFORE, POSITIONS_SINUSOIDAL),
                                 opt(NORM_AFTER, POSITIONS_LEARNED),
                                 opt(NORM_AFTER, POSITIONS_NONE),
                                 mixed("A", true),
                                 mixed("CA", true)};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    for (int biases = 0; biases < 4; biases++) {
      ModelConfig c = classes[i];
      c.bias = biases & 1, c.qkv_bias = biases >> 1 & 1;
      expect_round_trip(state, &c);
    }
}

/* ---- the files of single classes ---- */

static void test_gpt2_tensors(void **state) {
  ModelConfig c = gpt2();
  c.qkv_bias = false;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  assert_int_equal(file.count, 2 + 12 * c.layers + 2 + 1);
  floats(&file, "transformer.wte.weight", 2, 5, 4);
  floats(&file, "lm_head.weight", 2, 5, 4);
  floats(&file, "transformer.ln_f.bias", 1, 4, 0);
  assert_true(floats(&file, "transformer.wpe.weight", 2, 3, 4)[5] == at_row(&w, "model.embed_positions.weight", 1, 1));
  const float *packed = floats(&file, "transformer.h.1.attn.c_attn.weight", 2, 4, 12); /* [in][q k v] */
  for (int in = 0; in < 4; in++)
    for (int out = 0; out < 4; out++) {
      assert_true(packed[in * 12 + out] == at_row(&w, "model.layers.1.self_attn.q_proj.weight", out, in));
      assert_true(packed[in * 12 + 4 + out] == at_row(&w, "model.layers.1.self_attn.k_proj.weight", out, in));
      assert_true(packed[in * 12 + 8 + out] == at_row(&w, "model.layers.1.self_attn.v_proj.weight", out, in));
    }
  const float *bias = floats(&file, "transformer.h.1.attn.c_attn.bias", 1, 12, 0);
  for (int i = 0; i < 12; i++) assert_true(bias[i] == 0);
  const float *up = floats(&file, "transformer.h.0.mlp.c_fc.weight", 2, 4, 6);
  assert_true(up[1 * 6 + 5] == at_row(&w, "model.layers.0.mlp.up_proj.weight", 5, 1));
  assert_true(floats(&file, "transformer.h.0.mlp.c_fc.bias", 1, 6, 0)[2] ==
              at_row(&w, "model.layers.0.mlp.up_proj.bias", 0, 2));
  floats(&file, "transformer.h.0.attn.c_proj.weight", 2, 4, 4);
  floats(&file, "transformer.h.0.mlp.c_proj.weight", 2, 6, 4);
  floats(&file, "transformer.h.0.ln_1.weight", 1, 4, 0);
  floats(&file, "transformer.h.0.ln_2.bias", 1, 4, 0);
  safetensors_close(&file);
  weights_free(&w);
}

/* Rows of queries, keys and values are joined by head, [H][3][D]; so are their biases. */
static void test_gpt_neox_tensors(void **state) {
  ModelConfig c = gpt2();
  c.positions = POSITIONS_ROPE, c.norm_place = NORM_PARALLEL, c.dim = 8, c.head_dim = 4, c.rotary_dims = 2;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  assert_int_equal(file.count, 1 + 12 * c.layers + 2 + 1);
  floats(&file, "gpt_neox.embed_in.weight", 2, 5, 8);
  floats(&file, "embed_out.weight", 2, 5, 8);
  floats(&file, "gpt_neox.final_layer_norm.bias", 1, 8, 0);
  const float *joined = floats(&file, "gpt_neox.layers.1.attention.query_key_value.weight", 2, 24, 8);
  const float *bias = floats(&file, "gpt_neox.layers.1.attention.query_key_value.bias", 1, 24, 0);
  for (int row = 0; row < 24; row++) {
    const int head = row / 12, part = row / 4 % 3, from = head * 4 + row % 4;
    char name[64];
    snprintf(name, sizeof name, "model.layers.1.self_attn.%c_proj.weight", "qkv"[part]);
    for (int in = 0; in < 8; in++) assert_true(joined[row * 8 + in] == at_row(&w, name, from, in));
    snprintf(name, sizeof name, "model.layers.1.self_attn.%c_proj.bias", "qkv"[part]);
    assert_true(bias[row] == at_row(&w, name, 0, from));
  }
  floats(&file, "gpt_neox.layers.0.attention.dense.weight", 2, 8, 8);
  floats(&file, "gpt_neox.layers.0.mlp.dense_h_to_4h.weight", 2, 6, 8);
  floats(&file, "gpt_neox.layers.0.mlp.dense_4h_to_h.bias", 1, 8, 0);
  floats(&file, "gpt_neox.layers.0.input_layernorm.weight", 1, 8, 0);
  floats(&file, "gpt_neox.layers.0.post_attention_layernorm.bias", 1, 8, 0);
  safetensors_close(&file);
  weights_free(&w);
}

static void test_opt_tensors(void **state) {
  ModelConfig c = opt(NORM_BEFORE, POSITIONS_LEARNED);
  c.norm_place = NORM_AFTER;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  assert_int_equal(file.count, 2 + 16 * c.layers + 1);
  const float *places = floats(&file, "model.decoder.embed_positions.weight", 2, 3 + 2, 4);
  for (int i = 0; i < 8; i++) assert_true(places[i] == 0);
  assert_true(places[8 + 7] == at_row(&w, "model.embed_positions.weight", 1, 3));
  assert_true(floats(&file, "model.decoder.layers.1.fc2.weight", 2, 4, 6)[8] ==
              at_row(&w, "model.layers.1.mlp.down_proj.weight", 1, 2));
  assert_true(floats(&file, "model.decoder.layers.1.self_attn.out_proj.bias", 1, 4, 0)[3] ==
              at_row(&w, "model.layers.1.self_attn.o_proj.bias", 0, 3));
  assert_true(floats(&file, "model.decoder.layers.0.final_layer_norm.weight", 1, 4, 0)[1] ==
              at_row(&w, "model.layers.0.post_attention_layernorm.weight", 0, 1));
  floats(&file, "model.decoder.embed_tokens.weight", 2, 5, 4);
  floats(&file, "model.decoder.layers.0.self_attn_layer_norm.bias", 1, 4, 0);
  floats(&file, "model.decoder.layers.0.fc1.bias", 1, 6, 0);
  assert_null(safetensors_find(&file, "model.decoder.final_layer_norm.weight"));
  safetensors_close(&file);
  weights_free(&w);
  char *text = config_text(state);
  assert_non_null(strstr(text, "\"do_layer_norm_before\": false"));
  assert_non_null(strstr(text, "\"enable_bias\": true"));
  assert_non_null(strstr(text, "\"word_embed_proj_dim\": 4"));
  assert_null(strstr(text, "\"positions\""));
  assert_null(strstr(text, "missing_biases"));
  free(text);
}

static void test_starcoder2_tensors(void **state) {
  ModelConfig c = rope(NORM_LAYER, false);
  c.qkv_bias = true;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  floats(&file, "model.layers.0.mlp.c_fc.weight", 2, 6, 4);
  assert_true(floats(&file, "model.layers.0.mlp.c_proj.bias", 1, 4, 0)[3] == 0);
  assert_true(floats(&file, "model.layers.0.self_attn.v_proj.bias", 1, 4, 0)[0] != 0);
  safetensors_close(&file);
  char *text = config_text(state);
  assert_non_null(strstr(text, "\"use_bias\": true"));
  assert_non_null(strstr(text, "\"missing_biases\": [\n    \"output\",\n    \"mlp\"\n  ]"));
  free(text);
  weights_free(&w);
}

static void test_lfm2_tensors(void **state) {
  ModelConfig c = mixed("CA", true);
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  assert_int_equal(file.count, 3 + (2 + 3 + 3) + (2 + 6 + 3));
  const float *in = floats(&file, "model.layers.0.conv.in_proj.weight", 2, 12, 4); /* b, c, x */
  const float *kernel = floats(&file, "model.layers.0.conv.conv.weight", 3, 4, 3);
  for (int row = 0; row < 4; row++) {
    for (int col = 0; col < 4; col++) {
      assert_true(in[row * 4 + col] == at_row(&w, "model.layers.0.conv.b_proj.weight", row, col));
      assert_true(in[(4 + row) * 4 + col] == at_row(&w, "model.layers.0.conv.c_proj.weight", row, col));
      assert_true(in[(8 + row) * 4 + col] == at_row(&w, "model.layers.0.conv.x_proj.weight", row, col));
    }
    for (int tap = 0; tap < 3; tap++)
      assert_true(kernel[row * 3 + tap] == at_row(&w, "model.layers.0.conv.conv.weight", row, tap));
  }
  assert_true(floats(&file, "model.layers.1.self_attn.q_layernorm.weight", 1, 2, 0)[1] ==
              at_row(&w, "model.layers.1.self_attn.q_norm.weight", 0, 1));
  assert_true(floats(&file, "model.layers.1.self_attn.k_layernorm.weight", 1, 2, 0)[0] ==
              at_row(&w, "model.layers.1.self_attn.k_norm.weight", 0, 0));
  assert_true(floats(&file, "model.layers.0.feed_forward.w1.weight", 2, 6, 4)[9] ==
              at_row(&w, "model.layers.0.mlp.gate_proj.weight", 2, 1));
  assert_true(floats(&file, "model.layers.0.feed_forward.w3.weight", 2, 6, 4)[9] ==
              at_row(&w, "model.layers.0.mlp.up_proj.weight", 2, 1));
  floats(&file, "model.layers.1.feed_forward.w2.weight", 2, 4, 6);
  floats(&file, "model.layers.0.conv.out_proj.weight", 2, 4, 4);
  floats(&file, "model.layers.1.self_attn.out_proj.weight", 2, 4, 4);
  floats(&file, "model.layers.0.operator_norm.weight", 1, 4, 0);
  floats(&file, "model.layers.1.ffn_norm.weight", 1, 4, 0);
  floats(&file, "model.embedding_norm.weight", 1, 4, 0);
  safetensors_close(&file);
  weights_free(&w);
  char *text = config_text(state);
  assert_non_null(strstr(text, "\"layer_types\": [\n    \"conv\",\n    \"full_attention\"\n  ]"));
  assert_non_null(strstr(text, "\"block_auto_adjust_ff_dim\": false"));
  free(text);
}

/* A kernel of another shape: one file of transformers has [4][1][3]. */
static void test_kernel_shape(void **state) {
  static const float kernel[12];
  const SafeTensor flat = {
      .name = "model.layers.0.conv.conv.weight", .type = TENSOR_F32, .rank = 2, .shape = {4, 3}, .data = kernel};
  ModelConfig c = mixed("CA", true);
  Weights w = weights_new(&c, 0), back;
  Error error;
  write_model(state, &w);
  rewrite(state, NULL, "conv.conv", &flat, 1);
  expect_error(read_model(state, &back, 0, &error), &error, EXIT_CHECKPOINT,
               "tensor model.layers.0.conv.conv.weight is [4, 3] where the configuration says [4, 1, 3]");
  weights_free(&back);
  weights_free(&w);
}

/* What is said to be missing and is not zeros may have been trained by others. */
static void test_missing_but_there(void **state) {
  ModelConfig c = gpt2();
  c.qkv_bias = false;
  Weights w = weights_new(&c, 0), back;
  Error error;
  write_model(state, &w);
  float bias[12] = {[7] = 0.5f};
  const SafeTensor trained = {
      .name = "transformer.h.1.attn.c_attn.bias", .type = TENSOR_F32, .rank = 1, .shape = {12}, .data = bias};
  rewrite(state, NULL, "h.1.attn.c_attn.bias", &trained, 1);
  expect_error(read_model(state, &back, 0, &error), &error, EXIT_CHECKPOINT,
               "tensor transformer.h.1.attn.c_attn.bias has numbers other than 0, but missing_biases in config.json");
  weights_free(&back);
  set_key(state, "missing_biases", NULL);
  expect_done(read_model(state, &back, 0, &error), &error);
  assert_true(back.config.qkv_bias && at_row(&back, "model.layers.1.self_attn.k_proj.bias", 0, 3) == 0.5f);
  weights_free(&back);
  weights_free(&w);

  c = opt(NORM_BEFORE, POSITIONS_NONE);
  w = weights_new(&c, 0);
  write_model(state, &w);
  float places[20] = {[19] = -1};
  const SafeTensor table = {
      .name = "model.decoder.embed_positions.weight", .type = TENSOR_F32, .rank = 2, .shape = {5, 4}, .data = places};
  rewrite(state, NULL, "embed_positions", &table, 1);
  expect_error(read_model(state, &back, 0, &error), &error, EXIT_CHECKPOINT, "but positions in config.json says");
  weights_free(&back);
  set_key(state, "positions", NULL);
  expect_done(read_model(state, &back, 0, &error), &error);
  assert_true(back.config.positions == POSITIONS_LEARNED && at_row(&back, "model.embed_positions.weight", 2, 3) == -1);
  weights_free(&back);
  weights_free(&w);
}

/* ---- directories of others ---- */

/* Names without the class's prefix, masks beside the weights, a head that is the embedding. */
static void test_foreign_tensors(void **state) {
  static const uint8_t mask[9];
  static const float once;
  float head[20];
  const SafeTensor more[] = {
      {.name = "h.0.attn.bias", .type = TENSOR_BOOL, .rank = 4, .shape = {1, 1, 3, 3}, .data = mask},
      {.name = "h.0.attn.masked_bias", .type = TENSOR_F32, .rank = 0, .data = &once},
      {.name = "lm_head.weight", .type = TENSOR_F32, .rank = 2, .shape = {5, 4}, .data = head},
      {.name = "h.0.attn.q.bias", .type = TENSOR_F32, .rank = 0, .data = &once}};
  ModelConfig c = gpt2();
  Error error;
  c.tie = true;
  Weights w = weights_new(&c, -7), back;
  write_model(state, &w);
  for (int i = 0; i < 20; i++) head[i] = at_row(&w, "model.embed_tokens.weight", i / 4, i % 4);
  rewrite(state, "transformer.", NULL, more, 3);
  expect_done(read_model(state, &back, -7, &error), &error);
  assert_memory_equal(w.arena, back.arena, w.table.arena * sizeof *w.arena);
  weights_free(&back);
  head[7]++;
  write_model(state, &w);
  rewrite(state, "transformer.", NULL, more, 3);
  expect_error(read_model(state, &back, -7, &error), &error, EXIT_CHECKPOINT, "lm_head.weight is not wte.weight");
  weights_free(&back);
  write_model(state, &w);
  rewrite(state, NULL, NULL, more + 3, 1);
  expect_error(read_model(state, &back, -7, &error), &error, EXIT_CHECKPOINT, "has a tensor 'h.0.attn.q.bias'");
  weights_free(&back);
  weights_free(&w);
}

/* A LLaMA whose attention has biases and whose MLP has none: those are zeros here. */
static void test_foreign_biases(void **state) {
  ModelConfig c = plain;
  Error error;
  c.bias = c.qkv_bias = true;
  Weights w = weights_new(&c, 0), back;
  write_model(state, &w);
  rewrite(state, NULL, "mlp.gate_proj.bias", NULL, 0);
  expect_error(read_model(state, &back, 9, &error), &error, EXIT_CHECKPOINT,
               "has no tensor model.layers.0.mlp.gate_proj.bias");
  weights_free(&back);
  rewrite(state, NULL, "mlp.up_proj.bias", NULL, 0);
  rewrite(state, NULL, "mlp.down_proj.bias", NULL, 0);
  set_key(state, "mlp_bias", "false");
  expect_done(read_model(state, &back, 9, &error), &error);
  assert_true(back.config.bias && back.config.qkv_bias);
  assert_true(at_row(&back, "model.layers.1.mlp.gate_proj.bias", 0, 5) == 0);
  assert_true(at_row(&back, "model.layers.1.self_attn.o_proj.bias", 0, 1) ==
              at_row(&w, "model.layers.1.self_attn.o_proj.bias", 0, 1));
  weights_free(&back);
  weights_free(&w);
}

/* A class whose RoPE turns neighboring channels: of a head of queries or keys rows 0 2 4 .. come first, then 1 3 5;
 * the biases of the same alike, everything else stays. */
static void test_interleaved(void **state) {
  enum { SIZE = 8 };
  ModelConfig c = plain;
  c.dim = 2 * SIZE, c.head_dim = SIZE, c.kv_heads = 1, c.qkv_bias = c.bias = true;
  Weights ours = weights_new(&c, -7), back;
  Error error;
  write_model(state, &ours);
  json_t *root = config_object(state);
  json_object_set_new(root, "model_type", json_string("ernie4_5"));
  json_object_set_new(root, "architectures", json_pack("[s]", "Ernie4_5ForCausalLM"));
  json_object_set_new(root, "use_bias", json_true());
  put_config(state, root);
  json_decref(root);
  expect_done(read_model(state, &back, -7, &error), &error);
  expect_same(&c, &back.config);
  for (int i = 0; i < ours.table.count; i++) {
    const ParameterTensor *t = &ours.table.tensors[i];
    const bool turned = strstr(t->name, "q_proj") || strstr(t->name, "k_proj"), bias = t->rank == 1;
    const int rows = bias ? t->cols : t->rows, cols = bias ? 1 : t->cols;
    for (int row = 0; row < rows; row++) {
      const int of_head = row % SIZE, from = of_head < SIZE / 2 ? 2 * of_head : 2 * of_head - SIZE + 1;
      const int want = turned ? row - of_head + from : row;
      assert_memory_equal(back.arena + t->offset + row * cols, ours.arena + t->offset + want * cols,
                          (size_t)cols * sizeof(float));
    }
  }
  weights_free(&ours);
  weights_free(&back);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_classes), cmocka_unit_test(test_classes_of_mixers),
      TEST(test_lfm2_tensors),        TEST(test_kernel_shape),
      TEST(test_round_trips),         TEST(test_partial_rotation),
      TEST(test_missing_biases),      TEST(test_interleaved),
      TEST(test_gpt2_tensors),        TEST(test_gpt_neox_tensors),
      TEST(test_opt_tensors),         TEST(test_starcoder2_tensors),
      TEST(test_missing_but_there),   TEST(test_foreign_tensors),
      TEST(test_foreign_biases),
  };
  return cmocka_run_group_tests_name("checkpoint_architectures", tests, NULL, NULL);
}
