/* The run directory: its name, its lock, and its contents before the first step. */
#include "files/formats/model_files.h"
#include "train/run.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- name ---- */

char *run_directory(const TrainSettings *s, const char *ending, Error *error) {
  char *out = NULL, *name = NULL;
  if (s->out) out = strdup(s->out);
  else if (path_is_stdin(settings_text(s->data.items[0]).path.text)) name = strdup("stdin");
  else name = file_last_name(settings_text(s->data.items[0]).path.text);
  if (name) {
    const char *dot = strrchr(name, '.');
    const size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name), size = length + strlen(ending) + 1;
    out = malloc(size);
    if (out) snprintf(out, size, "%.*s%s", (int)length, name, ending);
    free(name);
  }
  if (!out) error_memory(error, "a path");
  return out;
}

bool run_name_directory(const TrainSettings *s, RunFiles *files, Error *error) {
  if (!files->dir) files->dir = run_directory(s, ".run", error);
  return files->dir;
}

/* ---- taking it ---- */

static bool lock(const TrainSettings *s, RunFiles *files, Error *error) {
  if (s->val && !checkpoint_check_input(files->dir, s->val, error)) return false;
  if (s->choose && !checkpoint_check_input(files->dir, s->choose, error)) return false;
  if (settings_start_from_model(s) && file_is_same(s->init, files->dir))
    return fail(error, EXIT_USAGE, "--init %s is the directory that the run would replace", s->init);
  if (s->teacher && file_is_same(s->teacher, files->dir))
    return fail(error, EXIT_USAGE, "--teacher %s is the directory of the run itself", s->teacher);
  const PathText own = path_in(files->dir, CHECKPOINT_TEACHER);
  if (!s->resume &&
      ((s->teacher && file_is_same(s->teacher, own.text)) || (s->init && file_is_same(s->init, own.text))))
    return fail(error, EXIT_USAGE, "%s is a part of the run that would be replaced", own.text);
  for (int i = 0; i < s->data.count; i++)
    if (!checkpoint_check_input(files->dir, settings_text(s->data.items[i]).path.text, error)) return false;
  return checkpoint_lock(&files->lock, files->dir, error);
}

bool run_take_directory(Run *r, Error *error) {
  if (!settings_have_directory(&r->settings)) return true;
  if (!lock(&r->settings, &r->files, error)) {
    if (error->code == EXIT_MEMORY || r->settings.resume) return false;
    return error_append(error, "; %schoose another directory with --out DIR",
                        error->code == EXIT_BUSY ? "wait for it, or " : "");
  }
  if (r->settings.resume || r->settings.overwrite || !r->files.lock.had_run) return true;
  char resume[512] = ""; /* a run that was killed before it began cannot be resumed */
  if (checkpoint_is_run(r->files.dir)) snprintf(resume, sizeof resume, "--resume=%.400s continues it, ", r->files.dir);
  return fail(error, EXIT_USAGE, "%s already holds a run; %s--overwrite replaces it, --out DIR writes elsewhere",
              r->files.dir, resume);
}

ResumeCommand run_resume_command(const RunFiles *files) {
  ResumeCommand out;
  snprintf(out.text, sizeof out.text, "%s --resume=%s", program_name("train").text,
           text_shell_word(files->dir, ONE_LINE_BYTES - 1).text);
  return out;
}

/* ---- config.txt ---- */

/* Refuses inputs that a resumed run could not read again. */
static bool check_input(const char *path, Error *error) {
  if (!path || path_is_stdin(path) || access(path, F_OK) == 0) return true;
  return fail(error, EXIT_INPUT, "%s was deleted since it was opened; a run needs it to be resumed", path);
}

static bool check_inputs(const TrainSettings *s, Error *error) {
  for (int i = 0; i < s->data.count; i++)
    if (!check_input(settings_text(s->data.items[i]).path.text, error)) return false;
  return check_input(s->val, error) && check_input(s->choose, error) && check_input(s->teacher, error) &&
         check_input(settings_tokenizer_is_path(s->tokenizer) ? s->tokenizer : NULL, error) &&
         check_input(settings_tokenizer_is_path(s->source_tokenizer) ? s->source_tokenizer : NULL, error);
}

char *run_absolute_path(const TrainSettings *s, const Option *row, const char *text, Error *error) {
  const bool is_tokenizer = row->value == &s->tokenizer || row->value == &s->source_tokenizer;
  const NamedText named = settings_text(text);
  const char *share = row->value == &s->data ? named.share : NULL, *file = share ? named.path.text : text;
  if (row->setting != SETTING_PATH || path_is_stdin(file)) return NULL;
  if (is_tokenizer && !settings_tokenizer_is_path(text)) return NULL;
  char *path = realpath(file, NULL), *with = path && share ? realloc(path, strlen(path) + strlen(text) + 1) : path;
  if (path ? !with : errno == ENOMEM) error_memory(error, CHECKPOINT_SETTINGS);
  if (path && !with) free(path);
  return with && share ? strcat(with, share - 1) : with; /* "=0.3" */
}

