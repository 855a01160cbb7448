/* The table of architectures. What is said of a class holds for transformers 5.23; defaults are those of its
 * configuration. */
#include "checkpoint/architectures.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *const bias_names[BIAS_KINDS] = {"qkv", "output", "mlp", "head"};

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
static const Choice norms[] = {{"rms", NORM_RMS}, {"layer", NORM_LAYER}, {0}};
static const Choice norm_places[] = {{"before", NORM_BEFORE}, {"after", NORM_AFTER}, {"branch", NORM_ON_BRANCH}, {0}};
static const Choice before_or_after[] = {{"true", NORM_BEFORE}, {"false", NORM_AFTER}, {0}};
static const Choice tables[] = {
    {"learned", POSITIONS_LEARNED}, {"sinusoidal", POSITIONS_SINUSOIDAL}, {"none", POSITIONS_NONE}, {0}};
static const Choice positions[] = {{"rope", POSITIONS_ROPE},
                                   {"learned", POSITIONS_LEARNED},
                                   {"sinusoidal", POSITIONS_SINUSOIDAL},
                                   {"none", POSITIONS_NONE},
                                   {0}};

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
#define BIASES(key, kinds, value)                                                                                      \
  { .name = key, .kind = KEY_BIASES, .absent = value, .biases = kinds }
#define THETA(value)                                                                                                   \
  { .name = "rope_theta", .kind = KEY_THETA, .field = offsetof(ModelConfig, rope_base), .absent = value }
#define ROPE(value)                                                                                                    \
  { .name = "rope_parameters", .kind = KEY_ROPE, .field = offsetof(ModelConfig, rope_base), .absent = value }
#define SCALING                                                                                                        \
  { .name = "rope_scaling", .kind = KEY_SCALING }
#define END                                                                                                            \
  { .name = NULL }

/* In the order in which they are written; head_dim and max_position_embeddings follow. */
#define SIZES(vocab_, dim_, ffn_, layers_, heads_)                                                                     \
  INT("vocab_size", vocab, vocab_, MODEL_MAX_VOCAB), INT("hidden_size", dim, dim_, MODEL_MAX_DIM),                     \
      INT("intermediate_size", ffn, ffn_, MODEL_MAX_FFN), INT("num_hidden_layers", layers, layers_, MODEL_MAX_LAYERS), \
      INT("num_attention_heads", heads, heads_, MODEL_MAX_HEADS)
#define KV_HEADS(value) INT("num_key_value_heads", kv_heads, value, MODEL_MAX_HEADS)
#define HEAD_DIM INT("head_dim", head_dim, 0, HEAD_DIM_LIMIT)
#define CTX(value) INT("max_position_embeddings", ctx, value, MODEL_MAX_CTX)
#define ATTENTION_AND_MLP_BIAS                                                                                         \
  BIASES("attention_bias", BIAS_QKV | BIAS_OUTPUT, false), BIASES("mlp_bias", BIAS_MLP, false)
#define NO_DROPOUT SET("attention_dropout", "0.0")
#define DEVIATION SET("initializer_range", "0.02")

static const ConfigKey llama_keys[] = {CHOICE("hidden_act", activation, "silu", activations),
                                       SIZES(32000, 4096, 11008, 32, 32),
                                       KV_HEADS(0),
                                       HEAD_DIM,
                                       CTX(2048),
                                       REAL("rms_norm_eps", norm_eps, 1e-6),
                                       THETA(10000),
                                       ROPE(1),
                                       SCALING,
                                       NO_DROPOUT,
                                       DEVIATION,
                                       BOOL("tie_word_embeddings", tie, false),
                                       ATTENTION_AND_MLP_BIAS,
                                       END};

static const ConfigKey arcee_keys[] = {CHOICE("hidden_act", activation, "relu2", activations),
                                       SIZES(32000, 2560, 18432, 32, 32),
                                       KV_HEADS(0),
                                       HEAD_DIM,
                                       CTX(4096),
                                       REAL("rms_norm_eps", norm_eps, 1e-5),
                                       THETA(10000),
                                       ROPE(1),
                                       SCALING,
                                       NO_DROPOUT,
                                       DEVIATION,
                                       BOOL("tie_word_embeddings", tie, false),
                                       ATTENTION_AND_MLP_BIAS,
                                       END};

