/* checkpoint: weights, configuration, resume state and lock of a run, also damaged, hostile and unwritable. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "tests/store_helpers.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- a small model, laid out by hand, with pads ---- */

enum { ARENA = 192 + 64 };
static ParameterTensor small_tensors[] = {
    {.name = "model.embed_tokens.weight", .rows = 5, .cols = 4, .rank = 2, .offset = 0}, /* three rows of pad follow */
    {.name = "model.layers.0.self_attn.q_proj.weight", .rows = 4, .cols = 4, .rank = 2, .offset = 64},
    {.name = "model.layers.0.self_attn.k_proj.weight", .rows = 2, .cols = 4, .rank = 2, .offset = 80},
    {.name = "model.norm.weight", .rows = 1, .cols = 4, .rank = 1, .offset = 192},
};
static const ParameterTable small_table = {.tensors = small_tensors, .count = 4, .arena = ARENA};
enum { WEIGHTS = 20 + 16 + 8 + 4 };

static void fill(float *arena, float base) {
  for (int i = 0; i < ARENA; i++) arena[i] = base + (float)i;
}

/* Did every tensor arrive, and were pads left alone? */
static void expect_arena(const float *arena, float base, float pad) {
  int weights = 0;
  bool is_weight[ARENA] = {false};
  for (int t = 0; t < small_table.count; t++)
    for (size_t i = 0; i < (size_t)(small_tensors[t].rows * small_tensors[t].cols); i++)
      is_weight[small_tensors[t].offset + i] = true;
  for (int i = 0; i < ARENA; i++) {
    float wanted = is_weight[i] ? base + (float)i : pad;
    if (arena[i] != wanted) fail_msg("element %d is %g, should be %g", i, (double)arena[i], (double)wanted);
    weights += is_weight[i];
  }
  assert_int_equal(weights, WEIGHTS);
}

static void test_weights_round_trip(void **state) {
  Error error = {0};
  float arena[ARENA], back[ARENA] = {0};
  fill(arena, 0.5f);
  Path path = at(state, "model.safetensors");
  expect_done(checkpoint_write_weights(path.text, &small_table, arena, NULL, 0, &error), &error);
  expect_done(checkpoint_read_weights(path.text, &small_table, back, &error), &error);
  expect_arena(back, 0.5f, 0);
  SafeTensors file;
  expect_done(safetensors_open(&file, path.text, &error), &error);
  assert_int_equal(file.count, 4);
  assert_int_equal(safetensors_find(&file, "model.norm.weight")->rank, 1);
  assert_int_equal(safetensors_find(&file, "model.embed_tokens.weight")->shape[0], 5);
  safetensors_close(&file);
}

/* Tensors of the small model, to be changed before they are written. The last two are extras. */
typedef struct Foreign {
  float data[ARENA];
  uint16_t words[64];
  SafeTensor tensors[6];
  int count;
} Foreign;

static void make_foreign(Foreign *f) {
  memset(f, 0, sizeof *f);
  fill(f->data, 1);
  f->count = 4;
  for (int i = 0; i < 4; i++) {
    const ParameterTensor *p = &small_tensors[i];
    SafeTensor *t = &f->tensors[i];
    *t = (SafeTensor){.name = p->name, .type = TENSOR_F32, .rank = p->rank, .data = f->data + p->offset};
    t->shape[0] = p->rank == 1 ? p->cols : p->rows;
    t->shape[1] = p->rank == 1 ? 0 : p->cols;
  }
  f->tensors[4] = (SafeTensor){.type = TENSOR_F32, .rank = 2, .shape = {5, 4}, .data = f->data};
}

static bool load_foreign(void **state, const Foreign *f, float *arena, Error *error) {
  Path path = at(state, "foreign.safetensors");
  Error written = {0};
  expect_done(safetensors_write(path.text, f->tensors, f->count, NULL, 0, &written), &written);
  *error = (Error){0};
  memset(arena, 0, ARENA * sizeof *arena);
  return checkpoint_read_weights(path.text, &small_table, arena, error);
}

