/* model.safetensors: the weights, in fp32 when written, in fp32, fp16 or bf16 when read. */
#include "checkpoint/internal.h"

#include "checkpoint/directory.h"
#include "util/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

const SafeTensor *checkpoint_find_tensor(const char *path, const SafeTensors *file, const char *name,
                                         const ParameterTensor *p, Error *error) {
  const SafeTensor *tensor = safetensors_find(file, name), expected = checkpoint_tensor(p, name, NULL);
  if (!tensor)
    fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is " CHECKPOINT_CONFIG " of the same model?", path, name);
  else if (!same_shape(tensor, &expected))
    fail(error, EXIT_CHECKPOINT,
         "%s: tensor %s is %s where the configuration says %s; is " CHECKPOINT_CONFIG " of the same model?", path, name,
         shape_text(tensor).text, shape_text(&expected).text);
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

/* `data` may be unaligned. */
static void convert(float *out, const SafeTensor *tensor, size_t count) {
  if (tensor->type == TENSOR_F32) {
    memcpy(out, tensor->data, count * sizeof *out);
    return;
  }
  const uint8_t *bytes = tensor->data;
  for (size_t i = 0; i < count; i++) {
    uint16_t word;
    memcpy(&word, bytes + 2 * i, sizeof word);
    out[i] = tensor->type == TENSOR_F16 ? half_to_float(word) : brain_to_float(word);
  }
}

static bool read_tensor(const char *path, const SafeTensor *tensor, size_t count, float *out, Error *error) {
  if (tensor->type != TENSOR_F32 && tensor->type != TENSOR_F16 && tensor->type != TENSOR_BF16)
    return fail(error, EXIT_CHECKPOINT, "%s: tensor %s is %s; F32, F16 and BF16 are supported", path, tensor->name,
                safetensors_type_name(tensor->type));
  convert(out, tensor, count);
  for (size_t i = 0; i < count; i++)
    if (!isfinite(out[i]))
      return fail(error, EXIT_CHECKPOINT,
                  "%s: element %zu of tensor %s is %f: the training had diverged; use an earlier checkpoint", path, i,
                  tensor->name, (double)out[i]);
  return true;
}

/* Whether the file may have a tensor that the table does not have. */
static bool tolerated(const SafeTensors *file, const SafeTensor *tensor) {
  if (text_ends_with(tensor->name, ".rotary_emb.inv_freq")) return true;
  if (strcmp(tensor->name, "lm_head.weight") != 0) return false;
  const SafeTensor *embedding = safetensors_find(file, "model.embed_tokens.weight");
  return embedding && same_shape(tensor, embedding);
}

static bool read_tensors(const char *path, const SafeTensors *file, const ParameterTable *table, float *arena,
                         bool *used, Error *error) {
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *p = &table->tensors[i];
    const SafeTensor *tensor = checkpoint_find_tensor(path, file, p->name, p, error);
    if (!tensor || !read_tensor(path, tensor, (size_t)p->rows * (size_t)p->cols, arena + p->offset, error))
      return false;
    used[tensor - file->tensors] = true;
  }
  for (int i = 0; i < file->count; i++)
    if (!used[i] && !tolerated(file, &file->tensors[i]))
      return fail(error, EXIT_CHECKPOINT, "%s has a tensor '%s' that a model of this configuration does not have", path,
                  text_one_line(file->tensors[i].name, 80).text);
  return true;
}

bool checkpoint_read_weights(const char *dir, const ParameterTable *table, float *arena, Error *error) {
  SafeTensors file;
  const CheckpointPath path = checkpoint_path(dir, CHECKPOINT_WEIGHTS);
  if (access(path.text, F_OK) != 0 && access(checkpoint_path(dir, CHECKPOINT_WEIGHTS ".index.json").text, F_OK) == 0)
    return fail(error, EXIT_CHECKPOINT, "%s comes in several files, which is not supported; save it as one", path.text);
  if (!safetensors_open(&file, path.text, error)) return false;
  bool *used = calloc((size_t)file.count + 1, sizeof *used);
  bool ok = used ? read_tensors(path.text, &file, table, arena, used, error) : error_memory(error, path.text);
  free(used);
  safetensors_close(&file);
  return ok;
}

/* ---- writing ---- */

bool checkpoint_write_weights(const char *dir, const ParameterTable *table, const float *arena, Error *error) {
  SafeTensor *tensors = calloc((size_t)table->count + 1, sizeof *tensors);
  if (!tensors) return error_memory(error, CHECKPOINT_WEIGHTS);
  for (int i = 0; i < table->count; i++)
    tensors[i] = checkpoint_tensor(&table->tensors[i], table->tensors[i].name, arena);
  bool ok = safetensors_write(checkpoint_path(dir, CHECKPOINT_WEIGHTS).text, tensors, table->count, NULL, 0, error);
  free(tensors);
  return ok;
}
