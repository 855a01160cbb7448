/* config.json and generation_config.json, as transformers writes and reads them. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/directory.h"

#include "util/file.h"
#include "util/text.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

/* The shortest decimal that is `value` in fp32: 1e-5f becomes 1e-05, not 9.99999974737875e-06. */
static double shortest(float value) { return strtod(text_number((double)value, true).text, NULL); }

static json_t *token_json(int token) { return token < 0 ? json_null() : json_integer(token); }

static json_t *config_json(const ModelConfig *c, SpecialTokens tokens) {
  const double rope_theta = shortest(c->rope_base);
  /* Readers differ: transformers 5 looks into rope_parameters, 4 and the others at the top level. */
  return json_pack("{s:[s], s:s, s:s, s:s, s:s,"
                   " s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i,"
                   " s:f, s:f, s:{s:s, s:f}, s:n, s:f, s:f,"
                   " s:b, s:b, s:b, s:b, s:o, s:o, s:n}",
                   "architectures", "LlamaForCausalLM", "model_type", "llama", "dtype", "float32", "torch_dtype",
                   "float32", "hidden_act", "silu", "vocab_size", c->vocab, "hidden_size", c->dim, "intermediate_size",
                   c->ffn, "num_hidden_layers", c->layers, "num_attention_heads", c->heads, "num_key_value_heads",
                   c->kv_heads, "head_dim", c->head_dim, "max_position_embeddings", c->ctx, "rms_norm_eps",
                   shortest(c->norm_eps), "rope_theta", rope_theta, "rope_parameters", "rope_type", "default",
                   "rope_theta", rope_theta, "rope_scaling", "attention_dropout", 0.0, "initializer_range", 0.02,
                   "tie_word_embeddings", c->tie, "attention_bias", 0, "mlp_bias", 0, "use_cache", 1, "bos_token_id",
                   token_json(tokens.start), "eos_token_id", token_json(tokens.end), "pad_token_id");
}

/* Writes DIR/NAME; takes `root`, which may be NULL (no memory). */
static bool write_json(const char *dir, const char *name, json_t *root, Error *error) {
  /* 9 digits: enough for any fp32, and few enough that shortest() is not undone */
  char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(root);
  if (!text) return error_memory(error, name);
  const size_t length = strlen(text);
  text[length] = '\n'; /* instead of the terminator: the length is known */
  bool ok = checkpoint_write_file(dir, name, text, length + 1, error);
  free(text);
  return ok;
}

bool checkpoint_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, Error *error) {
  if (tokens.end >= config->vocab || tokens.start >= config->vocab)
    return fail(error, EXIT_INTERNAL, "special tokens %d and %d: one lies outside the vocabulary of %d", tokens.start,
                tokens.end, config->vocab);
  json_t *generation =
      json_pack("{s:o, s:o}", "bos_token_id", token_json(tokens.start), "eos_token_id", token_json(tokens.end));
  if (write_json(dir, CHECKPOINT_CONFIG, config_json(config, tokens), error))
    return write_json(dir, CHECKPOINT_GENERATION_CONFIG, generation, error);
  json_decref(generation);
  return false;
}

/* ---- reading ---- */

enum { MAX_CONFIG_BYTES = 16 << 20 };

typedef struct ConfigReader {
  const json_t *root;
  const char *path;
  Error *error;
} ConfigReader;

__attribute__((format(printf, 2, 3))) static bool refuse(const ConfigReader *r, const char *format, ...) {
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return fail(r->error, EXIT_CHECKPOINT, "%s: %s", r->path, detail);
}

