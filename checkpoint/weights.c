/* model.safetensors: the weights as their class names them, in fp32 when written, in fp32, fp16 or bf16 when read. */
#include "checkpoint/internal.h"

#include "checkpoint/classes.h"
#include "checkpoint/weight_files.h"
#include "util/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

SafeTensor checkpoint_tensor(const ParameterTensor *p, const char *name, const float *arena) {
  SafeTensor tensor = {.name = name, .type = TENSOR_F32, .rank = p->rank, .data = arena ? arena + p->offset : NULL};
  tensor.shape[0] = p->rank == 1 ? p->cols : p->rows;
  tensor.shape[1] = p->rank == 1 ? 0 : p->cols;
  return tensor;
}

static bool same_shape(const SafeTensor *a, const SafeTensor *b) {
  return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

typedef struct ShapeText {
  char text[24 * TENSOR_MAX_RANK];
} ShapeText;

/* "[128, 64]" */
static ShapeText shape_text(const SafeTensor *tensor) {
  ShapeText out = {"["};
  size_t used = 1;
  for (int i = 0; i < tensor->rank; i++)
    used += (size_t)snprintf(out.text + used, sizeof out.text - used, "%s%jd", i > 0 ? ", " : "",
                             (intmax_t)tensor->shape[i]);
  snprintf(out.text + used, sizeof out.text - used, "]");
  return out;
}

const SafeTensor *checkpoint_find_tensor(const char *path, const SafeTensors *file, const SafeTensor *expected,
                                         Error *error) {
  const SafeTensor *tensor = safetensors_find(file, expected->name);
  if (!tensor)
    fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is " CHECKPOINT_CONFIG " of the same model?", path,
         expected->name);
  else if (!same_shape(tensor, expected))
    fail(error, EXIT_CHECKPOINT,
         "%s: tensor %s is %s where the configuration says %s; is " CHECKPOINT_CONFIG " of the same model?", path,
         expected->name, shape_text(tensor).text, shape_text(expected).text);
  else return tensor;
  return NULL;
}

/* ---- reading ---- */

static float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 0x3FFu, bits;
  if (exponent == 0) {
    float tiny = (float)fraction * 0x1p-24f; /* zero and subnormals, exact */
    return sign != 0 ? -tiny : tiny;
  }
  bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float brain_to_float(uint16_t brain) {
  uint32_t bits = (uint32_t)brain << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Elements [first, first + count) of a tensor, whose data may be unaligned. */
static void convert(float *out, const SafeTensor *tensor, size_t first, size_t count) {
  const uint8_t *bytes = tensor->data;
  if (tensor->type == TENSOR_F32) {
    memcpy(out, bytes + sizeof *out * first, count * sizeof *out);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint16_t word;
    memcpy(&word, bytes + 2 * (first + i), sizeof word);
    out[i] = tensor->type == TENSOR_F16 ? half_to_float(word) : brain_to_float(word);
  }
}

/* What is read, and where to. */
typedef struct WeightsReader {
  const char *path;
  const SafeTensors *file; /* its tensors alone */
  const ModelClass *class;
  const ParameterTable *table;
  float *arena;
  bool *used; /* which of the file's tensors belong to the model */
  Error *error;
} WeightsReader;

/* The tensor's name, or that without the class's prefix where the file has it so. */
static const char *stored_name(const WeightsReader *r, const FileTensor *t) {
  const size_t prefix = strlen(r->class->prefix);
  const bool has_prefix = strncmp(t->name, r->class->prefix, prefix) == 0;
  const bool without = has_prefix && !safetensors_find(r->file, t->name) && safetensors_find(r->file, t->name + prefix);
  return without ? t->name + prefix : t->name;
}

/* NULL with EXIT_CHECKPOINT. */
static const SafeTensor *find(const WeightsReader *r, const FileTensor *t) {
  SafeTensor expected = file_tensor_shape(t);
  expected.name = stored_name(r, t);
  const SafeTensor *tensor = checkpoint_find_tensor(r->path, r->file, &expected, r->error);
  if (!tensor || tensor->type == TENSOR_F32 || tensor->type == TENSOR_F16 || tensor->type == TENSOR_BF16) return tensor;
  fail(r->error, EXIT_CHECKPOINT, "%s: tensor %s is %s; F32, F16 and BF16 are supported", r->path, tensor->name,
       safetensors_type_name(tensor->type));
  return NULL;
}

/* Rows of a file's tensor that are a tensor of the model. */
static int rows_in(const FileTensor *t, const ParameterTensor *p) { return t->rank == 1 ? p->cols : p->rows; }

/* Without a branch for each number. */
static bool are_finite(const float *values, size_t count) {
  const uint32_t exponent = 0x7F800000;
  uint32_t bad = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bad |= (bits & exponent) == exponent;
  }
  return !bad;
}

