#include "files/formats/weight_reader.h"

#include "base/half.h"
#include "base/json.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_FILES = 4096 };

static bool there_is(const char *dir, const char *name) { return access(path_in(dir, name).text, F_OK) == 0; }

/* ---- the index: {"weight_map": {TENSOR: FILE, ...}} ---- */

/* Returns whether the index gives a name and not a path: a downloaded index must not read files outside its
 * directory. */
static bool is_file_name(const char *name) {
  return name && *name != '.' && !strchr(name, '/') && text_ends_with(name, ".safetensors");
}

/* Fills `numbers`: {FILE: its number in WeightFiles.files}. */
static bool number_files(const char *path, json_t *map, json_t *numbers, Error *error) {
  const char *tensor;
  json_t *value;
  if (json_object_size(map) == 0)
    return fail(error, EXIT_CHECKPOINT, "%s has no weight_map that says which file each tensor is in", path);
  json_object_foreach(map, tensor, value) {
    const char *name = json_string_value(value);
    if (!is_file_name(name))
      return fail(error, EXIT_CHECKPOINT,
                  "%s: the file of tensor %s is %s%s%s; it must be a .safetensors file beside it", path,
                  text_one_line(tensor, 80).text, name ? "\"" : "", name ? text_one_line(name, 80).text : "no name",
                  name ? "\"" : "");
    const json_int_t next = (json_int_t)json_object_size(numbers);
    if (!json_object_get(numbers, name) && json_object_set_new(numbers, name, json_integer(next)) != 0)
      return error_memory(error, path);
  }
  return json_object_size(numbers) <= MAX_FILES ||
         fail(error, EXIT_CHECKPOINT, "%s names %zu files, more than %d", path, json_object_size(numbers), MAX_FILES);
}

/* ---- the files ---- */

static bool open_file(WeightFiles *out, const char *path, Error *error) {
  const bool ok = safetensors_open(&out->files[out->count], path, error);
  out->count += ok;
  return ok;
}

static bool open_numbered(WeightFiles *out, const char *dir, json_t *map, json_t *numbers, Error *error) {
  const char *name, *tensor;
  json_t *value;
  out->files = calloc(json_object_size(numbers), sizeof *out->files);
  if (!out->files) return error_memory(error, out->path.text);
  json_object_foreach(numbers, name, value) {
    if (!open_file(out, path_in(dir, name).text, error)) return error_append(error, "; %s names it", out->path.text);
  }
  json_object_foreach(map, tensor, value) {
    const json_int_t number = json_integer_value(json_object_get(numbers, json_string_value(value)));
    if (!safetensors_find(&out->files[number], tensor))
      return fail(error, EXIT_CHECKPOINT, "%s: there is no tensor %s in %s; copy or download both again",
                  out->path.text, text_one_line(tensor, 80).text, text_one_line(json_string_value(value), 80).text);
  }
  return true;
}

static bool open_several(WeightFiles *out, const char *dir, Error *error) {
  json_t *root = model_files_read_json(out->path.text, MAX_INDEX_BYTES, error), *numbers = json_object();
  json_t *map = json_object_get(root, "weight_map");
  const bool ok =
      root && number_files(out->path.text, map, numbers, error) && open_numbered(out, dir, map, numbers, error);
  json_decref(root);
  json_decref(numbers);
  return ok;
}

static bool open_one(WeightFiles *out, Error *error) {
  out->files = calloc(1, sizeof *out->files);
  return out->files ? open_file(out, out->path.text, error) : error_memory(error, out->path.text);
}