static const ConfigKey smollm3_keys[] = {CHOICE("hidden_act", activation, "silu", activations),
                                         SIZES(128256, 2048, 11008, 36, 16),
                                         {.name = "num_key_value_heads",
                                          .kind = KEY_INT,
                                          .field = offsetof(ModelConfig, kv_heads),
                                          .absent = 4,
                                          .high = MODEL_MAX_HEADS,
                                          .null_follows = true},
                                         HEAD_DIM,
                                         CTX(32768),
                                         REAL("rms_norm_eps", norm_eps, 1e-6),
                                         {.name = "no_rope_layers", .kind = KEY_ROPE_LAYERS},
                                         FIXED("use_sliding_window", "false"),
                                         THETA(2000000),
                                         ROPE(1),
                                         SCALING,
                                         NO_DROPOUT,
                                         DEVIATION,
                                         BOOL("tie_word_embeddings", tie, true),
                                         ATTENTION_AND_MLP_BIAS,
                                         END};

static const ConfigKey starcoder2_keys[] = {CHOICE("hidden_act", activation, "gelu_pytorch_tanh", activations),
                                            SIZES(49152, 3072, 12288, 30, 24),
                                            KV_HEADS(2),
                                            HEAD_DIM,
                                            CTX(4096),
                                            REAL("norm_epsilon", norm_eps, 1e-5),
                                            THETA(10000),
                                            ROPE(1),
                                            SCALING,
                                            FIXED("sliding_window", "null"),
                                            NO_DROPOUT,
                                            SET("residual_dropout", "0.0"),
                                            SET("embedding_dropout", "0.0"),
                                            DEVIATION,
                                            BOOL("tie_word_embeddings", tie, true),
                                            BIASES("use_bias", BIAS_LAYERS, true),
                                            END};

static const ConfigKey stablelm_keys[] = {CHOICE("hidden_act", activation, "silu", activations),
                                          SIZES(50304, 2560, 6912, 32, 32),
                                          KV_HEADS(32),
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
                                          BOOL("tie_word_embeddings", tie, false),
                                          BIASES("use_qkv_bias", BIAS_QKV, false),
                                          END};

static const ConfigKey helium_keys[] = {CHOICE("hidden_act", activation, "silu", activations),
                                        SIZES(48000, 2560, 7040, 24, 20),
                                        KV_HEADS(20),
                                        INT("head_dim", head_dim, 128, HEAD_DIM_LIMIT),
                                        CTX(4096),
                                        REAL("rms_norm_eps", norm_eps, 1e-8),
                                        THETA(100000),
                                        ROPE(1),
                                        SCALING,
                                        BOOL("tie_word_embeddings", tie, false),
                                        BIASES("attention_bias", BIAS_QKV, false),
                                        BIASES("mlp_bias", BIAS_MLP, false),
                                        END};

static const ConfigKey ernie4_5_keys[] = {CHOICE("hidden_act", activation, "silu", activations),
                                          SIZES(103424, 1024, 3072, 18, 16),
                                          KV_HEADS(2),
                                          INT("head_dim", head_dim, 128, HEAD_DIM_LIMIT),
                                          CTX(131072),
                                          REAL("rms_norm_eps", norm_eps, 1e-5),
                                          THETA(500000),
                                          ROPE(1),
                                          SCALING,
                                          BOOL("tie_word_embeddings", tie, true),
                                          BIASES("use_bias", BIAS_LAYERS, false),
                                          END};

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
                                      BOOL("tie_word_embeddings", tie, true),
                                      END};

static const ConfigKey opt_keys[] = {CHOICE("activation_function", activation, "relu", activations),
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
                                     BOOL("tie_word_embeddings", tie, true),
                                     BIASES("enable_bias", BIAS_LAYERS, true),
                                     END};

/* What the three classes with an encoder have in common. */
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
      SET("init_std", "0.02"), BOOL("tie_word_embeddings", tie, true)

static const ConfigKey marian_keys[] = {
    ENCODER_AND_DECODER(58101, 1024, 1024, 12, 12, 16, 4096), SET("static_position_embeddings", "true"),
    INT("decoder_vocab_size", vocab, 0, MODEL_MAX_VOCAB),
    BOOL_AGAIN("share_encoder_decoder_embeddings", "tie_word_embeddings", tie, true), END};
static const ConfigKey pegasus_keys[] = {ENCODER_AND_DECODER(50265, 1024, 1024, 12, 12, 16, 4096), END};
static const ConfigKey blenderbot_keys[] = {ENCODER_AND_DECODER(8008, 128, 2560, 2, 24, 32, 10240),
                                            SET("encoder_no_repeat_ngram_size", "0"), END};