typedef struct Resolving {
  const TrainSettings *settings;
  Error *error;
} Resolving;

static char *resolve(const void *context, const Option *row, const char *text) {
  const Resolving *r = context;
  return run_absolute_path(r->settings, row, text, r->error);
}

typedef bool WriteOptions(const Options *options, FILE *stream, OptionsResolve *resolve, const void *context);

static bool options_text(WriteOptions *write, const Options *options, const TrainSettings *s, char **text, size_t *size,
                         Error *error) {
  const Resolving resolving = {s, error};
  FILE *stream = open_memstream(text, size);
  bool ok = stream && write(options, stream, resolve, &resolving);
  if (stream && fclose(stream) != 0) ok = false;
  return (ok && !error->code) || error_memory(error, CHECKPOINT_SETTINGS);
}

bool run_settings_text(const Options *options, const TrainSettings *s, char **text, size_t *size, Error *error) {
  return options_text(options_write, options, s, text, size, error);
}

bool run_arguments_text(const Options *options, const TrainSettings *s, char **text, size_t *size, Error *error) {
  return options_text(options_write_arguments, options, s, text, size, error);
}

/* ---- the beginning of a run ---- */

/* Renames a file that was written before the run began, if it exists. */
static bool take_file(const char *dir, const char *from, const char *to, Error *error) {
  const PathText path = path_in(dir, to);
  return rename(path_in(dir, from).text, path.text) == 0 || errno == ENOENT || file_fail_write(path.text, error);
}

bool run_write_model(const Run *r, const char *dir, Error *error) {
  const SpecialTokens special = model_files_tokens(run_start_token(r), r->text.tokenizer);
  tokenizer_set_starts_elsewhere(r->text.tokenizer, special.start != special.end);
  return run_write_weights(dir, &r->model, false, error) &&
         model_files_write_tokenizers(dir, r->text.tokenizer, r->text.source_tokenizer, r->model.config.ctx, error) &&
         model_files_write_config(dir, &r->model.config, special, TENSOR_F32, error);
}

static bool replace_run(const Run *r, Error *error) {
  if (!run_write_model(r, r->files.dir, error)) return false;
  checkpoint_remove_old(r->files.dir);
  if (!r->text.source_tokenizer) model_files_remove_source_tokenizer(r->files.dir);
  if (!r->text.val.file.path) file_remove_in(r->files.dir, CHECKPOINT_VAL_TOKENS);
  /* Keeps a copy of standard input, so that the run can be resumed. */
  return take_file(r->files.dir, CHECKPOINT_STDIN_COPY, run_stdin_file(&r->settings), error);
}

/* A resumed run drops the lines that were logged after its state was saved; it writes them again. */
static bool open_metrics(RunFiles *files, const RunProgress *progress, bool resumes, Error *error) {
  const PathText metrics = path_in(files->dir, CHECKPOINT_METRICS);
  const PathText samples = path_in(files->dir, CHECKPOINT_SAMPLES);
  file_remove_in(files->dir, CHECKPOINT_RESULT);
  return file_cut(samples.text, resumes ? progress->samples_bytes : 0, error) &&
         metrics_open(&files->metrics, metrics.text, resumes ? progress->metrics_bytes : -1, error) &&
         (!resumes || history_read(&files->history, metrics.text, error));
}

bool run_write_settings(const Options *options, const TrainSettings *s, const char *dir, Error *error) {
  char *text = NULL;
  size_t size = 0;
  const bool ok =
      run_settings_text(options, s, &text, &size, error) && file_write_in(dir, CHECKPOINT_SETTINGS, text, size, error);
  free(text);
  return ok;
}

bool run_begin_directory(Run *r, Error *error) {
  char *text = NULL;
  size_t size = 0;
  r->files.begun = (r->settings.resume || check_inputs(&r->settings, error)) &&
                   run_settings_text(&r->options, &r->settings, &text, &size,
                                     error) && /* may fail, so it comes before anything is replaced */
                   (r->settings.resume || replace_run(r, error)) &&
                   file_write_in(r->files.dir, CHECKPOINT_SETTINGS, text, size, error) &&
                   take_file(r->files.dir, CHECKPOINT_NEW_TOKENS, CHECKPOINT_TOKENS, error) &&
                   take_file(r->files.dir, CHECKPOINT_NEW_VAL_TOKENS, CHECKPOINT_VAL_TOKENS, error) &&
                   open_metrics(&r->files, &r->progress, r->settings.resume, error);
  free(text);
  return r->files.begun;
}
