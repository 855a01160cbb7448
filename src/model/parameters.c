/* The table of parameters and their initial weights. */
#include "model/internal.h"

#include "kernels/philox.h"
#include "base/array.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

/* Reserves memory for one more item of an array. False once out of memory: parameter_table_make() then fails. */
static bool reserve(ParameterTable *t, void *items, size_t *capacity, int count, size_t item_bytes) {
  t->incomplete = t->incomplete || !array_reserve(items, capacity, (size_t)count + 1, item_bytes);
  return !t->incomplete;
}

/* Starts a group at an aligned offset; the next tensors follow each other in it. */
static Matrix begin_group(ParameterTable *t, int rows, int cols, bool decay, bool gemm) {
  t->arena = (size_t)round_up64((int64_t)t->arena, TENSOR_ALIGNMENT);
  Matrix matrix = {t->arena, rows, cols};
  if (reserve(t, &t->groups, &t->group_capacity, t->group_count, sizeof *t->groups))
    t->groups[t->group_count++] =
        (ParameterGroup){.matrix = matrix, .decay = decay, .gemm = gemm, .vector = t->vectors};
  if (!gemm) t->vectors += (size_t)round_up64((int64_t)rows * cols, TENSOR_ALIGNMENT);
  return matrix;
}

/* The stack and layer of tensors, which begin their names. */
typedef struct Scope {
  const char *prefix;
  int layer;    /* of its stack; -1: none */
  int first;    /* Stack.first_layer */
  int branches; /* ParameterTensor.branches */
} Scope;

/* Appends the tensor PREFIX[layers.N.]MODULE.KIND, e.g. model.layers.3.self_attn.q_proj.weight. */
static void add_tensor(ParameterTable *t, Scope at, const char *module, const char *kind, ParameterTensor tensor) {
  char layer[24] = "";
  if (at.layer >= 0) snprintf(layer, sizeof layer, "layers.%d.", at.layer);
  snprintf(tensor.name, sizeof tensor.name, "%s%s%s.%s", at.prefix, layer, module, kind);
  tensor.offset = t->arena;
  tensor.layer = at.layer < 0 ? -1 : at.first + at.layer;
  tensor.branches = at.branches;
  if (reserve(t, &t->tensors, &t->tensor_capacity, t->count, sizeof tensor)) t->tensors[t->count++] = tensor;
  t->arena += (size_t)tensor.rows * (size_t)tensor.cols;
}

static void add_matrix(ParameterTable *t, Scope at, const char *module, int rows, int cols, TensorRole role) {
  add_tensor(t, at, module, "weight",
             (ParameterTensor){.rows = rows, .cols = cols, .rank = 2, .role = role, .inputs = cols});
}

static void add_vector(ParameterTable *t, Scope at, const char *module, const char *kind, int count, TensorRole role,
                       int inputs) {
  add_tensor(t, at, module, kind,
             (ParameterTensor){.rows = 1, .cols = count, .rank = 1, .role = role, .inputs = inputs});
}

/* A matrix of a group, which one GEMM multiplies. */
typedef struct Piece {
  const char *module;
  int rows;
} Piece;

static Linear add_linear(ParameterTable *t, Scope at, const Piece *pieces, int count, int cols, TensorRole role,
                         bool bias) {
  int rows = 0;
  for (int i = 0; i < count; i++) rows += pieces[i].rows;
  Linear linear = {.weight = begin_group(t, rows, cols, true, true)};
  const int group = t->group_count - 1;
  for (int i = 0; i < count; i++) {
    const MuonMatrix matrix = {t->arena, pieces[i].rows, cols, group, t->arena};
    add_matrix(t, at, pieces[i].module, pieces[i].rows, cols, role);
    if (reserve(t, &t->matrices, &t->matrix_capacity, t->matrix_count, sizeof matrix))
      t->matrices[t->matrix_count++] = matrix;
  }
  if (!bias) return linear;
  linear.bias = begin_group(t, 1, rows, false, true);
  for (int i = 0; i < count; i++) add_vector(t, at, pieces[i].module, "bias", pieces[i].rows, ROLE_BIAS, cols);
  return linear;
}

/* Starts a group that no GEMM reads. */
static VectorGroup begin_vectors(ParameterTable *t, int rows, int cols) {
  const size_t vector = t->vectors;
  return (VectorGroup){begin_group(t, rows, cols, false, false), vector};
}

static NormParameters add_norm(ParameterTable *t, const ModelConfig *c, Scope at, const char *module) {
  NormParameters norm = {.weight = begin_vectors(t, 1, c->dim)};
  add_vector(t, at, module, "weight", c->dim, ROLE_NORM_WEIGHT, c->dim);
  if (!norm_has_bias(c->norm)) return norm;
  norm.bias = begin_vectors(t, 1, c->dim);
  add_vector(t, at, module, "bias", c->dim, ROLE_NORM_BIAS, c->dim);
  return norm;
}

