/* The tokenizers of a model directory: one, or one of targets and one of sources. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- reading ---- */

/* Of the folder `dir`; its vocabulary must be the one that `key` of config.json stands for. */
static bool load(Tokenizer **out, const char *dir, const char *of, int vocab, bool may_end, Error *error) {
  bool ok = tokenizer_load(out, checkpoint_path(dir, TOKENIZER_JSON).text, error);
  if (ok && tokenizer_vocab(*out) != vocab)
    ok = fail(error, EXIT_CHECKPOINT,
              "%s: " TOKENIZER_JSON " has %d tokens and " CHECKPOINT_CONFIG " %d%s; they are not of the same model",
              dir, tokenizer_vocab(*out), vocab, of);
  if (ok && !may_end && tokenizer_ends_with_end(*out))
    ok = fail(error, EXIT_CHECKPOINT,
              "%s: " TOKENIZER_JSON " puts the end token behind a text, which is supported for models with an encoder",
              dir);
  if (ok) return true;
  tokenizer_free(*out);
  *out = NULL;
  return false;
}

bool checkpoint_load_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  return load(out, dir, "", config->vocab, config->encoder_layers > 0, error);
}

bool checkpoint_load_source_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  *out = NULL;
  const bool other = config->source_vocab != config->vocab;
  if (!config->encoder_layers ||
      (!other && !tokenizer_read_separate_vocabs(checkpoint_path(dir, TOKENIZER_CONFIG_JSON).text)))
    return true;
  return load(out, checkpoint_path(dir, CHECKPOINT_SOURCE_TOKENIZER).text, " of sources", config->source_vocab, true,
              error) ||
         (error->code == EXIT_CHECKPOINT &&
          error_append(error, "; sources of this model have a tokenizer of their own"));
}

/* ---- writing ---- */

static bool save_source(const Tokenizer *source, const char *dir, int ctx, Error *error) {
  const CheckpointPath folder = checkpoint_path(dir, CHECKPOINT_SOURCE_TOKENIZER);
  if (mkdir(folder.text, 0777) != 0 && errno != EEXIST)
    return fail(error, EXIT_OUTPUT, "cannot make the directory %s: %s", folder.text, strerror(errno));
  return tokenizer_save(source, folder.text, ctx, error);
}

bool checkpoint_write_tokenizers(const char *dir, Tokenizer *tokenizer, const Tokenizer *source, int ctx,
                                 Error *error) {
  if (source && !save_source(source, dir, ctx, error)) return false;
  tokenizer_set_separate_vocabs(tokenizer, source != NULL);
  return tokenizer_save(tokenizer, dir, ctx, error);
}
