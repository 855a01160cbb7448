/* Configuration, the table of parameters, initial weights. */
#include "model/internal.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- configuration ---- */

/* Of the tensors whose role is not among `excluded`, bits 1 << ParameterRole. */
static int64_t count_parameters(const ModelConfig *c, unsigned excluded) {
  ParameterTable table;
  int64_t count = 0;
  if (!parameter_table_make(&table, c, NULL)) return 0;
  for (int i = 0; i < table.count; i++)
    if (!(excluded >> table.tensors[i].role & 1)) count += (int64_t)table.tensors[i].rows * table.tensors[i].cols;
  parameter_table_free(&table);
  return count;
}

int64_t model_parameters(const ModelConfig *c) { return count_parameters(c, 1u << ROLE_SINUSOIDS); }

int64_t model_parameters_without_embeddings(const ModelConfig *c) {
  return count_parameters(c, 1u << ROLE_SINUSOIDS | 1u << ROLE_EMBEDDING | 1u << ROLE_PLACES);
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
      !in_range("head size", c->head_dim, 2, HEAD_DIM_LIMIT, code, error))
    return false;
  if (c->head_dim % 2) return fail(error, code, "head size %d is odd; it must be even", c->head_dim);
  if (c->heads % c->kv_heads)
    return fail(error, code, "%d heads cannot share %d kv-heads evenly; heads must be a multiple of kv-heads", c->heads,
                c->kv_heads);
  if (!in_range("encoder layers", c->encoder_layers, 0, MODEL_MAX_LAYERS, code, error)) return false;
  if (has_encoder(c)) {
    if (!in_range("source vocabulary size", c->source_vocab, 1, MODEL_MAX_VOCAB, code, error)) return false;
    if (c->tie && c->source_vocab != c->vocab)
      return fail(error, code, "a tied model has one table for sources of %d tokens and targets of %d; untie it",
                  c->source_vocab, c->vocab);
  }
  if (c->positions == POSITIONS_ROPE && (!(c->rope_base > 0) || !isfinite(c->rope_base)))
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

/* Starts a group: the next tensors lie side by side from a fresh alignment on. */
static Matrix begin_group(ParameterTable *t, int rows, int cols, bool decay, bool gemm) {
  t->arena = (size_t)round_up64((int64_t)t->arena, TENSOR_ALIGNMENT);
  Matrix matrix = {t->arena, rows, cols};
  t->groups[t->group_count++] = (ParameterGroup){.matrix = matrix, .decay = decay, .gemm = gemm, .vector = t->vectors};
  if (!gemm) t->vectors += (size_t)round_up64((int64_t)rows * cols, TENSOR_ALIGNMENT);
  return matrix;
}

/* Where a tensor is, and what it is called: "model.", "self_attn.q_proj" and "weight". */
typedef struct Place {
  const char *prefix;
  int layer;    /* -1: of none */
  int branches; /* ParameterTensor */
} Place;

static ParameterTensor *add_tensor(ParameterTable *t, Place at, const char *module, const char *kind, int rows,
                                   int cols, TensorRole role) {
  ParameterTensor *tensor = &t->tensors[t->count++];
  *tensor = (ParameterTensor){
      .rows = rows, .cols = cols, .rank = 2, .offset = t->arena, .role = role, .inputs = cols, .branches = at.branches};
  char layer[24] = "";
  if (at.layer >= 0) snprintf(layer, sizeof layer, "layers.%d.", at.layer);
  snprintf(tensor->name, sizeof tensor->name, "%s%s%s.%s", at.prefix, layer, module, kind);
  t->arena += (size_t)rows * (size_t)cols;
  return tensor;
}

static ParameterTensor *add_vector(ParameterTable *t, Place at, const char *module, const char *kind, int count,
                                   TensorRole role) {
  ParameterTensor *tensor = add_tensor(t, at, module, kind, 1, count, role);
  tensor->rank = 1;
  return tensor;
}

/* One of the matrices that are multiplied together. */
typedef struct Piece {
  const char *module;
  int rows;
} Piece;