/* The value of a key; NULL when it is absent or null: transformers treats both alike. */
static const json_t *lookup(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

static bool read_int(const ConfigReader *r, const char *key, int fallback, int high, int *out) {
  const json_t *value = lookup(r->root, key);
  *out = fallback;
  if (!value) return true;
  if (!json_is_integer(value)) return refuse(r, "%s is not an integer", key);
  json_int_t number = json_integer_value(value);
  if (number < 1 || number > high) return refuse(r, "%s is %jd; it must be from 1 to %d", key, (intmax_t)number, high);
  *out = (int)number;
  return true;
}

static bool read_real(const ConfigReader *r, const json_t *object, const char *key, float fallback, float *out) {
  const json_t *value = lookup(object, key);
  *out = fallback;
  if (!value) return true;
  if (!json_is_number(value)) return refuse(r, "%s is not a number", key);
  double number = json_number_value(value);
  /* the bounds are in fp32's normal range: beyond them the conversion would give 0 or infinity */
  if (!(number >= 1e-30 && number <= 1e30)) return refuse(r, "%s is %g; it must be positive and finite", key, number);
  *out = (float)number;
  return true;
}

static bool read_flag(const ConfigReader *r, const char *key, bool *out) {
  const json_t *value = lookup(r->root, key);
  *out = false;
  if (!value) return true;
  if (!json_is_boolean(value)) return refuse(r, "%s is neither true nor false", key);
  *out = json_is_true(value);
  return true;
}

/* A string must be one of two (`other` may be NULL), when it is there. */
static bool require_text(const ConfigReader *r, const json_t *value, const char *key, const char *wanted,
                         const char *other) {
  if (!value) return true;
  if (!json_is_string(value)) return refuse(r, "%s is not a string", key);
  const char *given = json_string_value(value);
  if (strcmp(given, wanted) == 0 || (other && strcmp(given, other) == 0)) return true;
  return refuse(r, "%s is \"%s\"; only \"%s\" is supported", key, text_one_line(given, 80).text, wanted);
}

static bool check_architecture(const ConfigReader *r) {
  const json_t *type = lookup(r->root, "model_type"), *list = lookup(r->root, "architectures");
  if (!type && !list) return refuse(r, "it names neither model_type nor architectures; is this a model's config?");
  if (!require_text(r, type, "model_type", "llama", NULL)) return false;
  if (!list) return true;
  if (json_array_size(list) < 1) return refuse(r, "architectures is not a list of names");
  return require_text(r, json_array_get(list, 0), "architectures", "LlamaForCausalLM", NULL);
}

static bool check_features(const ConfigReader *r) {
  static const char *const biases[] = {"attention_bias", "mlp_bias"};
  if (!require_text(r, lookup(r->root, "hidden_act"), "hidden_act", "silu", "swish")) return false;
  for (int i = 0; i < 2; i++) {
    bool bias;
    if (!read_flag(r, biases[i], &bias)) return false;
    if (bias) return refuse(r, "%s is true; models with biases are not supported", biases[i]);
  }
  if (lookup(r->root, "quantization_config"))
    return refuse(r, "the model is quantized; use its original in float32, float16 or bfloat16");
  return true;
}

/* rope_parameters (transformers 5) or rope_scaling (4): both may only say that nothing special is done. */
static bool check_rope(const ConfigReader *r, const char *key) {
  const json_t *rope = lookup(r->root, key);
  if (!rope) return true;
  if (!json_is_object(rope)) return refuse(r, "%s is not an object", key);
  float factor;
  if (!require_text(r, lookup(rope, "rope_type"), "rope_type", "default", NULL)) return false;
  if (!require_text(r, lookup(rope, "type"), "rope type", "default", NULL)) return false;
  if (!read_real(r, rope, "partial_rotary_factor", 1.0f, &factor)) return false;
  return factor == 1.0f || refuse(r, "partial_rotary_factor is %g; only 1 is supported", (double)factor);
}

static bool read_rope(const ConfigReader *r, float *base) {
  if (!check_rope(r, "rope_parameters") || !check_rope(r, "rope_scaling")) return false;
  float top;
  if (!read_real(r, r->root, "rope_theta", 10000.0f, &top)) return false;
  return read_real(r, lookup(r->root, "rope_parameters"), "rope_theta", top, base);
}

static bool read_sizes(const ConfigReader *r, ModelConfig *c) {
  /* the defaults of LlamaConfig */
  if (!read_int(r, "vocab_size", 32000, MODEL_MAX_VOCAB, &c->vocab) ||
      !read_int(r, "hidden_size", 4096, MODEL_MAX_DIM, &c->dim) ||
      !read_int(r, "intermediate_size", 11008, MODEL_MAX_FFN, &c->ffn) ||
      !read_int(r, "num_hidden_layers", 32, MODEL_MAX_LAYERS, &c->layers) ||
      !read_int(r, "num_attention_heads", 32, MODEL_MAX_HEADS, &c->heads) ||
      !read_int(r, "num_key_value_heads", c->heads, MODEL_MAX_HEADS, &c->kv_heads) ||
      !read_int(r, "head_dim", 0, HEAD_DIM_LIMIT, &c->head_dim) ||
      !read_int(r, "max_position_embeddings", 2048, MODEL_MAX_CTX, &c->ctx))
    return false;
  if (c->head_dim != 0) return true;
  if (c->dim % c->heads != 0)
    return refuse(r, "hidden_size %d is not a multiple of num_attention_heads %d, and there is no head_dim", c->dim,
                  c->heads);
  c->head_dim = c->dim / c->heads;
  return true;
}

/* A token id or a list of them, of which the first counts; `fallback` is LlamaConfig's. -1: none. */
static bool read_token(const ConfigReader *r, const char *key, int fallback, int vocab, int *out) {
  const json_t *value = json_object_get(r->root, key);
  *out = -1;
  if (json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0)) return true;
  if (json_is_array(value)) value = json_array_get(value, 0);
  if (value && !json_is_integer(value)) return refuse(r, "%s is not an integer", key);
  json_int_t id = value ? json_integer_value(value) : fallback;
  if (id < -1 || id >= vocab) return refuse(r, "%s %jd lies outside the vocabulary of %d", key, (intmax_t)id, vocab);
  *out = (int)id;
  return true;
}

