/* The table of classes, checked against transformers 5.23; defaults are those of its configuration classes. */
#include "formats/classes.h"

#include "formats/class_keys.h"

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

/* transformers requires this even where head_dim is given. */
static bool heads_divide(const ModelConfig *c) { return c->dim % c->heads == 0; }

static bool heads_are_plain(const ModelConfig *c) {
  return c->kv_heads == c->heads && heads_divide(c) && c->head_dim == c->dim / c->heads;
}

static bool fits_decoder(const ModelConfig *c) { return !has_encoder(c) && !c->head_bias && heads_divide(c); }

/* For classes that are only read: LLaMA's class computes the same. */
static bool fits_nothing(const ModelConfig *c) { return c == NULL; }

static bool fits_stablelm(const ModelConfig *c) {
  return fits_decoder(c) && !c->bias && c->head_dim == c->dim / c->heads;
}

static bool fits_opt(const ModelConfig *c) { return fits_decoder(c) && heads_are_plain(c); }

/* Models that fit both GPT-2 and OPT, whose epsilon is fixed, are written as OPT if their activation is ReLU. */
static bool fits_gpt2(const ModelConfig *c) {
  return fits_opt(c) && !(c->activation == ACTIVATION_RELU && c->norm_eps == 1e-5f);
}

/* transformers omits Marian's table of positions when it saves a model, and makes sinusoids when it loads one. */
static bool fits_marian(const ModelConfig *c) { return has_encoder(c) && heads_are_plain(c); }

static bool fits_one_vocabulary(const ModelConfig *c) { return fits_marian(c) && c->source_vocab == c->vocab; }

static bool fits_own(const ModelConfig *c) { return !has_encoder(c); }

/* ---- the table ---- */

#define BASE(...)                                                                                                      \
  { .rope_base = 10000, .norm_eps = 1e-5f, __VA_ARGS__ }

static const ModelClass classes[] = {
    {.class = "LlamaForCausalLM",
     .model_type = "llama",
     .fits = fits_decoder,
     .base = BASE(.gated = true),
     .tokens = {1, 2},
     .keys = llama_keys,
     .prefix = "model.",
     .ignored = rope_ignored},
    {.class = "ArceeForCausalLM",
     .model_type = "arcee",
     .fits = fits_decoder,
     .base = BASE(.gated = false),
     .tokens = {128000, 128001},
     .keys = arcee_keys,
     .prefix = "model."},
    {.class = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .fits = fits_decoder,
     .base = BASE(.gated = true, .positions = POSITIONS_NONE),
     .tokens = {128000, 128001},
     .keys = smollm3_keys,
     .prefix = "model."},
    {.class = "Starcoder2ForCausalLM",
     .model_type = "starcoder2",
     .fits = fits_decoder,
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
    {.class = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .fits = fits_nothing,
     .base = BASE(.gated = true),
     .tokens = {-1, -1},
     .keys = qwen2_keys,
     .biases = BIAS_QKV,
     .prefix = "model.",
     .ignored = rope_ignored},
    {.class = "MistralForCausalLM",
     .model_type = "mistral",
     .fits = fits_nothing,
     .base = BASE(.gated = true),
     .tokens = {1, 2},
     .keys = mistral_keys,
     .prefix = "model.",
     .ignored = rope_ignored},
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
     .position_table = true,
     .unused_positions = 2},
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
     .fits = fits_one_vocabulary,
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
     .fits = fits_one_vocabulary,
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
enum { CLASSES = sizeof classes / sizeof *classes };

/* Kinds of keys of which a model may have another value than a class without the key; sizes are compared by `fits`. */
static bool is_component(const ConfigKey *key) {
  return key->kind == KEY_CHOICE || key->kind == KEY_BOOL || key->kind == KEY_REAL;
}

/* Returns whether a class can have the model's value: by a key, or always. */
static bool has_value(const ModelClass *a, const ModelConfig *config, size_t field) {
  const ConfigKey *key = a->keys;
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
  size_t used = 0;
  for (int i = 0; i < CLASSES && used < size; i++)
    if (!i || strcmp(classes[i].model_type, classes[i - 1].model_type) != 0)
      used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", classes[i].model_type);
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