static Linear add_linear(ParameterTable *t, Place at, const Piece *pieces, int count, int cols, TensorRole role,
                         bool bias) {
  int rows = 0;
  for (int i = 0; i < count; i++) rows += pieces[i].rows;
  Linear linear = {.weight = begin_group(t, rows, cols, true, true)};
  const int group = t->group_count - 1;
  for (int i = 0; i < count; i++) {
    const ParameterTensor *tensor = add_tensor(t, at, pieces[i].module, "weight", pieces[i].rows, cols, role);
    t->matrices[t->matrix_count++] = (MuonMatrix){tensor->offset, tensor->rows, tensor->cols, group, tensor->offset};
  }
  if (!bias) return linear;
  linear.bias = begin_group(t, 1, rows, false, true);
  for (int i = 0; i < count; i++) add_vector(t, at, pieces[i].module, "bias", pieces[i].rows, ROLE_BIAS)->inputs = cols;
  return linear;
}

static NormParameters add_norm(ParameterTable *t, const ModelConfig *c, Place at, const char *module) {
  NormParameters norm = {.vector = t->vectors};
  norm.weight = begin_group(t, 1, c->dim, false, false);
  add_vector(t, at, module, "weight", c->dim, ROLE_NORM_WEIGHT);
  if (c->norm != NORM_LAYER) return norm;
  norm.bias = begin_group(t, 1, c->dim, false, false);
  add_vector(t, at, module, "bias", c->dim, ROLE_NORM_BIAS);
  return norm;
}

/* A table with a row for each of `rows` things, and pads. */
static Matrix add_table(ParameterTable *t, const char *prefix, const char *module, int rows, int padded, int cols,
                        TensorRole role) {
  Matrix table = begin_group(t, padded, cols, role != ROLE_SINUSOIDS, true);
  add_tensor(t, (Place){prefix, -1, 0}, module, "weight", rows, cols, role);
  t->arena += (size_t)(padded - rows) * (size_t)cols;
  return table;
}

static Part add_self(ParameterTable *t, const ModelConfig *c, Place at) {
  const Piece qkv[] = {
      {"self_attn.q_proj", query_width(c)}, {"self_attn.k_proj", key_width(c)}, {"self_attn.v_proj", key_width(c)}};
  const Piece output = {"self_attn.o_proj", c->dim};
  Part part = {.kind = PART_SELF, .layer = at.layer};
  part.norm = add_norm(t, c, at, "input_layernorm");
  part.in = add_linear(t, at, qkv, 3, c->dim, ROLE_WEIGHT, c->qkv_bias);
  part.out = add_linear(t, at, &output, 1, query_width(c), ROLE_RESIDUAL, c->bias);
  return part;
}

static Part add_cross(ParameterTable *t, const ModelConfig *c, Place at) {
  const Piece query = {"cross_attn.q_proj", query_width(c)}, output = {"cross_attn.o_proj", c->dim};
  const Piece memory[] = {{"cross_attn.k_proj", key_width(c)}, {"cross_attn.v_proj", key_width(c)}};
  Part part = {.kind = PART_CROSS, .layer = at.layer};
  part.norm = add_norm(t, c, at, "cross_attention_layernorm");
  part.in = add_linear(t, at, &query, 1, c->dim, ROLE_WEIGHT, c->qkv_bias);
  part.memory = add_linear(t, at, memory, 2, c->dim, ROLE_WEIGHT, c->qkv_bias);
  part.out = add_linear(t, at, &output, 1, query_width(c), ROLE_RESIDUAL, c->bias);
  return part;
}

static Part add_mlp(ParameterTable *t, const ModelConfig *c, Place at) {
  const Piece up[] = {{"mlp.gate_proj", c->ffn}, {"mlp.up_proj", c->ffn}}, down = {"mlp.down_proj", c->dim};
  Part part = {.kind = PART_MLP, .layer = at.layer};
  part.norm = add_norm(t, c, at, "post_attention_layernorm");
  part.in = add_linear(t, at, c->gated ? up : up + 1, c->gated ? 2 : 1, c->dim, ROLE_WEIGHT, c->bias);
  part.out = add_linear(t, at, &down, 1, c->ffn, ROLE_RESIDUAL, c->bias);
  return part;
}

