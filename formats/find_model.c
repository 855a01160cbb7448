/* Checks whether a directory contains a model, finds the newest of several models, and describes paths without one. */
#include "formats/weight_reader.h"

#include "util/program_name.h"
#include "util/text.h"
#include "util/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- runs and models ---- */

/* Finds when the model in a directory was written; false when it contains none. */
static bool model_time(const char *dir, struct timespec *time) {
  struct stat config, weights;
  if (stat(path_in(dir, MODEL_FILE_CONFIG).text, &config) != 0 ||
      (stat(path_in(dir, MODEL_FILE_WEIGHTS).text, &weights) != 0 &&
       stat(path_in(dir, MODEL_FILE_WEIGHTS_INDEX).text, &weights) != 0))
    return false;
  *time = weights.st_mtim;
  return true;
}

bool model_files_exist(const char *dir) { return model_time(dir, &(struct timespec){0}); }

static bool later(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* Returns the name of the newest model in `dir` whose name has that ending; "" when there is none. */
static PathText newest_in(const char *dir, const char *ending) {
  PathText found = {""};
  struct timespec newest = {0}, time;
  DIR *stream = opendir(dir);
  for (struct dirent *entry; stream && (entry = readdir(stream));) {
    const bool named = text_ends_with(entry->d_name, ending) && strlen(entry->d_name) > strlen(ending);
    if (!named || entry->d_name[0] == '.' || !model_time(path_in(dir, entry->d_name).text, &time)) continue;
    if (*found.text && !later(&time, &newest)) continue;
    newest = time;
    snprintf(found.text, sizeof found.text, "%s", entry->d_name);
  }
  if (stream) closedir(stream);
  return found;
}

bool model_files_newest_run(char **out, Error *error) {
  const PathText found = newest_in(".", ".run");
  *out = NULL;
  if (!*found.text) return fail(error, EXIT_USAGE, "there is no *.run with a model in this directory");
  *out = strdup(found.text);
  return *out || error_memory(error, "a path");
}

#define ANOTHER_FORMAT "only directories of Hugging Face transformers (config.json, model.safetensors) are supported"

/* ---- files ---- */

/* Returns whether the first bytes of a file are text. */
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
  PathText dir = {"."};
  if (slash) snprintf(dir.text, sizeof dir.text, "%.*s", (int)(slash > path ? slash - path : 1), path);
  if (model_files_exist(dir.text))
    return fail(error, EXIT_CHECKPOINT, "%s is a file of a model; name its directory: %s", path, dir.text);
  if (begins(head, size, "GGUF")) return fail(error, EXIT_CHECKPOINT, "%s is a GGUF file; " ANOTHER_FORMAT, path);
  if (begins(head, size, "PK\3\4") || begins(head, size, "\x80\2}"))
    return fail(error, EXIT_CHECKPOINT, "%s is a checkpoint of PyTorch, or another archive; " ANOTHER_FORMAT, path);
  if (size > 9 && head[8] == '{' && !head[7])
    return fail(error, EXIT_CHECKPOINT, "%s holds weights alone, without config.json beside it; " ANOTHER_FORMAT, path);
  if (is_text(head, size))
    return fail(error, EXIT_CHECKPOINT, "%s is a text, not a model; %s %s trains a model on it", path,
                program_name("train").text, text_shell_word(path, ONE_LINE_BYTES - 1).text);
  return fail(error, EXIT_CHECKPOINT, "%s is a file, not a model; " ANOTHER_FORMAT, path);
}

/* ---- directories ---- */

static bool check_directory(const char *dir, Error *error) {
  if (access(path_in(dir, MODEL_FILE_CONFIG).text, F_OK) == 0) return true;
  const PathText below = newest_in(dir, "");
  fail(error, EXIT_CHECKPOINT, "%s holds no model (no " MODEL_FILE_CONFIG " in it)", dir);
  return *below.text ? error_append(error, "; did you mean %s", path_in(dir, below.text).text) : false;
}

bool model_files_check(const char *path, Error *error) {
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