/* An embedding of `rows` rows; tokens are padded. */
static Matrix add_table(ParameterTable *t, const char *prefix, const char *module, int rows, int cols,
                        TensorRole role) {
  const bool positions = role == ROLE_POSITIONS || role == ROLE_SINUSOIDS;
  const int padded = positions ? rows : padded_vocab(rows);
  Matrix table = begin_group(t, padded, cols, role != ROLE_SINUSOIDS, true);
  add_matrix(t, (Scope){prefix, -1, 0, 0}, module, rows, cols, role);
  t->arena += (size_t)(padded - rows) * (size_t)cols;
  return table;
}

static Sublayer add_self(ParameterTable *t, const ModelConfig *c, Scope at, bool rope) {
  const Piece qkv[] = {
      {"self_attn.q_proj", query_width(c)}, {"self_attn.k_proj", key_width(c)}, {"self_attn.v_proj", key_width(c)}};
  const Piece output = {"self_attn.o_proj", c->dim};
  Sublayer sublayer = {.kind = SUBLAYER_SELF, .layer = at.layer, .rope = rope};
  sublayer.norm = add_norm(t, c, at, "input_layernorm");
  sublayer.in = add_linear(t, at, qkv, 3, c->dim, ROLE_WEIGHT, c->qkv_bias);
  if (c->qk_norm) {
    sublayer.head_norm = begin_vectors(t, 2, c->head_dim);
    add_vector(t, at, "self_attn.q_norm", "weight", c->head_dim, ROLE_NORM_WEIGHT, c->head_dim);
    add_vector(t, at, "self_attn.k_norm", "weight", c->head_dim, ROLE_NORM_WEIGHT, c->head_dim);
  }
  sublayer.out = add_linear(t, at, &output, 1, query_width(c), ROLE_RESIDUAL, c->bias);
  return sublayer;
}

static Sublayer add_convolution(ParameterTable *t, const ModelConfig *c, Scope at) {
  const Piece in[] = {{"conv.b_proj", c->dim}, {"conv.c_proj", c->dim}, {"conv.x_proj", c->dim}};
  const Piece output = {"conv.out_proj", c->dim};
  const ParameterTensor kernel = {
      .rows = c->dim, .cols = CONVOLUTION_TAPS, .rank = 3, .role = ROLE_KERNEL, .inputs = CONVOLUTION_TAPS};
  Sublayer sublayer = {.kind = SUBLAYER_CONVOLUTION, .layer = at.layer};
  sublayer.norm = add_norm(t, c, at, "input_layernorm");
  sublayer.in = add_linear(t, at, in, 3, c->dim, ROLE_WEIGHT, false);
  sublayer.kernel = begin_vectors(t, c->dim, CONVOLUTION_TAPS);
  add_tensor(t, at, "conv.conv", "weight", kernel);
  sublayer.out = add_linear(t, at, &output, 1, c->dim, ROLE_RESIDUAL, false);
  return sublayer;
}

static Sublayer add_cross(ParameterTable *t, const ModelConfig *c, Scope at) {
  const Piece query = {"cross_attn.q_proj", query_width(c)}, output = {"cross_attn.o_proj", c->dim};
  const Piece memory[] = {{"cross_attn.k_proj", key_width(c)}, {"cross_attn.v_proj", key_width(c)}};
  Sublayer sublayer = {.kind = SUBLAYER_CROSS, .layer = at.layer};
  sublayer.norm = add_norm(t, c, at, "cross_attention_layernorm");
  sublayer.in = add_linear(t, at, &query, 1, c->dim, ROLE_WEIGHT, c->qkv_bias);
  sublayer.memory = add_linear(t, at, memory, 2, c->dim, ROLE_WEIGHT, c->qkv_bias);
  sublayer.out = add_linear(t, at, &output, 1, query_width(c), ROLE_RESIDUAL, c->bias);
  return sublayer;
}

static Sublayer add_mlp(ParameterTable *t, const ModelConfig *c, Scope at) {
  const Piece up[] = {{"mlp.gate_proj", c->ffn}, {"mlp.up_proj", c->ffn}}, down = {"mlp.down_proj", c->dim};
  Sublayer sublayer = {.kind = SUBLAYER_MLP, .layer = at.layer};
  sublayer.norm = add_norm(t, c, at, "post_attention_layernorm");
  sublayer.in = add_linear(t, at, c->gated ? up : up + 1, c->gated ? 2 : 1, c->dim, ROLE_WEIGHT, c->bias);
  sublayer.out = add_linear(t, at, &down, 1, c->ffn, ROLE_RESIDUAL, c->bias);
  return sublayer;
}

/* The sublayer that mixes positions. A layer of an encoder attends to its whole text. */
static Sublayer add_mixer(ParameterTable *t, const ModelConfig *c, Scope at, bool decoder) {
  const Mixer mixer = decoder ? model_mixer(c, at.layer) : MIXER_ATTENTION;
  if (mixer == MIXER_CONVOLUTION) return add_convolution(t, c, at);
  return add_self(t, c, at, mixer != MIXER_NOPE && c->positions == POSITIONS_ROPE);
}

