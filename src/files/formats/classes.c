/* The table of classes, checked against transformers 5.24, with their keys of config.json in the order in which they
 * are written; defaults are those of its configuration classes. */
#include "files/formats/classes.h"

#include "base/text.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const bias_names[BIAS_KINDS] = {"qkv", "output", "mlp", "head"};

/* ---- tensors ---- */

static const Rename starcoder2_names[] = {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}, {0}};
static const Rename gpt2_names[] = {{"model.layers", "transformer.h"},
                                    {"model.embed_tokens", "transformer.wte"},
                                    {"model.embed_positions", "transformer.wpe"},
                                    {"input_layernorm", "ln_1"},
                                    {"self_attn.q_proj", "attn.c_attn"},
                                    {"self_attn.k_proj", "attn.c_attn"},
                                    {"self_attn.v_proj", "attn.c_attn"},
                                    {"self_attn.o_proj", "attn.c_proj"},
                                    {"post_attention_layernorm", "ln_2"},
                                    {"mlp.up_proj", "mlp.c_fc"},
                                    {"mlp.down_proj", "mlp.c_proj"},
                                    {"model.norm", "transformer.ln_f"},
                                    {0}};
/* Names that OPT and the classes with an encoder share. */
#define NAMES_OF_LAYERS                                                                                                \
  {"input_layernorm", "self_attn_layer_norm"}, {"self_attn.o_proj", "self_attn.out_proj"},                             \
      {"post_attention_layernorm", "final_layer_norm"}, {"mlp.up_proj", "fc1"}, {                                      \
    "mlp.down_proj", "fc2"                                                                                             \
  }

static const Rename opt_names[] = {{"model.layers", "model.decoder.layers"},
                                   {"model.embed_tokens", "model.decoder.embed_tokens"},
                                   {"model.embed_positions", "model.decoder.embed_positions"},
                                   NAMES_OF_LAYERS,
                                   {"model.norm", "model.decoder.final_layer_norm"},
                                   {0}};
static const Rename encoder_decoder_names[] = {{"model.embed_tokens", "model.shared"},
                                               NAMES_OF_LAYERS,
                                               {"cross_attention_layernorm", "encoder_attn_layer_norm"},
                                               {"cross_attn.q_proj", "encoder_attn.q_proj"},
                                               {"cross_attn.k_proj", "encoder_attn.k_proj"},
                                               {"cross_attn.v_proj", "encoder_attn.v_proj"},
                                               {"cross_attn.o_proj", "encoder_attn.out_proj"},
                                               {"model.encoder.norm", "model.encoder.layer_norm"},
                                               {"model.decoder.norm", "model.decoder.layer_norm"},
                                               {0}};
/* Of convolutions. */
#define ONE_IN_PROJ                                                                                                    \
  {"conv.b_proj", "conv.in_proj"}, {"conv.c_proj", "conv.in_proj"}, { "conv.x_proj", "conv.in_proj" }

static const Rename lfm2_names[] = {{"input_layernorm", "operator_norm"},
                                    {"self_attn.q_norm", "self_attn.q_layernorm"},
                                    {"self_attn.k_norm", "self_attn.k_layernorm"},
                                    {"self_attn.o_proj", "self_attn.out_proj"},
                                    ONE_IN_PROJ,
                                    {"post_attention_layernorm", "ffn_norm"},
                                    {"mlp.gate_proj", "feed_forward.w1"},
                                    {"mlp.up_proj", "feed_forward.w3"},
                                    {"mlp.down_proj", "feed_forward.w2"},
                                    {"model.norm", "model.embedding_norm"},
                                    {0}};
static const Rename gpt_neox_names[] = {{"model.layers", "gpt_neox.layers"},
                                        {"model.embed_tokens", "gpt_neox.embed_in"},
                                        {"self_attn.q_proj", "attention.query_key_value"},
                                        {"self_attn.k_proj", "attention.query_key_value"},
                                        {"self_attn.v_proj", "attention.query_key_value"},
                                        {"self_attn.o_proj", "attention.dense"},
                                        {"mlp.up_proj", "mlp.dense_h_to_4h"},
                                        {"mlp.down_proj", "mlp.dense_4h_to_h"},
                                        {"model.norm", "gpt_neox.final_layer_norm"},
                                        {"lm_head", "embed_out"},
                                        {0}};
