/* checkpoint: models with an encoder as the classes of transformers that compute them, and back to the same model;
 * directories of others. */
#include "tests/class_weights.h"
#include "files/formats/model_files.h"
#include "model/parameters.h"

static ModelConfig marian(void) { return encoder_decoder(NORM_AFTER, POSITIONS_SINUSOIDAL); }
static ModelConfig pegasus(void) { return encoder_decoder(NORM_BEFORE, POSITIONS_SINUSOIDAL); }
static ModelConfig blenderbot(void) { return encoder_decoder(NORM_BEFORE, POSITIONS_LEARNED); }

static ModelConfig own_encoder(void) {
  ModelConfig c = plain;
  c.encoder_layers = 1, c.source_vocab = 7;
  return c;
}

static void test_classes(void **state) {
  (void)state;
  const char *const own = "InklingPartsForConditionalGeneration";
  ModelConfig c = marian();
  expect_class(c, "MarianMTModel");
  c.source_vocab = 9, c.head_bias = true, c.bias = false, c.activation = ACTIVATION_SILU;
  expect_class(c, "MarianMTModel");
  c.norm_eps = 1e-6f;
  expect_class(c, own);
  c = pegasus(), c.tie = true;
  expect_class(c, "PegasusForConditionalGeneration");
  c.tie = false, c.source_vocab = 9; /* it has one key for both */
  expect_class(c, own);
  expect_class(blenderbot(), "BlenderbotForConditionalGeneration");
  expect_class(encoder_decoder(NORM_AFTER, POSITIONS_LEARNED), own); /* Marian would make a table of its own */
  expect_class(encoder_decoder(NORM_AFTER, POSITIONS_NONE), own);
  expect_class(encoder_decoder(NORM_BEFORE, POSITIONS_ROPE), own);
  expect_class(encoder_decoder(NORM_ON_BRANCH, POSITIONS_SINUSOIDAL), own);
  c = blenderbot(), c.kv_heads = 1;
  expect_class(c, own);
  c = marian(), c.gated = true;
  expect_class(c, own);
  c = marian(), c.norm = NORM_RMS;
  expect_class(c, own);
  /* what the classes of a decoder alone compute, above an encoder */
  const ModelConfig decoders[] = {plain, rope(NORM_RMS, false), rope(NORM_LAYER, false), rope(NORM_LAYER, true),
                                  opt(NORM_AFTER, POSITIONS_LEARNED)};
  for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
    c = decoders[i], c.encoder_layers = 1, c.source_vocab = c.vocab;
    expect_class(c, own);
  }
}

/* ---- round trips ---- */

static void test_round_trips(void **state) {
  for (int n = 0; n < NUMBERED_MODELS; n += 67) {
    ModelConfig c = numbered(n);
    if (c.norm_place == NORM_PARALLEL) c.norm_place = NORM_BEFORE; /* it excludes an encoder */
    c.encoder_layers = 1 + n % 3;
    c.source_vocab = c.tie || n % 2 ? c.vocab : n % 4 ? 3 : 300;
    if (n % 5 == 0) c.norm_eps = 1e-8f;
    if (n % 3 == 0) c.kv_heads = 1;
    expect_round_trip(state, &c);
  }
}

static void test_missing_biases(void **state) {
  const ModelConfig classes[] = {marian(), pegasus(), blenderbot(), own_encoder()};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    for (int set = 0; set < 16; set++) {
      ModelConfig c = classes[i];
      c.bias = set & 1, c.qkv_bias = set >> 1 & 1, c.head_bias = set >> 2 & 1, c.tie = set >> 3 & 1;
      if (c.tie) c.source_vocab = c.vocab;
      else if (i == 0) c.source_vocab = 11;
      expect_round_trip(state, &c);
    }
}

/* ---- tensors ---- */

enum { ENCODER_LAYER = 16, DECODER_LAYER = 26 }; /* tensors in a layer with all biases */

static void expect_key(void **state, const char *text, bool there) {
  char *config = config_text(state);
  if ((strstr(config, text) != NULL) != there) fail_msg("%s: %s", there ? "missing" : "there", text);
  free(config);
}

