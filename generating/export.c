/* Export (--export): writes the files of a run that others need to use the model to a directory of their own. */
#include "generating/card.h"

#include "cli/startup.h"
#include "formats/model_files.h"
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

static bool collect(void *context, void *text, const uint8_t *bytes, size_t size) {
  (void)text;
  return fwrite(bytes, 1, size, context) == size && !stop_signal;
}

static bool write_sample(Program *p, FILE *stream, uint64_t *seed, Error *error) {
  if (!decoder_open(&p->decoder, p->model, 1, error)) return false;
  const GenerationRequest request = program_request(p);
  const Generation generation = {.decoder = p->decoder, .tokenizer = p->tokenizer, .context = stream, .emit = collect};
  GenerationResult result = {0};
  *seed = request.sampling.seed;
  return generation_run_one(&generation, &request, &result, error) && startup_go_on("writing a sample", error);
}

/* What -p asks for; of a model with an encoder nothing else. */
static bool make_sample(Program *p, char **text, CardSample *out, Error *error) {
  if (!p->settings.tokens || (p->config.encoder_layers && !p->settings.prompt)) return true;
  bool ok = program_read_prompt(p, error) && program_encode(p, p->given, p->given_size, &p->source, &p->prompt, error);
  FILE *stream = ok ? open_memstream(text, &out->text_size) : NULL;
  if (ok && !stream) ok = error_memory(error, "a sample");
  ok = ok && write_sample(p, stream, &out->seed, error);
  if (stream && fclose(stream) != 0 && ok) ok = error_memory(error, "a sample");
  out->prompt = (const char *)p->given;
  out->prompt_size = p->given_size;
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

/* It is new, or empty. */
static bool check_directory(const char *dir, bool *there, Error *error) {
  struct stat info;
  if (path_is_stdin(dir) || !text_is_plain(dir))
    return fail(error, EXIT_USAGE, "--export \"%s\": name a directory", text_one_line(dir, 100).text);
  *there = stat(dir, &info) == 0;
  if (!*there) return path_is_writable(dir) || file_fail_write(dir, error);
  if (!S_ISDIR(info.st_mode)) return fail(error, EXIT_USAGE, "--export %s: there is a file of that name", dir);
  return is_empty(dir) ||
         fail(error, EXIT_USAGE, "--export %s: that directory is not empty; remove it, or give another name", dir);
}

static bool check_flags(const GenerateSettings *s, Error *error) {
  return s->tokens >= 0 ||
         fail(error, EXIT_USAGE, "-n %lld has no end; the sample of a model card needs one", (long long)s->tokens);
}

/* A hidden neighbor, which takes the name once everything is in it. */
static char *temporary_of(const char *dir) {
  const PathText parent = path_directory(dir);
  const size_t size = strlen(dir) + 64 + strlen(parent.text);
  char *out = malloc(size);
  if (out) snprintf(out, size, "%s/.%s.inkling-%ld", parent.text, path_base(dir), (long)getpid());
  return out;
}

static bool write_files(Program *p, const char *dir, const char *name, const CardSample *sample, Error *error) {
  const TensorType type = export_types[p->settings.export_type];
  tokenizer_set_starts_elsewhere(p->tokenizer, p->special.start != p->special.end);
  return model_files_copy_weights(p->files, dir, type, error) &&
         model_files_write_tokenizers(dir, p->tokenizer, p->source_tokenizer, p->config.ctx, error) &&
         model_files_write_config(dir, &p->config, p->special, type, error) &&
         card_write(p, path_in(dir, CARD).text, name, type, sample, error);
}

static bool write_new(Program *p, const char *dir, const char *name, const CardSample *sample, Error *error) {
  char *temporary = temporary_of(dir);
  if (!temporary) return error_memory(error, "a path");
  bool ok = mkdir(temporary, 0777) == 0 || file_fail_write(dir, error);
  if (ok) {
    ok = write_files(p, temporary, name, sample, error);
    if (ok && rename(temporary, dir) != 0) ok = file_fail_write(dir, error);
    if (!ok) remove_files(temporary);
    if (!ok) rmdir(temporary);
  }
  free(temporary);
  return ok;
}

/* Into an empty directory that is there, whoever's it is and whatever leads to it. */
static bool write_there(Program *p, const char *dir, const char *name, const CardSample *sample, Error *error) {
  if (write_files(p, dir, name, sample, error)) return true;
  remove_files(dir);
  return false;
}

static bool write_directory(Program *p, const char *dir, bool there, const CardSample *sample, Error *error) {
  char *name = path_last_name(dir);
  const bool ok = name ? (there ? write_there : write_new)(p, dir, text_one_line(name, 100).text, sample, error)
                       : error_memory(error, "a path");
  free(name);
  return ok;
}

/* ---- all of it ---- */

static void print_commands(Program *p, const char *dir) {
  bool own;
  const ShellWord word = text_shell_word(dir, 250);
  char *name = path_last_name(dir);
  for (char *at = name; at && *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("._", *at)) *at = '-'; /* what else a hub does not take */
  model_files_class(&p->config, &own);
  console_note(&p->console, "%s holds the model, its tokenizer and a model card, in which a license is to be chosen",
               dir);
  printf("hf upload NAME/%s %s\n", name ? name + strspn(name, "-.") : "MODEL", word.text);
  free(name);
  printf("lm_eval --model hf --model_args pretrained=%s%s%s --tasks lambada_openai\n", word.text,
         own ? ",trust_remote_code=True" : "", p->config.encoder_layers ? ",backend=seq2seq" : "");
}

bool program_export(Program *p, Error *error) {
  char *dir = strdup(p->settings.export), *text = NULL;
  CardSample sample = {0};
  if (!dir) return error_memory(error, "a path");
  for (size_t end = strlen(dir); end > 1 && dir[end - 1] == '/'; end--) dir[end - 1] = '\0';
  bool there = false;
  const bool ok = check_flags(&p->settings, error) && check_directory(dir, &there, error) &&
                  make_sample(p, &text, &sample, error) && write_directory(p, dir, there, &sample, error);
  if (ok && !p->console.quiet) print_commands(p, dir);
  free(text);
  free(dir);
  if (!ok) return false;
  program_flush(p);
  return program_report_output(p, error);
}
