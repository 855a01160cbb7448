#include "files/formats/gguf_model.h"

#include "files/formats/weight_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gguf_type_names[] = {
    [GGUF_F32] = "f32", [GGUF_F16] = "f16", [GGUF_BF16] = "bf16", [GGUF_Q8_0] = "q8_0", NULL};

static const struct {
  GgufTensorType matrices;
  uint32_t file_type; /* general.file_type: llama_ftype */
} types[] = {[GGUF_F32] = {GGUF_TENSOR_F32, 0},
             [GGUF_F16] = {GGUF_TENSOR_F16, 1},
             [GGUF_BF16] = {GGUF_TENSOR_BF16, 32},
             [GGUF_Q8_0] = {GGUF_TENSOR_Q8_0, 7}};

/* ---- architectures of llama.cpp ---- */

#define NAMES_OF_ALL                                                                                                   \
  {"model.layers", "blk"}, {"model.embed_tokens", "token_embd"}, {"model.embed_positions", "position_embd"},           \
      {"input_layernorm", "attn_norm"}, {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"}, \
      {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}, {                       \
    "lm_head", "output"                                                                                                \
  }
#define NAMES_OF_HEADS                                                                                                 \
  {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},                      \
      {"self_attn.q_norm", "attn_q_norm"}, {                                                                           \
    "self_attn.k_norm", "attn_k_norm"                                                                                  \
  }
#define LAST_NORM                                                                                                      \
  { "model.norm", "output_norm" }

static const Rename names[] = {NAMES_OF_ALL, LAST_NORM, NAMES_OF_HEADS, {0}};
static const Rename lfm2_names[] = {NAMES_OF_ALL,
                                    NAMES_OF_HEADS,
                                    {"conv.b_proj", "shortconv.in_proj"},
                                    {"conv.c_proj", "shortconv.in_proj"},
                                    {"conv.x_proj", "shortconv.in_proj"},
                                    {"conv.conv", "shortconv.conv"},
                                    {"conv.out_proj", "shortconv.out_proj"},
                                    {"model.norm", "token_embd_norm"},
                                    {0}};
static const Rename fused_names[] = {NAMES_OF_ALL,
                                     LAST_NORM,
                                     {"self_attn.q_proj", "attn_qkv"},
                                     {"self_attn.k_proj", "attn_qkv"},
                                     {"self_attn.v_proj", "attn_qkv"},
                                     {0}};

/* What an architecture of llama.cpp (November 2026) supports. */
typedef struct Architecture {
  NormKind norm;
  PositionKind positions;
  Activation activation;
  unsigned biases; /* biases that it always has */
  bool gated;
  bool qk_norm;
  const char *mixers; /* ModelConfig.mixers; NULL: attention everywhere... */
  bool convolutions;  /* ...or attention and convolutions in any order */
  bool plain_heads;   /* the size of a head is dim / heads */
  bool output_bias;   /* attention's output and the MLP may have biases */
  bool own_head;      /* tied models are not supported */
  ModelClass layout;  /* .model_type: its name; names, concatenation and order of tensors */
} Architecture;

#define ROPE_BUT_FOURTH "AAAN" /* no rotary positions in every fourth layer */
#define ARCHITECTURE(name, names_, interleaved_, norm_, positions_, activation_, ...)                                  \
  {                                                                                                                    \
    .layout = {.model_type = name, .names = names_, .interleaved = interleaved_}, .norm = norm_,                       \
    .positions = positions_, .activation = activation_, __VA_ARGS__                                                    \
  }

static const Architecture architectures[] = {
    ARCHITECTURE("llama", names, true, NORM_RMS, POSITIONS_ROPE, ACTIVATION_SILU, .gated = true, .output_bias = true),
    ARCHITECTURE("qwen3", names, false, NORM_RMS, POSITIONS_ROPE, ACTIVATION_SILU, .gated = true, .qk_norm = true),
    ARCHITECTURE("lfm2", lfm2_names, false, NORM_RMS, POSITIONS_ROPE, ACTIVATION_SILU, .gated = true, .qk_norm = true,
                 .convolutions = true, .plain_heads = true),
    ARCHITECTURE("smollm3", names, true, NORM_RMS, POSITIONS_ROPE, ACTIVATION_SILU, .gated = true,
                 .mixers = ROPE_BUT_FOURTH),
    ARCHITECTURE("gpt2", fused_names, false, NORM_LAYER, POSITIONS_LEARNED, ACTIVATION_GELU_TANH, .plain_heads = true,
                 .output_bias = true, .biases = BIAS_LAYERS),
    ARCHITECTURE("starcoder2", names, false, NORM_LAYER, POSITIONS_ROPE, ACTIVATION_GELU_TANH, .plain_heads = true,
                 .output_bias = true, .biases = BIAS_LAYERS),
    ARCHITECTURE("stablelm", names, false, NORM_LAYER, POSITIONS_ROPE, ACTIVATION_SILU, .gated = true,
                 .plain_heads = true, .own_head = true),
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static const char *unsupported_mixers(const ModelConfig *c) {
  const int convolutions = model_count_mixers(c, MIXER_CONVOLUTION);
  const bool mixed = !convolutions && !model_same_mixers(c->mixers, "A", c->layers);
  if (c->qk_norm && norm_has_mean(c->norm)) return "LayerNorm and norms of queries and keys";
  if (convolutions && !c->qk_norm) return "convolutions and no norms of queries and keys";
  if (convolutions == c->layers) return "convolutions in all layers";
  if (convolutions && strchr(c->mixers, MIXER_NOPE)) return "convolutions and layers without rotary positions";
  if (mixed && (c->norm != NORM_RMS || !model_same_mixers(c->mixers, ROPE_BUT_FOURTH, c->layers)))
    return "layers without rotary positions other than every fourth";
  return mixed && c->qk_norm ? "norms of queries and keys and layers without rotary positions" : NULL;
}

static const char *unsupported(const ModelConfig *c) {
  if (c->encoder_layers) return "such an encoder";
  if (c->norm_place == NORM_PARALLEL) return "parallel sublayers";
  if (c->norm_place != NORM_BEFORE)
    return c->norm_place == NORM_AFTER ? "norms after its sublayers" : "norms on its branches";
  if (c->positions == POSITIONS_SINUSOIDAL) return "sinusoidal positions";
  if (c->positions == POSITIONS_NONE) return "no positions";
  if (c->head_bias) return "a bias of the output head";
  if (c->norm == NORM_RMS && c->positions == POSITIONS_LEARNED) return "RMSNorm and learned positions";
  return unsupported_mixers(c);
}

static const char *misfit(const Architecture *a, const ModelConfig *c) {
  if (c->activation != a->activation || c->gated != a->gated) return "this activation with these norms and positions";
  if (c->bias && !a->output_bias)
    return a->norm == NORM_LAYER
               ? "biases of outputs with LayerNorm and SwiGLU"
               : "biases of outputs with norms of queries and keys, convolutions or layers without rotary positions";
  const bool plain = c->dim % c->heads == 0 && c->head_dim == c->dim / c->heads;
  if (a->plain_heads && !plain)
    return a->norm == NORM_LAYER ? "a head size other than dim / heads with LayerNorm"
                                 : "a head size other than dim / heads with convolutions";
  if (a->layout.names == fused_names && c->kv_heads != c->heads) return "grouped-query attention and learned positions";
  const ModelClass *same = class_named(a->layout.model_type, NULL);
  if (c->rotary_dims && !class_key(same, KEY_ROTARY)) return "partly rotated heads, except with LayerNorm and SwiGLU";
  return class_lacks(same, c); /* of the same name, with the same parts */
}

/* Returns whether the model is of the kind of the architecture; its sizes, biases and activation may not fit. */
static bool is_kind(const Architecture *a, const ModelConfig *c) {
  const bool mixers = a->convolutions ? model_count_mixers(c, MIXER_CONVOLUTION) > 0
                                      : model_same_mixers(a->mixers ? a->mixers : "A", c->mixers, c->layers);
  return a->norm == c->norm && a->positions == c->positions && a->qk_norm == (c->qk_norm != 0) && mixers;
}

/* Returns NULL with EXIT_CHECKPOINT when no architecture computes the model. */
static const Architecture *architecture_of(const GgufModel *m, Error *error) {
  const ModelConfig *c = model_files_config(m->files);
  const char *why = unsupported(c);
  for (const Architecture *a = architectures; !why && a < architectures + ARCHITECTURES; a++) {
    if (!is_kind(a, c)) continue;
    const char *wrong = misfit(a, c);
    if (!wrong) return a;
    if (a->gated == c->gated) why = wrong;
  }
  fail(error, EXIT_CHECKPOINT,
       "%s: llama.cpp computes no model with %s; what it can read: RMSNorm, SwiGLU and rotary positions (llama), the "
       "same without them in every fourth layer (smollm3), with norms of queries and keys (qwen3) and convolutions "
       "(lfm2), LayerNorm, GELU (tanh) and learned positions (gpt2) or rotary ones (starcoder2), LayerNorm, SwiGLU "
       "and rotary positions (stablelm)",
       m->files->dir, why ? why : "this activation with these norms and positions");
  return NULL;
}

/* ---- tensors ---- */

typedef struct Writer {
  const GgufModel *model;
  const ModelConfig *config;
  const Architecture *architecture;
  GgufTokenizer tokenizer;
  ParameterTable table;
  FileLayout layout;
  GgufHeader header;
  WeightReader reader;
  FileWriter file;
  Progress progress;
  uint64_t done;
  float *row; /* capacity: the widest tensor */
  uint8_t *out;
} Writer;

static GgufTensorType type_of(const Writer *w, const FileTensor *t) {
  const TensorRole role = t->count ? w->table.tensors[t->first].role : ROLE_WEIGHT;
  return t->rank == 1 || role == ROLE_POSITIONS || role == ROLE_KERNEL ? GGUF_TENSOR_F32
                                                                       : types[w->model->type].matrices;
}

static bool make_layout(Writer *w, Error *error) {
  const Architecture *a = w->architecture;
  if (!parameter_table_make(&w->table, w->config, error) ||
      !file_layout_make(&w->layout, &a->layout, a->biases | class_model_biases(w->config), w->config, &w->table, error))
    return false;
  if (a->own_head && w->config->tie) file_layout_add_copy(&w->layout, "output.weight");
  for (const FileTensor *t = w->layout.tensors; t < w->layout.tensors + w->layout.count; t++)
    if (type_of(w, t) == GGUF_TENSOR_Q8_0 && t->cols % GGUF_Q8_0_BLOCK)
      return fail(error, EXIT_USAGE, "q8_0 has blocks of %d numbers, and rows of %s have %d; use f16 or f32",
                  GGUF_Q8_0_BLOCK, t->name, t->cols);
  return true;
}

/* ---- keys ---- */

typedef struct Key {
  char text[64];
} Key;
static Key key_of(const Architecture *a, const char *name) {
  Key key;
  snprintf(key.text, sizeof key.text, "%s.%s", a->layout.model_type, name);
  return key;
}

/* Adds the number of key and value heads; if there are convolutions, that of each layer, and their taps. */
static void add_kv_heads(GgufHeader *h, const Architecture *a, const ModelConfig *c) {
  const Key key = key_of(a, "attention.head_count_kv");
  if (!model_count_mixers(c, MIXER_CONVOLUTION)) {
    gguf_key_u32(h, key.text, (uint32_t)c->kv_heads);
    return;
  }
  gguf_key_array(h, key.text, GGUF_VALUE_I32, c->layers);
  for (int i = 0; i < c->layers; i++) gguf_i32(h, model_mixer(c, i) == MIXER_CONVOLUTION ? 0 : c->kv_heads);
  gguf_key_u32(h, key_of(a, "shortconv.l_cache").text, CONVOLUTION_TAPS);
}

static void add_shape(GgufHeader *h, const Architecture *a, const ModelConfig *c) {
  const struct {
    const char *name;
    int value;
  } sizes[] = {{"vocab_size", c->vocab},
               {"context_length", c->ctx},
               {"embedding_length", c->dim},
               {"block_count", c->layers},
               {"feed_forward_length", c->ffn},
               {"attention.head_count", c->heads},
               {"attention.key_length", c->head_dim},
               {"attention.value_length", c->head_dim}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    gguf_key_u32(h, key_of(a, sizes[i].name).text, (uint32_t)sizes[i].value);
  add_kv_heads(h, a, c);
  const char *eps = a->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  gguf_key_f32(h, key_of(a, eps).text, c->norm_eps);
  if (a->positions != POSITIONS_ROPE) return;
  gguf_key_u32(h, key_of(a, "rope.dimension_count").text, (uint32_t)model_rotary_dims(c));
  gguf_key_f32(h, key_of(a, "rope.freq_base").text, c->rope_base);
}

static void add_general(GgufHeader *h, const GgufModel *m, const Architecture *a) {
  gguf_key_text(h, "general.architecture", a->layout.model_type);
  gguf_key_text(h, "general.type", "model");
  gguf_key_text(h, "general.name", m->name);
  if (*m->license) gguf_key_text(h, "general.license", m->license);
  gguf_key_u32(h, "general.file_type", types[m->type].file_type);
  if (m->type == GGUF_Q8_0) gguf_key_u32(h, "general.quantization_version", 2);
}

/* Adds the special tokens. llama.cpp begins texts with the token that it calls bos if add_bos_token is true, and ends
 * them at eos, eot and eom. */
static void add_special_tokens(GgufHeader *h, const GgufModel *m) {
  static const char *const others[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  const SpecialTokens tokens = model_files_tokens(model_files_special_tokens(m->files).start, m->tokenizer);
  const int32_t begin = tokenizer_begin(m->tokenizer), start = begin >= 0 ? begin : tokens.start;
  if (start >= 0) gguf_key_u32(h, "tokenizer.ggml.bos_token_id", (uint32_t)start);
  gguf_key_u32(h, "tokenizer.ggml.eos_token_id", (uint32_t)tokens.end);
  for (int i = 0; i < tokens.others.count && i < 2; i++) gguf_key_u32(h, others[i], (uint32_t)tokens.others.ids[i]);
  gguf_key_bool(h, "tokenizer.ggml.add_bos_token", begin >= 0);
  gguf_key_bool(h, "tokenizer.ggml.add_eos_token", false);
  if (tokenizer_chat_template(m->tokenizer))
    gguf_key_text(h, "tokenizer.chat_template", tokenizer_chat_template(m->tokenizer));
}

/* ---- data ---- */

/* Returns the row of the model that is row `at` of the file: the inverse of file_tensor_index(). */
static int model_row(const FileTensor *t, int at) {
  const int head = t->interleaved, of_head = head ? at % head : 0;
  return head ? at - of_head + of_head / 2 + of_head % 2 * (head / 2) : at;
}

static bool write_row(Writer *w, const FileTensor *t, GgufTensorType type, Error *error) {
  if (!gguf_convert_row(type, w->row, t->cols, w->out))
    return fail(error, EXIT_CHECKPOINT, "%s: a number of %s is too large for %s; use --gguf-type %s",
                w->model->files->dir, t->name, gguf_type_names[w->model->type],
                w->model->type == GGUF_BF16 ? "f32" : "bf16 or f32");
  return file_writer_add(&w->file, w->out, gguf_row_bytes(type, t->cols), error);
}

static bool read_row(Writer *w, const FileTensor *t, int row, Error *error) {
  int index = t->first;
  for (; row >= w->table.tensors[index].rows; index++) row -= w->table.tensors[index].rows;
  return weight_reader_rows(&w->reader, index, row, 1, w->row, error);
}

static bool write_matrix(Writer *w, const FileTensor *t, GgufTensorType type, Error *error) {
  for (int at = 0; at < t->rows; at++)
    if (!read_row(w, t, model_row(t, at), error) || !write_row(w, t, type, error)) return false;
  return true;
}

/* Writes a concatenation of vectors, or zeros. */
static bool write_vector(Writer *w, const FileTensor *t, Error *error) {
  int count = 0;
  memset(w->row, 0, (size_t)t->rows * sizeof *w->row);
  for (int i = t->first; i < t->first + t->count; i++) {
    if (!weight_reader_rows(&w->reader, i, 0, 1, w->row + count, error)) return false;
    count += w->table.tensors[i].cols;
  }
  for (int at = 0; at < t->rows; at++)
    if (!file_writer_add(&w->file, &w->row[model_row(t, at)], sizeof *w->row, error)) return false;
  return true;
}

static bool write_tensor(Writer *w, const FileTensor *t, Error *error) {
  const GgufTensorType type = type_of(w, t);
  const uint64_t bytes = (uint64_t)t->rows * gguf_row_bytes(type, t->cols);
  if (!(t->rank == 1 ? write_vector(w, t, error) : write_matrix(w, t, type, error))) return false;
  for (int i = t->first; i < t->first + t->count; i++) weight_reader_forget(&w->reader, i);
  w->done += bytes;
  return gguf_pad(&w->file, bytes, error) && progress_report(w->progress, (int64_t)w->done, error);
}

static bool write_all(Writer *w, Error *error) {
  int widest = 1;
  const FileLayout *layout = &w->layout;
  for (int i = 0; i < layout->count; i++) {
    const FileTensor *t = &layout->tensors[i];
    const int width = t->rank == 1 ? t->rows : t->cols;
    if (width > widest) widest = width;
  }
  w->row = malloc((size_t)widest * sizeof *w->row);
  w->out = malloc(gguf_row_bytes(GGUF_TENSOR_F32, widest));
  bool ok = (w->row && w->out) || error_memory(error, "a row of a tensor");
  for (int i = 0; ok && i < layout->count; i++) ok = write_tensor(w, &layout->tensors[i], error);
  free(w->row);
  free(w->out);
  return ok;
}

/* ---- the file ---- */

static void make_header(Writer *w) {
  GgufHeader *h = &w->header;
  add_general(h, w->model, w->architecture);
  add_shape(h, w->architecture, w->config);
  gguf_tokenizer_add(h, &w->tokenizer, w->config->vocab);
  add_special_tokens(h, w->model);
  for (const FileTensor *t = w->layout.tensors; t < w->layout.tensors + w->layout.count; t++) {
    const bool vector = t->rank == 1;
    gguf_tensor(h, t->name, type_of(w, t), vector ? 0 : t->rows, vector ? t->rows : t->cols);
  }
}

static bool write_file(Writer *w, const char *path, Error *error) {
  if (!weight_reader_open(&w->reader, w->model->files, w->config, &w->table, error)) return false;
  const bool ok =
      gguf_begin(&w->file, path, &w->header, error) && write_all(w, error) && file_writer_commit(&w->file, error);
  file_writer_abort(&w->file);
  return ok;
}

bool gguf_model_check(const GgufModel *m, Error *error) {
  GgufTokenizer tokenizer = {0};
  const bool ok = architecture_of(m, error) && gguf_tokenizer_make(&tokenizer, m->files->dir, m->tokenizer, error);
  gguf_tokenizer_free(&tokenizer);
  return ok;
}

bool gguf_model_write(const GgufModel *m, const char *path, Progress progress, GgufFacts *facts, Error *error) {
  Writer w = {.model = m, .config = model_files_config(m->files), .progress = progress};
  w.architecture = architecture_of(m, error);
  bool ok =
      w.architecture && gguf_tokenizer_make(&w.tokenizer, m->files->dir, m->tokenizer, error) && make_layout(&w, error);
  if (ok) {
    make_header(&w);
    *facts = (GgufFacts){.architecture = w.architecture->layout.model_type,
                         .tensors = w.layout.count,
                         .bytes = (int64_t)(w.header.size + w.header.data),
                         .note_count = w.tokenizer.note_count};
    memcpy(facts->notes, w.tokenizer.notes, sizeof facts->notes);
    ok = write_file(&w, path, error);
  }
  weight_reader_close(&w.reader);
  gguf_header_free(&w.header);
  file_layout_free(&w.layout);
  parameter_table_free(&w.table);
  gguf_tokenizer_free(&w.tokenizer);
  return ok;
}