static void test_marian_tensors(void **state) {
  ModelConfig c = marian();
  c.tie = c.head_bias = true;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  assert_int_equal(file.count, 2 + 2 + ENCODER_LAYER * c.encoder_layers + DECODER_LAYER * c.layers);
  assert_true(floats(&file, "model.shared.weight", 2, 5, 4)[6] == at_row(&w, "model.embed_tokens.weight", 1, 2));
  assert_true(floats(&file, "final_logits_bias", 2, 1, 5)[3] == at_row(&w, "lm_head.bias", 0, 3));
  assert_true(floats(&file, "model.decoder.layers.1.encoder_attn.out_proj.weight", 2, 4, 4)[7] ==
              at_row(&w, "model.decoder.layers.1.cross_attn.o_proj.weight", 1, 3));
  assert_true(floats(&file, "model.decoder.layers.1.encoder_attn.v_proj.bias", 1, 4, 0)[2] ==
              at_row(&w, "model.decoder.layers.1.cross_attn.v_proj.bias", 0, 2));
  assert_true(floats(&file, "model.decoder.layers.0.encoder_attn_layer_norm.bias", 1, 4, 0)[1] ==
              at_row(&w, "model.decoder.layers.0.cross_attention_layernorm.bias", 0, 1));
  assert_true(floats(&file, "model.encoder.layers.2.self_attn.out_proj.weight", 2, 4, 4)[0] ==
              at_row(&w, "model.encoder.layers.2.self_attn.o_proj.weight", 0, 0));
  assert_true(floats(&file, "model.encoder.layers.2.self_attn_layer_norm.weight", 1, 4, 0)[3] ==
              at_row(&w, "model.encoder.layers.2.input_layernorm.weight", 0, 3));
  assert_true(floats(&file, "model.encoder.layers.0.final_layer_norm.weight", 1, 4, 0)[3] ==
              at_row(&w, "model.encoder.layers.0.post_attention_layernorm.weight", 0, 3));
  assert_true(floats(&file, "model.encoder.layers.1.fc2.weight", 2, 4, 6)[11] ==
              at_row(&w, "model.encoder.layers.1.mlp.down_proj.weight", 1, 5));
  assert_true(floats(&file, "model.encoder.embed_positions.weight", 2, 3, 4)[4] ==
              at_row(&w, "model.encoder.embed_positions.weight", 1, 0));
  safetensors_close(&file);
  weights_free(&w);
  expect_key(state, "\"share_encoder_decoder_embeddings\": true", true);
  expect_key(state, "\"encoder_layers\": 3", true);
  expect_key(state, "\"decoder_layers\": 2", true);
  expect_key(state, "missing_biases", false);
}

static void test_own_vocabularies(void **state) {
  ModelConfig c = marian();
  c.source_vocab = 9, c.qkv_bias = false;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  SafeTensors file = open_weights(state);
  floats(&file, "model.encoder.embed_tokens.weight", 2, 9, 4);
  floats(&file, "model.decoder.embed_tokens.weight", 2, 5, 4);
  floats(&file, "lm_head.weight", 2, 5, 4);
  assert_null(safetensors_find(&file, "model.shared.weight"));
  const float *head = floats(&file, "final_logits_bias", 2, 1, 5),
              *key = floats(&file, "model.decoder.layers.1.encoder_attn.k_proj.bias", 1, 4, 0);
  for (int i = 0; i < 4; i++) assert_true(head[i] == 0 && key[i] == 0);
  safetensors_close(&file);
  weights_free(&w);
  expect_key(state, "\"vocab_size\": 9", true);
  expect_key(state, "\"decoder_vocab_size\": 5", true);
  expect_key(state, "\"missing_biases\": [\n    \"qkv\",\n    \"head\"\n  ]", true);
}

/* Untied, Pegasus and Blenderbot have one more table, which they do not use. */
static void test_shared_table(void **state) {
  const ModelConfig classes[] = {pegasus(), blenderbot()};
  for (int i = 0; i < 2; i++) {
    Weights w = weights_new(&classes[i], -7), back;
    Error error;
    write_model(state, &w);
    SafeTensors file = open_weights(state);
    assert_int_equal(file.count, 4 + 1 + 2 + 4 + ENCODER_LAYER * 3 + DECODER_LAYER * 2);
    assert_true(floats(&file, "model.shared.weight", 2, 5, 4)[6] ==
                at_row(&w, "model.encoder.embed_tokens.weight", 1, 2));
    safetensors_close(&file);
    static const float other[3];
    const SafeTensor table = {
        .name = "model.shared.weight", .type = TENSOR_F32, .rank = 2, .shape = {1, 3}, .data = other};
    rewrite(state, NULL, "model.shared", &table, i);
    expect_done(read_model(state, &back, -7, &error), &error);
    assert_memory_equal(w.arena, back.arena, w.table.arena * sizeof *w.arena);
    weights_free(&w);
    weights_free(&back);
  }
}

