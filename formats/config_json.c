/* Reading and writing of config.json and generation_config.json in the format of transformers. */
#include "formats/config_keys.h"

#include "formats/model_files.h"
#include "formats/weight_files.h"
#include "util/file.h"
#include "util/json.h"
#include "util/path.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static json_t *token_json(int token) { return token < 0 ? json_null() : json_integer(token); }

/* Adds a value; NULL: memory is out. */
static bool add(json_t *root, const char *key, json_t *value) { return json_object_set_new(root, key, value) == 0; }

/* Returns the key that tells transformers where our own class is. */
static json_t *auto_map(const ModelClass *a, bool encoder) {
  static const char MODULE[] = "modeling_inkling.";
  return json_pack("{s:s+, s:s+}", "AutoConfig", MODULE, "InklingPartsConfig",
                   encoder ? "AutoModelForSeq2SeqLM" : "AutoModelForCausalLM", MODULE, a->class);
}

static json_t *bias_list(unsigned biases) {
  json_t *list = json_array();
  for (int i = 0; i < BIAS_KINDS; i++)
    if (biases & 1u << i && json_array_append_new(list, json_string(bias_names[i])) != 0) {
      json_decref(list);
      return NULL;
    }
  return list;
}

static bool add_keys(json_t *root, const ModelClass *a, const ModelConfig *c) {
  const unsigned missing = class_file_biases(a, c) & ~class_model_biases(c);
  for (const ConfigKey *key = a->keys; key->name; key++)
    if (!config_key_write(root, key, a, c)) return false;
  return !missing || add(root, KEY_MISSING_BIASES, bias_list(missing));
}

/* Adds the tokens of a model with an encoder: the start token of the decoder, and padding for sources, which is
 * masked. */
static bool add_encoder_tokens(json_t *root, const ModelConfig *c, SpecialTokens tokens) {
  return !c->encoder_layers || (add(root, "pad_token_id", token_json(tokens.end < c->source_vocab ? tokens.end : -1)) &&
                                add(root, "decoder_start_token_id", token_json(tokens.start)));
}

static json_t *config_json(const ModelConfig *c, SpecialTokens tokens, TensorType type) {
  const char *dtype = type == TENSOR_BF16 ? "bfloat16" : "float32";
  const ModelClass *a = class_of(c);
  json_t *root = json_pack("{s:[s], s:s}", "architectures", a->class, "model_type", a->model_type);
  if (root && (!a->own || add(root, "auto_map", auto_map(a, c->encoder_layers > 0))) &&
      /* transformers 5 reads dtype; transformers 4 and other programs read torch_dtype. */
      add(root, "dtype", json_string(dtype)) && add(root, "torch_dtype", json_string(dtype)) && add_keys(root, a, c) &&
      add(root, "use_cache", json_true()) && add(root, "bos_token_id", token_json(tokens.start)) &&
      add(root, "eos_token_id", token_json(tokens.end)) && add(root, "pad_token_id", json_null()) &&
      add_encoder_tokens(root, c, tokens) && (!c->encoder_layers || add(root, "forced_eos_token_id", json_null())))
    return root;
  json_decref(root);
  return NULL;
}

static json_t *generation_json(const ModelConfig *c, SpecialTokens tokens) {
  json_t *root =
      json_pack("{s:o, s:o}", "bos_token_id", token_json(tokens.start), "eos_token_id", token_json(tokens.end));
  if (root && add_encoder_tokens(root, c, tokens)) return root;
  json_decref(root);
  return NULL;
}

/* Writes DIR/NAME. Takes ownership of `root`; NULL: memory is out. */
static bool write_json(const char *dir, const char *name, json_t *root, Error *error) {
  /* 9 digits represent every fp32 exactly, and short decimals stay short */
  char *text = json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9), name, error);
  json_decref(root);
  if (!text) return false;
  const size_t length = strlen(text);
  text[length] = '\n'; /* replaces the terminator */
  bool ok = file_write_in(dir, name, text, length + 1, error);
  free(text);
  return ok;
}

bool model_files_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, TensorType type,
                              Error *error) {
  const bool own = class_of(config)->own;
  if (tokens.end >= config->vocab || tokens.start >= config->vocab)
    return fail(error, EXIT_INTERNAL, "special tokens %d and %d: one lies outside the vocabulary of %d", tokens.start,
                tokens.end, config->vocab);
  if (own && !file_write_in(dir, MODEL_FILE_CODE, class_modeling, strlen(class_modeling), error)) return false;
  if (!write_json(dir, MODEL_FILE_CONFIG, config_json(config, tokens, type), error)) return false;
  if (!own) file_remove_in(dir, MODEL_FILE_CODE); /* left by an older run */
  return write_json(dir, MODEL_FILE_GENERATION_CONFIG, generation_json(config, tokens), error);
}

/* ---- reading ---- */

enum { MAX_CONFIG_BYTES = 16 << 20 };

/* Reads the name under a key, or the first name of a list; NULL when the key is absent. */
static bool read_name(const ConfigReader *r, const char *key, bool list, const char **out) {
  const json_t *value = config_lookup(r->root, key);
  *out = NULL;
  if (!value) return true;
  if (list && json_array_size(value) < 1) return config_refuse(r, "%s is not a list of names", key);
  if (list) value = json_array_get(value, 0);
  *out = json_string_value(value);
  return *out || config_refuse(r, "%s is not a string", key);
}

static bool refuse_class(const ConfigReader *r, const char *key, const char *given) {
  char types[300];
  class_types(types, sizeof types);
  return config_refuse(r, "%s is \"%s\"; supported are models whose model_type is one of %s", key,
                       text_one_line(given, 80).text, types);
}