/* `prefix`: what the names of its tensors begin with; `cross`: its layers have cross-attention. */
static void add_stack(ParameterTable *t, Stack *s, const ModelConfig *c, const char *prefix, int layers, bool cross) {
  if (c->positions == POSITIONS_LEARNED || c->positions == POSITIONS_SINUSOIDAL)
    s->places = add_table(t, prefix, "embed_positions", c->ctx, c->ctx, c->dim,
                          c->positions == POSITIONS_LEARNED ? ROLE_PLACES : ROLE_SINUSOIDS);
  for (int layer = 0; layer < layers; layer++) {
    const Place at = {prefix, layer, layers * (cross ? 3 : 2)};
    s->parts[s->count++] = add_self(t, c, at);
    if (cross) s->parts[s->count++] = add_cross(t, c, at);
    s->parts[s->count++] = add_mlp(t, c, at);
  }
  if (c->norm_place == NORM_BEFORE) s->norm = add_norm(t, c, (Place){prefix, -1, 0}, "norm");
}

/* An encoder's stack stands before the decoder's. Tied, all have one table; else source, target and head one each. */
static void add_stacks(ParameterTable *t, const ModelConfig *c) {
  const bool encoder = has_encoder(c), own = encoder && !c->tie;
  const char *const decoder_prefix = encoder ? "model.decoder." : "model.", *const encoder_prefix = "model.encoder.";
  Stack *source = &t->encoder, *target = &t->decoder;
  target->vocab = c->vocab;
  if (!own)
    target->embedding =
        add_table(t, "model.", "embed_tokens", c->vocab, padded_vocab(c->vocab), c->dim, ROLE_EMBEDDING);
  if (encoder) {
    source->vocab = c->source_vocab;
    source->first_layer = c->layers;
    source->embedding = own ? add_table(t, encoder_prefix, "embed_tokens", c->source_vocab,
                                        padded_vocab(c->source_vocab), c->dim, ROLE_EMBEDDING)
                            : target->embedding;
    add_stack(t, source, c, encoder_prefix, c->encoder_layers, false);
  }
  if (own)
    target->embedding =
        add_table(t, decoder_prefix, "embed_tokens", c->vocab, padded_vocab(c->vocab), c->dim, ROLE_EMBEDDING);
  add_stack(t, target, c, decoder_prefix, c->layers, encoder);
}

static void add_head(ParameterTable *t, const ModelConfig *c) {
  const int padded = padded_vocab(c->vocab);
  t->head.weight = c->tie ? t->decoder.embedding : add_table(t, "", "lm_head", c->vocab, padded, c->dim, ROLE_WEIGHT);
  if (!c->head_bias) return;
  t->head.bias = begin_group(t, 1, padded, false, true);
  add_vector(t, (Place){"", -1, 0}, "lm_head", "bias", c->vocab, ROLE_BIAS)->inputs = c->dim;
  t->arena += (size_t)(padded - c->vocab);
}

bool parameter_table_make(ParameterTable *out, const ModelConfig *c, Error *error) {
  enum { TENSORS = 28, GROUPS = 20, MATRICES = 11, OTHERS = 10 }; /* of a layer, at most; of none */
  const size_t layers = (size_t)c->layers + (size_t)c->encoder_layers, encoder_parts = 2 * (size_t)c->encoder_layers;
  memset(out, 0, sizeof *out);
  out->tensors = calloc(layers * TENSORS + OTHERS, sizeof *out->tensors);
  out->groups = calloc(layers * GROUPS + OTHERS, sizeof *out->groups);
  out->matrices = calloc(layers * MATRICES + 1, sizeof *out->matrices);
  out->parts = calloc(encoder_parts + 3 * (size_t)c->layers, sizeof *out->parts);
  if (!out->tensors || !out->groups || !out->matrices || !out->parts) {
    parameter_table_free(out);
    return error_memory(error, "the table of parameters");
  }
  out->encoder.parts = out->parts;
  out->decoder.parts = out->parts + encoder_parts;
  add_stacks(out, c);
  add_head(out, c);
  out->arena = (size_t)round_up64((int64_t)out->arena, TENSOR_ALIGNMENT);
  parameter_table_set_optimizer(out, OPTIMIZER_ADAMW);
  return true;
}

void parameter_table_set_optimizer(ParameterTable *t, OptimizerKind optimizer) {
  int tensor = 0;
  t->v_arena = 0;
  t->muon_count = optimizer == OPTIMIZER_MUON ? t->matrix_count : 0;
  for (int i = 0; i < t->group_count; i++) t->groups[i].rule = UPDATE_ADAMW;
  for (int i = 0; i < t->muon_count; i++) t->groups[t->matrices[i].group].rule = UPDATE_MUON;
  for (int i = 0; i < t->group_count; i++) {
    const ParameterGroup *group = &t->groups[i];
    const bool adamw = group->rule == UPDATE_ADAMW;
    const size_t begin = group->matrix.offset, end = i + 1 < t->group_count ? group[1].matrix.offset : t->arena;
    for (; tensor < t->count && t->tensors[tensor].offset < end; tensor++)
      t->tensors[tensor].v_offset = adamw ? (int64_t)(t->v_arena + t->tensors[tensor].offset - begin) : -1;
    if (adamw) t->v_arena += end - begin;
  }
}

