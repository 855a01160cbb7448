/* The run directory: taken, begun, and left as it was when a run fails before it began. */
#include "util/file.h"
#include "util/path.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* NAME.run in the current directory, from the last part of the first source's path without its extension. */
static char *default_directory(const char *source) {
  char *real = strcmp(source, "-") != 0 ? realpath(source, NULL) : NULL; /* "." and "texts/" have names, too */
  const char *path = real ? real : strcmp(source, "-") == 0 ? "stdin" : source;
  const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path, *dot = strrchr(name, '.');
  size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
  char *out = malloc(length + 5);
  if (out) {
    memcpy(out, name, length);
    memcpy(out + length, ".run", 5);
  }
  free(real);
  return out;
}

bool run_name_directory(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  if (r->dir) return true;
  if (s->out) r->dir = strdup(s->out);
  else r->dir = default_directory(s->data.items[0]);
  return r->dir || fail(error, EXIT_MEMORY, "out of memory for a path");
}

char *run_path(const Run *r, const char *name) { return path_join(r->dir, name); }

/* What a run writes; what of it makes the old run resumable comes first. */
static const char *const run_files[] = {"last/state.safetensors",
                                        "prev/state.safetensors",
                                        "autotune.txt",
                                        "samples.txt",
                                        "stdin.txt",
                                        "stdin.jsonl",
                                        "val.tokens.bin",
                                        "tokens.bin",
                                        "metrics.jsonl",
                                        "config.txt",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "model.safetensors",
                                        "generation_config.json",
                                        "config.json"};
enum { RUN_FILES = sizeof run_files / sizeof run_files[0], OLD_RUN_FILES = 6 };

static void remove_file(const Run *r, const char *name) {
  char *path = run_path(r, name);
  if (path) unlink(path);
  free(path);
}

static void remove_files(const Run *r, int count) {
  for (int i = 0; i < count; i++) remove_file(r, run_files[i]);
}

