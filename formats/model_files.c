/* Opening and reading a model directory. */
#include "formats/model_files.h"

#include "formats/classes.h"
#include "formats/weight_reader.h"
#include "model/parameters.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* A parameter takes at least two bytes; biases may be absent, and a table of sinusoids is in the file like any other,
 * unless the class makes its own. */
bool model_files_check_weights_size(ModelFiles *files, Error *error) {
  ModelConfig least = files->saved.config;
  least.bias = least.qkv_bias = least.head_bias = false;
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

/* Straight to where they are used, or through a copy. */
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
  weight_files_close(&files->weights); /* what was mapped counts as memory of the process */
  if (ok) return true;
  model_close(*out);
  *out = NULL;
  return false;
}