/* `prefix` begins the names of its tensors; `cross`: its layers have cross-attention. */
static void add_stack(ParameterTable *t, Stack *s, const ModelConfig *c, const char *prefix, int layers, bool cross) {
  if (c->positions == POSITIONS_LEARNED || c->positions == POSITIONS_SINUSOIDAL)
    s->position_embedding = add_table(t, prefix, "embed_positions", c->ctx, c->dim,
                                      c->positions == POSITIONS_LEARNED ? ROLE_POSITIONS : ROLE_SINUSOIDS);
  for (int layer = 0; layer < layers; layer++) {
    const Scope at = {prefix, layer, s->first_layer, layers * (cross ? 3 : 2)};
    s->sublayers[s->count++] = add_mixer(t, c, at, s == &t->decoder);
    if (cross) s->sublayers[s->count++] = add_cross(t, c, at);
    s->sublayers[s->count++] = add_mlp(t, c, at);
  }
  if (norms_inputs(c)) s->norm = add_norm(t, c, (Scope){prefix, -1, 0, 0}, "norm");
}

/* The encoder's stack precedes the decoder's. With `tie` source, target and head have one table, else one each. */
static void add_stacks(ParameterTable *t, const ModelConfig *c) {
  const bool encoder = has_encoder(c), own = encoder && !c->tie;
  const char *const decoder_prefix = encoder ? "model.decoder." : "model.", *const encoder_prefix = "model.encoder.";
  Stack *source = &t->encoder, *target = &t->decoder;
  target->vocab = c->vocab;
  if (!own) target->embedding = add_table(t, "model.", "embed_tokens", c->vocab, c->dim, ROLE_EMBEDDING);
  if (encoder) {
    source->vocab = c->source_vocab;
    source->first_layer = c->layers;
    source->embedding = target->embedding;
    if (own) source->embedding = add_table(t, encoder_prefix, "embed_tokens", c->source_vocab, c->dim, ROLE_EMBEDDING);
    add_stack(t, source, c, encoder_prefix, c->encoder_layers, false);
  }
  if (own) target->embedding = add_table(t, decoder_prefix, "embed_tokens", c->vocab, c->dim, ROLE_EMBEDDING);
  add_stack(t, target, c, decoder_prefix, c->layers, encoder);
}

static void add_head(ParameterTable *t, const ModelConfig *c) {
  const int padded = padded_vocab(c->vocab);
  t->head.weight = c->tie ? t->decoder.embedding : add_table(t, "", "lm_head", c->vocab, c->dim, ROLE_WEIGHT);
  if (!c->head_bias) return;
  t->head.bias = begin_group(t, 1, padded, false, true);
  add_vector(t, (Scope){"", -1, 0, 0}, "lm_head", "bias", c->vocab, ROLE_BIAS, c->dim);
  t->arena += (size_t)(padded - c->vocab);
}

bool parameter_table_make(ParameterTable *out, const ModelConfig *c, Error *error) {
  const size_t encoder_sublayers = 2 * (size_t)c->encoder_layers; /* of layers without cross-attention */
  memset(out, 0, sizeof *out);
  out->sublayers = calloc(encoder_sublayers + 3 * (size_t)c->layers, sizeof *out->sublayers);
  out->incomplete = !out->sublayers;
  if (out->sublayers) {
    out->encoder.sublayers = out->sublayers;
    out->decoder.sublayers = out->sublayers + encoder_sublayers;
    add_stacks(out, c);
    add_head(out, c);
  }
  if (out->incomplete) {
    parameter_table_free(out);
    return error_memory(error, "the table of parameters");
  }
  out->arena = (size_t)round_up64((int64_t)out->arena, TENSOR_ALIGNMENT);
  parameter_table_set_optimizer(out, OPTIMIZER_ADAMW);
  return true;
}

static atomic_bool uncounted;

bool parameter_table_count(ParameterTable *out, const ModelConfig *c) {
  Error ignored = {0};
  const bool ok = parameter_table_make(out, c, &ignored);
  if (!ok) atomic_store(&uncounted, true);
  return ok;
}

bool model_counts_ok(Error *error) { return !atomic_load(&uncounted) || error_memory(error, "the sizes of a model"); }

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
  free(t->sublayers);
  free(t->spans.items);
  free(t->v_spans.items);
  free(t->bucket_ends);
  free(t->runs);
  free(t->own);
  memset(t, 0, sizeof *t);
}

/* Draws four normal numbers from one Philox call (Box & Muller 1958). */
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

/* Draws from [-limit, limit]. */
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
    case ROLE_POSITIONS: init_normal(tensor, site, how.kind == INIT_TORCH || sinusoids ? 1 : how.std, w, seed); break;
    case ROLE_SINUSOIDS: parameter_sinusoids(tensor, w); break;
    case ROLE_KERNEL: init_uniform(tensor, site, 1 / sqrtf((float)tensor->inputs), w, seed); break;
    case ROLE_NORM_WEIGHT: init_constant(tensor, 1, w); break;
    case ROLE_NORM_BIAS: init_constant(tensor, 0, w); break;
    case ROLE_WEIGHT:
    case ROLE_RESIDUAL:
    case ROLE_BIAS: init_linear(tensor, site, how, w, seed); break;
    }
  }
}