/* ---- what files leave out ---- */

/* Marian's own files do not have the tables, and need not have the bias of the head. */
static void test_absent_tensors(void **state) {
  const ModelConfig classes[] = {marian(), pegasus()};
  for (int i = 0; i < 2; i++) {
    ModelConfig c = classes[i];
    Error error;
    c.tie = c.head_bias = true;
    Weights w = weights_new(&c, 0), back;
    parameter_table_init(&w.table, (Initialization){.std = INIT_DEFAULT_STD}, w.arena, 1);
    assert_true(at_row(&w, "model.decoder.embed_positions.weight", 1, 2) > 0.5f);
    for (int j = 0; j < c.vocab; j++) w.arena[row_of(&w, "lm_head.bias")->offset + (size_t)j] = 3;
    write_model(state, &w);
    rewrite(state, i ? "model." : NULL, "embed_positions", NULL, 0);
    expect_done(read_model(state, &back, -7, &error), &error);
    for (int j = 0; j < w.table.count; j++) {
      const ParameterTensor *t = &w.table.tensors[j];
      assert_memory_equal(w.arena + t->offset, back.arena + t->offset,
                          (size_t)t->rows * (size_t)t->cols * sizeof *w.arena);
    }
    weights_free(&back);
    rewrite(state, NULL, "final_logits_bias", NULL, 0);
    expect_done(read_model(state, &back, -7, &error), &error);
    assert_true(back.config.head_bias && at_row(&back, "lm_head.bias", 0, 4) == 0);
    weights_free(&back);
    rewrite(state, NULL, i ? "decoder.layers.1.fc1.bias" : "model.decoder.layers.1.fc1.bias", NULL, 0);
    expect_error(read_model(state, &back, -7, &error), &error, EXIT_CHECKPOINT,
                 "has no tensor model.decoder.layers.1.fc1.bias");
    weights_free(&back);
    weights_free(&w);
  }
}

/* The file is small beside the tables that the class makes: it loads. */
static void test_load_without_tables(void **state) {
  const Backend *cpu = backend_find("cpu", NULL, 1u << DTYPE_F32);
  const ContextOptions options = {.dtype = DTYPE_F32, .threads = 1};
  ModelConfig c = marian();
  Context *context;
  Model *model;
  Error error = {0};
  c.ctx = 2000;
  Weights w = weights_new(&c, 0);
  write_model(state, &w);
  rewrite(state, NULL, "embed_positions", NULL, 0);
  expect_done(cpu->open(&context, &options, &error), &error);
  expect_done(load_model(&model, *state, cpu, context, &error), &error);
  model_close(model);
  cpu->close(context);
  weights_free(&w);
}

/* Without their tables of positions, which they do not make again. */
static void test_absent_positions(void **state) {
  ModelConfig models[] = {blenderbot(), encoder_decoder(NORM_ON_BRANCH, POSITIONS_SINUSOIDAL)};
  for (int i = 0; i < 2; i++) {
    Weights w = weights_new(&models[i], 0), back;
    Error error;
    write_model(state, &w);
    rewrite(state, NULL, "model.decoder.embed_positions", NULL, 0);
    expect_error(read_model(state, &back, -7, &error), &error, EXIT_CHECKPOINT,
                 "has no tensor model.decoder.embed_positions.weight");
    weights_free(&back);
    weights_free(&w);
  }
}

