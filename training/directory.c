/* The run directory: taken, begun, and left as it was when a run fails before it began. */
#include "store/file.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* FILE.run in the current directory, from the last part of the text's path without its extension. */
char *default_directory(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
  size_t length = dot && dot > name ? (size_t)(dot - name) : strlen(name);
  char *out = malloc(length + 5);
  if (out) {
    memcpy(out, name, length);
    memcpy(out + length, ".run", 5);
  }
  return out;
}

char *in_run(const Run *r, const char *name) { return path_join(r->dir, name); }

static bool holds_run(const Run *r) {
  char *path = in_run(r, "config.json");
  bool there = path && access(path, F_OK) == 0;
  free(path);
  return there;
}

/* What a run writes; what of it makes the old run resumable comes first. */
static const char *const run_files[] = {"last/state.safetensors",
                                        "prev/state.safetensors",
                                        "autotune.txt",
                                        "samples.txt",
                                        "metrics.jsonl",
                                        "config.txt",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "model.safetensors",
                                        "generation_config.json",
                                        "config.json"};
enum { RUN_FILES = sizeof run_files / sizeof run_files[0], OLD_RUN_FILES = 4 };

static void remove_files(const Run *r, int count) {
  for (int i = 0; i < count; i++) {
    char *path = in_run(r, run_files[i]);
    if (path) unlink(path);
    free(path);
  }
}

static bool same_file(const char *path, const char *other) {
  struct stat a, b;
  return other && stat(path, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Nothing of the user's is replaced: not a file that has the name of one of ours, and never the text itself. */
static bool check_files(const Run *r, bool run, Error *error) {
  for (int i = 0; i < RUN_FILES; i++) {
    struct stat found;
    char *path = in_run(r, run_files[i]);
    if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
    bool text = same_file(path, r->settings.data.items[0]) || same_file(path, r->settings.val);
    bool there = stat(path, &found) == 0, foreign = !run && there;
    free(path);
    if (there && !S_ISREG(found.st_mode))
      return fail(error, EXIT_USAGE, "%s in %s is no regular file; choose another directory with --out DIR",
                  run_files[i], r->dir);
    if (text || foreign)
      return fail(error, EXIT_USAGE, "%s in %s %s and would be replaced; choose another directory with --out DIR",
                  run_files[i], r->dir, text ? "is the text to train on" : "is not of a run");
  }
  return true;
}

bool take_directory(Run *r, Error *error) {
  bool run = holds_run(r);
  if (!check_files(r, run, error)) return false;
  r->made_dir = mkdir(r->dir, 0777) == 0;
  if (!r->made_dir && errno != EEXIST)
    return fail(error, EXIT_OUTPUT, "cannot make the run directory %s: %s; choose another with --out DIR", r->dir,
                strerror(errno));
  if (!run_lock(r->dir, &r->lock, error)) return false;
  if (r->settings.resume || r->settings.overwrite || !run) return true;
  return fail(error, EXIT_USAGE,
              "%s already holds a run; --resume=%s goes on with it, --overwrite replaces it, --out DIR goes elsewhere",
              r->dir, r->dir);
}

static bool write_settings(Run *r, Error *error) {
  char *text = NULL, *path = in_run(r, "config.txt"), *data = realpath(r->settings.data.items[0], NULL);
  char *val = r->settings.val ? realpath(r->settings.val, NULL) : NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  bool ok = stream && path && data && (val || !r->settings.val);
  if (ok) { /* the run can be resumed from any directory */
    const char *given = r->settings.data.items[0], *given_val = r->settings.val;
    r->settings.data.items[0] = data;
    r->settings.val = val;
    ok = options_write(&r->options, stream);
    r->settings.data.items[0] = given;
    r->settings.val = given_val;
  }
  if (stream) ok = fclose(stream) == 0 && ok;
  const char *gone = !data ? r->settings.data.items[0] : r->settings.val && !val ? r->settings.val : NULL;
  if (gone) ok = fail(error, EXIT_INPUT, "%s was deleted since it was opened; a run needs it to be resumed", gone);
  else ok = ok ? file_write(path, text, size, error) : fail(error, EXIT_MEMORY, "out of memory for config.txt");
  free(text);
  free(path);
  free(data);
  free(val);
  return ok;
}

/* The token that text without a prompt starts from: the end of a document where the text has several, else a newline.
 */
int start_token(const Run *r) {
  if (dataset_documents(r->data) > 1) return tokenizer_end(r->tokenizer);
  return tokenizer_bpe(r->tokenizer)->byte_ids['\n'];
}

bool write_weights(Run *r, Error *error) {
  if (!model_download(r->model, ARENA_MASTER, r->host[0], error)) return false;
  char *path = in_run(r, "model.safetensors");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = run_write_weights(path, model_table(r->model), r->host[0], NULL, 0, error);
  free(path);
  return ok;
}

/* What --autotune has chosen so far. */
bool save_tuning(const Run *r, Error *error) {
  char *tuning = r->backend->tuning(r->context);
  if (!tuning) return true;
  char *path = in_run(r, "autotune.txt");
  bool ok =
      path ? file_write(path, tuning, strlen(tuning), error) : fail(error, EXIT_MEMORY, "out of memory for a path");
  free(path);
  free(tuning);
  return ok;
}

/* NULL when there is none that can be used: then it is measured again. */
char *read_tuning(const Run *r) {
  enum { LIMIT = 1 << 20 }; /* a shape takes some 200 bytes */
  Error ignored = {0};
  MappedFile file = {0};
  char *path = in_run(r, "autotune.txt"), *text = NULL;
  if (path && file_map(&file, path, EXIT_CHECKPOINT, &ignored) && file.size < LIMIT) text = calloc(file.size + 1, 1);
  if (text && file.size) memcpy(text, file.bytes, file.size);
  file_unmap(&file);
  free(path);
  return text;
}

static bool open_metrics(Run *r, Error *error) {
  char *path = in_run(r, "metrics.jsonl");
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = metrics_open(&r->metrics, path, r->settings.resume ? r->step : -1, error);
  free(path);
  return ok;
}

/* From here on DIR is a model directory that transformers and ./generate can read. Of a run that is replaced nothing is
 * removed before the new model stands in its place. */
bool begin_directory(Run *r, Error *error) {
  if (!r->settings.resume) {
    SpecialTokens special = {start_token(r), tokenizer_end(r->tokenizer)};
    if (!write_weights(r, error) || !tokenizer_save(r->tokenizer, r->dir, r->config.ctx, error) ||
        !run_write_config(r->dir, &r->config, special, error))
      return false;
    remove_files(r, OLD_RUN_FILES);
  }
  r->begun = write_settings(r, error) && open_metrics(r, error);
  return r->begun;
}

/* A run that failed before it began leaves no directory. */
void give_up_directory(const Run *r) {
  if (r->begun || !r->made_dir || r->lock < 0) return;
  remove_files(r, RUN_FILES);
  char *path = in_run(r, ".lock");
  if (path) unlink(path);
  free(path);
  rmdir(r->dir);
}
