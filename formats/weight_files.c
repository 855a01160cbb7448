/* The weight files of a model directory. */
#include "formats/weight_reader.h"

#include "util/json.h"
#include "util/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_FILES = 4096 };

static bool there_is(const char *dir, const char *name) { return access(path_in(dir, name).text, F_OK) == 0; }

json_t *model_files_read_json(const char *path, size_t limit, Error *error) {
  MappedFile file;
  if (!file_map(&file, path, EXIT_CHECKPOINT, error)) return NULL;
  json_error_t problem;
  json_t *root = NULL;
  if (file.size == 0 || file.size > limit)
    fail(error, EXIT_CHECKPOINT, "%s has %zu bytes; expected 1 to %zu", path, file.size, limit);
  else if (!(root = json_parse(file.bytes, file.size, JSON_REJECT_DUPLICATES, &problem, path, error)))
    fail(error, EXIT_CHECKPOINT, "%s is not valid JSON (line %d, column %d: %s)", path, problem.line, problem.column,
         text_one_line(problem.text, 80).text);
  file_unmap(&file);
  return root;
}

/* ---- the index: {"weight_map": {TENSOR: FILE, ...}} ---- */

typedef struct Index {
  json_t *root, *map;
  json_t *numbers; /* {FILE: its number in WeightFiles.files} */
} Index;

/* Returns whether the index gives a name and not a path: a downloaded index must not read files outside its
 * directory. */
static bool is_file_name(const char *name) {
  return name && *name != '.' && !strchr(name, '/') && text_ends_with(name, ".safetensors");
}

static bool read_index(Index *index, const char *path, Error *error) {
  const char *tensor;
  json_t *value;
  index->root = model_files_read_json(path, MAX_INDEX_BYTES, error);
  if (!index->root) return false;
  index->map = json_object_get(index->root, "weight_map");
  if (json_object_size(index->map) == 0)
    return fail(error, EXIT_CHECKPOINT, "%s has no weight_map that says which file each tensor is in", path);
  index->numbers = json_object();
  if (!index->numbers) return error_memory(error, path);
  json_object_foreach(index->map, tensor, value) {
    const char *name = json_string_value(value);
    if (!is_file_name(name))
      return fail(error, EXIT_CHECKPOINT,
                  "%s: the file of tensor %s is %s%s%s; it must be a .safetensors file beside it", path,
                  text_one_line(tensor, 80).text, name ? "\"" : "", name ? text_one_line(name, 80).text : "no name",
                  name ? "\"" : "");
    const json_int_t next = (json_int_t)json_object_size(index->numbers);
    if (!json_object_get(index->numbers, name) && json_object_set_new(index->numbers, name, json_integer(next)) != 0)
      return error_memory(error, path);
  }
  return json_object_size(index->numbers) <= MAX_FILES ||
         fail(error, EXIT_CHECKPOINT, "%s names %zu files, more than %d", path, json_object_size(index->numbers),
              MAX_FILES);
}

/* ---- the files ---- */

static bool open_file(WeightFiles *out, const char *path, Error *error) {
  const bool ok = safetensors_open(&out->files[out->count], path, error);
  out->count += ok;
  return ok;
}

static bool open_indexed(WeightFiles *out, const Index *index, const char *dir, Error *error) {
  const char *name, *tensor;
  json_t *value;
  json_object_foreach(index->numbers, name, value) {
    if (!open_file(out, path_in(dir, name).text, error)) return error_append(error, "; %s names it", out->path.text);
  }
  json_object_foreach(index->map, tensor, value) {
    const json_int_t number = json_integer_value(json_object_get(index->numbers, json_string_value(value)));
    if (!safetensors_find(&out->files[number], tensor))
      return fail(error, EXIT_CHECKPOINT, "%s: there is no tensor %s in %s; copy or download both again",
                  out->path.text, text_one_line(tensor, 80).text, text_one_line(json_string_value(value), 80).text);
  }
  return true;
}

static bool open_several(WeightFiles *out, const char *dir, Error *error) {
  Index index = {0};
  bool ok = read_index(&index, out->path.text, error);
  if (ok && !(out->files = calloc(json_object_size(index.numbers), sizeof *out->files)))
    ok = error_memory(error, out->path.text);
  ok = ok && open_indexed(out, &index, dir, error);
  json_decref(index.root);
  json_decref(index.numbers);
  return ok;
}

static bool open_one(WeightFiles *out, Error *error) {
  out->files = calloc(1, sizeof *out->files);
  return out->files ? open_file(out, out->path.text, error) : error_memory(error, out->path.text);
}

/* ---- their tensors ---- */

static int compare_name(const void *a, const void *b) {
  return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

static bool list_tensors(WeightFiles *out, Error *error) {
  size_t count = 0;
  for (int i = 0; i < out->count; i++) count += (size_t)out->files[i].count;
  SafeTensor *all = out->all.tensors = malloc((count + 1) * sizeof *all);
  if (!all) return error_memory(error, out->path.text);
  if (count > INT32_MAX) return fail(error, EXIT_CHECKPOINT, "%s: %zu tensors are too many", out->path.text, count);
  for (int i = 0; i < out->count; i++) {
    const SafeTensors *file = &out->files[i];
    if (file->count > 0) memcpy(all + out->all.count, file->tensors, (size_t)file->count * sizeof *all);
    out->all.count += file->count;
  }
  qsort(all, count, sizeof *all, compare_name);
  for (size_t i = 0; i < count; i++) {
    out->bytes += all[i].bytes;
    if (i > 0 && compare_name(&all[i - 1], &all[i]) == 0)
      return fail(error, EXIT_CHECKPOINT, "%s: tensor %s is in two of its files; download the model again",
                  out->path.text, text_one_line(all[i].name, 80).text);
  }
  return true;
}

/* Returns false; the error says what the directory contains instead of weights. */
static bool fail_without_weights(const char *dir, Error *error) {
  if (there_is(dir, "pytorch_model.bin"))
    return fail(error, EXIT_CHECKPOINT,
                "%s holds its weights as pytorch_model.bin; save them with transformers as " MODEL_FILE_WEIGHTS, dir);
  return fail(error, EXIT_CHECKPOINT, "%s holds no weights (no " MODEL_FILE_WEIGHTS " in it)", dir);
}

bool weight_files_open(WeightFiles *out, const char *dir, Error *error) {
  const bool one = there_is(dir, MODEL_FILE_WEIGHTS), several = there_is(dir, MODEL_FILE_WEIGHTS_INDEX);
  *out = (WeightFiles){.path = path_in(dir, one ? MODEL_FILE_WEIGHTS : MODEL_FILE_WEIGHTS_INDEX)};
  if (!one && !several) return fail_without_weights(dir, error);
  if ((one ? open_one(out, error) : open_several(out, dir, error)) && list_tensors(out, error)) return true;
  weight_files_close(out);
  return false;
}

void weight_files_close(WeightFiles *files) {
  for (int i = 0; i < files->count; i++) safetensors_close(&files->files[i]);
  free(files->files);
  free(files->all.tensors);
  *files = (WeightFiles){0};
}