/* ---- their tensors ---- */

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
  qsort(all, count, sizeof *all, safetensors_compare_name);
  for (size_t i = 0; i < count; i++) {
    out->bytes += all[i].bytes;
    if (i > 0 && safetensors_compare_name(&all[i - 1], &all[i]) == 0)
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

/* ---- numbers ---- */

/* Reads elements [first, first + count) of a tensor, whose data may be unaligned. */
static void convert(float *out, const SafeTensor *tensor, size_t first, size_t count) {
  const uint8_t *bytes = tensor->data;
  if (tensor->type == TENSOR_F32) {
    memcpy(out, bytes + sizeof *out * first, count * sizeof *out);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint16_t word;
    memcpy(&word, bytes + 2 * (first + i), sizeof word);
    out[i] = tensor->type == TENSOR_F16 ? half_f16_to_float(word) : half_bf16_to_float(word);
  }
}

static size_t index_in_file(const TensorLocation *location, int row, int col) {
  return file_tensor_index(location->tensor, location->row, row, col);
}

static void copy_row(const TensorLocation *location, const ParameterTensor *p, int row, float *out) {
  if (location->tensor->rank > 1 && !location->tensor->transposed)
    convert(out, location->data, index_in_file(location, row, 0), (size_t)p->cols);
  else
    for (int col = 0; col < p->cols; col++) convert(out + col, location->data, index_in_file(location, row, col), 1);
}

/* Fills a tensor that is not in the files: zeros or sinusoids. All tables of sinusoids have the same values. */
static void make_absent(const WeightReader *r, const ParameterTensor *p, int first, int count, float *out) {
  const size_t cols = (size_t)p->cols, size = (size_t)count * cols * sizeof *out;
  if (p->role == ROLE_SINUSOIDS) memcpy(out, r->sinusoids + (size_t)first * cols, size);
  else memset(out, 0, size);
}

bool weight_reader_rows(const WeightReader *r, int index, int first, int count, float *out, Error *error) {
  const TensorLocation *location = &r->locations[index];
  const ParameterTensor *p = &r->table->tensors[index];
  const size_t cols = (size_t)p->cols, all = (size_t)count * cols;
  if (!location->data) {
    make_absent(r, p, first, count, out);
    return true;
  }
  for (int i = 0; i < count; i++) copy_row(location, p, first + i, out + (size_t)i * cols);
  if (half_all_finite(out, all)) return true;
  size_t bad = 0;
  while (isfinite(out[bad])) bad++;
  return fail(error, EXIT_CHECKPOINT,
              "%s: element %zu of tensor %s is %f: the training had diverged; use an earlier checkpoint",
              r->files->path.text, index_in_file(location, first + (int)(bad / cols), (int)(bad % cols)),
              location->data->name, (double)out[bad]);
}

void weight_reader_forget(const WeightReader *r, int index) {
  const SafeTensor *data = r->locations[index].data;
  if (data) file_forget(data->data, data->bytes);
}

/* ---- tensors of the model ---- */

/* Returns the tensor's name in the files, which may omit the class's prefix. */
static const char *stored_name(const WeightReader *r, const FileTensor *t) {
  const char *prefix = r->saved->class->prefix;
  const size_t length = strlen(prefix);
  const SafeTensors *all = &r->files->all;
  const bool has_prefix = strncmp(t->name, prefix, length) == 0;
  const bool without = has_prefix && !safetensors_find(all, t->name) && safetensors_find(all, t->name + length);
  return without ? t->name + length : t->name;
}

/* Returns NULL with EXIT_CHECKPOINT when the files lack the tensor, or its shape or type is wrong. */
static const SafeTensor *find(const WeightReader *r, const FileTensor *t, Error *error) {
  SafeTensor expected = file_tensor_shape(t);
  expected.name = stored_name(r, t);
  const SafeTensor *tensor = safetensors_expect(r->files->path.text, &r->files->all, &expected, error);
  if (!tensor || tensor->type == TENSOR_F32 || tensor->type == TENSOR_F16 || tensor->type == TENSOR_BF16) return tensor;
  fail(error, EXIT_CHECKPOINT, "%s: tensor %s is %s; F32, F16 and BF16 are supported", r->files->path.text,
       tensor->name, safetensors_type_name(tensor->type));
  return NULL;
}

/* Checks that a tensor that the model does not have is zeros. */
static bool expect_zeros(const WeightReader *r, const FileTensor *t, const SafeTensor *from, Error *error) {
  const size_t first = file_tensor_index(t, 0, 0, 0), count = (size_t)t->rows * (size_t)t->cols;
  for (size_t i = first; i < first + count; i++) {
    float value;
    convert(&value, from, i, 1);
    if (value != 0)
      return fail(error, EXIT_CHECKPOINT,
                  "%s: tensor %s has numbers other than 0, but %s in " MODEL_FILE_CONFIG
                  " says that the model has no such tensor; delete that key to read it",
                  r->files->path.text, from->name, t->zeros);
  }
  return true;
}

static bool make_sinusoids(WeightReader *r, const ParameterTensor *p, Error *error) {
  if (r->sinusoids) return true;
  r->sinusoids = malloc((size_t)p->rows * (size_t)p->cols * sizeof *r->sinusoids);
  if (!r->sinusoids) return error_memory(error, "the table of positions");
  parameter_sinusoids(p, r->sinusoids);
  return true;
}

static bool locate_tensor(WeightReader *r, const FileTensor *t, bool *used, Error *error) {
  const bool absent = t->optional && !safetensors_find(&r->files->all, stored_name(r, t));
  const SafeTensor *from = absent ? NULL : find(r, t, error);
  if (!from && !absent) return false;
  if (from) used[from - r->files->all.tensors] = true;
  if (from && t->count == 0) return expect_zeros(r, t, from, error);
  int row = 0;
  for (int i = t->first; i < t->first + t->count; i++) {
    const ParameterTensor *p = &r->table->tensors[i];
    r->locations[i] = (TensorLocation){t, from, row};
    if (absent && p->role == ROLE_SINUSOIDS && !make_sinusoids(r, p, error)) return false;
    row += file_tensor_rows(t, p);
  }
  return true;
}

/* Returns whether a tensor of the files may be ignored: a mask, a table of rotary positions, or a copy. */
static bool is_tolerated(const WeightReader *r, const SafeTensor *tensor) {
  const FileLayout *layout = &r->layout;
  for (const char *const *ending = r->saved->class->ignored; ending && *ending; ending++)
    if (text_ends_with(tensor->name, *ending)) return true;
  for (int i = 0; i < layout->count; i++)
    if (layout->tensors[i].copy && strcmp(tensor->name, stored_name(r, &layout->tensors[i])) == 0) return true;
  return false;
}

/* Checks that the head of a tied model, which some files contain, equals the embedding. */
static bool check_head(const WeightReader *r, const SafeTensor *head, Error *error) {
  const SafeTensor *embedding = safetensors_find(&r->files->all, stored_name(r, &r->layout.tensors[0]));
  return (head->type == embedding->type && memcmp(head->data, embedding->data, embedding->bytes) == 0) ||
         fail(error, EXIT_CHECKPOINT,
              "%s: %s is not %s, but tie_word_embeddings in " MODEL_FILE_CONFIG
              " says that they are the same; set it to false to read both",
              r->files->path.text, head->name, embedding->name);
}

static bool is_head(const WeightReader *r, const SafeTensor *tensor) {
  const SafeTensor embedding = file_tensor_shape(&r->layout.tensors[0]);
  return strcmp(tensor->name, "lm_head.weight") == 0 && safetensors_same_shape(tensor, &embedding);
}

static bool check_unread(const WeightReader *r, const SafeTensor *tensor, Error *error) {
  if (is_head(r, tensor)) return check_head(r, tensor, error);
  return is_tolerated(r, tensor) ||
         fail(error, EXIT_CHECKPOINT, "%s has a tensor '%s' that a model of this configuration does not have",
              r->files->path.text, text_one_line(tensor->name, 80).text);
}

/* Finds all tensors. Biases that the files lack stay zeros: the model has all biases of a kind when the class has
 * one. */
static bool locate_all(WeightReader *r, bool *used, Error *error) {
  const SafeTensors *all = &r->files->all;
  for (int i = 0; i < r->layout.count; i++)
    if (!r->layout.tensors[i].copy && !locate_tensor(r, &r->layout.tensors[i], used, error)) return false;
  for (int i = 0; i < all->count; i++)
    if (!used[i] && !check_unread(r, &all->tensors[i], error)) return false;
  return true;
}

bool weight_reader_open(WeightReader *out, ModelFiles *files, const ModelConfig *config, const ParameterTable *table,
                        Error *error) {
  *out = (WeightReader){.files = &files->weights, .saved = &files->saved, .table = table};
  bool ok = model_files_need_weights(files, error) &&
            file_layout_make(&out->layout, out->saved->class, out->saved->biases, config, table, error);
  if (ok) file_layout_lengthen(&out->layout, table, out->saved->config.ctx);
  bool *used = ok ? calloc((size_t)out->files->all.count + 1, sizeof *used) : NULL;
  if (ok) out->locations = calloc((size_t)table->count + 1, sizeof *out->locations);
  if (ok && (!used || !out->locations)) ok = error_memory(error, out->files->path.text);
  ok = ok && locate_all(out, used, error);
  free(used);
  if (!ok) weight_reader_close(out);
  return ok;
}

void weight_reader_close(WeightReader *r) {
  free(r->sinusoids);
  free(r->locations);
  file_layout_free(&r->layout);
  *r = (WeightReader){0};
}