static void test_missing_but_there(void **state) {
  const ModelConfig c = marian();
  Weights w = weights_new(&c, 0), back;
  Error error;
  write_model(state, &w);
  const float bias[5] = {[4] = 0.5f};
  SafeTensor trained = {.name = "final_logits_bias", .type = TENSOR_F32, .rank = 2, .shape = {1, 5}, .data = bias};
  rewrite(state, NULL, "final_logits_bias", &trained, 1);
  expect_error(read_model(state, &back, 0, &error), &error, EXIT_CHECKPOINT,
               "tensor final_logits_bias has numbers other than 0, but missing_biases in config.json");
  weights_free(&back);
  set_key(state, "missing_biases", NULL);
  expect_done(read_model(state, &back, 0, &error), &error);
  assert_true(back.config.head_bias && at_row(&back, "lm_head.bias", 0, 4) == 0.5f);
  weights_free(&back);
  trained.rank = 1, trained.shape[0] = 5, trained.shape[1] = 0;
  rewrite(state, NULL, "final_logits_bias", &trained, 1);
  expect_error(read_model(state, &back, 0, &error), &error, EXIT_CHECKPOINT, "tensor final_logits_bias is [5] where");
  weights_free(&back);
  weights_free(&w);
}

/* ---- tokens ---- */

static SpecialTokens tokens_of(void **state) {
  ModelConfig config;
  SpecialTokens tokens;
  Error error = {0};
  expect_done(read_config(*state, &config, &tokens, &error), &error);
  return tokens;
}

static void expect_token(void **state, const char *file, const char *key, int wanted) {
  json_t *root = json_load_file(at(state, file).text, 0, NULL);
  const json_t *value = json_object_get(root, key);
  if (wanted < 0 ? !json_is_null(value) : json_integer_value(value) != wanted || !json_is_integer(value))
    fail_msg("%s in %s is not %d", key, file, wanted);
  json_decref(root);
}

static void test_tokens(void **state) {
  const char *const files[] = {"config.json", "generation_config.json"};
  ModelConfig c = marian();
  Error error = {0};
  for (int round = 0; round < 2; round++) {
    expect_done(write_config(*state, &c, (SpecialTokens){.start = 3, .end = 4}, &error), &error);
    for (int i = 0; i < 2; i++) {
      expect_token(state, files[i], "bos_token_id", 3);
      expect_token(state, files[i], "eos_token_id", 4);
      expect_token(state, files[i], "decoder_start_token_id", 3);
      expect_token(state, files[i], "pad_token_id", round ? -1 : 4);
    }
    expect_token(state, "config.json", "forced_eos_token_id", -1);
    c.source_vocab = 4; /* sources have no token 4 to be padded with */
  }
  assert_true(tokens_of(state).start == 3 && tokens_of(state).end == 4);
  set_key(state, "bos_token_id", "1");
  set_key(state, "decoder_start_token_id", "2");
  assert_int_equal(tokens_of(state).start, 2);
  set_key(state, "decoder_start_token_id", "null"); /* then transformers takes bos */
  assert_int_equal(tokens_of(state).start, 1);
  put(at(state, "config.json").text, "{\"model_type\":\"marian\"}", 23);
  assert_true(tokens_of(state).start == 58100 && tokens_of(state).end == 0);
}

/* ---- configurations of others ---- */

static void test_defaults(void **state) {
  static const struct {
    const char *type;
    int vocab, ctx, encoder_layers, layers, heads, dim, ffn;
  } rows[] = {{"marian", 58101, 1024, 12, 12, 16, 1024, 4096},
              {"pegasus", 50265, 1024, 12, 12, 16, 1024, 4096},
              {"blenderbot", 8008, 128, 2, 24, 32, 2560, 10240}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ModelConfig c;
    SpecialTokens tokens;
    Error error = {0};
    char text[64];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", rows[i].type);
    put(at(state, "config.json").text, text, strlen(text));
    expect_done(read_config(*state, &c, &tokens, &error), &error);
    assert_true(c.vocab == rows[i].vocab && c.source_vocab == rows[i].vocab && c.ctx == rows[i].ctx);
    assert_true(c.encoder_layers == rows[i].encoder_layers && c.layers == rows[i].layers && c.tie);
    assert_true(c.heads == rows[i].heads && c.kv_heads == rows[i].heads && c.head_dim == c.dim / c.heads);
    assert_true(c.dim == rows[i].dim && c.ffn == rows[i].ffn && c.activation == ACTIVATION_GELU);
    assert_true(c.bias && c.qkv_bias && c.head_bias && c.norm == NORM_LAYER && c.norm_eps == 1e-5f);
  }
}

