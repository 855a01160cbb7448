/* Opens and reads a model directory; reads and writes its tokenizers. */
#include "formats/weight_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool model_files_open(ModelFiles **out, const char *dir, Error *error) {
  *out = NULL;
  if (!model_files_check(dir, error)) return false;
  ModelFiles *files = calloc(1, sizeof *files);
  char *name = files ? strdup(dir) : NULL;
  if (!name) {
    free(files);
    return error_memory(error, "a model directory");
  }
  files->dir = name;
  if (config_file_read(dir, &files->saved, error)) *out = files;
  else model_files_close(files);
  return *out;
}

void model_files_close(ModelFiles *files) {
  if (!files) return;
  weight_files_close(&files->weights);
  free(files->dir);
  free(files);
}

const char *model_files_directory(const ModelFiles *files) { return files->dir; }

const ModelConfig *model_files_config(const ModelFiles *files) { return &files->saved.config; }

SpecialTokens model_files_special_tokens(const ModelFiles *files) { return files->saved.tokens; }

bool model_files_need_weights(ModelFiles *files, Error *error) {
  return files->weights.files || weight_files_open(&files->weights, files->dir, error);
}

/* A parameter takes at least two bytes. Biases may be absent, and so may tables of sinusoids if the class computes
 * them. */
bool model_files_check_weights_size(ModelFiles *files, Error *error) {
  ModelConfig least = files->saved.config;
  least.bias = least.qkv_bias = least.head_bias = 0;
  if (least.positions == POSITIONS_SINUSOIDAL && !files->saved.class->sinusoids) least.positions = POSITIONS_LEARNED;
  const int64_t parameters = model_parameters(&least);
  if (!model_files_need_weights(files, error)) return false;
  const size_t bytes = files->weights.bytes;
  if ((int64_t)(bytes / 2) >= parameters) return true;
  return fail(error, EXIT_CHECKPOINT,
              "%s has %zu bytes of weights, too few for the %" PRId64 " parameters that " MODEL_FILE_CONFIG
              " describes",
              files->weights.path.text, bytes, parameters);
}

bool model_files_read_weights(ModelFiles *files, const ModelConfig *config, const ParameterTable *table, float *arena,
                              Error *error) {
  WeightReader reader;
  if (!weight_reader_open(&reader, files, config, table, error)) return false;
  bool ok = true;
  for (int i = 0; ok && i < table->count; i++)
    ok = weight_reader_rows(&reader, i, 0, table->tensors[i].rows, arena + table->tensors[i].offset, error);
  weight_reader_close(&reader);
  return ok;
}

/* Reads the weights directly into host memory of the model, or else uploads a copy. */
static bool fill_model(ModelFiles *files, Model *model, Error *error) {
  const ParameterTable *table = model_table(model);
  float *weights = model_host_weights(model), *copy = NULL;
  if (!weights) weights = copy = calloc(table->arena, sizeof *copy);
  const bool ok = weights ? model_files_read_weights(files, model_config(model), table, weights, error)
                          : error_memory(error, "the weights");
  if (ok && copy) model_upload(model, ARENA_MASTER, copy);
  else if (ok) model_weights_written(model);
  free(copy);
  return ok;
}

bool model_files_load(ModelFiles *files, Model **out, const Backend *backend, Context *context, Error *error) {
  *out = NULL;
  if (!model_files_check_weights_size(files, error) || !model_open(out, backend, context, &files->saved.config, error))
    return false;
  const bool ok = fill_model(files, *out, error);
  weight_files_close(&files->weights); /* mapped files count as memory of the process */
  if (ok) return true;
  model_close(*out);
  *out = NULL;
  return false;
}

/* ---- reading tokenizers ---- */

/* `vocab`: the vocabulary in config.json; `of`: " for sources", or "". */
static bool check_vocab(Tokenizer *t, const char *dir, int vocab, const char *of, Error *error) {
  return tokenizer_set_vocab(t, vocab) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: the ids of " TOKENIZER_JSON " go up to %d, but " MODEL_FILE_CONFIG
              " says that the model has only %d rows%s; resize its embeddings to at least %d, or use its own tokenizer",
              dir, tokenizer_vocab(t) - 1, vocab, of, tokenizer_vocab(t));
}

static bool check_end(const Tokenizer *t, const char *dir, const ModelConfig *config, Error *error) {
  return config->encoder_layers || !tokenizer_ends_with_end(t) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: " TOKENIZER_JSON
              " appends the end token to texts, which is only supported for models with an encoder",
              dir);
}

static bool kept(bool ok, Tokenizer **out) {
  if (ok) return true;
  tokenizer_free(*out);
  *out = NULL;
  return false;
}

bool model_files_read_tokenizer(const ModelFiles *files, Tokenizer **out, Error *error) {
  const char *dir = files->dir;
  const ModelConfig *config = &files->saved.config;
  return tokenizer_load(out, path_in(dir, TOKENIZER_JSON).text, error) &&
         kept(check_vocab(*out, dir, config->vocab, "", error) && check_end(*out, dir, config, error), out);
}

bool model_files_read_source_tokenizer(const ModelFiles *files, const Tokenizer *target, Tokenizer **out,
                                       Error *error) {
  const ModelConfig *config = &files->saved.config;
  *out = NULL;
  if (!config->encoder_layers || (config->source_vocab == config->vocab && !tokenizer_has_separate_vocabs(target)))
    return true;
  const PathText folder = path_in(files->dir, MODEL_FILE_SOURCE_TOKENIZER);
  if (!tokenizer_load(out, path_in(folder.text, TOKENIZER_JSON).text, error))
    return error_append(error, "; sources of this model have a separate tokenizer");
  return kept(check_vocab(*out, folder.text, config->source_vocab, " for sources", error), out);
}

/* ---- writing tokenizers ---- */

static bool save_source(const Tokenizer *source, const char *dir, int ctx, Error *error) {
  const PathText folder = path_in(dir, MODEL_FILE_SOURCE_TOKENIZER);
  if (mkdir(folder.text, 0777) != 0 && errno != EEXIST)
    return fail(error, EXIT_OUTPUT, "cannot make the directory %s: %s", folder.text, strerror(errno));
  return tokenizer_save(source, folder.text, ctx, error);
}

bool model_files_write_tokenizers(const char *dir, Tokenizer *tokenizer, const Tokenizer *source, int ctx,
                                  Error *error) {
  if (source && !save_source(source, dir, ctx, error)) return false;
  tokenizer_set_separate_vocabs(tokenizer, source != NULL);
  return tokenizer_save(tokenizer, dir, ctx, error);
}

void model_files_remove_source_tokenizer(const char *dir) {
  const PathText folder = path_in(dir, MODEL_FILE_SOURCE_TOKENIZER);
  file_remove_in(folder.text, TOKENIZER_JSON);
  file_remove_in(folder.text, TOKENIZER_CONFIG_JSON);
  rmdir(folder.text);
}
