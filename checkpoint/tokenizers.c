/* The tokenizers of a model directory: one, or one of targets and one of sources. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* ---- reading ---- */

/* `vocab`: what config.json says; `of`: of which texts, where that has to be said. */
static bool check_vocab(Tokenizer *t, const char *dir, int vocab, const char *of, Error *error) {
  return tokenizer_set_vocab(t, vocab) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: the ids of " TOKENIZER_JSON " go up to %d, but " CHECKPOINT_CONFIG
              " says that the model has only %d rows%s; resize its embeddings to at least %d, or use its own tokenizer",
              dir, tokenizer_vocab(t) - 1, vocab, of, tokenizer_vocab(t));
}

static bool check_end(const Tokenizer *t, const char *dir, const ModelConfig *config, Error *error) {
  return config->encoder_layers || !tokenizer_ends_with_end(t) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: " TOKENIZER_JSON " puts the end token behind a text, which is supported for models with an encoder",
              dir);
}

static bool kept(bool ok, Tokenizer **out) {
  if (ok) return true;
  tokenizer_free(*out);
  *out = NULL;
  return false;
}

bool checkpoint_load_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  return tokenizer_load(out, checkpoint_path(dir, TOKENIZER_JSON).text, error) &&
         kept(check_vocab(*out, dir, config->vocab, "", error) && check_end(*out, dir, config, error), out);
}

static bool are_separate(const char *dir, const ModelConfig *config) {
  return config->encoder_layers && (config->source_vocab != config->vocab ||
                                    tokenizer_read_separate_vocabs(checkpoint_path(dir, TOKENIZER_JSON).text));
}

bool checkpoint_load_source_tokenizer(Tokenizer **out, const char *dir, const ModelConfig *config, Error *error) {
  *out = NULL;
  if (!are_separate(dir, config)) return true;
  const CheckpointPath folder = checkpoint_path(dir, CHECKPOINT_SOURCE_TOKENIZER);
  if (!tokenizer_load(out, checkpoint_path(folder.text, TOKENIZER_JSON).text, error))
    return error_append(error, "; sources of this model have a tokenizer of their own");
  return kept(check_vocab(*out, folder.text, config->source_vocab, " for sources", error), out);
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
