/* Finding runs: whether a directory holds one, the newest of several, and what somebody named who named none. */
#include "checkpoint/directory.h"

#include "util/program_name.h"
#include "util/text.h"
#include "util/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- runs and models ---- */

bool checkpoint_is_run(const char *dir) { return access(checkpoint_path(dir, CHECKPOINT_SETTINGS).text, F_OK) == 0; }

/* When the model in a directory was written; false where there is none. */
static bool model_time(const char *dir, struct timespec *time) {
  struct stat config, weights;
  if (stat(checkpoint_path(dir, CHECKPOINT_CONFIG).text, &config) != 0 ||
      (stat(checkpoint_path(dir, CHECKPOINT_WEIGHTS).text, &weights) != 0 &&
       stat(checkpoint_path(dir, CHECKPOINT_WEIGHTS_INDEX).text, &weights) != 0))
    return false;
  *time = weights.st_mtim;
  return true;
}

bool checkpoint_is_model(const char *dir) {
  struct timespec ignored;
  return model_time(dir, &ignored);
}

static bool later(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* The name in `dir` of the model there that was written last and ends like that; "" where there is none. */
static CheckpointPath newest_in(const char *dir, const char *ending) {
  CheckpointPath found = {""};
  struct timespec newest = {0}, time;
  DIR *stream = opendir(dir);
  for (struct dirent *entry; stream && (entry = readdir(stream));) {
    const bool named = text_ends_with(entry->d_name, ending) && strlen(entry->d_name) > strlen(ending);
    if (!named || entry->d_name[0] == '.' || !model_time(checkpoint_path(dir, entry->d_name).text, &time)) continue;
    if (*found.text && !later(&time, &newest)) continue;
    newest = time;
    snprintf(found.text, sizeof found.text, "%s", entry->d_name);
  }
  if (stream) closedir(stream);
  return found;
}

bool checkpoint_newest(char **out, Error *error) {
  const CheckpointPath found = newest_in(".", ".run");
  *out = NULL;
  if (!*found.text) return fail(error, EXIT_USAGE, "there is no *.run with a model in this directory");
  *out = strdup(found.text);
  return *out || error_memory(error, "a path");
}

#define ANOTHER_FORMAT "only directories of Hugging Face transformers (config.json, model.safetensors) are read"

/* ---- files ---- */

/* By its first bytes. */
static bool is_text(const uint8_t *bytes, size_t size) {
  uint32_t point;
  size = utf8_complete(bytes, size);
  for (size_t i = 0, length; i < size; i += length)
    if ((length = utf8_read(bytes + i, size - i, &point)) == 0 || point == 0) return false;
  return size > 0;
}

static bool begins(const uint8_t *bytes, size_t size, const char *magic) {
  return size >= strlen(magic) && memcmp(bytes, magic, strlen(magic)) == 0;
}

static bool refuse_file(const char *path, const uint8_t *head, size_t size, Error *error) {
  const char *slash = strrchr(path, '/');
  CheckpointPath dir = {"."};
  if (slash) snprintf(dir.text, sizeof dir.text, "%.*s", (int)(slash > path ? slash - path : 1), path);
  if (checkpoint_is_model(dir.text))
    return fail(error, EXIT_CHECKPOINT, "%s is a file of a model; name its directory: %s", path, dir.text);
  if (begins(head, size, "GGUF")) return fail(error, EXIT_CHECKPOINT, "%s is a GGUF file; " ANOTHER_FORMAT, path);
  if (begins(head, size, "PK\3\4") || begins(head, size, "\x80\2}"))
    return fail(error, EXIT_CHECKPOINT, "%s is a checkpoint of PyTorch, or another archive; " ANOTHER_FORMAT, path);
  if (size > 9 && head[8] == '{' && !head[7])
    return fail(error, EXIT_CHECKPOINT, "%s holds weights alone, without config.json beside it; " ANOTHER_FORMAT, path);
  if (is_text(head, size))
    return fail(error, EXIT_CHECKPOINT, "%s is a text, not a model; %s %s makes one of it", path,
                program_name("train").text, text_shell_word(path, ONE_LINE_BYTES - 1).text);
  return fail(error, EXIT_CHECKPOINT, "%s is a file, not a model; " ANOTHER_FORMAT, path);
}

/* ---- directories ---- */

static bool there_is(const char *dir, const char *name) { return access(checkpoint_path(dir, name).text, F_OK) == 0; }

static bool check_directory(const char *dir, Error *error) {
  if (there_is(dir, CHECKPOINT_CONFIG)) return true;
  const CheckpointPath below = newest_in(dir, "");
  fail(error, EXIT_CHECKPOINT, "%s holds no model (no " CHECKPOINT_CONFIG " in it)", dir);
  return *below.text ? error_append(error, "; did you mean %s", checkpoint_path(dir, below.text).text) : false;
}

bool checkpoint_fail_without_weights(const char *dir, Error *error) {
  if (there_is(dir, "pytorch_model.bin"))
    return fail(error, EXIT_CHECKPOINT,
                "%s holds its weights as pytorch_model.bin; save them with transformers as " CHECKPOINT_WEIGHTS, dir);
  return fail(error, EXIT_CHECKPOINT, "%s holds no weights (no " CHECKPOINT_WEIGHTS " in it)", dir);
}

bool checkpoint_check_model(const char *path, Error *error) {
  struct stat info;
  uint8_t head[512];
  if (!*path) return fail(error, EXIT_CHECKPOINT, "no model in \"\": the name of its directory is empty");
  if (stat(path, &info) != 0) return fail(error, EXIT_CHECKPOINT, "no model in %s: %s", path, strerror(errno));
  if (S_ISDIR(info.st_mode)) return check_directory(path, error);
  FILE *file = S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
  const size_t size = file ? fread(head, 1, sizeof head, file) : 0;
  if (file) fclose(file);
  return refuse_file(path, head, size, error);
}
