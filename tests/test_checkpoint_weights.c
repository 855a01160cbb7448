/* checkpoint: model.safetensors written, read and loaded, ours and others', also damaged and hostile. */
#include "tests/model_files_helpers.h"
#include "files/checkpoint/directory.h"
#include "tests/small_model.h"
#include "files/formats/model_files.h"
#include "model/parameters.h"

#include <math.h>

/* Its configuration, a LLaMA's, without which the names of tensors say nothing. */
static void put_config(void **state, const ModelConfig *config) {
  Error error = {0};
  expect_done(write_config(*state, config, (SpecialTokens){.start = -1, .end = -1}, &error), &error);
}

static void test_weights_round_trip(void **state) {
  Error error = {0};
  float arena[ARENA], back[ARENA] = {0};
  fill(arena, 0.5f);
  expect_done(model_files_write_weights(*state, &small_config, &small_table, arena, &error), &error);
  expect_error(read_weights(*state, &small_config, &small_table, back, &error), &error, EXIT_CHECKPOINT,
               "holds no model (no config.json in it)");
  error = (Error){0};
  put_config(state, &small_config);
  expect_done(read_weights(*state, &small_config, &small_table, back, &error), &error);
  expect_arena(back, 0.5f, 0);
  SafeTensors file;
  expect_done(safetensors_open(&file, at(state, MODEL_FILE_WEIGHTS).text, &error), &error);
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
  Path path = at(state, MODEL_FILE_WEIGHTS);
  Error written = {0};
  put_config(state, &small_config);
  expect_done(safetensors_write(path.text, f->tensors, f->count, NULL, 0, &written), &written);
  *error = (Error){0};
  memset(arena, 0, ARENA * sizeof *arena);
  return read_weights(*state, &small_config, &small_table, arena, error);
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
  Error error = {0};
  put_safetensors(at(state, MODEL_FILE_WEIGHTS).text, "{\"a\":" T("F32", "[1,2]", 0, 8) "} ", -1, data, sizeof data);
  put_config(state, &small_config);
  expect_done(read_weights(*state, &small_config, &table, arena, &error), &error);
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
  f.data[2] = INFINITY; /* the error is always that of the first one */
  expect_error(load_foreign(state, &f, arena, &error), &error, EXIT_CHECKPOINT,
               "element 2 of tensor model.embed_tokens.weight");
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
  assert_int_equal(mkdir(at(state, "big").text, 0777), 0);
  put(at(state, "big/model.safetensors.index.json").text, "{}", 2);
  expect_done(write_config(at(state, "big").text, &small_config, (SpecialTokens){.start = -1, .end = -1}, &error),
              &error);
  bool done = read_weights(at(state, "big").text, &small_config, &small_table, arena, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "no weight_map");
  error = (Error){0};
  assert_int_equal(unlink(at(state, "big/model.safetensors.index.json").text), 0);
  done = read_weights(at(state, "big").text, &small_config, &small_table, arena, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "no weights (no model.safetensors in it)");
}

/* ---- loading ---- */

static void test_load(void **state) {
  const Backend *cpu = backend_find("cpu", NULL, 1u << DTYPE_F32);
  ModelConfig config = {.vocab = 257,
                        .ctx = 8,
                        .layers = 2,
                        .heads = 4,
                        .kv_heads = 2,
                        .dim = 32,
                        .head_dim = 8,
                        .ffn = 40,
                        .tie = true,
                        .rope_base = 10000.0f,
                        .norm_eps = 1e-5f,
                        .gated = true};
  const ContextOptions options = {.dtype = DTYPE_F32, .threads = 1};
  Error error = {0};
  Context *context;
  expect_done(cpu->open(&context, &options, &error), &error);
  Model *model;
  for (int tie = 0; tie < 2; tie++) {
    ParameterTable table;
    config.tie = tie;
    expect_done(parameter_table_make(&table, &config, &error), &error);
    float *arena = calloc(table.arena, sizeof *arena), *back = calloc(table.arena, sizeof *back);
    assert_non_null(arena);
    assert_non_null(back);
    parameter_table_init(&table, (Initialization){INIT_GPT2, INIT_DEFAULT_STD}, arena, 7);
    put_config(state, &config);
    expect_done(model_files_write_weights(*state, &config, &table, arena, &error), &error);
    expect_done(load_model(&model, *state, cpu, context, &error), &error);
    expect_done(model_download(model, ARENA_MASTER, back, &error), &error);
    assert_memory_equal(arena, back, table.arena * sizeof *arena);
    model_close(model);
    free(arena);
    free(back);
    parameter_table_free(&table);
  }
  config.layers = 3;
  put_config(state, &config);
  bool done = load_model(&model, *state, cpu, context, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "has no tensor model.layers.2");
  assert_null(model);
  config.layers = 1000; /* refused before memory is allocated */
  error = (Error){0};
  put_config(state, &config);
  done = load_model(&model, *state, cpu, context, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "too few for the");
  config = (ModelConfig){.vocab = 257,
                         .ctx = MODEL_MAX_CTX,
                         .layers = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .dim = 64,
                         .head_dim = 64,
                         .ffn = 1,
                         .norm_eps = 1e-5f,
                         .norm = NORM_LAYER,
                         .positions = POSITIONS_SINUSOIDAL};
  error = (Error){0};
  put_config(state, &config);
  done = load_model(&model, *state, cpu, context, &error);
  expect_error(done, &error, EXIT_CHECKPOINT, "too few for the");
  cpu->close(context);
}