#define OWN                                                                                                            \
  CHOICE("hidden_act", activation, "silu", activations), SIZES(257, 64, 256, 2, 4), KV_HEADS(0), HEAD_DIM, CTX(64),    \
      CHOICE("norm", norm, "rms", norms), CHOICE("norm_place", norm_place, "before", norm_places),                     \
      REAL("norm_eps", norm_eps, 1e-5), BOOL("gated", gated, true),                                                    \
      CHOICE(KEY_POSITIONS, positions, "rope", positions), THETA(10000), BIASES("qkv_bias", BIAS_QKV, false),          \
      BIASES("bias", BIAS_OUTPUT | BIAS_MLP, false), BIASES("head_bias", BIAS_HEAD, false), DEVIATION,                 \
      BOOL("tie_word_embeddings", tie, false)

static const ConfigKey own_keys[] = {OWN, END};
static const ConfigKey own_encoder_keys[] = {OWN, INT("encoder_layers", encoder_layers, 2, MODEL_MAX_LAYERS),
                                             INT("source_vocab_size", source_vocab, 0, MODEL_MAX_VOCAB),
                                             FIXED("is_encoder_decoder", "true"), END};

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
static const Rename opt_names[] = {{"model.layers", "model.decoder.layers"},
                                   {"model.embed_tokens", "model.decoder.embed_tokens"},
                                   {"model.embed_positions", "model.decoder.embed_positions"},
                                   {"input_layernorm", "self_attn_layer_norm"},
                                   {"self_attn.o_proj", "self_attn.out_proj"},
                                   {"post_attention_layernorm", "final_layer_norm"},
                                   {"mlp.up_proj", "fc1"},
                                   {"mlp.down_proj", "fc2"},
                                   {"model.norm", "model.decoder.final_layer_norm"},
                                   {0}};
static const Rename encoder_decoder_names[] = {{"model.embed_tokens", "model.shared"},
                                               {"input_layernorm", "self_attn_layer_norm"},
                                               {"self_attn.o_proj", "self_attn.out_proj"},
                                               {"cross_attention_layernorm", "encoder_attn_layer_norm"},
                                               {"cross_attn.q_proj", "encoder_attn.q_proj"},
                                               {"cross_attn.k_proj", "encoder_attn.k_proj"},
                                               {"cross_attn.v_proj", "encoder_attn.v_proj"},
                                               {"cross_attn.o_proj", "encoder_attn.out_proj"},
                                               {"post_attention_layernorm", "final_layer_norm"},
                                               {"mlp.up_proj", "fc1"},
                                               {"mlp.down_proj", "fc2"},
                                               {"model.encoder.norm", "model.encoder.layer_norm"},
                                               {"model.decoder.norm", "model.decoder.layer_norm"},
                                               {0}};
static const char *const rope_ignored[] = {".rotary_emb.inv_freq", NULL};            /* old exports */
static const char *const gpt2_ignored[] = {".attn.bias", ".attn.masked_bias", NULL}; /* masks */

/* ---- which class computes what ---- */

static bool has_encoder(const ModelConfig *c) { return c->encoder_layers > 0; }

/* transformers wants it, even where the size of a head is given. */
static bool heads_divide(const ModelConfig *c) { return c->dim % c->heads == 0; }

static bool heads_are_plain(const ModelConfig *c) {
  return c->kv_heads == c->heads && heads_divide(c) && c->head_dim == c->dim / c->heads;
}

static bool is_like_llama(const ModelConfig *c, NormKind norm, bool gated, PositionKind places) {
  return !has_encoder(c) && c->norm == norm && c->norm_place == NORM_BEFORE && c->gated == gated &&
         c->positions == places && !c->head_bias && heads_divide(c);
}

static bool fits_llama(const ModelConfig *c) { return is_like_llama(c, NORM_RMS, true, POSITIONS_ROPE); }
static bool fits_arcee(const ModelConfig *c) { return is_like_llama(c, NORM_RMS, false, POSITIONS_ROPE); }
static bool fits_smollm3(const ModelConfig *c) { return is_like_llama(c, NORM_RMS, true, POSITIONS_NONE); }
static bool fits_starcoder2(const ModelConfig *c) { return is_like_llama(c, NORM_LAYER, false, POSITIONS_ROPE); }