static bool read_config(const ConfigReader *r, ModelConfig *config, SpecialTokens *tokens) {
  *config = (ModelConfig){.gated = true};
  return check_architecture(r) && check_features(r) && read_sizes(r, config) && read_rope(r, &config->rope_base) &&
         read_real(r, r->root, "rms_norm_eps", 1e-6f, &config->norm_eps) &&
         read_flag(r, "tie_word_embeddings", &config->tie) &&
         read_token(r, "bos_token_id", 1, config->vocab, &tokens->start) &&
         read_token(r, "eos_token_id", 2, config->vocab, &tokens->end);
}

static json_t *parse_config(const char *path, Error *error) {
  MappedFile file;
  if (!file_map(&file, path, EXIT_CHECKPOINT, error)) return NULL;
  json_error_t problem;
  json_t *root = NULL;
  if (file.size == 0 || file.size > MAX_CONFIG_BYTES)
    fail(error, EXIT_CHECKPOINT, "%s has %zu bytes; expected 1 to %d", path, file.size, MAX_CONFIG_BYTES);
  else if (!(root = json_loadb((const char *)file.bytes, file.size, JSON_REJECT_DUPLICATES, &problem)))
    fail(error, EXIT_CHECKPOINT, "%s is not valid JSON (line %d, column %d: %s)", path, problem.line, problem.column,
         text_one_line(problem.text, 80).text);
  file_unmap(&file);
  if (!root || json_is_object(root)) return root;
  fail(error, EXIT_CHECKPOINT, "%s is not a JSON object", path);
  json_decref(root);
  return NULL;
}

bool checkpoint_read_config(const char *dir, ModelConfig *config, SpecialTokens *tokens, Error *error) {
  const CheckpointPath path = checkpoint_path(dir, CHECKPOINT_CONFIG);
  json_t *root = parse_config(path.text, error);
  const ConfigReader reader = {.root = root, .path = path.text, .error = error};
  bool ok = root && read_config(&reader, config, tokens) && model_config_check(config, EXIT_CHECKPOINT, error);
  json_decref(root);
  return ok;
}