static void test_weights_half_types(void **state) {
  /* value, binary16, bfloat16; 0: not compared */
  static const struct {
    float value;
    uint16_t half, brain;
  } numbers[] = {{1.0f, 0x3C00, 0x3F80},     {-2.0f, 0xC000, 0xC000},    {65504.0f, 0x7BFF, 0},
                 {0x1p-24f, 0x0001, 0x3380}, {0x1p-14f, 0x0400, 0x3880}, {-0x1.FF8p-15f, 0x83FF, 0},
                 {0x1.554p-2f, 0x3555, 0},   {0x1p-126f, 0, 0x0080}};
  Foreign f;
  Error error;
  float arena[ARENA];
  for (int type = 0; type < 2; type++) {
    make_foreign(&f);
    for (int i = 0; i < 8; i++) f.words[i] = type == 0 ? numbers[i].half : numbers[i].brain;
    f.tensors[2].type = type == 0 ? TENSOR_F16 : TENSOR_BF16;
    f.tensors[2].data = f.words;
    expect_done(load_foreign(state, &f, arena, &error), &error);
    for (int i = 0; i < 8; i++) assert_true(arena[80 + i] == (f.words[i] != 0 ? numbers[i].value : 0.0f));
    assert_true(arena[64] == 65.0f);
    f.words[3] = type == 0 ? 0x7C00 : 0x7F80; /* infinity */
    expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT,
                 "element 3 of tensor model.layers.0.self_attn.k_proj.weight is inf");
  }
}

static void test_weights_unaligned(void **state) {
  static ParameterTensor tensor = {.name = "a", .rows = 1, .cols = 2, .rank = 2, .offset = 0};
  const ParameterTable table = {.tensors = &tensor, .count = 1, .arena = 64};
  const float data[2] = {3, 4};
  float arena[64] = {0};
  Path path = at(state, "odd");
  Error error = {0};
  put_safetensors(path.text, "{\"a\":" T("F32", "[1,2]", 0, 8) "} ", -1, data, sizeof data);
  expect_done(checkpoint_read_weights(path.text, &table, arena, &error), &error);
  assert_true(arena[0] == 3 && arena[1] == 4 && arena[2] == 0);
}

static void test_weights_refused(void **state) {
  Foreign f;
  Error error;
  float arena[ARENA];
  make_foreign(&f);
  f.count = 3;
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT, "has no tensor model.norm.weight");
  make_foreign(&f);
  f.tensors[1].shape[0] = 2, f.tensors[1].shape[1] = 8;
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT,
               "q_proj.weight is [2, 8] where the configuration says [4, 4]");
  make_foreign(&f);
  f.tensors[3].rank = 2, f.tensors[3].shape[0] = 1, f.tensors[3].shape[1] = 4;
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT,
               "norm.weight is [1, 4] where the configuration says [4]");
  make_foreign(&f);
  f.tensors[0].type = TENSOR_I32;
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT, "embed_tokens.weight is I32");
  make_foreign(&f);
  f.data[193] = NAN;
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT,
               "element 1 of tensor model.norm.weight");
  make_foreign(&f);
  f.count = 5;
  f.tensors[4].name = "model.layers.0.self_attn.q_proj.bias";
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT,
               "has a tensor 'model.layers.0.self_attn.q_proj.bias'");
  f.tensors[4].name = "lm_head.weight";
  f.tensors[4].shape[0] = 4;
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT, "has a tensor 'lm_head.weight'");
  f.tensors[4].shape[0] = 5;
  expect_done(load_foreign(state, &f, arena, &error), &error);
  f.tensors[4].name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  expect_done(load_foreign(state, &f, arena, &error), &error);
  expect_arena(arena, 1, 0);
  error = (Error){0};
  put(at(state, "big.safetensors.index.json").text, "{}", 2);
  bool done = checkpoint_read_weights(at(state, "big.safetensors").text, &small_table, arena, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "several files");
  error = (Error){0};
  done = checkpoint_read_weights(at(state, "absent").text, &small_table, arena, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "No such file");
}