static const Rename own_names[] = {ONE_IN_PROJ, {0}};
static const char *const rope_ignored[] = {".rotary_emb.inv_freq", NULL};            /* old exports */
static const char *const gpt2_ignored[] = {".attn.bias", ".attn.masked_bias", NULL}; /* masks */

static const char *const gpt_neox_ignored[] = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
                                               NULL};

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
static const Choice parallel_or_before[] = {{"true", NORM_PARALLEL}, {"false", NORM_BEFORE}, {0}};
static const Choice tables[] = {
    {"learned", POSITIONS_LEARNED}, {"sinusoidal", POSITIONS_SINUSOIDAL}, {"none", POSITIONS_NONE}, {0}};

static const Choice rope_or_none[] = {{"1", POSITIONS_ROPE}, {"0", POSITIONS_NONE}, {0}};
static const Choice lfm2_mixers[] = {{"full_attention", MIXER_ATTENTION}, {"conv", MIXER_CONVOLUTION}, {0}};
static const Choice own_mixers[] = {
    {"attention", MIXER_ATTENTION}, {"attention_without_rope", MIXER_NOPE}, {"convolution", MIXER_CONVOLUTION}, {0}};

/* ---- keys ---- */

#define SET(key, json)                                                                                                 \
  { .name = key, .kind = KEY_SET, .text = json }
#define FIXED(key, json)                                                                                               \
  { .name = key, .kind = KEY_FIXED, .text = json }
#define FIELD(key, kind_, member, ...)                                                                                 \
  { .name = key, .kind = kind_, .field = offsetof(ModelConfig, member), __VA_ARGS__ }
#define INT(key, member, value, limit) FIELD(key, KEY_INT, member, .absent = value, .high = limit)
#define FOLLOWS(key, member, value, limit)                                                                             \
  FIELD(key, KEY_INT, member, .absent = value, .high = limit, .null_follows = true)
#define INT_AGAIN(key, other, member, value) FIELD(key, KEY_INT_AGAIN, member, .absent = value, .text = other)
#define REAL(key, member, value) FIELD(key, KEY_REAL, member, .absent = value)
#define BOOL(key, member, value) FIELD(key, KEY_BOOL, member, .absent = value)
#define BOOL_AGAIN(key, other, member, value) FIELD(key, KEY_BOOL_AGAIN, member, .absent = value, .text = other)
#define CHOICE(key, member, value, list) FIELD(key, KEY_CHOICE, member, .text = value, .choices = list)
#define NAMED(key, member, value, list) FIELD(key, KEY_CHOICE, member, .text = value, .names = list)
#define MIXERS(key, list, ...) FIELD(key, KEY_MIXERS, mixers, .choices = list, __VA_ARGS__)
#define ROPE_LAYERS(key) FIELD(key, KEY_ROPE_LAYERS, positions, .choices = rope_or_none)
#define THETA(value) FIELD("rope_theta", KEY_THETA, rope_base, .absent = value)
#define ROPE(value) FIELD("rope_parameters", KEY_ROPE, rope_base, .absent = value)
#define ROTARY_PART(key, value) FIELD(key, KEY_ROTARY, rotary_dims, .absent = value)
#define SCALING FIELD("rope_scaling", KEY_SCALING, rope_base, .text = NULL)
#define BIASES(key, kinds, value)                                                                                      \
  { .name = key, .kind = KEY_BIASES, .absent = value, .biases = kinds }
#define END                                                                                                            \
  { .name = NULL }

/* Groups of keys, in the order in which they are written. */
#define SIZES(vocab_, dim_, ffn_, layers_, heads_)                                                                     \
  INT("vocab_size", vocab, vocab_, MODEL_MAX_VOCAB), INT("hidden_size", dim, dim_, MODEL_MAX_DIM),                     \
      INT("intermediate_size", ffn, ffn_, MODEL_MAX_FFN), INT("num_hidden_layers", layers, layers_, MODEL_MAX_LAYERS), \
      INT("num_attention_heads", heads, heads_, MODEL_MAX_HEADS)
