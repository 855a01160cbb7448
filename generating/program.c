/* Opening and closing a model. */
#include "generating/program.h"

#include "cli/vocabulary.h"
#include "model/decoder.h"
#include "util/path.h"

#include <stdlib.h>
#include <string.h>

bool program_open(Program *p, const char *dir, Error *error) {
  p->dir = strdup(dir);
  if (!p->dir) return error_memory(error, "a path");
  if (!model_files_open(&p->files, dir, error) || !model_files_read_tokenizer(p->files, &p->tokenizer, error))
    return false;
  p->config = *model_files_config(p->files);
  p->special = model_files_special_tokens(p->files);
  tokenizer_set_special(p->tokenizer, p->settings.special);
  return true;
}

bool program_load(Program *p, Error *error) {
  if (!model_files_read_source_tokenizer(p->files, p->tokenizer, &p->source_tokenizer, error)) return false;
  if (p->source_tokenizer) tokenizer_set_special(p->source_tokenizer, p->settings.special);
  vocabulary_note_unused(&p->console, p->dir, p->tokenizer, p->source_tokenizer);
  if (tokenizer_has_chat_template(p->tokenizer))
    console_note(&p->console,
                 "%s has a chat template, which is not filled in here: write the prompt as the template "
                 "would, with --special",
                 p->dir);
  return program_make_rules(p, error) &&
         device_open(&p->settings.machine, &p->config, NULL, &p->console, &p->backend, &p->context, error) &&
         model_files_load(p->files, &p->model, p->backend, p->context, error);
}

void program_close(Program *p) {
  decoder_close(p->decoder);
  model_close(p->model);
  if (p->backend) p->backend->close(p->context);
  tokenizer_free(p->tokenizer);
  tokenizer_free(p->source_tokenizer);
  token_rules_free(&p->rules);
  free(p->given);
  free(p->prompt.ids);
  free(p->source.ids);
  free(p->text.ids);
  model_files_close(p->files);
  free(p->dir);
}