static bool same_file(const char *path, const char *other) {
  struct stat a, b;
  return other && stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool is_text(const Run *r, const char *path) {
  for (int i = 0; i < r->settings.data.count; i++)
    if (same_file(path, r->settings.data.items[i])) return true;
  return same_file(path, r->settings.val);
}

/* A run that was killed while it encoded its text leaves tokens and nothing else. */
static bool is_token_file(const char *path) {
  TokenFile file;
  Error ignored = {0};
  bool is = token_file_open(&file, path, &ignored);
  if (is) token_file_close(&file);
  return is;
}

/* Nothing of the user's is replaced: not a file that has the name of one of ours, and never the text itself. */
static bool check_files(const Run *r, Error *error) {
  if (is_text(r, r->dir))
    return fail(error, EXIT_USAGE, "%s is the text to train on; choose another directory with --out DIR", r->dir);
  for (int i = 0; i < RUN_FILES; i++) {
    struct stat found;
    char *path = run_path(r, run_files[i]);
    if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
    bool text = is_text(r, path), there = stat(path, &found) == 0;
    bool foreign = !r->replaces_run && there && !is_token_file(path);
    free(path);
    if (there && !S_ISREG(found.st_mode))
      return fail(error, EXIT_USAGE,
                  "%s in %s is no regular file; remove it, or choose another directory with --out DIR", run_files[i],
                  r->dir);
    if (text || foreign)
      return fail(error, EXIT_USAGE, "%s in %s %s and would be replaced; choose another directory with --out DIR",
                  run_files[i], r->dir, text ? "is the text to train on" : "is not of a run");
  }
  return true;
}

bool run_take_directory(Run *r, Error *error) {
  r->replaces_run = checkpoint_is_model(r->dir);
  if (!check_files(r, error)) return false;
  r->made_dir = mkdir(r->dir, 0777) == 0;
  if (!r->made_dir && errno != EEXIST)
    return fail(error, EXIT_OUTPUT, "cannot make the run directory %s: %s; choose another with --out DIR", r->dir,
                strerror(errno));
  if (!checkpoint_lock(r->dir, &r->lock, error)) return false;
  if (r->settings.resume || r->settings.overwrite || !r->replaces_run) return true;
  return fail(error, EXIT_USAGE,
              "%s already holds a run; --resume=%s goes on with it, --overwrite replaces it, --out DIR goes elsewhere",
              r->dir, r->dir);
}

/* The settings with paths that hold from any directory. */
static bool write_settings_to(Run *r, FILE *stream, Error *error) {
  TrainSettings *s = &r->settings;
  const int count = s->data.count + 2;
  const char **fields[] = {&s->val, &s->tokenizer};
  const char **given = malloc((size_t)count * sizeof *given);
  char **real = calloc((size_t)count, sizeof *real);
  if (!given || !real) {
    free(given);
    free(real);
    return fail(error, EXIT_MEMORY, "out of memory for config.txt");
  }
  bool ok = true;
  for (int i = 0; i < count; i++) {
    const char **field = i < s->data.count ? &s->data.items[i] : fields[i - s->data.count];
    given[i] = *field;
    if (!*field || (field == &s->tokenizer ? !settings_tokenizer_is_path(s) : strcmp(*field, "-") == 0)) continue;
    real[i] = realpath(*field, NULL);
    if (real[i]) *field = real[i];
    else if (ok && !s->resume) /* a resumed run does without */
      ok = fail(error, EXIT_INPUT, "%s was deleted since it was opened; a run needs it to be resumed", *field);
  }
  if (ok && !options_write(&r->options, stream)) ok = fail(error, EXIT_MEMORY, "out of memory for config.txt");
  for (int i = 0; i < count; i++) {
    *(i < s->data.count ? &s->data.items[i] : fields[i - s->data.count]) = given[i];
    free(real[i]);
  }
  free(given);
  free(real);
  return ok;
}

/* config.txt as it will be, in fresh memory; NULL with `error` filled. */
static char *settings_text(Run *r, size_t *size, Error *error) {
  char *text = NULL;
  FILE *stream = open_memstream(&text, size);
  bool ok = stream ? write_settings_to(r, stream, error) : fail(error, EXIT_MEMORY, "out of memory for config.txt");
  if (stream && fclose(stream) != 0 && ok) ok = fail(error, EXIT_MEMORY, "out of memory for config.txt");
  if (ok) return text;
  free(text);
  return NULL;
}

static bool write_in_run(const Run *r, const char *name, const char *text, size_t size, Error *error) {
  char *path = run_path(r, name);
  bool ok = path ? file_write(path, text, size, error) : fail(error, EXIT_MEMORY, "out of memory for a path");
  free(path);
  return ok;
}

/* The token that text without a prompt starts from: the end of a document where the text has several, or all of them
 * are seen to begin with it; else a newline. */
int run_start_token(const Run *r) {
  if (r->tokens_file.info.documents > 1 || r->settings.pack == PACK_DOCS) return tokenizer_end(r->tokenizer);
  return tokenizer_bpe(r->tokenizer)->byte_ids['\n'];
}

bool run_write_weights(Run *r, Error *error) {
  if (!model_download(r->model, ARENA_MASTER, r->host[0], error)) return false;
  char *path = run_path(r, "model.safetensors");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = checkpoint_write_weights(path, model_table(r->model), r->host[0], NULL, 0, error);
  free(path);
  return ok;
}

/* What --autotune has chosen so far. */
bool run_save_tuning(const Run *r, Error *error) {
  char *tuning = r->backend->tuning(r->context);
  bool ok = !tuning || write_in_run(r, "autotune.txt", tuning, strlen(tuning), error);
  free(tuning);
  return ok;
}

/* NULL when there is none that can be used: then it is measured again. */
char *run_read_tuning(const Run *r) {
  enum { LIMIT = 1 << 20 }; /* a shape takes some 200 bytes */
  Error ignored = {0};
  MappedFile file = {0};
  char *path = run_path(r, "autotune.txt"), *text = NULL;
  if (path && file_map(&file, path, EXIT_CHECKPOINT, &ignored) && file.size < LIMIT) text = calloc(file.size + 1, 1);
  if (text && file.size) memcpy(text, file.bytes, file.size);
  file_unmap(&file);
  free(path);
  return text;
}

static bool open_metrics(Run *r, Error *error) {
  char *path = run_path(r, "metrics.jsonl");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = metrics_open(&r->metrics, path, r->settings.resume ? r->step : -1, error);
  free(path);
  return ok;
}

/* What came from standard input stands in the run, which could not be resumed without it. */
static bool keep_stdin(const Run *r, Error *error) {
  char *copy = run_path(r, STDIN_COPY), *kept = run_path(r, run_stdin_file(r));
  bool ok = copy && kept;
  if (!ok) fail(error, EXIT_MEMORY, "out of memory for a path");
  if (ok && rename(copy, kept) != 0 && errno != ENOENT)
    ok = fail(error, EXIT_OUTPUT, "cannot write %s: %s", kept, strerror(errno));
  free(copy);
  free(kept);
  return ok;
}

/* From here on DIR is a model directory that transformers and ./generate can read. Of a run that is replaced nothing is
 * removed before the new model stands in its place. */
static bool replace_run(Run *r, Error *error) {
  SpecialTokens special = {run_start_token(r), tokenizer_end(r->tokenizer)};
  if (!run_write_weights(r, error) || !tokenizer_save(r->tokenizer, r->dir, r->config.ctx, error) ||
      !checkpoint_write_config(r->dir, &r->config, special, error))
    return false;
  remove_files(r, OLD_RUN_FILES);
  if (!r->settings.val) remove_file(r, "val.tokens.bin");
  return keep_stdin(r, error);
}

bool run_begin_directory(Run *r, Error *error) {
  size_t size = 0;
  char *settings = settings_text(r, &size, error); /* may fail: before anything is replaced */
  r->begun = settings && (r->settings.resume || replace_run(r, error)) &&
             write_in_run(r, "config.txt", settings, size, error) && open_metrics(r, error);
  free(settings);
  return r->begun;
}

/* A run that failed before it began leaves nothing behind, but in a directory that holds an older one. */
void run_abandon_directory(const Run *r) {
  if (r->begun || r->lock < 0) return;
  remove_file(r, STDIN_COPY);
  if (r->replaces_run) return;
  remove_files(r, RUN_FILES);
  remove_file(r, ".lock");
  if (r->made_dir) rmdir(r->dir);
}
