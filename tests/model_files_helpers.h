/* Reading one thing of a model directory at a time, as tests want it. */
#ifndef INKLING_TESTS_MODEL_FILES_HELPERS_H
#define INKLING_TESTS_MODEL_FILES_HELPERS_H

#include "files/formats/model_files.h"
#include "model/parameters.h"

static inline bool write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, Error *error) {
  return model_files_write_config(dir, config, tokens, TENSOR_F32, error);
}

static inline bool read_config(const char *dir, ModelConfig *config, SpecialTokens *tokens, Error *error) {
  ModelFiles *files;
  *config = (ModelConfig){0};
  *tokens = (SpecialTokens){.start = -1, .end = -1};
  if (!model_files_open(&files, dir, error)) return false;
  *config = *model_files_config(files);
  *tokens = model_files_special_tokens(files);
  model_files_close(files);
  return true;
}

static inline bool read_weights(const char *dir, const ModelConfig *config, const ParameterTable *table, float *arena,
                                Error *error) {
  ModelFiles *files;
  const bool ok =
      model_files_open(&files, dir, error) && model_files_read_weights(files, config, table, arena, 2, error);
  model_files_close(files);
  return ok;
}

static inline bool check_weights_size(const char *dir, Error *error) {
  ModelFiles *files;
  const bool ok = model_files_open(&files, dir, error) && model_files_check_weights_size(files, error);
  model_files_close(files);
  return ok;
}

static inline bool load_model(Model **out, const char *dir, const Backend *backend, Context *context, Error *error) {
  ModelFiles *files;
  const bool ok = model_files_open(&files, dir, error) && model_files_load(files, out, backend, context, error);
  model_files_close(files);
  return ok;
}

static inline bool copy_weights(const char *from, const char *to, TensorType type, Error *error) {
  ModelFiles *files;
  const bool ok = model_files_open(&files, from, error) && model_files_copy_weights(files, to, type, error);
  model_files_close(files);
  return ok;
}

#endif
