/* model.safetensors: the weights as their class names them, in fp32 when written, in fp32, fp16 or bf16 when read. */
#include "checkpoint/internal.h"

#include "checkpoint/classes.h"
#include "checkpoint/weight_reader.h"

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

bool checkpoint_same_shape(const SafeTensor *a, const SafeTensor *b) {
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
  else if (!checkpoint_same_shape(tensor, expected))
    fail(error, EXIT_CHECKPOINT,
         "%s: tensor %s is %s where the configuration says %s; is " CHECKPOINT_CONFIG " of the same model?", path,
         expected->name, shape_text(tensor).text, shape_text(expected).text);
  else return tensor;
  return NULL;
}

/* ---- reading ---- */

bool checkpoint_read_weights(const char *dir, const ModelConfig *config, const ParameterTable *table, float *arena,
                             Error *error) {
  WeightReader reader;
  if (!weight_reader_open(&reader, dir, config, table, error)) return false;
  bool ok = true;
  for (int i = 0; ok && i < table->count; i++)
    ok = weight_reader_rows(&reader, i, 0, table->tensors[i].rows, arena + table->tensors[i].offset, error);
  weight_reader_close(&reader);
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

/* Rows of a file's tensor that are a tensor of the model. */
static int rows_in(const FileTensor *t, const ParameterTensor *p) { return t->rank == 1 ? p->cols : p->rows; }

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