/* Of classes that are read alone: what they compute LLaMA's does, too. */
static bool fits_nothing(const ModelConfig *c) { return c == NULL; }

static bool fits_stablelm(const ModelConfig *c) {
  return is_like_llama(c, NORM_LAYER, true, POSITIONS_ROPE) && !c->bias && c->head_dim == c->dim / c->heads;
}

/* Their norms add 1e-5, and they have no key for that. */
static bool is_like_opt(const ModelConfig *c) {
  return c->norm == NORM_LAYER && c->norm_eps == 1e-5f && !c->gated && heads_are_plain(c);
}

/* What both can say is OPT's with its ReLU, else GPT-2's. */
static bool fits_gpt2(const ModelConfig *c) {
  return is_like_llama(c, NORM_LAYER, false, POSITIONS_LEARNED) && heads_are_plain(c) &&
         !(c->activation == ACTIVATION_RELU && is_like_opt(c));
}

static bool fits_opt(const ModelConfig *c) {
  return !has_encoder(c) && is_like_opt(c) && c->norm_place != NORM_ON_BRANCH && c->positions != POSITIONS_ROPE &&
         !c->head_bias;
}

/* transformers leaves Marian's table of positions out when it saves one, and makes sinusoids when it loads it. */
static bool fits_marian(const ModelConfig *c) {
  return has_encoder(c) && is_like_opt(c) && c->norm_place == NORM_AFTER && c->positions == POSITIONS_SINUSOIDAL;
}

static bool is_before_with_one_vocabulary(const ModelConfig *c, PositionKind places) {
  return has_encoder(c) && is_like_opt(c) && c->norm_place == NORM_BEFORE && c->positions == places &&
         c->source_vocab == c->vocab;
}

static bool fits_pegasus(const ModelConfig *c) { return is_before_with_one_vocabulary(c, POSITIONS_SINUSOIDAL); }
static bool fits_blenderbot(const ModelConfig *c) { return is_before_with_one_vocabulary(c, POSITIONS_LEARNED); }

static bool fits_own(const ModelConfig *c) { return !has_encoder(c); }

/* ---- the table ---- */

#define BASE(...)                                                                                                      \
  { .rope_base = 10000, .norm_eps = 1e-5f, __VA_ARGS__ }

