/* A model directory onto a device. */
#include "checkpoint/classes.h"
#include "checkpoint/weight_files.h"

#include <inttypes.h>
#include <stdlib.h>

/* A parameter takes at least two bytes; biases may be absent, and a table of sinusoids is in the file like any other,
 * unless the class makes its own. */
bool checkpoint_check_weights_size(const char *dir, const ModelConfig *config, Error *error) {
  ConfigFile saved = {0};
  WeightFiles files;
  if (!config_file_read(dir, &saved, error)) return false;
  ModelConfig least = *config;
  least.bias = least.qkv_bias = least.head_bias = false;
  if (least.positions == POSITIONS_SINUSOIDAL && !saved.class->sinusoids) least.positions = POSITIONS_LEARNED;
  const int64_t parameters = model_parameters(&least);
  if (!weight_files_open(&files, dir, error)) return false;
  const CheckpointPath path = files.path;
  const size_t bytes = files.bytes;
  weight_files_close(&files);
  if ((int64_t)(bytes / 2) >= parameters) return true;
  return fail(error, EXIT_CHECKPOINT,
              "%s has %zu bytes of weights, too few for the %" PRId64 " parameters that " CHECKPOINT_CONFIG
              " describes",
              path.text, bytes, parameters);
}

/* Straight to where they are used, or through a copy. */
static bool read_weights(Model *model, const char *dir, const ModelConfig *config, Error *error) {
  const ParameterTable *table = model_table(model);
  float *weights = model_host_weights(model), *copy = NULL;
  if (!weights) weights = copy = calloc(table->arena, sizeof *copy);
  const bool ok =
      weights ? checkpoint_read_weights(dir, config, table, weights, error) : error_memory(error, "the weights");
  if (ok && copy) model_upload(model, ARENA_MASTER, copy);
  else if (ok) model_weights_written(model);
  free(copy);
  return ok;
}

bool checkpoint_load_model(Model **out, const char *dir, const ModelConfig *config, const Backend *backend,
                           Context *context, Error *error) {
  *out = NULL;
  if (!checkpoint_check_weights_size(dir, config, error) || !model_open(out, backend, context, config, error))
    return false;
  if (read_weights(*out, dir, config, error)) return true;
  model_close(*out);
  *out = NULL;
  return false;
}
