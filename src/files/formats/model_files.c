/* Finds, opens and reads model directories; reads and writes their tokenizers. */
#include "files/formats/weight_reader.h"

#include "base/file.h"
#include "base/system.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
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
  *time = system_modified(&weights);
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

/* ---- what is not a model ---- */

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

static bool check_directory(const char *dir, Error *error) {
  if (access(path_in(dir, MODEL_FILE_CONFIG).text, F_OK) == 0) return true;
  if (errno != ENOENT) return fail(error, EXIT_CHECKPOINT, "cannot read %s: %s", dir, strerror(errno));
  const PathText below = newest_in(dir, "");
  fail(error, EXIT_CHECKPOINT, "%s holds no model (no " MODEL_FILE_CONFIG " in it)", dir);
  return *below.text ? error_append(error, "; did you mean %s", path_in(dir, below.text).text) : false;
}

/* Checks that `path` is a directory with a model's configuration; otherwise the error says what it is. */
static bool check_path(const char *path, Error *error) {
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

/* ---- reading a model ---- */

bool model_files_open(ModelFiles **out, const char *dir, Error *error) {
  *out = NULL;
  if (!check_path(dir, error)) return false;
  ModelFiles *files = calloc(1, sizeof *files);
  char *name = files ? strdup(dir) : NULL;
  if (!name) {
    free(files);
    return error_memory(error, "a model directory");
  }
  files->dir = name;
  if (config_file_read(dir, &files->saved, error)) *out = files;
  else model_files_close(files);
  return *out;
}

void model_files_close(ModelFiles *files) {
  if (!files) return;
  weight_files_close(&files->weights);
  free(files->dir);
  free(files);
}

const ModelConfig *model_files_config(const ModelFiles *files) { return &files->saved.config; }

SpecialTokens model_files_special_tokens(const ModelFiles *files) { return files->saved.tokens; }

SpecialTokens model_files_tokens(int start, const Tokenizer *tokenizer) {
  return (SpecialTokens){start, tokenizer_end(tokenizer), *tokenizer_other_ends(tokenizer)};
}

bool model_files_interleaved(const ModelFiles *files) { return files->saved.class->interleaved; }

bool model_files_need_weights(ModelFiles *files, Error *error) {
  return files->weights.files || weight_files_open(&files->weights, files->dir, error);
}

/* A parameter takes at least two bytes. Biases may be absent, and so may tables of sinusoids if the class computes
 * them. */
bool model_files_check_weights_size(ModelFiles *files, Error *error) {
  ModelConfig least = files->saved.config;
  least.bias = least.qkv_bias = least.head_bias = 0;
  if (least.positions == POSITIONS_SINUSOIDAL && !files->saved.class->sinusoids) least.positions = POSITIONS_LEARNED;
  const int64_t parameters = model_parameters(&least);
  if (!model_counts_ok(error) || !model_files_need_weights(files, error)) return false;
  const size_t bytes = files->weights.bytes;
  if ((int64_t)(bytes / 2) >= parameters) return true;
  return fail(error, EXIT_CHECKPOINT,
              "%s has %zu bytes of weights, too few for the %" PRId64 " parameters that " MODEL_FILE_CONFIG
              " describes",
              files->weights.path.text, bytes, parameters);
}

typedef struct Reading {
  const WeightReader *reader;
  float *arena;
  _Atomic bool *failed;
} Reading;

static bool read_tensor(const Reading *r, int i, Error *error) {
  const ParameterTensor *tensor = &r->reader->table->tensors[i];
  return weight_reader_rows(r->reader, i, 0, tensor->rows, r->arena + tensor->offset, error);
}

/* PoolWork. */
static void read_some(const void *reading, int begin, int end, int thread) {
  const Reading *r = reading;
  Error ignored = {0};
  (void)thread;
  for (int i = begin; i < end && !*r->failed; i++)
    if (!read_tensor(r, i, &ignored)) *r->failed = true;
}

/* After an error, one thread reads again, so that the error is always that of the first bad tensor. */
static bool read_all(const Reading *r, int threads, Error *error) {
  const int count = r->reader->table->count;
  Pool *pool;
  if (!pool_open(&pool, threads, error)) return false;
  pool_run(pool, count, 1, 1, read_some, r);
  pool_close(pool);
  bool ok = true;
  for (int i = 0; ok && *r->failed && i < count; i++) ok = read_tensor(r, i, error);
  return ok;
}

bool model_files_read_weights(ModelFiles *files, const ModelConfig *config, const ParameterTable *table, float *arena,
                              int threads, Error *error) {
  WeightReader reader;
  _Atomic bool failed = false;
  if (!weight_reader_open(&reader, files, config, table, error)) return false;
  const bool ok = read_all(&(Reading){&reader, arena, &failed}, threads, error);
  weight_reader_close(&reader);
  return ok;
}

/* Reads the weights directly into host memory of the model, or else uploads a copy. */
static bool fill_model(ModelFiles *files, Model *model, int threads, Error *error) {
  const ParameterTable *table = model_table(model);
  float *weights = model_host_weights(model), *copy = NULL;
  if (!weights) weights = copy = calloc(table->arena, sizeof *copy);
  const bool ok = weights ? model_files_read_weights(files, model_config(model), table, weights, threads, error)
                          : error_memory(error, "the weights");
  if (ok && copy) model_upload(model, ARENA_MASTER, copy);
  else if (ok) model_weights_written(model);
  free(copy);
  return ok;
}

bool model_files_load(ModelFiles *files, Model **out, const Backend *backend, Context *context, Error *error) {
  ContextInfo info;
  *out = NULL;
  backend->info(context, &info);
  if (!model_files_check_weights_size(files, error) || !model_open(out, backend, context, &files->saved.config, error))
    return false;
  const bool ok = fill_model(files, *out, threads_count(info.threads), error);
  weight_files_close(&files->weights); /* mapped files count as memory of the process */
  if (ok) return true;
  model_close(*out);
  *out = NULL;
  return false;
}

/* ---- reading tokenizers ---- */

/* `vocab`: the vocabulary in config.json; `of`: " for sources", or "". */
static bool check_vocab(Tokenizer *t, const char *dir, int vocab, const char *of, Error *error) {
  return tokenizer_set_vocab(t, vocab) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: the ids of " TOKENIZER_JSON " go up to %d, but " MODEL_FILE_CONFIG
              " says that the model has only %d rows%s; resize its embeddings to at least %d, or use its own tokenizer",
              dir, tokenizer_vocab(t) - 1, vocab, of, tokenizer_vocab(t));
}

