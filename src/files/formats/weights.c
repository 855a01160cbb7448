/* Writes model.safetensors: the weights in the layout of their class, in fp32 or bf16. */
#include "files/formats/weight_reader.h"
#include "base/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Produces the tensors of a file one by one in a buffer, from an arena or from other files. */
typedef struct WeightsWriter {
  FileLayout layout;
  const ParameterTable *table;
  const float *arena; /* NULL: use the reader */
  const WeightReader *reader;
  TensorType type;
  float *buffer; /* capacity: the largest tensor that cannot be written directly from the arena */
  float *row;    /* capacity: the widest row */
  Error *error;
} WeightsWriter;

static bool is_in_arena(const WeightsWriter *w, const FileTensor *t) {
  return w->arena && w->type == TENSOR_F32 && t->count == 1 && !t->transposed && !t->unused;
}

static size_t elements(const FileTensor *t) { return ((size_t)t->rows + (size_t)t->unused) * (size_t)t->cols; }

/* Returns a row of a tensor of the model; NULL with an error when it cannot be read. */
static const float *row_of(const WeightsWriter *w, int index, int row) {
  const ParameterTensor *p = &w->table->tensors[index];
  if (w->arena) return w->arena + p->offset + (size_t)row * (size_t)p->cols;
  return weight_reader_rows(w->reader, index, row, 1, w->row, w->error) ? w->row : NULL;
}

/* Copies a tensor of the model to rows `first`... of the file's tensor. */
static bool put_tensor(const WeightsWriter *w, const FileTensor *t, int index, int first) {
  const ParameterTensor *p = &w->table->tensors[index];
  for (int row = 0; row < p->rows; row++) {
    const float *from = row_of(w, index, row);
    if (!from) return false;
    for (int col = 0; col < p->cols; col++) w->buffer[file_tensor_index(t, first, row, col)] = from[col];
  }
  return true;
}

/* Converts in place: every bf16 ends no later than the fp32 that it is made from. */
static void narrow(float *values, size_t count) {
  uint8_t *out = (uint8_t *)values;
  for (size_t i = 0; i < count; i++) {
    const uint16_t half = half_float_to_bf16(values[i]);
    memcpy(out + i * sizeof half, &half, sizeof half);
  }
}

static const void *tensor_data(void *state, int index) {
  const WeightsWriter *w = state;
  const FileTensor *t = &w->layout.tensors[index];
  if (is_in_arena(w, t)) return w->arena + w->table->tensors[t->first].offset;
  memset(w->buffer, 0, elements(t) * sizeof *w->buffer);
  int row = 0;
  for (int i = t->first; i < t->first + t->count; i++) {
    if (!put_tensor(w, t, i, row)) return NULL;
    row += file_tensor_rows(t, &w->table->tensors[i]);
  }
  if (w->type == TENSOR_BF16) narrow(w->buffer, elements(t));
  return w->buffer;
}

static bool write_tensors(const char *path, WeightsWriter *w) {
  size_t largest = 1, widest = 1;
  SafeTensor *tensors = calloc((size_t)w->layout.count + 1, sizeof *tensors);
  for (int i = 0; tensors && i < w->layout.count; i++) {
    const FileTensor *t = &w->layout.tensors[i];
    tensors[i] = file_tensor_shape(t);
    tensors[i].type = w->type;
    if (!is_in_arena(w, t) && elements(t) > largest) largest = elements(t);
  }
  for (int i = 0; i < w->table->count; i++)
    if ((size_t)w->table->tensors[i].cols > widest) widest = (size_t)w->table->tensors[i].cols;
  w->buffer = malloc(largest * sizeof *w->buffer);
  w->row = malloc(widest * sizeof *w->row);
  bool ok = (tensors && w->buffer && w->row) || error_memory(w->error, MODEL_FILE_WEIGHTS);
  ok = ok && safetensors_write_from(path, tensors, w->layout.count, NULL, 0, tensor_data, w, w->error);
  free(w->row);
  free(w->buffer);
  free(tensors);
  return ok;
}

static bool write_weights(const char *dir, const ModelConfig *config, WeightsWriter *writer) {
  const ModelClass *a = class_of(config);
  if (!file_layout_make(&writer->layout, a, class_file_biases(a, config), config, writer->table, writer->error))
    return false;
  bool ok = write_tensors(path_in(dir, MODEL_FILE_WEIGHTS).text, writer);
  file_layout_free(&writer->layout);
  return ok;
}

bool model_files_write_weights(const char *dir, const ModelConfig *config, const ParameterTable *table,
                               const float *arena, Error *error) {
  WeightsWriter writer = {.table = table, .arena = arena, .type = TENSOR_F32, .error = error};
  return write_weights(dir, config, &writer);
}

bool model_files_copy_weights(ModelFiles *from, const char *to, TensorType type, Error *error) {
  const ModelConfig *config = model_files_config(from);
  ParameterTable table;
  WeightReader reader;
  if (!parameter_table_make(&table, config, error)) return false;
  bool ok = weight_reader_open(&reader, from, config, &table, error);
  WeightsWriter writer = {.table = &table, .reader = &reader, .type = type, .error = error};
  ok = ok && write_weights(to, config, &writer);
  weight_reader_close(&reader);
  parameter_table_free(&table);
  return ok;
}