#define CTX(value) INT("max_position_embeddings", ctx, value, MODEL_MAX_CTX)
#define KV_HEADS(value) FOLLOWS("num_key_value_heads", kv_heads, value, MODEL_MAX_HEADS)
#define HEADS(kv_heads_, head_dim_) KV_HEADS(kv_heads_), FOLLOWS("head_dim", head_dim, head_dim_, HEAD_DIM_LIMIT)
#define ACT(value) CHOICE("hidden_act", activation, value, activations)
#define RMS_EPS(value) REAL("rms_norm_eps", norm_eps, value)
#define ATTENTION_AND_MLP_BIASES(of_attention)                                                                         \
  BIASES("attention_bias", of_attention, false), BIASES("mlp_bias", BIAS_MLP, false)
#define ROTARY(base) THETA(base), ROPE(1), SCALING
#define NO_DROPOUT SET("attention_dropout", "0.0")
/* Of layers with a window; `first`: the default of max_window_layers. */
#define WINDOW(value)                                                                                                  \
  { .name = "sliding_window", .kind = KEY_WINDOW, .absent = value }
#define SWITCHED_WINDOW(value, first)                                                                                  \
  SET("use_sliding_window", "false"), {                                                                                \
    .name = "sliding_window", .kind = KEY_WINDOW, .absent = value, .high = first, .text = "use_sliding_window"         \
  }
#define DEVIATION SET("initializer_range", "0.02")
#define TIE(value) BOOL("tie_word_embeddings", tie, value)
#define DECODER(act_, vocab_, dim_, ffn_, layers_, heads_, kv_heads_, head_dim_, ctx_)                                 \
  ACT(act_), SIZES(vocab_, dim_, ffn_, layers_, heads_), HEADS(kv_heads_, head_dim_), CTX(ctx_)
#define RMS_ROTARY(eps, base) RMS_EPS(eps), ROTARY(base)
#define END_OF_DECODER(tie_) NO_DROPOUT, DEVIATION, TIE(tie_)

static const ConfigKey llama_keys[] = {DECODER("silu", 32000, 4096, 11008, 32, 32, 0, 0, 2048), RMS_ROTARY(1e-6, 10000),
                                       END_OF_DECODER(false), ATTENTION_AND_MLP_BIASES(BIAS_QKV | BIAS_OUTPUT), END};
static const ConfigKey arcee_keys[] = {DECODER("relu2", 32000, 2560, 18432, 32, 32, 0, 0, 4096),
                                       RMS_ROTARY(1e-5, 10000), END_OF_DECODER(false),
                                       ATTENTION_AND_MLP_BIASES(BIAS_QKV | BIAS_OUTPUT), END};
static const ConfigKey smollm3_keys[] = {ACT("silu"),
                                         SIZES(128256, 2048, 11008, 36, 16),
                                         HEADS(4, 0),
                                         CTX(32768),
                                         RMS_EPS(1e-6),
                                         ROPE_LAYERS("no_rope_layers"),
                                         SWITCHED_WINDOW(0, 0),
                                         ROTARY(2000000),
                                         END_OF_DECODER(true),
                                         ATTENTION_AND_MLP_BIASES(BIAS_QKV | BIAS_OUTPUT),
                                         END};
static const ConfigKey qwen3_keys[] = {ACT("silu"),
                                       SIZES(151936, 4096, 22016, 32, 32),
                                       HEADS(32, 128),
                                       CTX(32768),
                                       SWITCHED_WINDOW(4096, 28),
                                       RMS_ROTARY(1e-6, 10000),
                                       END_OF_DECODER(false),
                                       BIASES("attention_bias", BIAS_QKV | BIAS_OUTPUT, false),
                                       END};
static const ConfigKey lfm2_keys[] = {
    INT("vocab_size", vocab, 65536, MODEL_MAX_VOCAB),
    INT("hidden_size", dim, 2560, MODEL_MAX_DIM),
    FIELD("intermediate_size", KEY_INT, ffn, .absent = 12288, .high = MODEL_MAX_FFN, .also = "block_ff_dim"),
    SET("block_multiple_of", "256"),
    SET("block_ffn_dim_multiplier", "1.0"),
    FIELD("block_auto_adjust_ff_dim", KEY_FFN_ADJUSTED, ffn, .absent = true, .high = MODEL_MAX_FFN),
    INT("num_hidden_layers", layers, 32, MODEL_MAX_LAYERS),
    MIXERS("layer_types", lfm2_mixers, .text = "full_attn_idxs"),
    FIXED("conv_L_cache", "3"),
    FIXED("conv_bias", "false"),
    INT("num_attention_heads", heads, 32, MODEL_MAX_HEADS),
    HEADS(8, 0),
    CTX(128000),
    REAL("norm_eps", norm_eps, 1e-5),
    ROTARY(1000000),
    DEVIATION,
    FIELD("tie_word_embeddings", KEY_BOOL, tie, .absent = true, .also = "tie_embedding"),
    END};