static bool check_end(const Tokenizer *t, const char *dir, const ModelConfig *config, Error *error) {
  return config->encoder_layers || !tokenizer_ends_with_end(t) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: " TOKENIZER_JSON
              " appends the end token to texts, which is only supported for models with an encoder",
              dir);
}

static bool kept(bool ok, Tokenizer **out) {
  if (ok) return true;
  tokenizer_free(*out);
  *out = NULL;
  return false;
}

bool model_files_read_tokenizer(const ModelFiles *files, Tokenizer **out, Error *error) {
  const char *dir = files->dir;
  const ModelConfig *config = &files->saved.config;
  if (!tokenizer_load(out, path_in(dir, TOKENIZER_JSON).text, error)) return false;
  config_file_set_ends(&files->saved, *out);
  return kept(check_vocab(*out, dir, config->vocab, "", error) && check_end(*out, dir, config, error), out);
}

bool model_files_read_source_tokenizer(const ModelFiles *files, const Tokenizer *target, Tokenizer **out,
                                       Error *error) {
  const ModelConfig *config = &files->saved.config;
  *out = NULL;
  if (!config->encoder_layers || (config->source_vocab == config->vocab && !tokenizer_has_separate_vocabs(target)))
    return true;
  const PathText folder = path_in(files->dir, MODEL_FILE_SOURCE_TOKENIZER);
  if (!tokenizer_load(out, path_in(folder.text, TOKENIZER_JSON).text, error))
    return error_append(error, "; sources of this model have a separate tokenizer");
  return kept(check_vocab(*out, folder.text, config->source_vocab, " for sources", error), out);
}

/* ---- writing tokenizers ---- */

static bool save_source(const Tokenizer *source, const char *dir, int ctx, Error *error) {
  const PathText folder = path_in(dir, MODEL_FILE_SOURCE_TOKENIZER);
  return file_make_directory(folder.text, error) && tokenizer_save(source, folder.text, ctx, error);
}

bool model_files_write_tokenizers(const char *dir, Tokenizer *tokenizer, const Tokenizer *source, int ctx,
                                  Error *error) {
  if (source && !save_source(source, dir, ctx, error)) return false;
  tokenizer_set_separate_vocabs(tokenizer, source != NULL);
  return tokenizer_save(tokenizer, dir, ctx, error);
}

void model_files_remove_source_tokenizer(const char *dir) {
  const PathText folder = path_in(dir, MODEL_FILE_SOURCE_TOKENIZER);
  file_remove_in(folder.text, TOKENIZER_JSON);
  file_remove_in(folder.text, TOKENIZER_CONFIG_JSON);
  rmdir(folder.text);
}
