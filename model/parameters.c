/* Configuration, the table of parameters, initial weights. */
#include "model/internal.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- configuration ---- */

int64_t model_parameters(const ModelConfig *c) {
  const int64_t attention = (int64_t)c->dim * qkv_width(c) + (int64_t)query_width(c) * c->dim;
  const int64_t layer = attention + 3 * (int64_t)c->dim * c->ffn + 2 * (int64_t)c->dim;
  return c->layers * layer + c->dim + (c->tie ? 1 : 2) * (int64_t)c->vocab * c->dim;
}

int model_default_ffn(int dim) { return (int)round_up64(((int64_t)dim * 8 + 2) / 3, 32); }

static bool in_range(const char *name, int value, int low, int high, ExitCode code, Error *error) {
  return (value >= low && value <= high) ||
         fail(error, code, "%s is %d; it must be from %d to %d", name, value, low, high);
}

bool model_config_check(const ModelConfig *c, ExitCode code, Error *error) {
  if (!in_range("vocabulary size", c->vocab, 1, MODEL_MAX_VOCAB, code, error) ||
      !in_range("layers", c->layers, 1, MODEL_MAX_LAYERS, code, error) ||
      !in_range("heads", c->heads, 1, MODEL_MAX_HEADS, code, error) ||
      !in_range("kv-heads", c->kv_heads, 1, c->heads, code, error) ||
      !in_range("dim", c->dim, MODEL_MIN_DIM, MODEL_MAX_DIM, code, error) ||
      !in_range("ffn", c->ffn, 1, MODEL_MAX_FFN, code, error) ||
      !in_range("ctx", c->ctx, 1, MODEL_MAX_CTX, code, error) ||
      !in_range("head size (dim / heads)", c->head_dim, 2, HEAD_DIM_LIMIT, code, error))
    return false;
  if (c->head_dim % 2)
    return fail(error, code, "head size %d is odd; rotary positions need an even dim / heads", c->head_dim);
  if (c->heads % c->kv_heads)
    return fail(error, code, "%d heads cannot share %d kv-heads evenly; heads must be a multiple of kv-heads", c->heads,
                c->kv_heads);
  if (!(c->rope_base > 0) || !isfinite(c->rope_base))
    return fail(error, code, "rope base %g must be positive", (double)c->rope_base);
  if (!(c->norm_eps > 0) || !isfinite(c->norm_eps))
    return fail(error, code, "norm eps %g must be positive", (double)c->norm_eps);
  return true;
}

bool model_check_device(const ModelConfig *config, const ContextInfo *device, Error *error) {
  const struct {
    const char *name;
    int size;
  } widths[] = {{"dim", config->dim}, {"ffn", config->ffn}};
  for (int i = 0; i < 2; i++)
    if (widths[i].size % device->width_multiple)
      return fail(error, EXIT_USAGE, "%s %d is not supported on %s: use a multiple of %d", widths[i].name,
                  widths[i].size, device->device, device->width_multiple);
  if (config->head_dim % device->head_dim_multiple == 0 && config->head_dim <= device->head_dim_max) return true;
  return fail(error, EXIT_USAGE,
              "head size %d (dim %d, %d heads) is not supported on %s: use a multiple of %d up to %d", config->head_dim,
              config->dim, config->heads, device->device, device->head_dim_multiple, device->head_dim_max);
}

/* ---- parameters ---- */

static const float INIT_STD = 0.02f;

/* Starts a group: the next tensors lie side by side from a fresh alignment on. */
static Matrix begin_group(ParameterTable *t, int rows, int cols, bool decay, bool gemm) {
  t->arena = (size_t)round_up64((int64_t)t->arena, TENSOR_ALIGNMENT);
  Matrix matrix = {t->arena, rows, cols};
  t->groups[t->group_count++] = (ParameterGroup){matrix, decay, gemm};
  return matrix;
}

static void add_tensor(ParameterTable *t, int layer, const char *name, int rows, int padded_rows, int cols, int rank,
                       float std) {
  ParameterTensor *tensor = &t->tensors[t->count++];
  if (layer >= 0) snprintf(tensor->name, sizeof tensor->name, "model.layers.%d.%s.weight", layer, name);
  else snprintf(tensor->name, sizeof tensor->name, "%s.weight", name);
  tensor->rows = rows;
  tensor->cols = cols;
  tensor->rank = rank;
  tensor->offset = t->arena;
  tensor->init_std = std;
  t->arena += (size_t)padded_rows * (size_t)cols;
}

