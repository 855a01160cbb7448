/* A model with its tokenizers, opened from a run directory or a directory of Hugging Face transformers. */
#ifndef INKLING_GENERATING_LOADED_H
#define INKLING_GENERATING_LOADED_H

#include "cli/console.h"
#include "dataset/token_file.h"
#include "formats/model_files.h"
#include "generating/settings.h"
#include "inference/token_rules.h"
#include "model/decoder.h"

typedef struct LoadedModel {
  char *dir;
  ModelFiles *files;
  ModelConfig config;
  Tokenizer *tokenizer;
  Tokenizer *source_tokenizer; /* for the encoder's input; NULL: the same as `tokenizer` */
  SpecialTokens special;
  TokenRules rules; /* from --bias and --ban */
  const Backend *backend;
  Context *context;
  Model *model;
  Decoder *decoder; /* opened by the mode, closed by loaded_close() */
} LoadedModel;

/* loaded_open_files() reads the configuration and the tokenizer, loaded_open_model() the rest. EXIT_CHECKPOINT, and the
 * errors of opening a device and of request_make_rules(). */
bool loaded_open_files(LoadedModel *m, const char *dir, const GenerateSettings *settings, Error *error);
bool loaded_open_model(LoadedModel *m, const GenerateSettings *settings, Console *console, Error *error);
/* Frees everything that both have opened; harmless on a zeroed struct. */
void loaded_close(LoadedModel *m);

/* Returns the tokenizer of the encoder's input. */
static inline Tokenizer *loaded_source_tokenizer(const LoadedModel *m) {
  return m->source_tokenizer ? m->source_tokenizer : m->tokenizer;
}

/* Encodes a file, a directory or "-" to a deleted temporary file. Errors of corpus_open() and tokenization_open(). */
bool loaded_encode_file(const LoadedModel *m, const GenerateSettings *settings, Console *console, const char *path,
                        TokenFile *out, Error *error);

#endif
