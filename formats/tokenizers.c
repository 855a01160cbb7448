/* The tokenizers of a model directory: one for all text, or one for targets and one for sources. */
#include "formats/weight_reader.h"
#include "util/path.h"
#include "formats/model_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading ---- */

/* `vocab`: what config.json says; `of`: of which texts, where that has to be said. */
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
              "%s: " TOKENIZER_JSON " puts the end token behind a text, which is supported for models with an encoder",
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

static bool are_separate(const char *dir, const ModelConfig *config) {
  return config->encoder_layers &&
         (config->source_vocab != config->vocab || tokenizer_read_separate_vocabs(path_in(dir, TOKENIZER_JSON).text));
}

bool model_files_read_source_tokenizer(const ModelFiles *files, Tokenizer **out, Error *error) {
  const char *dir = files->dir;
  const ModelConfig *config = &files->saved.config;
  *out = NULL;
  if (!are_separate(dir, config)) return true;
  const PathText folder = path_in(dir, MODEL_FILE_SOURCE_TOKENIZER);
  if (!tokenizer_load(out, path_in(folder.text, TOKENIZER_JSON).text, error))
    return error_append(error, "; sources of this model have a tokenizer of their own");
  return kept(check_vocab(*out, folder.text, config->source_vocab, " for sources", error), out);
}

/* ---- writing ---- */

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