/* ---- configuration ---- */

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
                            .norm_eps = 1e-5f};
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
  assert_true(back.tie && back.rope_base == ours.rope_base && back.norm_eps == ours.norm_eps);
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
      {"{", "not proper JSON"},
      {"[]", "is not a JSON object"},
      {"{}", "neither model_type nor architectures"},
      {"{\"model_type\":\"gpt2\"}", "model_type is \"gpt2\"; only \"llama\""},
      {"{\"model_type\":7}", "model_type is not a string"},
      {"{\"architectures\":[\"GPT2LMHeadModel\"]}", "architectures is \"GPT2LMHeadModel\""},
      {"{\"architectures\":[]}", "architectures is not a list"},
      {"{" LLAMA ",\"vocab_size\":1,\"vocab_size\":2}", "not proper JSON"},
      {"{" LLAMA ",\"hidden_act\":\"gelu\"}", "hidden_act is \"gelu\""},
      {"{" LLAMA ",\"attention_bias\":true}", "attention_bias is true"},
      {"{" LLAMA ",\"mlp_bias\":true}", "mlp_bias is true"},
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
      {"{" LLAMA ",\"num_attention_heads\":3}", "hidden_size 4096 is not a multiple"},
      {"{" LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps is 0"},
      {"{" LLAMA ",\"rms_norm_eps\":\"small\"}", "rms_norm_eps is not a number"},
      {"{" LLAMA ",\"rope_theta\":1e300}", "rope_theta is 1e+300"},
      {"{" LLAMA ",\"rope_theta\":NaN}", "not proper JSON"},
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

/* ---- resume state ---- */

typedef struct Arenas {
  float master[ARENA], m[ARENA], v[ARENA];
} Arenas;

/* Saves a state in which everything follows from `step`. */
static bool save_step(const char *dir, int step, Error *error) {
  Arenas a;
  char text[16];
  fill(a.master, (float)step);
  fill(a.m, (float)step + 0.25f);
  fill(a.v, (float)step + 0.5f);
  snprintf(text, sizeof text, "%d", step);
  const MetadataEntry metadata[] = {{"step", text}, {"note", "x"}};
  return checkpoint_write_state(dir, &small_table, a.master, a.m, a.v, metadata, 2, error);
}

/* The step that is read back, everything in it checked; -1 with the error. */
static int load_step(const char *dir, char warning[1024], Error *error) {
  Arenas a = {0};
  CheckpointState run = {0};
  *error = (Error){0};
  if (!checkpoint_read_state(dir, &small_table, a.master, a.m, a.v, &run, error)) {
    assert_true(a.master[0] == 0 && a.m[0] == 0 && a.v[64] == 0); /* untouched */
    return -1;
  }
  const char *text = checkpoint_state_get(&run, "step");
  assert_non_null(text);
  int step = atoi(text);
  snprintf(warning, 1024, "%s", run.warning);
  checkpoint_state_free(&run);
  checkpoint_state_free(&run);
  expect_arena(a.master, (float)step, 0);
  expect_arena(a.m, (float)step + 0.25f, 0);
  expect_arena(a.v, (float)step + 0.5f, 0);
  return step;
}

static void test_state_round_trip(void **state) {
  char warning[1024];
  Error error = {0};
  assert_int_equal(load_step(*state, warning, &error), -1);
  expect_error(false, &error, EXIT_CHECKPOINT, "holds no state to resume from");
  error = (Error){0};
  for (int step = 1; step <= 4; step++) {
    expect_done(save_step(*state, step, &error), &error);
    assert_int_equal(load_step(*state, warning, &error), step);
    assert_string_equal(warning, "");
    assert_int_equal(entries(at(state, "last").text), 1);
    assert_int_equal(entries(at(state, "prev").text), step > 1);
  }
  assert_int_equal(remove(at(state, "last/state.safetensors").text), 0);
  assert_int_equal(load_step(*state, warning, &error), 3);
  assert_non_null(strstr(warning, "No such file"));
  assert_non_null(strstr(warning, "prev/state.safetensors"));
  assert_int_equal(remove(at(state, "prev/state.safetensors").text), 0);
  assert_int_equal(load_step(*state, warning, &error), -1);
}

/* Changes one byte of a file, or cuts the file there. */
static void damage(const char *path, size_t place, bool cut) {
  size_t size;
  uint8_t *bytes = get(path, &size);
  assert_true(place < size);
  bytes[place] ^= 1;
  put(path, bytes, cut ? place : size);
  free(bytes);
}

static void test_state_every_byte_counts(void **state) {
  char warning[1024];
  Error error = {0};
  Path last = at(state, "last/state.safetensors");
  expect_done(save_step(*state, 1, &error), &error);
  expect_done(save_step(*state, 2, &error), &error);
  size_t size;
  uint8_t *good = get(last.text, &size);
  uint64_t header;
  memcpy(&header, good, 8);
  int unnoticed = 0;
  for (size_t i = 0; i < size; i++) {
    damage(last.text, i, false);
    int step = load_step(*state, warning, &error);
    bool harmless = i < 8 + header && step == 2; /* e.g. "format":"pt" */
    unnoticed += harmless;
    if (!harmless) assert_int_equal(step, 1), assert_true(strlen(warning) > 20);
    put(last.text, good, size);
    damage(last.text, i, true);
    assert_int_equal(load_step(*state, warning, &error), 1);
    put(last.text, good, size);
  }
  assert_true(unnoticed < 10);
  char *note = strstr((char *)good + 8, "\"step\":\"2\""); /* a plausible change of the metadata */
  assert_non_null(note);
  note[8] = '3';
  put(last.text, good, size);
  assert_int_equal(load_step(*state, warning, &error), 1);
  assert_non_null(strstr(warning, "checksum"));
  damage(at(state, "prev/state.safetensors").text, size - 1, false);
  assert_int_equal(load_step(*state, warning, &error), -1);
  expect_error(false, &error, EXIT_CHECKPOINT, "prev/state.safetensors is damaged: its checksum");
  free(good);
}

/* After a resume from prev/, the next save must not first replace the good state by the damaged one. */
static void test_state_save_over_damaged(void **state) {
  char warning[1024];
  Error error = {0};
  expect_done(save_step(*state, 1, &error), &error);
  expect_done(save_step(*state, 2, &error), &error);
  damage(at(state, "last/state.safetensors").text, 200, true);
  struct rlimit before = limit_file_size(1000); /* the save fails */
  bool done = save_step(*state, 3, &error);
  setrlimit(RLIMIT_FSIZE, &before);
  expect_error(done, &error, EXIT_OUTPUT, "ulimit -f");
  assert_int_equal(entries(at(state, "last").text), 1); /* nothing is left behind */
  assert_int_equal(load_step(*state, warning, &error), 1);
  error = (Error){0};
  expect_done(save_step(*state, 3, &error), &error);
  assert_int_equal(load_step(*state, warning, &error), 3);
  assert_string_equal(warning, "");
}

static void test_state_refused(void **state) {
  char warning[1024];
  Error error = {0};
  Arenas a = {0};
  CheckpointState run;
  expect_error(save_step(at(state, "no").text, 1, &error), &error, EXIT_OUTPUT, "cannot make the directory");
  error = (Error){0};
  expect_done(save_step(*state, 1, &error), &error);
  ParameterTensor wider[4];
  memcpy(wider, small_tensors, sizeof wider);
  wider[0].rows = 6;
  ParameterTable other = {.tensors = wider, .count = 4, .arena = ARENA};
  bool done = checkpoint_read_state(*state, &other, a.master, a.m, a.v, &run, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "is [5, 4] where the configuration says [6, 4]");
  checkpoint_state_free(&run);
  other = (ParameterTable){.tensors = small_tensors, .count = 3, .arena = ARENA};
  error = (Error){0};
  done = checkpoint_read_state(*state, &other, a.master, a.m, a.v, &run, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "tensors that are not the model's");
  a.v[0] = INFINITY;
  error = (Error){0};
  expect_done(checkpoint_write_state(*state, &small_table, a.master, a.m, a.v, NULL, 0, &error), &error);
  assert_int_equal(load_step(*state, warning, &error), 1);
  assert_non_null(strstr(warning, "not finite in tensor adam.v.model.embed_tokens.weight"));
  assert_int_equal(remove(at(state, "last/state.safetensors").text), 0);
  assert_int_equal(remove(at(state, "last").text), 0);
  put(at(state, "last").text, "x", 1); /* a file in place of the directory */
  error = (Error){0};
  assert_false(save_step(*state, 2, &error));
  assert_int_equal(error.code, EXIT_OUTPUT);
  assert_int_equal(load_step(*state, warning, &error), 1);
}

/* kill -9 at random moments of saving: a state is always there, complete, and never older than the one acknowledged. */
static void test_state_killed(void **state) {
  char warning[1024];
  Error error = {0};
  int step = 1;
  expect_done(save_step(*state, step, &error), &error);
  for (int round = 0; round < 25; round++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      Error problem = {0};
      for (int next = step + 1; save_step(*state, next, &problem);) next++;
      _exit(1);
    }
    const struct timespec nap = {0, 1000000L + 700000L * (round * 7 % 25)};
    nanosleep(&nap, NULL);
    kill(child, SIGKILL);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    int found = load_step(*state, warning, &error);
    if (found < 0) fail_msg("%s", error.text);
    assert_string_equal(warning, ""); /* last/ itself is always good */
    assert_true(found >= step);
    step = found;
  }
  assert_true(step > 1);
  int fd;
  expect_done(checkpoint_lock(*state, &fd, &error), &error); /* sweeps what the killed ones left */
  expect_done(save_step(*state, step + 1, &error), &error);
  assert_int_equal(entries(at(state, "last").text), 1);
  close(fd);
}

