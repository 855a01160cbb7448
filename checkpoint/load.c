/* A model directory onto a device. */
#include "checkpoint/architectures.h"
#include "checkpoint/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool check_tokenizer(const Tokenizer *t, const char *dir, const ModelConfig *config, Error *error) {
  const bool encoder = config->encoder_layers > 0;
  if (tokenizer_vocab(t) != config->vocab)
    return fail(error, EXIT_CHECKPOINT,
                "%s: " TOKENIZER_JSON " has %d tokens and " CHECKPOINT_CONFIG " %d; they are not of the same model",
                dir, tokenizer_vocab(t), config->vocab);
  if (encoder && config->source_vocab != config->vocab)
    return fail(
        error, EXIT_CHECKPOINT,
        "%s: its sources have a vocabulary of their own, of %d tokens beside %d; one tokenizer for both is needed", dir,
        config->source_vocab, config->vocab);
  return encoder || !tokenizer_ends_with_end(t) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: " TOKENIZER_JSON " puts the end token behind a text, which is supported for models with an encoder",
              dir);
}

bool checkpoint_load_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  if (!tokenizer_load(out, checkpoint_path(dir, TOKENIZER_JSON).text, error)) return false;
  if (check_tokenizer(*out, dir, config, error)) return true;
  tokenizer_free(*out);
  *out = NULL;
  return false;
}

/* A parameter takes at least two bytes; biases may be absent, and a table of sinusoids is in the file like any other,
 * unless the class makes its own. */
static bool check_weights_size(const char *dir, const ModelConfig *config, Error *error) {
  struct stat info;
  ConfigFile saved = {0};
  if (!config_file_read(dir, &saved, error)) return false;
  ModelConfig least = *config;
  least.bias = least.qkv_bias = least.head_bias = false;
  if (least.positions == POSITIONS_SINUSOIDAL && !saved.architecture->sinusoids) least.positions = POSITIONS_LEARNED;
  const int64_t parameters = model_parameters(&least);
  const CheckpointPath path = checkpoint_path(dir, CHECKPOINT_WEIGHTS);
  if (stat(path.text, &info) != 0)
    return fail(error, EXIT_CHECKPOINT, "cannot read %s: %s", path.text, strerror(errno));
  if (info.st_size / 2 >= parameters) return true;
  return fail(error, EXIT_CHECKPOINT,
              "%s has %lld bytes, too few for the %" PRId64 " parameters that " CHECKPOINT_CONFIG " describes",
              path.text, (long long)info.st_size, parameters);
}

bool checkpoint_load_model(Model **out, const char *dir, const ModelConfig *config, const Backend *backend,
                           Context *context, Error *error) {
  *out = NULL;
  if (!check_weights_size(dir, config, error) || !model_open(out, backend, context, config, error)) return false;
  const ParameterTable *table = model_table(*out);
  float *arena = calloc(table->arena, sizeof *arena);
  bool ok = arena ? checkpoint_read_weights(dir, config, table, arena, error) : error_memory(error, "the weights");
  if (ok) model_upload(*out, ARENA_MASTER, arena);
  free(arena);
  if (ok) return true;
  model_close(*out);
  *out = NULL;
  return false;
}