/* Rows `first` on of a file's tensor into a tensor of the model. */
static bool copy_rows(const WeightsReader *r, const FileTensor *t, const SafeTensor *from, int first,
                      const ParameterTensor *p) {
  float *out = r->arena + p->offset;
  const int rows = rows_in(t, p);
  const size_t cols = (size_t)t->cols, count = (size_t)rows * cols;
  if (!t->transposed && !t->interleaved) convert(out, from, file_tensor_index(t, first, 0), count);
  else
    for (size_t i = 0; i < count; i++)
      convert(out + i, from, file_tensor_index(t, first + (int)(i / cols), (int)(i % cols)), 1);
  if (are_finite(out, count)) return true;
  size_t bad = 0;
  while (isfinite(out[bad])) bad++;
  return fail(r->error, EXIT_CHECKPOINT,
              "%s: element %zu of tensor %s is %f: the training had diverged; use an earlier checkpoint", r->path,
              file_tensor_index(t, first + (int)(bad / cols), (int)(bad % cols)), from->name, (double)out[bad]);
}

/* What stands for a tensor that the model does not have must be zeros. */
static bool expect_zeros(const WeightsReader *r, const FileTensor *t, const SafeTensor *from) {
  const size_t first = file_tensor_index(t, 0, 0), count = (size_t)t->rows * (size_t)t->cols;
  for (size_t i = first; i < first + count; i++) {
    float value;
    convert(&value, from, i, 1);
    if (value != 0)
      return fail(r->error, EXIT_CHECKPOINT,
                  "%s: tensor %s has numbers other than 0, but %s in " CHECKPOINT_CONFIG
                  " says that the model has no such tensor; delete that key to read it",
                  r->path, from->name, t->zeros);
  }
  return true;
}

/* What the class has without its file saying so. */
static void make_absent(const WeightsReader *r, const FileTensor *t) {
  if (!t->count) return;
  const ParameterTensor *p = &r->table->tensors[t->first];
  float *out = r->arena + p->offset;
  if (p->role == ROLE_SINUSOIDS) parameter_sinusoids(p, out);
  else memset(out, 0, (size_t)p->rows * (size_t)p->cols * sizeof *out);
}

static bool read_tensor(const WeightsReader *r, const FileTensor *t) {
  if (t->optional && !safetensors_find(r->file, stored_name(r, t))) {
    make_absent(r, t);
    return true;
  }
  const SafeTensor *from = find(r, t);
  if (!from) return false;
  r->used[from - r->file->tensors] = true;
  if (t->count == 0) return expect_zeros(r, t, from);
  int row = 0;
  for (int i = t->first; i < t->first + t->count; i++) {
    const ParameterTensor *p = &r->table->tensors[i];
    if (!copy_rows(r, t, from, row, p)) return false;
    row += rows_in(t, p);
  }
  return true;
}

/* Whether the file may have a tensor that is not read: masks, tables of rotary positions, copies, and the head of tied
 * models, which are sometimes saved with it. */
static bool tolerated(const WeightsReader *r, const FileLayout *layout, const SafeTensor *tensor) {
  for (const char *const *ending = r->class->ignored; ending && *ending; ending++)
    if (text_ends_with(tensor->name, *ending)) return true;
  for (int i = 0; i < layout->count; i++)
    if (layout->tensors[i].copy && strcmp(tensor->name, stored_name(r, &layout->tensors[i])) == 0) return true;
  if (strcmp(tensor->name, "lm_head.weight") != 0) return false;
  const SafeTensor embedding = file_tensor_shape(&layout->tensors[0]);
  return same_shape(tensor, &embedding);
}

/* The biases that the file does not have, though its class has others, which make the model have all of a kind. */
static void clear_missing(const WeightsReader *r, unsigned biases) {
  for (int i = 0; i < r->table->count; i++) {
    const ParameterTensor *p = &r->table->tensors[i];
    if (file_layout_bias_kind(p) & ~biases) memset(r->arena + p->offset, 0, (size_t)p->cols * sizeof *r->arena);
  }
}

