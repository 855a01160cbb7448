/* Export (--export): writes the files of a run that others need to use the model to a directory of their own. */
#include "cli/startup.h"
#include "generating/card.h"
#include "generating/program.h"
#include "util/file.h"
#include "util/path.h"
#include "util/text.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the sample ---- */

static bool emit(void *stream, void *text, const uint8_t *bytes, size_t size) {
  (void)text;
  return fwrite(bytes, 1, size, stream) == size && !stop_signal;
}

static bool write_sample(Program *p, FILE *stream, uint64_t *seed, Error *error) {
  LoadedModel *m = &p->model;
  if (!decoder_open(&m->decoder, m->model, 1, error)) return false;
  const GenerationRequest request = request_make(&p->command, m, &p->prompt.tokens);
  const Generation generation = {.decoder = m->decoder, .tokenizer = m->tokenizer, .context = stream, .emit = emit};
  GenerationResult result = {0};
  *seed = request.sampling.seed;
  return generation_run_one(&generation, &request, &result, error) && startup_go_on("writing a sample", error);
}

/* Generates the text of -p, -n, ...; an encoder needs -p for it. */
static bool make_sample(Program *p, char **text, CardSample *out, Error *error) {
  const GenerateSettings *s = &p->command.settings;
  Prompt *prompt = &p->prompt;
  if (!s->tokens || (p->model.config.encoder_layers && !s->prompt)) return true;
  bool ok =
      prompt_read(prompt, s, error) && prompt_encode(&p->model, s, prompt->bytes, prompt->size, &prompt->tokens, error);
  FILE *stream = ok ? open_memstream(text, &out->text_size) : NULL;
  if (ok && !stream) ok = error_memory(error, "a sample");
  ok = ok && write_sample(p, stream, &out->seed, error);
  if (stream && fclose(stream) != 0 && ok) ok = error_memory(error, "a sample");
  out->prompt = (const char *)prompt->bytes;
  out->prompt_size = prompt->size;
  out->text = *text;
  return ok;
}

/* ---- the directory ---- */

#define CARD "README.md"
static const char *const files[] = {MODEL_FILE_CONFIG,
                                    MODEL_FILE_GENERATION_CONFIG,
                                    MODEL_FILE_WEIGHTS,
                                    TOKENIZER_JSON,
                                    TOKENIZER_CONFIG_JSON,
                                    MODEL_FILE_CODE,
                                    CARD};

static void remove_files(const char *dir) {
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) file_remove_in(dir, files[i]);
  model_files_remove_source_tokenizer(dir);
}

static bool is_empty(const char *dir) {
  DIR *stream = opendir(dir);
  int names = 0;
  while (stream && names <= 2 && readdir(stream)) names++; /* . and .. are two */
  if (stream) closedir(stream);
  return stream && names <= 2;
}

/* Fails unless the directory is new or empty. */
static bool check_directory(const char *dir, bool *exists, Error *error) {
  struct stat info;
  if (path_is_stdin(dir) || !text_is_plain(dir))
    return fail(error, EXIT_USAGE, "--export \"%s\": name a directory", text_one_line(dir, 100).text);
  *exists = stat(dir, &info) == 0;
  if (!*exists) return path_is_writable(dir) || file_fail_write(dir, error);
  if (!S_ISDIR(info.st_mode)) return fail(error, EXIT_USAGE, "--export %s: there is a file of that name", dir);
  return is_empty(dir) ||
         fail(error, EXIT_USAGE, "--export %s: that directory is not empty; remove it, or give another name", dir);
}

static bool check_flags(const GenerateSettings *s, Error *error) {
  return s->tokens >= 0 ||
         fail(error, EXIT_USAGE, "-n %lld has no end; the sample of a model card needs one", (long long)s->tokens);
}

/* Returns the name of a hidden directory beside `dir`, which is renamed when it is complete. */
static char *temporary_of(const char *dir) {
  char *parent = path_directory(dir);
  const size_t size = strlen(dir) + 64 + (parent ? strlen(parent) : 0);
  char *out = parent ? malloc(size) : NULL;
  if (out) snprintf(out, size, "%s/.%s.inkling-%ld", parent, path_base(dir), (long)getpid());
  free(parent);
  return out;
}

static bool write_files(LoadedModel *m, TensorType type, const char *dir, const char *name, const CardSample *sample,
                        Error *error) {
  tokenizer_set_starts_elsewhere(m->tokenizer, m->special.start != m->special.end);
  return model_files_copy_weights(m->files, dir, type, error) &&
         model_files_write_tokenizers(dir, m->tokenizer, m->source_tokenizer, m->config.ctx, error) &&
         model_files_write_config(dir, &m->config, m->special, type, error) &&
         card_write(m, path_in(dir, CARD).text, name, type, sample, error);
}

static bool write_new(LoadedModel *m, TensorType type, const char *dir, const char *name, const CardSample *sample,
                      Error *error) {
  char *temporary = temporary_of(dir);
  if (!temporary) return error_memory(error, "a path");
  bool ok = mkdir(temporary, 0777) == 0 || file_fail_write(dir, error);
  if (ok) {
    ok = write_files(m, type, temporary, name, sample, error);
    if (ok && rename(temporary, dir) != 0) ok = file_fail_write(dir, error);
    if (!ok) remove_files(temporary);
    if (!ok) rmdir(temporary);
  }
  free(temporary);
  return ok;
}

/* Writes into an empty directory, which keeps its owner; it may be a link. */
static bool write_existing(LoadedModel *m, TensorType type, const char *dir, const char *name, const CardSample *sample,
                           Error *error) {
  if (write_files(m, type, dir, name, sample, error)) return true;
  remove_files(dir);
  return false;
}

static bool write_directory(Program *p, const char *dir, bool exists, const CardSample *sample, Error *error) {
  const TensorType type = export_types[p->command.settings.export_type];
  char *name = path_last_name(dir);
  if (!name) return error_memory(error, "a path");
  const bool ok =
      (exists ? write_existing : write_new)(&p->model, type, dir, text_one_line(name, 100).text, sample, error);
  free(name);
  return ok;
}

static void print_commands(Console *console, const ModelConfig *config, const char *dir) {
  bool own;
  const ShellWord word = text_shell_word(dir, 250);
  char *name = path_last_name(dir);
  for (char *at = name; at && *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("._", *at)) *at = '-'; /* a hub takes no other characters */
  model_files_class(config, &own);
  console_note(console, "%s holds the model, its tokenizer and a model card, in which a license is to be chosen", dir);
  printf("hf upload NAME/%s %s\n", name ? name + strspn(name, "-.") : "MODEL", word.text);
  free(name);
  printf("lm_eval --model hf --model_args pretrained=%s%s%s --tasks lambada_openai\n", word.text,
         own ? ",trust_remote_code=True" : "", config->encoder_layers ? ",backend=seq2seq" : "");
}

bool program_export(Program *p, Error *error) {
  char *dir = strdup(p->command.settings.export), *text = NULL;
  CardSample sample = {0};
  if (!dir) return error_memory(error, "a path");
  for (size_t end = strlen(dir); end > 1 && dir[end - 1] == '/'; end--) dir[end - 1] = '\0';
  bool exists = false;
  const bool ok = check_flags(&p->command.settings, error) && check_directory(dir, &exists, error) &&
                  make_sample(p, &text, &sample, error) && write_directory(p, dir, exists, &sample, error);
  if (ok && !p->console.quiet) print_commands(&p->console, &p->model.config, dir);
  free(text);
  free(dir);
  return ok && stdout_flush_and_check(&p->out, error);
}