static const Architecture architectures[] = {
    {.class = "LlamaForCausalLM",
     .model_type = "llama",
     .fits = fits_llama,
     .base = BASE(.gated = true),
     .tokens = {1, 2},
     .keys = llama_keys,
     .prefix = "model.",
     .ignored = rope_ignored},
    {.class = "ArceeForCausalLM",
     .model_type = "arcee",
     .fits = fits_arcee,
     .base = BASE(.gated = false),
     .tokens = {128000, 128001},
     .keys = arcee_keys,
     .prefix = "model."},
    {.class = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .fits = fits_smollm3,
     .base = BASE(.gated = true, .positions = POSITIONS_NONE),
     .tokens = {128000, 128001},
     .keys = smollm3_keys,
     .prefix = "model."},
    {.class = "Starcoder2ForCausalLM",
     .model_type = "starcoder2",
     .fits = fits_starcoder2,
     .base = BASE(.norm = NORM_LAYER),
     .tokens = {50256, 50256},
     .keys = starcoder2_keys,
     .names = starcoder2_names,
     .prefix = "model.",
     .ignored = rope_ignored},
    {.class = "StableLmForCausalLM",
     .model_type = "stablelm",
     .fits = fits_stablelm,
     .base = BASE(.norm = NORM_LAYER, .gated = true),
     .tokens = {0, 0},
     .keys = stablelm_keys,
     .prefix = "model.",
     .ignored = rope_ignored},
    {.class = "HeliumForCausalLM",
     .model_type = "helium",
     .fits = fits_nothing,
     .base = BASE(.gated = true),
     .tokens = {1, 2},
     .keys = helium_keys,
     .prefix = "model.",
     .ignored = rope_ignored,
     .interleaved = true},
    {.class = "Ernie4_5ForCausalLM",
     .model_type = "ernie4_5",
     .fits = fits_nothing,
     .base = BASE(.gated = true),
     .tokens = {1, 2},
     .keys = ernie4_5_keys,
     .prefix = "model.",
     .ignored = rope_ignored,
     .interleaved = true},
    {.class = "GPT2LMHeadModel",
     .model_type = "gpt2",
     .fits = fits_gpt2,
     .base = BASE(.norm = NORM_LAYER, .positions = POSITIONS_LEARNED),
     .tokens = {50256, 50256},
     .keys = gpt2_keys,
     .biases = BIAS_LAYERS,
     .names = gpt2_names,
     .prefix = "transformer.",
     .ignored = gpt2_ignored,
     .transposed = true},
    {.class = "OPTForCausalLM",
     .model_type = "opt",
     .fits = fits_opt,
     .base = BASE(.norm = NORM_LAYER, .positions = POSITIONS_LEARNED),
     .tokens = {2, 2},
     .keys = opt_keys,
     .names = opt_names,
     .prefix = "model.",
     .places = true,
     .unused_places = 2},
    {.class = "MarianMTModel",
     .model_type = "marian",
     .fits = fits_marian,
     .base = BASE(.norm = NORM_LAYER, .norm_place = NORM_AFTER, .positions = POSITIONS_SINUSOIDAL),
     .tokens = {58100, 0},
     .keys = marian_keys,
     .biases = BIAS_LAYERS | BIAS_HEAD,
     .names = encoder_decoder_names,
     .prefix = "model.",
     .head_bias = "final_logits_bias",
     .sinusoids = true},
    {.class = "PegasusForConditionalGeneration",
     .model_type = "pegasus",
     .fits = fits_pegasus,
     .base = BASE(.norm = NORM_LAYER, .positions = POSITIONS_SINUSOIDAL),
     .tokens = {0, 1},
     .keys = pegasus_keys,
     .biases = BIAS_LAYERS | BIAS_HEAD,
     .names = encoder_decoder_names,
     .prefix = "model.",
     .head_bias = "final_logits_bias",
     .sinusoids = true,
     .shared = true},
    {.class = "BlenderbotForConditionalGeneration",
     .model_type = "blenderbot",
     .fits = fits_blenderbot,
     .base = BASE(.norm = NORM_LAYER, .positions = POSITIONS_LEARNED),
     .tokens = {1, 2},
     .keys = blenderbot_keys,
     .biases = BIAS_LAYERS | BIAS_HEAD,
     .names = encoder_decoder_names,
     .prefix = "model.",
     .head_bias = "final_logits_bias",
     .shared = true},
    {.class = "InklingPartsForCausalLM",
     .model_type = "inkling_parts",
     .fits = fits_own,
     .own = true,
     .base = BASE(.gated = true),
     .tokens = {-1, -1},
     .keys = own_keys,
     .prefix = "model."},
    {.class = "InklingPartsForConditionalGeneration",
     .model_type = "inkling_parts",
     .fits = has_encoder,
     .own = true,
     .base = BASE(.gated = true),
     .tokens = {-1, -1},
     .keys = own_encoder_keys,
     .prefix = "model."},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

const Architecture *architecture_of(const ModelConfig *config) {
  const Architecture *a = architectures;
  while (!a->fits(config)) a++;
  return a;
}

const Architecture *architecture_named(const char *model_type, const char *class) {
  for (const Architecture *a = architectures; a < architectures + ARCHITECTURES; a++)
    if ((!model_type || strcmp(a->model_type, model_type) == 0) && (!class || strcmp(a->class, class) == 0)) return a;
  return NULL;
}

void architecture_types(char *out, size_t size) {
  size_t used = 0;
  for (int i = 0; i < ARCHITECTURES && used < size; i++)
    if (!i || strcmp(architectures[i].model_type, architectures[i - 1].model_type) != 0)
      used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", architectures[i].model_type);
}

const char *checkpoint_class(const ModelConfig *config, bool *own) {
  const Architecture *a = architecture_of(config);
  *own = a->own;
  return a->class;
}

/* ---- biases ---- */

unsigned architecture_model_biases(const ModelConfig *c) {
  return (c->qkv_bias ? BIAS_QKV : 0u) | (c->bias ? BIAS_OUTPUT | BIAS_MLP : 0u) | (c->head_bias ? BIAS_HEAD : 0u);
}

unsigned architecture_file_biases(const Architecture *a, const ModelConfig *config) {
  const unsigned wanted = architecture_model_biases(config);
  unsigned biases = a->biases;
  for (const ConfigKey *key = a->keys; key->name; key++)
    if (key->kind == KEY_BIASES && key->biases & wanted) biases |= key->biases;
  return biases;
}