static void test_refused(void **state) {
  static const char *const cases[][2] = {
      {"{\"model_type\":\"marian\",\"scale_embedding\":true}", "scale_embedding is true; only false is supported"},
      {"{\"model_type\":\"marian\",\"decoder_attention_heads\":8}",
       "decoder_attention_heads is 8; only 16, as encoder_attention_heads, is supported"},
      {"{\"model_type\":\"marian\",\"encoder_attention_heads\":8}",
       "decoder_attention_heads is 16 when it is absent; only 8, as encoder_attention_heads, is supported"},
      {"{\"model_type\":\"pegasus\",\"decoder_ffn_dim\":\"4096\"}", "decoder_ffn_dim is \"4096\"; only 4096"},
      {"{\"model_type\":\"pegasus\",\"num_hidden_layers\":6}",
       "num_hidden_layers is 6; only 12, as encoder_layers, is supported"},
      {"{\"model_type\":\"pegasus\",\"is_encoder_decoder\":false}", "is_encoder_decoder is false; only true"},
      {"{\"model_type\":\"marian\",\"share_encoder_decoder_embeddings\":false}",
       "share_encoder_decoder_embeddings is false; only true, as tie_word_embeddings, is supported"},
      {"{\"model_type\":\"marian\",\"tie_word_embeddings\":false}",
       "share_encoder_decoder_embeddings is true; only false, as tie_word_embeddings, is supported"},
      {"{\"model_type\":\"marian\",\"share_encoder_decoder_embeddings\":0}", "is neither true nor false"},
      {"{\"model_type\":\"marian\",\"decoder_vocab_size\":7}",
       "a tied model has one table for sources of 58101 tokens and targets of 7"},
      {"{\"model_type\":\"blenderbot\",\"encoder_layers\":0}", "encoder_layers is 0; it must be from 1 to 1024"},
      {"{\"model_type\":\"blenderbot\",\"encoder_layers\":4097}", "encoder_layers is 4097"},
      {"{\"model_type\":\"blenderbot\",\"decoder_start_token_id\":8008}",
       "decoder_start_token_id 8008 lies outside the vocabulary of 8008"},
      {"{\"model_type\":\"marian\",\"missing_biases\":[\"tail\"]}",
       "a name other than \"qkv\", \"output\", \"mlp\" and"},
      {"{\"model_type\":\"marian\",\"architectures\":[\"MarianModel\"]}",
       "architectures is \"MarianModel\"; of model_type \"marian\" only \"MarianMTModel\""},
      {"{\"model_type\":\"bart\"}", "opt, marian, pegasus, blenderbot, inkling_parts"},
      {"{\"architectures\":[\"InklingPartsForConditionalGeneration\"],\"encoder_layers\":0}", "encoder_layers is 0"},
      {"{\"architectures\":[\"InklingPartsForConditionalGeneration\"],\"source_vocab_size\":1048577}",
       "source_vocab_size is 1048577"},
      {"{\"architectures\":[\"InklingPartsForConditionalGeneration\"],\"is_encoder_decoder\":false}",
       "is_encoder_decoder is false"},
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

static void test_own_class(void **state) {
  const ModelConfig c = own_encoder();
  Error error = {0};
  expect_done(write_config(*state, &c, no_tokens, &error), &error);
  expect_key(state, "\"AutoModelForSeq2SeqLM\": \"modeling_inkling.InklingPartsForConditionalGeneration\"", true);
  expect_key(state, "\"source_vocab_size\": 7", true);
  expect_key(state, "\"model_type\": \"inkling_parts\"", true);
  expect_done(write_config(*state, &plain, no_tokens, &error), &error);
  expect_key(state, "decoder_start_token_id", false);
  expect_key(state, "\"pad_token_id\": null", true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_classes),
      TEST(test_round_trips),
      TEST(test_missing_biases),
      TEST(test_marian_tensors),
      TEST(test_own_vocabularies),
      TEST(test_shared_table),
      TEST(test_absent_tensors),
      TEST(test_absent_positions),
      TEST(test_load_without_tables),
      TEST(test_missing_but_there),
      TEST(test_tokens),
      TEST(test_defaults),
      TEST(test_refused),
      TEST(test_own_class),
  };
  return cmocka_run_group_tests_name("checkpoint_encoders", tests, NULL, NULL);
}
