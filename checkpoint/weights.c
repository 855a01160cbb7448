/* model.safetensors: the weights, in fp32 when written, in fp32, fp16 or bf16 when read. */
#include "checkpoint/internal.h"

#include "util/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- weights ---- */

static size_t elements(const ParameterTensor *p) { return (size_t)p->rows * (size_t)p->cols; }

SafeTensor checkpoint_tensor(const ParameterTensor *p, const char *name, const float *arena) {
  SafeTensor tensor = {.name = name, .type = TENSOR_F32, .rank = p->rank == 1 ? 1 : 2, .data = arena + p->offset};
  tensor.shape[0] = p->rank == 1 ? p->cols : p->rows;
  tensor.shape[1] = p->rank == 1 ? 0 : p->cols;
  return tensor;
}

bool checkpoint_write_weights(const char *path, const ParameterTable *table, const float *arena,
                              const MetadataEntry *metadata, int metadata_count, Error *error) {
  SafeTensor *tensors = calloc((size_t)table->count + 1, sizeof *tensors);
  if (!tensors) return checkpoint_no_memory(path, error);
  for (int i = 0; i < table->count; i++)
    tensors[i] = checkpoint_tensor(&table->tensors[i], table->tensors[i].name, arena);
  bool ok = safetensors_write(path, tensors, table->count, metadata, metadata_count, error);
  free(tensors);
  return ok;
}

static bool same_shape(const SafeTensor *tensor, const ParameterTensor *p) {
  if (p->rank == 1) return tensor->rank == 1 && tensor->shape[0] == p->cols;
  return tensor->rank == 2 && tensor->shape[0] == p->rows && tensor->shape[1] == p->cols;
}

static void shape_text(char *out, size_t size, int rank, const int64_t *shape) {
  size_t used = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < rank && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%jd", i > 0 ? ", " : "", (intmax_t)shape[i]);
  if (used < size) snprintf(out + used, size - used, "]");
}

bool checkpoint_check_shape(const char *path, const SafeTensor *tensor, const ParameterTensor *p, Error *error) {
  if (same_shape(tensor, p)) return true;
  char given[256], wanted[64];
  SafeTensor due = checkpoint_tensor(p, p->name, NULL);
  shape_text(given, sizeof given, tensor->rank, tensor->shape);
  shape_text(wanted, sizeof wanted, due.rank, due.shape);
  return fail(error, EXIT_CHECKPOINT,
              "%s: tensor %s is %s where the configuration says %s; is config.json of the same model?", path,
              tensor->name, given, wanted);
}

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

static bool read_tensor(const char *path, const SafeTensor *tensor, const ParameterTensor *p, float *out,
                        Error *error) {
  if (!checkpoint_check_shape(path, tensor, p, error)) return false;
  if (tensor->type != TENSOR_F32 && tensor->type != TENSOR_F16 && tensor->type != TENSOR_BF16)
    return fail(error, EXIT_CHECKPOINT, "%s: tensor %s is %s; F32, F16 and BF16 are supported", path, tensor->name,
                safetensors_type_name(tensor->type));
  convert(out, tensor, elements(p));
  for (size_t i = 0; i < elements(p); i++)
    if (!isfinite(out[i]))
      return fail(error, EXIT_CHECKPOINT,
                  "%s: element %zu of tensor %s is %f; choose a checkpoint from before training went wrong", path, i,
                  tensor->name, (double)out[i]);
  return true;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* May a tensor that the table does not have be in the file? */
static bool tolerated(const SafeTensors *file, const SafeTensor *tensor) {
  if (ends_with(tensor->name, ".rotary_emb.inv_freq")) return true;
  if (strcmp(tensor->name, "lm_head.weight") != 0) return false;
  const SafeTensor *embedding = safetensors_find(file, "model.embed_tokens.weight");
  return embedding && tensor->rank == embedding->rank &&
         memcmp(tensor->shape, embedding->shape, sizeof tensor->shape) == 0;
}

static bool read_tensors(const char *path, const SafeTensors *file, const ParameterTable *table, float *arena,
                         bool *used, Error *error) {
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *p = &table->tensors[i];
    const SafeTensor *tensor = safetensors_find(file, p->name);
    if (!tensor)
      return fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is config.json of the same model?", path, p->name);
    if (!read_tensor(path, tensor, p, arena + p->offset, error)) return false;
    used[tensor - file->tensors] = true;
  }
  for (int i = 0; i < file->count; i++) {
    if (!used[i] && !tolerated(file, &file->tensors[i]))
      return fail(error, EXIT_CHECKPOINT, "%s has a tensor '%s' that a model of this configuration does not have", path,
                  text_one_line(file->tensors[i].name, 80).text);
  }
  return true;
}

/* Large foreign models come in pieces: say so instead of "no such file". */
static bool refuse_sharded(const char *path, Error *error) {
  char *index = NULL;
  if (access(path, F_OK) == 0) return true;
  size_t size = strlen(path) + sizeof ".index.json";
  if (!(index = malloc(size))) return checkpoint_no_memory(path, error);
  snprintf(index, size, "%s.index.json", path);
  bool sharded = access(index, F_OK) == 0;
  free(index);
  return !sharded ||
         fail(error, EXIT_CHECKPOINT, "%s comes in several files, which is not supported; save it as one", path);
}

bool checkpoint_read_weights(const char *path, const ParameterTable *table, float *arena, Error *error) {
  SafeTensors file;
  if (!refuse_sharded(path, error) || !safetensors_open(&file, path, error)) return false;
  bool *used = calloc((size_t)file.count + 1, sizeof *used);
  bool ok = used ? read_tensors(path, &file, table, arena, used, error) : checkpoint_no_memory(path, error);
  free(used);
  safetensors_close(&file);
  return ok;
}
