/* A model directory onto a device. */
#include "checkpoint/classes.h"
#include "checkpoint/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A parameter takes at least two bytes; biases may be absent, and a table of sinusoids is in the file like any other,
 * unless the class makes its own. */
static bool check_weights_size(const char *dir, const ModelConfig *config, Error *error) {
  struct stat info;
  ConfigFile saved = {0};
  if (!config_file_read(dir, &saved, error)) return false;
  ModelConfig least = *config;
  least.bias = least.qkv_bias = least.head_bias = false;
  if (least.positions == POSITIONS_SINUSOIDAL && !saved.class->sinusoids) least.positions = POSITIONS_LEARNED;
  const int64_t parameters = model_parameters(&least);
  const CheckpointPath path = checkpoint_path(dir, CHECKPOINT_WEIGHTS);
  if (stat(path.text, &info) != 0 && errno == ENOENT) return checkpoint_fail_without_weights(dir, error);
  if (stat(path.text, &info) != 0)
    return fail(error, EXIT_CHECKPOINT, "cannot read %s: %s", path.text, strerror(errno));
  if (info.st_size / 2 >= parameters) return true;
  return fail(error, EXIT_CHECKPOINT,
              "%s has %lld bytes, too few for the %" PRId64 " parameters that " CHECKPOINT_CONFIG " describes",
              path.text, (long long)info.st_size, parameters);
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
  if (!check_weights_size(dir, config, error) || !model_open(out, backend, context, config, error)) return false;
  if (read_weights(*out, dir, config, error)) return true;
  model_close(*out);
  *out = NULL;
  return false;
}