void parameter_table_describe(const ParameterTable *t, Parameters *out) {
  out->count = t->arena;
  out->vector_count = t->vectors;
  out->groups = t->groups;
  out->group_count = t->group_count;
  out->runs = t->runs;
  out->run_count = t->run_count;
  out->muon = t->own;
  out->muon_count = t->own_count;
  out->spans = t->spans.items;
  out->span_count = t->spans.count;
}

void parameter_table_free(ParameterTable *t) {
  free(t->tensors);
  free(t->groups);
  free(t->matrices);
  free(t->parts);
  free(t->spans.items);
  free(t->v_spans.items);
  free(t->bucket_ends);
  free(t->runs);
  free(t->own);
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

static void init_normal(const ParameterTensor *tensor, uint32_t site, float std, float *w, uint64_t seed) {
  int64_t count = (int64_t)tensor->rows * tensor->cols;
  for (int64_t i = 0; i < count; i += 4) {
    float normal[4];
    normal4(seed, (uint32_t)(i / 4), site, normal);
    for (int64_t j = i; j < i + 4 && j < count; j++) w[j] = std * normal[j - i];
  }
}

/* In +-limit. */
static void init_uniform(const ParameterTensor *tensor, uint32_t site, float limit, float *w, uint64_t seed) {
  int64_t count = (int64_t)tensor->rows * tensor->cols;
  for (int64_t i = 0; i < count; i++) {
    PhiloxWords words = philox(seed, (uint32_t)(i / 4), site, 0, 0);
    w[i] = limit * (2 * philox_uniform(words.word[i % 4]) - 1);
  }
}

static void init_constant(const ParameterTensor *tensor, float value, float *w) {
  for (int64_t i = 0; i < tensor->cols; i++) w[i] = value;
}

void parameter_sinusoids(const ParameterTensor *tensor, float *out) {
  int half = (tensor->cols + 1) / 2;
  for (int t = 0; t < tensor->rows; t++)
    for (int i = 0; i < tensor->cols; i++) {
      double angle = t * pow(10000.0, -2.0 * (i % half) / tensor->cols);
      *out++ = (float)(i < half ? sin(angle) : cos(angle));
    }
}

static void init_linear(const ParameterTensor *tensor, uint32_t site, Initialization how, float *w, uint64_t seed) {
  if (how.kind == INIT_TORCH) init_uniform(tensor, site, 1 / sqrtf((float)tensor->inputs), w, seed);
  else if (tensor->role == ROLE_WEIGHT) init_normal(tensor, site, how.std, w, seed);
  else if (tensor->role == ROLE_RESIDUAL) init_normal(tensor, site, how.std / sqrtf((float)tensor->branches), w, seed);
}

void parameter_table_init(const ParameterTable *table, Initialization how, float *arena, uint64_t seed) {
  bool sinusoids = false;
  for (int row = 0; row < table->count; row++) sinusoids = sinusoids || table->tensors[row].role == ROLE_SINUSOIDS;
  for (int row = 0; row < table->count; row++) {
    const ParameterTensor *tensor = &table->tensors[row];
    float *w = arena + tensor->offset;
    const uint32_t site = SITE_INIT + (uint32_t)row;
    switch (tensor->role) {
    case ROLE_EMBEDDING:
    case ROLE_PLACES: init_normal(tensor, site, how.kind == INIT_TORCH || sinusoids ? 1 : how.std, w, seed); break;
    case ROLE_SINUSOIDS: parameter_sinusoids(tensor, w); break;
    case ROLE_NORM_WEIGHT: init_constant(tensor, 1, w); break;
    case ROLE_NORM_BIAS: init_constant(tensor, 0, w); break;
    case ROLE_WEIGHT:
    case ROLE_RESIDUAL:
    case ROLE_BIAS: init_linear(tensor, site, how, w, seed); break;
    }
  }
}