/* ---- lock ---- */

static void test_lock(void **state) {
  int ready[2], fd = -1;
  Error error = {0};
  assert_int_equal(pipe(ready), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    Error problem = {0};
    char ok = checkpoint_lock(*state, &fd, &problem) ? 'y' : 'n';
    if (write(ready[1], &ok, 1) == 1) pause();
    _exit(0);
  }
  char ok = 0;
  assert_int_equal(read(ready[0], &ok, 1), 1);
  assert_int_equal(ok, 'y');
  expect_error(checkpoint_lock(*state, &fd, &error), &error, EXIT_BUSY, "is in use by another train");
  char text[32];
  snprintf(text, sizeof text, "(process %ld)", (long)child);
  assert_non_null(strstr(error.text, text));
  kill(child, SIGKILL);
  assert_int_equal(waitpid(child, NULL, 0), child);
  close(ready[0]);
  close(ready[1]);
  error = (Error){0};
  put(at(state, ".model.safetensors.inkling-abcdef").text, "x", 1);
  expect_done(checkpoint_lock(*state, &fd, &error), &error); /* the dead leave no lock */
  assert_int_equal(entries(*state), 1);                      /* .lock */
  int again;
  expect_error(checkpoint_lock(*state, &again, &error), &error, EXIT_BUSY,
               "is in use"); /* not twice in one process either */
  close(fd);
  error = (Error){0};
  expect_done(checkpoint_lock(*state, &fd, &error), &error);
  close(fd);
  expect_error(checkpoint_lock(at(state, "no").text, &fd, &error), &error, EXIT_OUTPUT, "cannot make the lock");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_weights_round_trip),
      TEST(test_weights_half_types),
      TEST(test_weights_unaligned),
      TEST(test_weights_refused),
      TEST(test_config_round_trip),
      TEST(test_config_foreign),
      TEST(test_config_refused),
      TEST(test_state_round_trip),
      TEST(test_state_every_byte_counts),
      TEST(test_state_save_over_damaged),
      TEST(test_state_refused),
      TEST(test_state_killed),
      TEST(test_lock),
  };
  return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