static bool read_tensors(const WeightsReader *r, const FileLayout *layout, unsigned biases) {
  clear_missing(r, biases);
  for (int i = 0; i < layout->count; i++)
    if (!layout->tensors[i].copy && !read_tensor(r, &layout->tensors[i])) return false;
  for (int i = 0; i < r->file->count; i++)
    if (!r->used[i] && !tolerated(r, layout, &r->file->tensors[i]))
      return fail(r->error, EXIT_CHECKPOINT, "%s has a tensor '%s' that a model of this configuration does not have",
                  r->path, text_one_line(r->file->tensors[i].name, 80).text);
  return true;
}

bool checkpoint_read_weights(const char *dir, const ModelConfig *config, const ParameterTable *table, float *arena,
                             Error *error) {
  ConfigFile saved = {0};
  WeightFiles files = {0};
  FileLayout layout = {0};
  bool ok = weight_files_open(&files, dir, error) && config_file_read(dir, &saved, error) &&
            file_layout_make(&layout, saved.class, saved.biases, config, table, error);
  if (ok) file_layout_lengthen(&layout, table, saved.config.ctx);
  bool *used = ok ? calloc((size_t)files.all.count + 1, sizeof *used) : NULL;
  if (ok && !used) ok = error_memory(error, files.path.text);
  const WeightsReader reader = {files.path.text, &files.all, saved.class, table, arena, used, error};
  ok = ok && read_tensors(&reader, &layout, saved.biases);
  free(used);
  file_layout_free(&layout);
  weight_files_close(&files);
  return ok;
}

/* ---- writing ---- */

/* Makes the tensors of a file one after the other, in the same memory. */
typedef struct WeightsWriter {
  const FileLayout *layout;
  const ParameterTable *table;
  const float *arena;
  float *room; /* of the largest tensor that is not in the arena as it is */
} WeightsWriter;

static bool is_in_arena(const FileTensor *t) { return t->count == 1 && !t->transposed && !t->unused; }

static size_t elements(const FileTensor *t) { return ((size_t)t->rows + (size_t)t->unused) * (size_t)t->cols; }

static const void *tensor_data(void *state, int index) {
  const WeightsWriter *w = state;
  const FileTensor *t = &w->layout->tensors[index];
  if (is_in_arena(t)) return w->arena + w->table->tensors[t->first].offset;
  memset(w->room, 0, elements(t) * sizeof *w->room);
  int row = 0;
  for (int i = t->first; i < t->first + t->count; i++) {
    const ParameterTensor *p = &w->table->tensors[i];
    const float *from = w->arena + p->offset;
    for (const int end = row + rows_in(t, p); row < end; row++)
      for (int col = 0; col < t->cols; col++) w->room[file_tensor_index(t, row, col)] = *from++;
  }
  return w->room;
}

static bool write_tensors(const char *path, WeightsWriter *w, Error *error) {
  size_t largest = 1;
  SafeTensor *tensors = calloc((size_t)w->layout->count + 1, sizeof *tensors);
  for (int i = 0; tensors && i < w->layout->count; i++) {
    const FileTensor *t = &w->layout->tensors[i];
    tensors[i] = file_tensor_shape(t);
    if (!is_in_arena(t) && elements(t) > largest) largest = elements(t);
  }
  w->room = malloc(largest * sizeof *w->room);
  bool ok = (tensors && w->room) || error_memory(error, CHECKPOINT_WEIGHTS);
  ok = ok && safetensors_write_from(path, tensors, w->layout->count, NULL, 0, tensor_data, w, error);
  free(w->room);
  free(tensors);
  return ok;
}

bool checkpoint_write_weights(const char *dir, const ModelConfig *config, const ParameterTable *table,
                              const float *arena, Error *error) {
  const ModelClass *a = class_of(config);
  FileLayout layout;
  if (!file_layout_make(&layout, a, class_file_biases(a, config), config, table, error)) return false;
  WeightsWriter writer = {.layout = &layout, .table = table, .arena = arena};
  bool ok = write_tensors(checkpoint_path(dir, CHECKPOINT_WEIGHTS).text, &writer, error);
  file_layout_free(&layout);
  return ok;
}
