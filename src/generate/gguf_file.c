/* GGUF export (--gguf): writes a file that llama.cpp and ollama read, and prints how to run it. */
#include "files/checkpoint/directory.h"
#include "cli/startup.h"
#include "files/formats/gguf_model.h"
#include "generate/program.h"
#include "report/license.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- paths ---- */

/* Returns whether the file is missing or begins with the bytes of `magic`, so that it may be replaced. A pipe is not
 * opened, because that could wait forever. */
static bool is_free(const char *path, const char *magic) {
  char head[8] = "";
  struct stat info;
  if (stat(path, &info) != 0) return errno == ENOENT || errno == ENOTDIR;
  FILE *stream = S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
  if (!stream) return false;
  const size_t size = fread(head, 1, strlen(magic), stream);
  fclose(stream);
  return size == strlen(magic) && memcmp(head, magic, size) == 0;
}

/* Fails for a path that would replace a file of a run or another kind of file. */
static bool check_path(const char *flag, const char *path, const char *ending, const char *magic, Error *error) {
  if (path_is_stdin(path) || !text_is_plain(path))
    return fail(error, EXIT_USAGE, "%s: \"%s\" is not the name of an output file", flag, text_one_line(path, 100).text);
  const PathText dir = path_directory(path);
  if ((checkpoint_is_run(dir.text) || model_files_exist(dir.text)) && !text_ends_with(path, ending))
    return fail(error, EXIT_USAGE, "%s would be a file of that model; give it a name that ends in %s", path, ending);
  if (!file_is_writable(path)) return file_fail_write(path, error);
  return is_free(path, magic) ||
         fail(error, EXIT_USAGE, "%s %s: another file of that name exists; remove it or choose another name", flag,
              path);
}

static bool check_paths(const GenerateSettings *s, Error *error) {
  if (!check_path("--gguf", s->gguf, ".gguf", "GGUF", error)) return false;
  if (!s->modelfile) return true;
  if (file_is_same(s->gguf, s->modelfile))
    return fail(error, EXIT_USAGE, "--gguf and --modelfile name the same file; give two names");
  return check_path("--modelfile", s->modelfile, "Modelfile", "FROM ", error);
}

/* ---- ollama ---- */

/* Writes the path of the model: its name if both files are in one directory, otherwise the absolute path. */
static void write_from(FILE *out, const char *gguf, const char *modelfile) {
  const bool together = strcmp(path_directory(gguf).text, path_directory(modelfile).text) == 0;
  char *real = together ? NULL : realpath(gguf, NULL);
  if (real) fprintf(out, "FROM %s\n", real);
  else fprintf(out, "FROM ./%s\n", path_base(gguf));
  free(real);
}

/* Writes a text to stop at if the token is a special one. */
static void write_stop(FILE *out, const Tokenizer *tokenizer, int32_t id) {
  const char *text = tokenizer_special(tokenizer, id);
  if (text && text_is_plain(text) && !strchr(text, '"')) fprintf(out, "PARAMETER stop \"%s\"\n", text);
}

/* Writes the chat template of a tokenizer as ollama's. EXIT_CHECKPOINT: it is not supported; EXIT_MEMORY. */
static bool write_chat(FILE *out, const Tokenizer *tokenizer, Error *error) {
  Chat *chat;
  if (!chat_open(&chat, tokenizer, error)) return false;
  fputs("TEMPLATE \"\"\"", out);
  chat_write_ollama(chat, out);
  fputs("\"\"\"\n", out);
  chat_close(chat);
  return true;
}

/* Describes a model that continues texts or answers in turns, with the sampling of ./generate. ollama recognizes a
 * template that we do not know, or not, by itself. */
static bool write_modelfile(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  const EndTokens *others = tokenizer_other_ends(p->model.tokenizer);
  FileWriter file;
  if (!file_writer_begin(&file, s->modelfile, error)) return false;
  write_from(file.stream, s->gguf, s->modelfile);
  Error unknown = {0};
  if (!tokenizer_chat_template(p->model.tokenizer)) fputs("TEMPLATE \"{{ .Prompt }}\"\n", file.stream);
  else if (!write_chat(file.stream, p->model.tokenizer, &unknown))
    console_note(&p->console, "%s has no TEMPLATE: %s", s->modelfile, unknown.text);
  write_stop(file.stream, p->model.tokenizer, tokenizer_end(p->model.tokenizer));
  for (int i = 0; i < others->count; i++) write_stop(file.stream, p->model.tokenizer, others->ids[i]);
  fprintf(file.stream, "PARAMETER num_ctx %d\n", p->model.config.ctx);
  for (const SamplingSetting *row = sampling_settings; row->name; row++) {
    char value[40];
    options_format_named(&p->options, row->name, value, sizeof value);
    if (!row->not_ollama) fprintf(file.stream, "PARAMETER %s %s\n", row->key, value);
  }
  return file_writer_commit(&file, error);
}

/* ---- the mode ---- */

static void print_commands(const GenerateSettings *s, const LoadedModel *m) {
  const ShellWord file = text_shell_word(s->gguf, 250);
  if (tokenizer_chat_template(m->tokenizer)) printf("llama-cli -m %s -cnv -c %d\n", file.text, m->config.ctx);
  else printf("llama-completion -m %s -no-cnv -c %d -n 200 -p 'Once upon a time'\n", file.text, m->config.ctx);
  if (s->modelfile) printf("ollama create my-model -f %s\n", text_shell_word(s->modelfile, 250).text);
}

static bool write_model(Program *p, GgufFacts *facts, Error *error) {
  const GenerateSettings *s = &p->settings;
  StartupWork writing = {.console = &p->console, .name = "writing", .later_total = &facts->bytes, .bytes = true};
  char *name = file_last_name(p->model.dir);
  if (!name) return error_memory(error, "a path");
  const OneLine line = text_one_line(name, 200), license = model_license(p->model.dir);
  const GgufModel model = {.files = p->model.files,
                           .name = line.text,
                           .license = license.text,
                           .tokenizer = p->model.tokenizer,
                           .type = (GgufType)s->gguf_type};
  const bool ok = gguf_model_write(&model, s->gguf, startup_progress(&writing), facts, error);
  free(name);
  console_work_end(&p->console);
  return ok;
}

bool program_gguf(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  GgufFacts facts;
  if (options_typed(&p->options, "dtype"))
    return fail(error, EXIT_USAGE,
                "--dtype is the type that the model computes in; --gguf-type is the type that --gguf writes");
  if (!check_paths(s, error) || !write_model(p, &facts, error)) return false;
  if (s->modelfile && !write_modelfile(p, error)) return false;
  console_note(&p->console, "%s: %s, %d tensors as %s, of the architecture that llama.cpp calls %s", s->gguf,
               text_bytes((double)facts.bytes).text, facts.tensors, gguf_type_names[s->gguf_type], facts.architecture);
  for (int i = 0; i < facts.note_count; i++) console_note(&p->console, "%s", facts.notes[i]);
  if (!p->console.quiet) print_commands(s, &p->model);
  return program_check(p, error);
}