static Matrix add_matrix(ParameterTable *t, int layer, const char *name, int rows, int padded_rows, int cols,
                         float std) {
  Matrix matrix = begin_group(t, padded_rows, cols, true, true);
  add_tensor(t, layer, name, rows, padded_rows, cols, 2, std);
  return matrix;
}

static Matrix add_norm(ParameterTable *t, int layer, const char *name, int dim) {
  Matrix matrix = begin_group(t, 1, dim, false, false);
  add_tensor(t, layer, name, 1, 1, dim, 1, 0);
  return matrix;
}

static void add_layer(ParameterTable *t, const ModelConfig *c, int layer) {
  LayerParameters *p = &t->layers[layer];
  int q = query_width(c), kv = key_width(c);
  float residual_std = INIT_STD / sqrtf(2.0f * (float)c->layers);
  p->attention_norm = add_norm(t, layer, "input_layernorm", c->dim);
  p->qkv = begin_group(t, q + 2 * kv, c->dim, true, true);
  add_tensor(t, layer, "self_attn.q_proj", q, q, c->dim, 2, INIT_STD);
  add_tensor(t, layer, "self_attn.k_proj", kv, kv, c->dim, 2, INIT_STD);
  add_tensor(t, layer, "self_attn.v_proj", kv, kv, c->dim, 2, INIT_STD);
  p->output = add_matrix(t, layer, "self_attn.o_proj", c->dim, c->dim, q, residual_std);
  p->mlp_norm = add_norm(t, layer, "post_attention_layernorm", c->dim);
  p->gate_up = begin_group(t, 2 * c->ffn, c->dim, true, true);
  add_tensor(t, layer, "mlp.gate_proj", c->ffn, c->ffn, c->dim, 2, INIT_STD);
  add_tensor(t, layer, "mlp.up_proj", c->ffn, c->ffn, c->dim, 2, INIT_STD);
  p->down = add_matrix(t, layer, "mlp.down_proj", c->dim, c->dim, c->ffn, residual_std);
}

bool parameter_table_make(ParameterTable *out, const ModelConfig *c, Error *error) {
  memset(out, 0, sizeof *out);
  out->tensors = calloc((size_t)c->layers * 9 + 3, sizeof *out->tensors);
  out->groups = calloc((size_t)c->layers * 6 + 3, sizeof *out->groups);
  out->layers = calloc((size_t)c->layers, sizeof *out->layers);
  if (!out->tensors || !out->groups || !out->layers) {
    parameter_table_free(out);
    return error_memory(error, "the table of parameters");
  }
  out->embedding = add_matrix(out, -1, "model.embed_tokens", c->vocab, padded_vocab(c), c->dim, INIT_STD);
  for (int layer = 0; layer < c->layers; layer++) add_layer(out, c, layer);
  out->final_norm = add_norm(out, -1, "model.norm", c->dim);
  out->head = c->tie ? out->embedding : add_matrix(out, -1, "lm_head", c->vocab, padded_vocab(c), c->dim, INIT_STD);
  out->arena = (size_t)round_up64((int64_t)out->arena, TENSOR_ALIGNMENT);
  return true;
}

void parameter_table_free(ParameterTable *t) {
  free(t->tensors);
  free(t->groups);
  free(t->layers);
  memset(t, 0, sizeof *t);
}

/* Four normal numbers from one Philox call (Box & Muller 1958). */
static void normal4(uint64_t seed, uint32_t call, uint32_t site, float out[4]) {
  PhiloxWords words = philox(seed, call, site, 0, 0);
  for (int pair = 0; pair < 2; pair++) {
    double radius = sqrt(-2.0 * log((double)philox_uniform(words.word[2 * pair])));
    double angle = 6.283185307179586 * (double)philox_uniform(words.word[2 * pair + 1]);
    out[2 * pair] = (float)(radius * cos(angle));
    out[2 * pair + 1] = (float)(radius * sin(angle));
  }
}

void parameter_table_init(const ParameterTable *table, float *arena, uint64_t seed) {
  for (int row = 0; row < table->count; row++) {
    const ParameterTensor *tensor = &table->tensors[row];
    float *w = arena + tensor->offset;
    int64_t count = (int64_t)tensor->rows * tensor->cols;
    for (int64_t i = 0; i < count; i += 4) {
      float normal[4] = {1, 1, 1, 1};
      if (tensor->rank > 1) normal4(seed, (uint32_t)(i / 4), SITE_INIT + (uint32_t)row, normal);
      for (int64_t j = i; j < i + 4 && j < count; j++)
        w[j] = tensor->rank > 1 ? tensor->init_std * normal[j - i] : 1.0f;
    }
  }
}
