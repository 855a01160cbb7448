/* The model of a call, the files that it reads, and its output. */
#include "generate/program.h"

#include "files/checkpoint/directory.h"
#include "cli/startup.h"
#include "cli/vocabulary.h"
#include "text/dataset/tokenization.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"
#include "base/threads.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the model ---- */

bool program_open_files(Program *p, const char *dir, Error *error) {
  LoadedModel *m = &p->model;
  const bool special = p->settings.special;
  m->dir = strdup(dir);
  if (!m->dir) return error_memory(error, "a path");
  if (!model_files_open(&m->files, dir, error) || !model_files_read_tokenizer(m->files, &m->tokenizer, error))
    return false;
  m->config = *model_files_config(m->files);
  m->special = model_files_special_tokens(m->files);
  tokenizer_set_special(m->tokenizer, special);
  if (!model_files_read_source_tokenizer(m->files, m->tokenizer, &m->source_tokenizer, error)) return false;
  if (m->source_tokenizer) tokenizer_set_special(m->source_tokenizer, special);
  return true;
}

bool program_open_chat(Program *p, Error *error) {
  LoadedModel *m = &p->model;
  const GenerateSettings *s = &p->settings;
  EndTokens ends = *tokenizer_other_ends(m->tokenizer);
  Error why = {0};
  const bool turns = !s->raw && !m->config.encoder_layers && tokenizer_chat_template(m->tokenizer);
  if (turns && !chat_open(&m->chat, m->tokenizer, &why)) {
    if (why.code == EXIT_MEMORY) return fail(error, why.code, "%s", why.text);
    console_note(&p->console, "prompts are plain text: %s", why.text);
  }
  if (m->chat && !tokenizer_is_end(m->tokenizer, chat_end(m->chat)) && ends.count < END_TOKENS) {
    ends.ids[ends.count++] = chat_end(m->chat);
    tokenizer_set_other_ends(m->tokenizer, &ends);
  }
  return m->chat || !s->system || fail(error, EXIT_USAGE, "--system is for models with a chat template");
}

bool program_open_model(Program *p, Error *error) {
  LoadedModel *m = &p->model;
  Console *console = &p->console;
  vocabulary_note_unused(console, m->dir, m->tokenizer, m->source_tokenizer);
  return program_open_chat(p, error) && prompt_make_rules(p, error) &&
         device_open(&p->settings.machine, &m->config, console, &m->backend, &m->context, error) &&
         model_files_load(m->files, &m->model, m->backend, m->context, error);
}

void program_close_model(Program *p) {
  LoadedModel *m = &p->model;
  generation_close(m->generation);
  decoder_close(m->decoder);
  model_close(m->model);
  if (m->backend) m->backend->close(m->context);
  chat_close(m->chat);
  tokenizer_free(m->tokenizer);
  tokenizer_free(m->source_tokenizer);
  token_rules_free(&m->rules);
  model_files_close(m->files);
  free(m->dir);
  *m = (LoadedModel){0};
}

static bool check_corpus(TextCheck *check, const Corpus *corpus, Error *error) {
  bool ok = true;
  for (int i = 0; ok && i < corpus_files(corpus); i++) {
    const char *path = corpus_file(corpus, i)->path;
    ok = text_check_file(check, path, corpus_is_stdin(corpus, i) ? "-" : path, error);
  }
  return ok;
}

bool program_encode_file(Program *p, const char *path, TokenFile *out, Corpus **text, Error *error) {
  const GenerateSettings *s = &p->settings;
  const LoadedModel *m = &p->model;
  StartupWork reading = {.console = &p->console, .name = "reading", .bytes = true};
  char *copy = NULL, *tokens = NULL;
  Corpus *corpus = NULL;
  bool ok = file_temporary(&copy, error) && file_temporary(&tokens, error);
  const CorpusOptions format = {.field = s->jsonl_field,
                                .prompt_field = s->prompt_field,
                                .response_field = s->response_field,
                                .tsv = s->tsv,
                                .fasta = s->fasta,
                                .spool = copy,
                                .temporary = true,
                                .copying = startup_progress(&reading),
                                .is_model = model_files_exist};
  const Tokenization options = {.source_tokenizer = m->source_tokenizer,
                                .threads = threads_count(s->machine.threads),
                                .encoding = startup_progress(&reading),
                                .stop = &stop_signal};
  ok = ok && corpus_open(&corpus, &path, 1, &format, error) && check_corpus(&p->check, corpus, error) &&
       tokenization_open(out, tokens, corpus, m->tokenizer, &options, error);
  console_work_end(&p->console);
  if (copy && !corpus) unlink(copy);
  if (ok) corpus_rewind(corpus, (Progress){0});
  if (ok && text) *text = corpus;
  else corpus_close(corpus);
  if (tokens) unlink(tokens);
  free(copy);
  free(tokens);
  return ok;
}

/* ---- output ---- */

/* Returns whether `file` is the input, which may be "-"; NULL: there is no input. */
static bool is_read(const char *file, const char *input) {
  return input && file_is_same(file, path_is_stdin(input) ? "/dev/stdin" : input);
}

bool program_check_file(const char *option, const char *path, const GenerateSettings *s, Error *error) {
  const char *const inputs[] = {s->score, s->prompt_file, s->prompts, s->novelty, s->picture};
  const PathText dir = path_directory(path);
  const OneLine shown = text_one_line(path, 250);
  FileWriter file;
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (is_read(path, inputs[i]))
      return fail(error, EXIT_USAGE, "%s %s would replace a file that is read", option, shown.text);
  if (access(path, F_OK) == 0 && (checkpoint_is_run(dir.text) || model_files_exist(dir.text)))
    return fail(error, EXIT_USAGE, "%s %s would replace a file in the directory of a model; choose another name",
                option, shown.text);
  if (!file_writer_begin(&file, path, error)) return false;
  file_writer_abort(&file);
  return true;
}

void program_flush(Program *p) {
  const int cause = file_flush_cause(stdout);
  if (!p->write_error) p->write_error = cause;
}

bool program_write(Program *p, const void *bytes, size_t size) {
  fwrite(bytes, 1, size, stdout);
  program_flush(p);
  return !p->write_error && !stop_signal;
}

bool program_check(Program *p, Error *error) {
  program_flush(p);
  if (p->write_error == EPIPE) return true;
  if (p->write_error) return fail(error, EXIT_OUTPUT, "cannot write the text to stdout: %s", strerror(p->write_error));
  return startup_go_on("generating", error);
}