static const ConfigKey starcoder2_keys[] = {DECODER("gelu_pytorch_tanh", 49152, 3072, 12288, 30, 24, 2, 0, 4096),
                                            REAL("norm_epsilon", norm_eps, 1e-5),
                                            ROTARY(10000),
                                            WINDOW(0),
                                            NO_DROPOUT,
                                            SET("residual_dropout", "0.0"),
                                            SET("embedding_dropout", "0.0"),
                                            DEVIATION,
                                            TIE(true),
                                            BIASES("use_bias", BIAS_LAYERS, true),
                                            END};
static const ConfigKey stablelm_keys[] = {ACT("silu"),
                                          SIZES(50304, 2560, 6912, 32, 32),
                                          KV_HEADS(32),
                                          CTX(4096),
                                          REAL("layer_norm_eps", norm_eps, 1e-5),
                                          THETA(10000),
                                          ROTARY_PART("partial_rotary_factor", 0.25),
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

static const ConfigKey gpt_neox_keys[] = {ACT("gelu"),
                                          SIZES(50432, 6144, 24576, 44, 64),
                                          CTX(2048),
                                          REAL("layer_norm_eps", norm_eps, 1e-5),
                                          CHOICE("use_parallel_residual", norm_place, "true", parallel_or_before),
                                          FIELD("rotary_emb_base", KEY_THETA, rope_base, .absent = 10000),
                                          ROTARY_PART("rotary_pct", 0.25),
                                          ROPE(1),
                                          SCALING,
                                          NO_DROPOUT,
                                          SET("hidden_dropout", "0.0"),
                                          DEVIATION,
                                          TIE(false),
                                          BIASES("attention_bias", BIAS_QKV | BIAS_OUTPUT, true),
                                          END};

/* Classes that are only read. */
static const ConfigKey helium_keys[] = {DECODER("silu", 48000, 2560, 7040, 24, 20, 20, 128, 4096),
                                        RMS_ROTARY(1e-8, 100000), TIE(false), ATTENTION_AND_MLP_BIASES(BIAS_QKV), END};
static const ConfigKey ernie4_5_keys[] = {DECODER("silu", 103424, 1024, 3072, 18, 16, 2, 128, 131072),
                                          RMS_ROTARY(1e-5, 500000), TIE(true), BIASES("use_bias", BIAS_LAYERS, false),
                                          END};
static const ConfigKey qwen2_keys[] = {DECODER("silu", 151936, 4096, 22016, 32, 32, 32, 0, 32768),
                                       SWITCHED_WINDOW(4096, 28), RMS_ROTARY(1e-6, 10000), TIE(false), END};
static const ConfigKey mistral_keys[] = {DECODER("silu", 32000, 4096, 14336, 32, 32, 8, 0, 131072), WINDOW(4096),
                                         RMS_ROTARY(1e-6, 10000), TIE(false), END};

static const ConfigKey gpt2_keys[] = {CHOICE("activation_function", activation, "gelu_new", activations),
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

static const ConfigKey opt_keys[] = {
    CHOICE("activation_function", activation, "relu", activations),
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
    FIELD(KEY_POSITIONS, KEY_CHOICE, positions, .text = "learned", .choices = tables, .optional = true),
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

static const ConfigKey marian_keys[] = {
    ENCODER_AND_DECODER(58101, 1024, 1024, 12, 12, 16, 4096), SET("static_position_embeddings", "true"),
    INT("decoder_vocab_size", vocab, 0, MODEL_MAX_VOCAB),
    BOOL_AGAIN("share_encoder_decoder_embeddings", "tie_word_embeddings", tie, true), END};
static const ConfigKey pegasus_keys[] = {ENCODER_AND_DECODER(50265, 1024, 1024, 12, 12, 16, 4096), END};
static const ConfigKey blenderbot_keys[] = {ENCODER_AND_DECODER(8008, 128, 2560, 2, 24, 32, 10240),
                                            SET("encoder_no_repeat_ngram_size", "0"), END};

#define OWN                                                                                                            \
  DECODER("silu", 257, 64, 256, 2, 4, 0, 0, 64), NAMED("norm", norm, "rms", model_norm_names),                         \
      NAMED("norm_place", norm_place, "before", model_norm_place_names), REAL("norm_eps", norm_eps, 1e-5),             \
      BOOL("gated", gated, true), NAMED(KEY_POSITIONS, positions, "rope", model_position_names), THETA(10000),         \
      ROTARY_PART("partial_rotary_factor", 1), BOOL("qk_norm", qk_norm, false),                                        \
      MIXERS("mixers", own_mixers, .optional = true), BIASES("qkv_bias", BIAS_QKV, false),                             \
      BIASES("bias", BIAS_OUTPUT | BIAS_MLP, false), BIASES("head_bias", BIAS_HEAD, false), DEVIATION, TIE(false)

static const ConfigKey own_keys[] = {OWN, END};
static const ConfigKey own_encoder_keys[] = {OWN, INT("encoder_layers", encoder_layers, 2, MODEL_MAX_LAYERS),
                                             INT("source_vocab_size", source_vocab, 0, MODEL_MAX_VOCAB),
                                             FIXED("is_encoder_decoder", "true"), END};

/* ---- which class computes what ---- */

static bool has_encoder(const ModelConfig *c) { return c->encoder_layers > 0; }

/* transformers requires this even where head_dim is given. */
static bool heads_divide(const ModelConfig *c) { return c->dim % c->heads == 0; }

static bool heads_are_plain(const ModelConfig *c) {
  return c->kv_heads == c->heads && heads_divide(c) && c->head_dim == c->dim / c->heads;
}

static bool fits_decoder(const ModelConfig *c) { return !has_encoder(c) && !c->head_bias && heads_divide(c); }

/* Classes without biases of outputs, in which the width need not be a multiple of the heads. */
static bool fits_qwen3(const ModelConfig *c) { return !has_encoder(c) && !c->head_bias && !c->bias; }

/* transformers cannot generate with convolutions alone. */
static bool fits_lfm2(const ModelConfig *c) {
  return fits_qwen3(c) && !c->qkv_bias && model_count_mixers(c, MIXER_CONVOLUTION) < c->layers;
}

/* For classes that are only read: LLaMA's class computes the same. */
static bool fits_nothing(const ModelConfig *c) { return c == NULL; }

static bool fits_stablelm(const ModelConfig *c) {
  return fits_decoder(c) && !c->bias && c->head_dim == c->dim / c->heads;
}

static bool fits_plain_heads(const ModelConfig *c) { return fits_decoder(c) && heads_are_plain(c); }

/* Models that fit both GPT-2 and OPT, whose epsilon is fixed, are written as OPT if their activation is ReLU. */
static bool fits_gpt2(const ModelConfig *c) {
  return fits_plain_heads(c) && !(c->activation == ACTIVATION_RELU && c->norm_eps == 1e-5f);
}

/* transformers omits Marian's table of positions when it saves a model, and makes sinusoids when it loads one. */
static bool fits_marian(const ModelConfig *c) { return has_encoder(c) && heads_are_plain(c); }

static bool fits_one_vocabulary(const ModelConfig *c) { return fits_marian(c) && c->source_vocab == c->vocab; }

static bool fits_own(const ModelConfig *c) { return !has_encoder(c); }

/* ---- the table ---- */

#define BASE(...) .base = {.rope_base = 10000, .norm_eps = 1e-5f, __VA_ARGS__}

#define CLASS(name, type, prefix_, fits_, keys_, start_token, end_token, ...)                                          \
  {                                                                                                                    \
    .class = name, .model_type = type, .prefix = prefix_, .fits = fits_, .keys = keys_,                                \
    .tokens = {.start = start_token, .end = end_token}, __VA_ARGS__                                                    \
  }

static const ModelClass classes[] = {
    CLASS("LlamaForCausalLM", "llama", "model.", fits_decoder, llama_keys, 1, 2, BASE(.gated = true),
          .ignored = rope_ignored),
    CLASS("ArceeForCausalLM", "arcee", "model.", fits_decoder, arcee_keys, 128000, 128001, BASE(.gated = false)),
    CLASS("SmolLM3ForCausalLM", "smollm3", "model.", fits_decoder, smollm3_keys, 128000, 128001,
          BASE(.gated = true, .positions = POSITIONS_NONE), .mixers = "AN"),
    CLASS("Qwen3ForCausalLM", "qwen3", "model.", fits_qwen3, qwen3_keys, -1, -1, BASE(.gated = true, .qk_norm = true)),
    CLASS("Lfm2ForCausalLM", "lfm2", "model.", fits_lfm2, lfm2_keys, 1, 2, BASE(.gated = true, .qk_norm = true),
          .names = lfm2_names, .mixers = "AC"),
    CLASS("Starcoder2ForCausalLM", "starcoder2", "model.", fits_decoder, starcoder2_keys, 50256, 50256,
          BASE(.norm = NORM_LAYER), .names = starcoder2_names, .ignored = rope_ignored),
    CLASS("StableLmForCausalLM", "stablelm", "model.", fits_stablelm, stablelm_keys, 0, 0,
          BASE(.norm = NORM_LAYER, .gated = true), .ignored = rope_ignored),
    CLASS("GPTNeoXForCausalLM", "gpt_neox", "gpt_neox.", fits_plain_heads, gpt_neox_keys, 0, 2,
          BASE(.norm = NORM_LAYER), .biases = BIAS_MLP, .names = gpt_neox_names, .ignored = gpt_neox_ignored,
          .by_head = true),
    CLASS("HeliumForCausalLM", "helium", "model.", fits_nothing, helium_keys, 1, 2, BASE(.gated = true),
          .ignored = rope_ignored, .interleaved = true),
    CLASS("Ernie4_5ForCausalLM", "ernie4_5", "model.", fits_nothing, ernie4_5_keys, 1, 2, BASE(.gated = true),
          .ignored = rope_ignored, .interleaved = true),
    CLASS("Qwen2ForCausalLM", "qwen2", "model.", fits_nothing, qwen2_keys, -1, -1, BASE(.gated = true),
          .biases = BIAS_QKV, .ignored = rope_ignored),
    CLASS("MistralForCausalLM", "mistral", "model.", fits_nothing, mistral_keys, 1, 2, BASE(.gated = true),
          .ignored = rope_ignored),
    CLASS("GPT2LMHeadModel", "gpt2", "transformer.", fits_gpt2, gpt2_keys, 50256, 50256,
          BASE(.norm = NORM_LAYER, .positions = POSITIONS_LEARNED), .biases = BIAS_LAYERS, .names = gpt2_names,
          .ignored = gpt2_ignored, .transposed = true),
    CLASS("OPTForCausalLM", "opt", "model.", fits_plain_heads, opt_keys, 2, 2,
          BASE(.norm = NORM_LAYER, .positions = POSITIONS_LEARNED), .names = opt_names, .position_table = true,
          .unused_positions = 2),
    CLASS("MarianMTModel", "marian", "model.", fits_marian, marian_keys, 58100, 0,
          BASE(.norm = NORM_LAYER, .norm_place = NORM_AFTER, .positions = POSITIONS_SINUSOIDAL),
          .biases = BIAS_LAYERS | BIAS_HEAD, .names = encoder_decoder_names, .head_bias = "final_logits_bias",
          .sinusoids = true),
    CLASS("PegasusForConditionalGeneration", "pegasus", "model.", fits_one_vocabulary, pegasus_keys, 0, 1,
          BASE(.norm = NORM_LAYER, .positions = POSITIONS_SINUSOIDAL), .biases = BIAS_LAYERS | BIAS_HEAD,
          .names = encoder_decoder_names, .head_bias = "final_logits_bias", .sinusoids = true, .shared = true),
    CLASS("BlenderbotForConditionalGeneration", "blenderbot", "model.", fits_one_vocabulary, blenderbot_keys, 1, 2,
          BASE(.norm = NORM_LAYER, .positions = POSITIONS_LEARNED), .biases = BIAS_LAYERS | BIAS_HEAD,
          .names = encoder_decoder_names, .head_bias = "final_logits_bias", .shared = true),
    CLASS("InklingPartsForCausalLM", "inkling_parts", "model.", fits_own, own_keys, -1, -1, BASE(.gated = true),
          .names = own_names, .mixers = MODEL_MIXERS, .own = true),
    CLASS("InklingPartsForConditionalGeneration", "inkling_parts", "model.", has_encoder, own_encoder_keys, -1, -1,
          BASE(.gated = true), .names = own_names, .mixers = MODEL_MIXERS, .own = true),
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* Kinds of keys of which a model may have another value than a class without the key; sizes are compared by `fits`. */
static bool is_component(const ConfigKey *key) {
  return key->kind == KEY_CHOICE || key->kind == KEY_BOOL || key->kind == KEY_REAL || key->kind == KEY_MIXERS ||
         key->kind == KEY_ROPE_LAYERS || key->kind == KEY_ROTARY;
}

const ConfigKey *class_key(const ModelClass *a, KeyKind kind) {
  const ConfigKey *key = a->keys;
  while (key->name && key->kind != kind) key++;
  return key->name ? key : NULL;
}

/* Returns whether all layers have mixers among the letters. */
static bool all_among(const ModelConfig *c, const char *letters) {
  int layer = 0;
  while (layer < c->layers && strchr(letters, (int)model_mixer(c, layer))) layer++;
  return layer == c->layers;
}

/* Returns whether a class can have the model's mixers. A class of transformers that lists the layers with RoPE takes a
 * model without RoPE in any layer for one without positions. */
static bool has_mixers(const ModelClass *a, const ModelConfig *c) {
  return all_among(c, a->mixers ? a->mixers : "A") && (a->own || !all_among(c, "N"));
}

/* Returns whether a class can have the model's value: by a key, or always. */
static bool has_value(const ModelClass *a, const ModelConfig *config, size_t field) {
  const ConfigKey *key = a->keys;
  if (field == offsetof(ModelConfig, mixers)) return has_mixers(a, config);
  while (key->name && !(is_component(key) && key->field == field)) key++;
  const char *const value = (const char *)config + field;
  if (!key->name) return memcmp(value, (const char *)&a->base + field, sizeof(int)) == 0;
  const Choice *choice = key->choices;
  while (choice && choice->text && memcmp(value, &choice->value, sizeof choice->value) != 0) choice++;
  return !choice || choice->text;
}

const char *class_lacks(const ModelClass *a, const ModelConfig *config) {
  const ConfigKey *key = own_keys;
  while (key->name && !(is_component(key) && !has_value(a, config, key->field))) key++;
  return key->name;
}

const ModelClass *class_of(const ModelConfig *config) {
  const ModelClass *a = classes;
  while (!a->fits(config) || class_lacks(a, config)) a++;
  return a;
}

const ModelClass *class_named(const char *model_type, const char *class) {
  for (const ModelClass *a = classes; a < classes + CLASSES; a++)
    if ((!model_type || strcmp(a->model_type, model_type) == 0) && (!class || strcmp(a->class, class) == 0)) return a;
  return NULL;
}

void class_types(char *out, size_t size) {
  *out = '\0';
  for (int i = 0; i < CLASSES; i++)
    if (!i || strcmp(classes[i].model_type, classes[i - 1].model_type) != 0)
      text_append(out, size, "%s%s", i ? ", " : "", classes[i].model_type);
}

const char *model_files_class(const ModelConfig *config, bool *own) {
  const ModelClass *a = class_of(config);
  *own = a->own;
  return a->class;
}

/* ---- biases ---- */

unsigned class_model_biases(const ModelConfig *c) {
  return (c->qkv_bias ? BIAS_QKV : 0u) | (c->bias ? BIAS_OUTPUT | BIAS_MLP : 0u) | (c->head_bias ? BIAS_HEAD : 0u);
}

unsigned class_file_biases(const ModelClass *a, const ModelConfig *config) {
  const unsigned wanted = class_model_biases(config);
  unsigned biases = a->biases;
  for (const ConfigKey *key = a->keys; key->name; key++)
    if (key->kind == KEY_BIASES && key->biases & wanted) biases |= key->biases;
  return biases;
}