static bool read_class(const ConfigReader *r) {
  const char *type, *class;
  if (!read_name(r, "model_type", false, &type) || !read_name(r, "architectures", true, &class)) return false;
  if (!type && !class)
    return config_refuse(r, "it names neither model_type nor architectures; is this a model's config?");
  const ModelClass *a = class_named(type, class), *other = a ? NULL : class_named(type, NULL);
  if (!a && (!type || !other)) return refuse_class(r, type ? "model_type" : "architectures", type ? type : class);
  if (!a)
    return config_refuse(r, "architectures is \"%s\"; of model_type \"%s\" only \"%s\" is supported",
                         text_one_line(class, 80).text, other->model_type, other->class);
  r->out->class = a;
  r->out->config = a->base;
  r->out->biases = a->biases;
  return true;
}

static bool read_keys(const ConfigReader *r) {
  if (config_lookup(r->root, "quantization_config"))
    return config_refuse(r, "the model is quantized; use its original in float32, float16 or bfloat16");
  if (json_is_false(config_lookup(r->root, "is_causal")))
    return config_refuse(r, "is_causal is false; only models whose attention is causal are supported");
  for (const ConfigKey *key = r->out->class->keys; key->name; key++)
    if (!config_key_read(r, key)) return false;
  return true;
}

/* Derives sizes without keys from other sizes. */
static bool complete_sizes(const ConfigReader *r) {
  ModelConfig *c = &r->out->config;
  if (!c->vocab) c->vocab = c->source_vocab;
  if (!c->source_vocab && c->encoder_layers) c->source_vocab = c->vocab;
  if (!c->ffn) c->ffn = 4 * c->dim;
  if (!c->kv_heads) c->kv_heads = c->heads;
  if (c->head_dim) return true;
  if (c->dim % c->heads != 0)
    return config_refuse(r, "the width %d is not a multiple of the %d heads, and there is no head_dim", c->dim,
                         c->heads);
  c->head_dim = c->dim / c->heads;
  return true;
}

/* Returns the flag of a name in a list of biases; 0: unknown name. */
static unsigned bias_kind(const json_t *name) {
  for (unsigned i = 0; i < BIAS_KINDS; i++)
    if (json_is_string(name) && strcmp(json_string_value(name), bias_names[i]) == 0) return 1u << i;
  return 0;
}

/* Finds the biases of the model: those of the file without those that are listed as missing. */
static bool read_biases(const ConfigReader *r) {
  const json_t *list = config_lookup(r->root, KEY_MISSING_BIASES);
  unsigned biases = r->out->biases;
  if (list && !json_is_array(list)) return config_refuse(r, KEY_MISSING_BIASES " is not a list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const unsigned kind = bias_kind(json_array_get(list, i));
    if (!kind)
      return config_refuse(r, KEY_MISSING_BIASES " has a name other than \"qkv\", \"output\", \"mlp\" and \"head\"");
    biases &= ~kind;
  }
  r->out->config.qkv_bias = (biases & BIAS_QKV) != 0;
  r->out->config.bias = (biases & (BIAS_OUTPUT | BIAS_MLP)) != 0;
  r->out->config.head_bias = (biases & BIAS_HEAD) != 0;
  return true;
}

/* Reads a token id, or the first of a list; -1: none. */
static bool read_token(const ConfigReader *r, const char *key, int absent, int *out) {
  const int vocab = r->out->config.vocab;
  const json_t *value = json_object_get(r->root, key);
  *out = value || absent >= vocab ? -1 : absent;
  if (!value || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0)) return true;
  if (json_is_array(value)) value = json_array_get(value, 0);
  if (!json_is_integer(value)) return config_refuse(r, "%s is not an integer", key);
  const json_int_t id = json_integer_value(value);
  if (id < -1 || id >= vocab)
    return config_refuse(r, "%s %jd lies outside the vocabulary of %d", key, (intmax_t)id, vocab);
  *out = (int)id;
  return true;
}

/* Reads the special tokens. With an encoder, text of the decoder begins with decoder_start_token_id, if there is
 * one. */
static bool read_tokens(const ConfigReader *r) {
  const SpecialTokens absent = r->out->class->tokens;
  SpecialTokens *out = &r->out->tokens;
  const bool encoder = r->out->config.encoder_layers > 0;
  return read_token(r, "eos_token_id", absent.end, &out->end) &&
         read_token(r, encoder ? "decoder_start_token_id" : "bos_token_id", absent.start, &out->start) &&
         (!encoder || out->start >= 0 || read_token(r, "bos_token_id", -1, &out->start));
}

static bool read_config(const ConfigReader *r) {
  Error problem = {0};
  if (!read_class(r) || !read_keys(r) || !complete_sizes(r) || !read_biases(r) || !read_tokens(r)) return false;
  return model_config_check(&r->out->config, EXIT_CHECKPOINT, &problem) || config_refuse(r, "%s", problem.text);
}

bool config_file_read(const char *dir, ConfigFile *out, Error *error) {
  const PathText path = path_in(dir, MODEL_FILE_CONFIG);
  json_t *root = model_files_read_json(path.text, MAX_CONFIG_BYTES, error);
  const ConfigReader reader = {.root = root, .path = path.text, .out = out, .error = error};
  bool ok = root && (json_is_object(root) || fail(error, EXIT_CHECKPOINT, "%s is not a JSON object", path.text)) &&
            read_config(&reader);
  json_decref(root);
  return ok;
}