/* The tokenizer of a directory, whose config.json becomes that of `config`. */
static bool load_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  ModelFiles *files = NULL;
  *out = NULL;
  const bool ok = write_config(dir, config, (SpecialTokens){.start = -1, .end = -1}, error) &&
                  model_files_open(&files, dir, error) && model_files_read_tokenizer(files, out, error);
  model_files_close(files);
  return ok;
}

static bool load_source_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  ModelFiles *files = NULL;
  Tokenizer *target = NULL;
  *out = NULL;
  const bool ok = write_config(dir, config, (SpecialTokens){.start = -1, .end = -1}, error) &&
                  model_files_open(&files, dir, error) && model_files_read_tokenizer(files, &target, error) &&
                  model_files_read_source_tokenizer(files, target, out, error);
  tokenizer_free(target);
  model_files_close(files);
  return ok;
}

static void test_load_tokenizer(void **state) {
  Tokenizer *tokenizer = tokenizer_byte();
  Error error = {0};
  ModelConfig config = small_config;
  config.vocab = 256, config.tie = false;
  tokenizer_set_ends_with_end(tokenizer, true);
  expect_done(tokenizer_save(tokenizer, *state, 8, &error), &error);
  tokenizer_free(tokenizer);
  expect_error(load_tokenizer(&tokenizer, *state, &config, &error), &error, EXIT_CHECKPOINT,
               "the ids of tokenizer.json go up to 256, but config.json says that the model has only 256 rows; resize");
  assert_null(tokenizer);
  config.vocab = 258;
  error = (Error){0};
  expect_error(load_tokenizer(&tokenizer, *state, &config, &error), &error, EXIT_CHECKPOINT,
               "appends the end token to texts, which is only supported for models with an encoder");
  config.encoder_layers = 1, config.source_vocab = 257;
  error = (Error){0};
  expect_done(load_tokenizer(&tokenizer, *state, &config, &error), &error);
  tokenizer_free(tokenizer);
}

static void expect_source_refused(const char *dir, const ModelConfig *config, const char *words) {
  Tokenizer *source;
  Error error = {0};
  expect_error(load_source_tokenizer(&source, dir, config, &error), &error, EXIT_CHECKPOINT, words);
  assert_null(source);
}

/* One tokenizer or two: what config.json and tokenizer_config.json say counts, not what lies there. */
static void test_source_tokenizer(void **state) {
  Tokenizer *byte = tokenizer_byte(), *bpe, *source;
  Error error = {0};
  const BpeMerge merges[] = {{'a', 'b', 256}};
  ModelConfig config = small_config;
  config.vocab = config.source_vocab = 257, config.encoder_layers = 1, config.tie = false;
  expect_done(tokenizer_from_merges(&bpe, merges, 1, &error), &error);
  expect_done(model_files_write_tokenizers(*state, byte, NULL, 8, &error), &error);
  expect_done(load_source_tokenizer(&source, *state, &config, &error), &error);
  assert_null(source);
  config.source_vocab = 258;
  expect_source_refused(*state, &config, "sources of this model have a separate tokenizer");
  expect_done(model_files_write_tokenizers(*state, byte, bpe, 8, &error), &error);
  expect_done(load_source_tokenizer(&source, *state, &config, &error), &error);
  assert_true(tokenizer_fingerprint(source) == tokenizer_fingerprint(bpe));
  tokenizer_free(source);
  config.source_vocab = 259; /* a row that no token has */
  expect_done(load_source_tokenizer(&source, *state, &config, &error), &error);
  assert_int_equal(tokenizer_vocab(source), 259);
  assert_int_equal(tokenizer_tokens(source), 258);
  tokenizer_free(source);
  config.source_vocab = 256;
  expect_source_refused(*state, &config,
                        "source_tokenizer: the ids of tokenizer.json go up to 257, but config.json says that the "
                        "model has only 256 rows for sources; resize its embeddings to at least 258");
  expect_done(model_files_write_tokenizers(*state, byte, byte, 8, &error), &error); /* two of one size */
  config.source_vocab = 257;
  expect_done(load_source_tokenizer(&source, *state, &config, &error), &error);
  assert_non_null(source);
  tokenizer_free(source);
  model_files_remove_source_tokenizer(*state);
  assert_int_equal(access(at(state, MODEL_FILE_SOURCE_TOKENIZER).text, F_OK), -1);
  expect_source_refused(*state, &config, "source_tokenizer/tokenizer.json: No such file or directory; sources of this");
  config.encoder_layers = config.source_vocab = 0;
  expect_done(load_source_tokenizer(&source, *state, &config, &error), &error);
  assert_null(source);
  config.encoder_layers = 1, config.source_vocab = 257;
  put(at(state, TOKENIZER_CONFIG_JSON).text, "{\"separate_vocabs\": tru", 24); /* is not a file of one's own: absent */
  expect_done(load_source_tokenizer(&source, *state, &config, &error), &error);
  assert_null(source);
  tokenizer_free(byte);
  tokenizer_free(bpe);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_weights_round_trip),
      TEST(test_weights_half_types),
      TEST(test_weights_unaligned),
      TEST(test_weights_refused),
      TEST(test_load),
      TEST(test_load_tokenizer),
      TEST(test_source_tokenizer),
  };
  return cmocka_run_group_tests_name("checkpoint_weights", tests, NULL, NULL);
}
