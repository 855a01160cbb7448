/* The keys of config.json of every class, in the order in which they are written. Defaults are those of transformers
 * 5.23. */
#include "formats/class_keys.h"

#include <stddef.h>

/* ---- names of values ---- */

static const Choice activations[] = {{"silu", ACTIVATION_SILU},
                                     {"swish", ACTIVATION_SILU},
                                     {"gelu", ACTIVATION_GELU},
                                     {"gelu_python", ACTIVATION_GELU},
                                     {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                                     {"gelu_new", ACTIVATION_GELU_TANH},
                                     {"gelu_fast", ACTIVATION_GELU_TANH},
                                     {"gelu_accurate", ACTIVATION_GELU_TANH},
                                     {"gelu_python_tanh", ACTIVATION_GELU_TANH},
                                     {"relu", ACTIVATION_RELU},
                                     {0}};
static const Choice before_or_after[] = {{"true", NORM_BEFORE}, {"false", NORM_AFTER}, {0}};
static const Choice tables[] = {
    {"learned", POSITIONS_LEARNED}, {"sinusoidal", POSITIONS_SINUSOIDAL}, {"none", POSITIONS_NONE}, {0}};

/* ---- keys ---- */

#define SET(key, json)                                                                                                 \
  { .name = key, .kind = KEY_SET, .text = json }
#define FIXED(key, json)                                                                                               \
  { .name = key, .kind = KEY_FIXED, .text = json }
#define INT(key, member, value, limit)                                                                                 \
  { .name = key, .kind = KEY_INT, .field = offsetof(ModelConfig, member), .absent = value, .high = limit }
#define INT_AGAIN(key, other, member, value)                                                                           \
  { .name = key, .kind = KEY_INT_AGAIN, .field = offsetof(ModelConfig, member), .absent = value, .text = other }
#define REAL(key, member, value)                                                                                       \
  { .name = key, .kind = KEY_REAL, .field = offsetof(ModelConfig, member), .absent = value }
#define BOOL(key, member, value)                                                                                       \
  { .name = key, .kind = KEY_BOOL, .field = offsetof(ModelConfig, member), .absent = value }
#define BOOL_AGAIN(key, other, member, value)                                                                          \
  { .name = key, .kind = KEY_BOOL_AGAIN, .field = offsetof(ModelConfig, member), .absent = value, .text = other }
#define CHOICE(key, member, value, list, ...)                                                                          \
  {                                                                                                                    \
    .name = key, .kind = KEY_CHOICE, .field = offsetof(ModelConfig, member), .text = value, .choices = list,           \
    __VA_ARGS__                                                                                                        \
  }
#define NAMED(key, member, value, list)                                                                                \
  { .name = key, .kind = KEY_CHOICE, .field = offsetof(ModelConfig, member), .text = value, .names = list }
#define BIASES(key, kinds, value)                                                                                      \
  { .name = key, .kind = KEY_BIASES, .absent = value, .biases = kinds }
#define THETA(value)                                                                                                   \
  { .name = "rope_theta", .kind = KEY_THETA, .field = offsetof(ModelConfig, rope_base), .absent = value }
#define ROPE(value)                                                                                                    \
  { .name = "rope_parameters", .kind = KEY_ROPE, .field = offsetof(ModelConfig, rope_base), .absent = value }
#define SCALING                                                                                                        \
  { .name = "rope_scaling", .kind = KEY_SCALING, .field = offsetof(ModelConfig, rope_base) }
#define END                                                                                                            \
  { .name = NULL }

/* Groups of keys, in the order in which they are written. */
#define SIZES(vocab_, dim_, ffn_, layers_, heads_)                                                                     \
  INT("vocab_size", vocab, vocab_, MODEL_MAX_VOCAB), INT("hidden_size", dim, dim_, MODEL_MAX_DIM),                     \
      INT("intermediate_size", ffn, ffn_, MODEL_MAX_FFN), INT("num_hidden_layers", layers, layers_, MODEL_MAX_LAYERS), \
      INT("num_attention_heads", heads, heads_, MODEL_MAX_HEADS)
#define CTX(value) INT("max_position_embeddings", ctx, value, MODEL_MAX_CTX)
#define HEADS(kv_heads_, head_dim_)                                                                                    \
  INT("num_key_value_heads", kv_heads, kv_heads_, MODEL_MAX_HEADS), INT("head_dim", head_dim, head_dim_, HEAD_DIM_LIMIT)
#define ACT(value) CHOICE("hidden_act", activation, value, activations)
#define RMS_EPS(value) REAL("rms_norm_eps", norm_eps, value)
#define ATTENTION_AND_MLP_BIAS                                                                                         \
  BIASES("attention_bias", BIAS_QKV | BIAS_OUTPUT, false), BIASES("mlp_bias", BIAS_MLP, false)
#define ROTARY(base) THETA(base), ROPE(1), SCALING
#define NO_DROPOUT SET("attention_dropout", "0.0")
#define DEVIATION SET("initializer_range", "0.02")
#define TIE(value) BOOL("tie_word_embeddings", tie, value)

const ConfigKey llama_keys[] = {ACT("silu"),
                                SIZES(32000, 4096, 11008, 32, 32),
                                HEADS(0, 0),
                                CTX(2048),
                                RMS_EPS(1e-6),
                                ROTARY(10000),
                                NO_DROPOUT,
                                DEVIATION,
                                TIE(false),
                                ATTENTION_AND_MLP_BIAS,
                                END};
const ConfigKey arcee_keys[] = {ACT("relu2"),
                                SIZES(32000, 2560, 18432, 32, 32),
                                HEADS(0, 0),
                                CTX(4096),
                                RMS_EPS(1e-5),
                                ROTARY(10000),
                                NO_DROPOUT,
                                DEVIATION,
                                TIE(false),
                                ATTENTION_AND_MLP_BIAS,
                                END};
const ConfigKey smollm3_keys[] = {ACT("silu"),
                                  SIZES(128256, 2048, 11008, 36, 16),
                                  {.name = "num_key_value_heads",
                                   .kind = KEY_INT,
                                   .field = offsetof(ModelConfig, kv_heads),
                                   .absent = 4,
                                   .high = MODEL_MAX_HEADS,
                                   .null_follows = true},
                                  INT("head_dim", head_dim, 0, HEAD_DIM_LIMIT),
                                  CTX(32768),
                                  RMS_EPS(1e-6),
                                  {.name = "no_rope_layers", .kind = KEY_ROPE_LAYERS},
                                  FIXED("use_sliding_window", "false"),
                                  ROTARY(2000000),
                                  NO_DROPOUT,
                                  DEVIATION,
                                  TIE(true),
                                  ATTENTION_AND_MLP_BIAS,
                                  END};
const ConfigKey starcoder2_keys[] = {ACT("gelu_pytorch_tanh"),
                                     SIZES(49152, 3072, 12288, 30, 24),
                                     HEADS(2, 0),
                                     CTX(4096),
                                     REAL("norm_epsilon", norm_eps, 1e-5),
                                     ROTARY(10000),
                                     FIXED("sliding_window", "null"),
                                     NO_DROPOUT,
                                     SET("residual_dropout", "0.0"),
                                     SET("embedding_dropout", "0.0"),
                                     DEVIATION,
                                     TIE(true),
                                     BIASES("use_bias", BIAS_LAYERS, true),
                                     END};
const ConfigKey stablelm_keys[] = {ACT("silu"),
                                   SIZES(50304, 2560, 6912, 32, 32),
                                   INT("num_key_value_heads", kv_heads, 32, MODEL_MAX_HEADS),
                                   CTX(4096),
                                   REAL("layer_norm_eps", norm_eps, 1e-5),
                                   THETA(10000),
                                   SET("partial_rotary_factor", "1.0"),
                                   ROPE(0.25),
                                   SCALING,
                                   FIXED("use_parallel_residual", "false"),
                                   FIXED("qk_layernorm", "false"),
                                   NO_DROPOUT,
                                   SET("hidden_dropout", "0.0"),
                                   DEVIATION,
                                   TIE(false),
                                   BIASES("use_qkv_bias", BIAS_QKV, false),
                                   END};

/* Classes that are only read. */
const ConfigKey helium_keys[] = {ACT("silu"),
                                 SIZES(48000, 2560, 7040, 24, 20),
                                 HEADS(20, 128),
                                 CTX(4096),
                                 RMS_EPS(1e-8),
                                 ROTARY(100000),
                                 TIE(false),
                                 BIASES("attention_bias", BIAS_QKV, false),
                                 BIASES("mlp_bias", BIAS_MLP, false),
                                 END};
const ConfigKey ernie4_5_keys[] = {ACT("silu"),
                                   SIZES(103424, 1024, 3072, 18, 16),
                                   HEADS(2, 128),
                                   CTX(131072),
                                   RMS_EPS(1e-5),
                                   ROTARY(500000),
                                   TIE(true),
                                   BIASES("use_bias", BIAS_LAYERS, false),
                                   END};
const ConfigKey qwen2_keys[] = {ACT("silu"),
                                SIZES(151936, 4096, 22016, 32, 32),
                                HEADS(32, 0),
                                CTX(32768),
                                RMS_EPS(1e-6),
                                FIXED("use_sliding_window", "false"),
                                ROTARY(10000),
                                TIE(false),
                                END};
const ConfigKey mistral_keys[] = {ACT("silu"),
                                  SIZES(32000, 4096, 14336, 32, 32),
                                  HEADS(8, 0),
                                  CTX(131072),
                                  RMS_EPS(1e-6),
                                  {.name = "sliding_window", .kind = KEY_WINDOW, .absent = 4096},
                                  ROTARY(10000),
                                  TIE(false),
                                  END};

const ConfigKey gpt2_keys[] = {CHOICE("activation_function", activation, "gelu_new", activations),
                               INT("vocab_size", vocab, 50257, MODEL_MAX_VOCAB),
                               INT("n_positions", ctx, 1024, MODEL_MAX_CTX),
                               INT("n_embd", dim, 768, MODEL_MAX_DIM),
                               INT("n_inner", ffn, 0, MODEL_MAX_FFN),
                               INT("n_layer", layers, 12, MODEL_MAX_LAYERS),
                               INT("n_head", heads, 12, MODEL_MAX_HEADS),
                               REAL("layer_norm_epsilon", norm_eps, 1e-5),
                               FIXED("scale_attn_weights", "true"),
                               FIXED("scale_attn_by_inverse_layer_idx", "false"),
                               FIXED("add_cross_attention", "false"),
                               SET("resid_pdrop", "0.0"),
                               SET("embd_pdrop", "0.0"),
                               SET("attn_pdrop", "0.0"),
                               DEVIATION,
                               TIE(true),
                               END};

const ConfigKey opt_keys[] = {CHOICE("activation_function", activation, "relu", activations),
                              INT("vocab_size", vocab, 50272, MODEL_MAX_VOCAB),
                              INT("hidden_size", dim, 768, MODEL_MAX_DIM),
                              INT_AGAIN("word_embed_proj_dim", "hidden_size", dim, 0),
                              INT("ffn_dim", ffn, 3072, MODEL_MAX_FFN),
                              INT("num_hidden_layers", layers, 12, MODEL_MAX_LAYERS),
                              INT("num_attention_heads", heads, 12, MODEL_MAX_HEADS),
                              CTX(2048),
                              CHOICE("do_layer_norm_before", norm_place, "true", before_or_after),
                              FIXED("_remove_final_layer_norm", "false"),
                              FIXED("layer_norm_elementwise_affine", "true"),
                              CHOICE(KEY_POSITIONS, positions, "learned", tables, .optional = true),
                              SET("dropout", "0.0"),
                              NO_DROPOUT,
                              SET("layerdrop", "0.0"),
                              SET("init_std", "0.02"),
                              TIE(true),
                              BIASES("enable_bias", BIAS_LAYERS, true),
                              END};

/* Keys that the three classes with an encoder share. */
#define ENCODER_AND_DECODER(vocab_, ctx_, dim_, layers_, decoder_layers_, heads_, ffn_)                                \
  CHOICE("activation_function", activation, "gelu", activations), FIXED("is_encoder_decoder", "true"),                 \
      INT("vocab_size", source_vocab, vocab_, MODEL_MAX_VOCAB), INT("d_model", dim, dim_, MODEL_MAX_DIM),              \
      INT("encoder_layers", encoder_layers, layers_, MODEL_MAX_LAYERS),                                                \
      INT_AGAIN("num_hidden_layers", "encoder_layers", encoder_layers, 0),                                             \
      INT("decoder_layers", layers, decoder_layers_, MODEL_MAX_LAYERS),                                                \
      INT("encoder_attention_heads", heads, heads_, MODEL_MAX_HEADS),                                                  \
      INT_AGAIN("decoder_attention_heads", "encoder_attention_heads", heads, heads_),                                  \
      INT("encoder_ffn_dim", ffn, ffn_, MODEL_MAX_FFN), INT_AGAIN("decoder_ffn_dim", "encoder_ffn_dim", ffn, ffn_),    \
      CTX(ctx_), FIXED("scale_embedding", "false"), SET("dropout", "0.0"), NO_DROPOUT,                                 \
      SET("activation_dropout", "0.0"), SET("encoder_layerdrop", "0.0"), SET("decoder_layerdrop", "0.0"),              \
      SET("init_std", "0.02"), TIE(true)

const ConfigKey marian_keys[] = {ENCODER_AND_DECODER(58101, 1024, 1024, 12, 12, 16, 4096),
                                 SET("static_position_embeddings", "true"),
                                 INT("decoder_vocab_size", vocab, 0, MODEL_MAX_VOCAB),
                                 BOOL_AGAIN("share_encoder_decoder_embeddings", "tie_word_embeddings", tie, true), END};
const ConfigKey pegasus_keys[] = {ENCODER_AND_DECODER(50265, 1024, 1024, 12, 12, 16, 4096), END};
const ConfigKey blenderbot_keys[] = {ENCODER_AND_DECODER(8008, 128, 2560, 2, 24, 32, 10240),
                                     SET("encoder_no_repeat_ngram_size", "0"), END};

#define OWN                                                                                                            \
  ACT("silu"), SIZES(257, 64, 256, 2, 4), HEADS(0, 0), CTX(64), NAMED("norm", norm, "rms", model_norm_names),          \
      NAMED("norm_place", norm_place, "before", model_norm_place_names), REAL("norm_eps", norm_eps, 1e-5),             \
      BOOL("gated", gated, true), NAMED(KEY_POSITIONS, positions, "rope", model_position_names), THETA(10000),         \
      BIASES("qkv_bias", BIAS_QKV, false), BIASES("bias", BIAS_OUTPUT | BIAS_MLP, false),                              \
      BIASES("head_bias", BIAS_HEAD, false), DEVIATION, BOOL("tie_word_embeddings", tie, false)

const ConfigKey own_keys[] = {OWN, END};
const ConfigKey own_encoder_keys[] = {OWN, INT("encoder_layers", encoder_layers, 2, MODEL_MAX_LAYERS),
                                      INT("source_vocab_size", source_vocab, 0, MODEL_MAX_VOCAB),
                                      FIXED("is_encoder_decoder", "true"), END};
