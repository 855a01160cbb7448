/* Reading and writing of config.json and generation_config.json in the format of transformers. */
#include "files/formats/weight_reader.h"
#include "base/json.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

static const char PART[] = "partial_rotary_factor"; /* in rope_parameters */

static void *field(ModelConfig *c, const ConfigKey *key) { return (char *)c + key->field; }
static int *int_field(ModelConfig *c, const ConfigKey *key) { return field(c, key); }
static float *real_field(ModelConfig *c, const ConfigKey *key) { return field(c, key); }

/* Returns the JSON value of the key's text; NULL without memory. */
static json_t *constant(const ConfigKey *key, Error *error) {
  return json_parse(key->text, strlen(key->text), JSON_DECODE_ANY, NULL, key->name, error);
}

static bool is_flag(const char *text) { return strcmp(text, "true") == 0 || strcmp(text, "false") == 0; }

/* Returns the choice with the index `i`; its text is NULL after the last one. */
static Choice choice_at(const ConfigKey *key, int i) {
  return key->names ? (Choice){key->names[i], i} : key->choices[i];
}

/* Returns the value with that name; -1: there is none. */
static int find_choice(const ConfigKey *key, const char *text, bool flag) {
  Choice c;
  for (int i = 0; c = choice_at(key, i), c.text; i++)
    if (strcmp(c.text, text) == 0 && is_flag(c.text) == flag) return c.value;
  return -1;
}

/* Returns whether the model has the value of a class whose file lacks the key. */
static bool is_default(const ConfigKey *key, ModelConfig *c) {
  if (key->kind == KEY_MIXERS) return model_same_mixers(c->mixers, "", c->layers);
  return find_choice(key, key->text, is_flag(key->text)) == *int_field(c, key);
}

/* ---- writing: json_text() reports it when memory was out for a part of the object ---- */

/* Returns the shortest decimal that is `value` in fp32: 1e-5f becomes 1e-05, not 9.99999974737875e-06. */
static json_t *real_json(float value) { return json_real(strtod(text_number((double)value, true).text, NULL)); }

static json_t *choice_json(const ConfigKey *key, int value) {
  Choice choice;
  for (int i = 0; choice = choice_at(key, i), choice.text; i++)
    if (choice.value == value)
      return is_flag(choice.text) ? json_boolean(strcmp(choice.text, "true") == 0) : json_string(choice.text);
  return NULL;
}

static json_t *rope_layers(const ModelConfig *c) {
  json_t *list = json_array();
  for (int i = 0; i < c->layers; i++) {
    const bool rope = c->positions == POSITIONS_ROPE && model_mixer(c, i) != MIXER_NOPE;
    json_array_append_new(list, json_integer(rope));
  }
  return list;
}

static json_t *mixers_json(const ConfigKey *key, const ModelConfig *c) {
  json_t *list = json_array();
  for (int i = 0; i < c->layers; i++) json_array_append_new(list, choice_json(key, (int)model_mixer(c, i)));
  return list;
}

/* Returns the rotated fraction of a head with 6 digits, rounded up: the classes round its product with the head size
 * down. */
static json_t *rotary_json(const ModelConfig *c) {
  return json_real(ceil(1e6 * model_rotary_dims(c) / c->head_dim) / 1e6);
}

/* Returns rope_parameters. */
static json_t *rope_json(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  return json_pack("{s:s, s:o, s:o*}", "rope_type", "default", "rope_theta", real_json(*real_field(c, key)), PART,
                   class_key(a, KEY_ROTARY) ? rotary_json(c) : NULL);
}

static json_t *key_json(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  Error memory = {0};
  switch (key->kind) {
  case KEY_SET:
  case KEY_FIXED: return constant(key, &memory);
  case KEY_INT:
  case KEY_INT_AGAIN: return json_integer(*int_field(c, key));
  case KEY_REAL:
  case KEY_THETA: return real_json(*real_field(c, key));
  case KEY_BOOL:
  case KEY_BOOL_AGAIN: return json_boolean(*int_field(c, key));
  case KEY_CHOICE: return choice_json(key, *int_field(c, key));
  case KEY_BIASES: return json_boolean((class_file_biases(a, c) & key->biases) != 0);
  case KEY_ROPE: return rope_json(key, a, c);
  case KEY_ROTARY: return rotary_json(c);
  case KEY_SCALING:
  case KEY_WINDOW: return json_null();
  case KEY_ROPE_LAYERS: return rope_layers(c);
  case KEY_MIXERS: return mixers_json(key, c);
  case KEY_FFN_ADJUSTED: return json_false();
  }
  return NULL;
}

static json_t *token_json(int token) { return token < 0 ? json_null() : json_integer(token); }

static json_t *ends_json(SpecialTokens tokens) {
  if (!tokens.others.count) return token_json(tokens.end);
  json_t *list = json_pack("[i]", tokens.end);
  for (int i = 0; i < tokens.others.count; i++) json_array_append_new(list, json_integer(tokens.others.ids[i]));
  return list;
}

/* Returns the key that tells transformers where our own class is. */
static json_t *auto_map(const ModelClass *a, bool encoder) {
  static const char MODULE[] = "modeling_inkling.";
  return json_pack("{s:s+, s:s+}", "AutoConfig", MODULE, "InklingPartsConfig",
                   encoder ? "AutoModelForSeq2SeqLM" : "AutoModelForCausalLM", MODULE, a->class);
}

static json_t *bias_list(unsigned biases) {
  json_t *list = json_array();
  for (int i = 0; i < BIAS_KINDS; i++)
    if (biases & 1u << i) json_array_append_new(list, json_string(bias_names[i]));
  return list;
}

static void add_keys(json_t *root, const ModelClass *a, const ModelConfig *config) {
  ModelConfig c = *config;
  const unsigned missing = class_file_biases(a, &c) & ~class_model_biases(&c);
  for (const ConfigKey *key = a->keys; key->name; key++) {
    if (key->optional && is_default(key, &c)) continue;
    json_object_set_new(root, key->name, key_json(key, a, &c));
  }
  if (missing) json_object_set_new(root, KEY_MISSING_BIASES, bias_list(missing));
}

/* Adds the tokens of a model with an encoder: the start token of the decoder, and padding for sources, which is
 * masked. */
static void add_encoder_tokens(json_t *root, const ModelConfig *c, SpecialTokens tokens) {
  json_object_set_new(root, "pad_token_id", token_json(tokens.end < c->source_vocab ? tokens.end : -1));
  json_object_set_new(root, "decoder_start_token_id", token_json(tokens.start));
}

static json_t *config_json(const ModelConfig *c, SpecialTokens tokens, TensorType type) {
  const char *dtype = type == TENSOR_BF16 ? "bfloat16" : "float32";
  const ModelClass *a = class_of(c);
  /* transformers 5 reads dtype; transformers 4 and other programs read torch_dtype */
  json_t *root =
      json_pack("{s:[s], s:s, s:o*, s:s, s:s}", "architectures", a->class, "model_type", a->model_type, "auto_map",
                a->own ? auto_map(a, c->encoder_layers > 0) : NULL, "dtype", dtype, "torch_dtype", dtype);
  add_keys(root, a, c);
  json_object_set_new(root, "use_cache", json_true());
  json_object_set_new(root, "bos_token_id", token_json(tokens.start));
  json_object_set_new(root, "eos_token_id", token_json(tokens.end));
  json_object_set_new(root, "pad_token_id", json_null());
  if (!c->encoder_layers) return root;
  add_encoder_tokens(root, c, tokens);
  json_object_set_new(root, "forced_eos_token_id", json_null());
  return root;
}

static json_t *generation_json(const ModelConfig *c, SpecialTokens tokens) {
  json_t *root = json_pack("{s:o, s:o}", "bos_token_id", token_json(tokens.start), "eos_token_id", ends_json(tokens));
  if (c->encoder_layers) add_encoder_tokens(root, c, tokens);
  return root;
}

/* Writes DIR/NAME. Takes ownership of `root`. */
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

/* ---- reading keys ---- */

/* The state of reading a config.json. */
typedef struct ConfigReader {
  const json_t *root;
  const char *path;
  ConfigFile *out;
  Error *error;
} ConfigReader;

/* Fills EXIT_CHECKPOINT with the name of the file and the text; returns false. */
__attribute__((format(printf, 2, 3))) static bool refuse(const ConfigReader *r, const char *format, ...) {
  char detail[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return fail(r->error, EXIT_CHECKPOINT, "%s: %s", r->path, detail);
}

/* Returns the value of a key; NULL when it is absent or null: transformers treats both alike. */
static const json_t *lookup(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

/* Formats a value for a message. */
static OneLine shown(const json_t *value) {
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const OneLine line = text_one_line(text ? text : "?", 80);
  free(text);
  return line;
}

static bool read_int(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = lookup(r->root, key->name);
  int *out = int_field(&r->out->config, key);
  *out = key->null_follows && json_object_get(r->root, key->name) ? 0 : (int)key->absent;
  if (!value) return true;
  if (!json_is_integer(value)) return refuse(r, "%s is not an integer", key->name);
  const json_int_t number = json_integer_value(value);
  if (number < 1 || number > key->high)
    return refuse(r, "%s is %jd; it must be from 1 to %d", key->name, (intmax_t)number, key->high);
  *out = (int)number;
  return true;
}

static bool read_int_again(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = lookup(r->root, key->name);
  const int wanted = *int_field(&r->out->config, key), absent = key->absent != 0 ? (int)key->absent : wanted;
  if (value ? json_is_integer(value) && json_integer_value(value) == wanted : absent == wanted) return true;
  if (value)
    return refuse(r, "%s is %s; only %d, as %s, is supported", key->name, shown(value).text, wanted, key->text);
  return refuse(r, "%s is %d when it is absent; only %d, as %s, is supported", key->name, absent, wanted, key->text);
}

static bool read_number(const ConfigReader *r, const json_t *object, const char *key, double absent, float *out) {
  const json_t *value = lookup(object, key);
  *out = (float)absent;
  if (!value) return true;
  if (!json_is_number(value)) return refuse(r, "%s is not a number", key);
  const double number = json_number_value(value);
  /* the bounds are in fp32's normal range: beyond them the conversion would give 0 or infinity */
  if (!(number >= 1e-30 && number <= 1e30)) return refuse(r, "%s is %g; it must be positive and finite", key, number);
  *out = (float)number;
  return true;
}

static bool read_flag(const ConfigReader *r, const ConfigKey *key, bool *out) {
  const json_t *value = lookup(r->root, key->name);
  *out = key->absent != 0;
  if (!value) return true;
  if (!json_is_boolean(value)) return refuse(r, "%s is neither true nor false", key->name);
  *out = json_is_true(value);
  return true;
}

static bool read_bool(const ConfigReader *r, const ConfigKey *key) {
  bool given;
  if (!read_flag(r, key, &given)) return false;
  *int_field(&r->out->config, key) = given;
  return true;
}

static bool read_bool_again(const ConfigReader *r, const ConfigKey *key) {
  const bool wanted = *int_field(&r->out->config, key);
  bool given;
  return read_flag(r, key, &given) &&
         (given == wanted || refuse(r, "%s is %s; only %s, as %s, is supported", key->name, given ? "true" : "false",
                                    wanted ? "true" : "false", key->text));
}

static bool read_biases(const ConfigReader *r, const ConfigKey *key) {
  bool has;
  if (!read_flag(r, key, &has)) return false;
  if (has) r->out->biases |= key->biases;
  return true;
}

static bool read_fixed(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = lookup(r->root, key->name);
  if (!value) return true;
  json_t *wanted = constant(key, r->error);
  const bool same = json_equal(value, wanted);
  json_decref(wanted);
  return same || refuse(r, "%s is %s; only %s is supported", key->name, shown(value).text, key->text);
}

/* Returns whether a layer has the window of KEY_WINDOW. */
static bool has_window(const ConfigReader *r, const ConfigKey *key, int layer) {
  const json_t *types = lookup(r->root, "layer_types"), *first = lookup(r->root, "max_window_layers");
  const char *type = json_string_value(json_array_get(types, (size_t)layer));
  if (!key->text) return true;
  if (types) return !type || strcmp(type, "full_attention") != 0;
  if (class_key(r->out->class, KEY_ROPE_LAYERS))
    return r->out->config.positions != POSITIONS_ROPE || model_mixer(&r->out->config, layer) == MIXER_NOPE;
  return layer >= (json_is_integer(first) ? json_integer_value(first) : key->high);
}

/* Reads the size of an attention window. A window of at least the context size has no effect. */
static bool read_window(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = json_object_get(r->root, key->name);
  const json_int_t window = value ? json_integer_value(value) : (json_int_t)key->absent;
  const ModelConfig *c = &r->out->config;
  if (key->text && !json_is_true(lookup(r->root, key->text))) return true;
  if (value ? json_is_null(value) : !window) return true;
  if (value && !json_is_integer(value))
    return refuse(r, "%s is %s, which is not an integer", key->name, shown(value).text);
  int layer = 0;
  while (layer < c->layers && !has_window(r, key, layer)) layer++;
  return window >= c->ctx || layer == c->layers ||
         refuse(r,
                "layer %d attends to a window of %lld tokens (%s%s), less than the context of %d; windows are not "
                "supported",
                layer, (long long)window, key->name, value ? "" : ", by default", c->ctx);
}

/* Refuses a value and lists the supported ones, each by its first name. */
static bool refuse_choice(const ConfigReader *r, const ConfigKey *key, const char *given) {
  char names[200] = "";
  Choice c, last = {NULL, -1};
  for (int i = 0; c = choice_at(key, i), c.text; last = c, i++)
    if (c.value != last.value) text_append(names, sizeof names, "%s%s", *names ? ", " : "", c.text);
  return refuse(r, "%s is %s; supported: %s", key->name, given, names);
}

static bool read_choice(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = lookup(r->root, key->name);
  const bool flag = value ? json_is_boolean(value) : is_flag(key->text);
  const char *text = !value ? key->text : flag ? (json_is_true(value) ? "true" : "false") : json_string_value(value);
  const int found = text ? find_choice(key, text, flag) : -1;
  if (found < 0) return refuse_choice(r, key, value ? shown(value).text : text);
  *int_field(&r->out->config, key) = found;
  return true;
}

/* ---- rotary positions ---- */

/* Returns whether a factor of 1 switches the scaling off. */
static bool is_unscaled(const json_t *rope, const char *type) {
  const bool yarn = strcmp(type, "yarn") == 0 && !lookup(rope, "attention_factor") && !lookup(rope, "mscale") &&
                    !lookup(rope, "mscale_all_dim");
  return json_number_value(lookup(rope, "factor")) == 1 &&
         (yarn || strcmp(type, "linear") == 0 || strcmp(type, "llama3") == 0);
}

/* Refuses rope types that change positions within the context; "dynamic" changes only those beyond it. */
static bool check_rope_type(const ConfigReader *r, const json_t *rope) {
  const char *const key = lookup(rope, "rope_type") ? "rope_type" : "type"; /* of transformers before 4.45 */
  const json_t *value = lookup(rope, key);
  const char *type = json_string_value(value);
  if (!value) return true;
  if (!type) return refuse(r, "%s is not a string", key);
  return strcmp(type, "default") == 0 || strcmp(type, "dynamic") == 0 || is_unscaled(rope, type) ||
         refuse(r, "%s is %s; scaling of rotary positions within the context is not supported", key, shown(value).text);
}

static bool check_scaling(const ConfigReader *r, const char *key) {
  const json_t *rope = lookup(r->root, key);
  if (!rope) return true;
  if (!json_is_object(rope)) return refuse(r, "%s is not an object", key);
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)rope, name, value) {
    if (json_is_object(value))
      return refuse(r, "%s has parameters for kinds of layers (%.40s); only one set for all layers is supported", key,
                    name);
  }
  return check_rope_type(r, rope);
}

/* Reads the rotated fraction of a head, which in rope_parameters takes precedence. */
static bool read_rotary(const ConfigReader *r, const ConfigKey *key) {
  float *part = &r->out->rotated;
  return read_number(r, r->root, key->name, key->absent, part) &&
         read_number(r, lookup(r->root, "rope_parameters"), PART, (double)*part, part) &&
         (*part <= 1 || refuse(r, "%s is %g; it must not be above 1", key->name, (double)*part));
}

/* Reads the base, and refuses a rotated fraction of a head, in rope_parameters or beside it, unless the class reads
 * it. */
static bool read_rope(const ConfigReader *r, const ConfigKey *key) {
  const json_t *rope = lookup(r->root, key->name);
  float *base = real_field(&r->out->config, key), part;
  if (!check_scaling(r, key->name) || !read_number(r, rope, "rope_theta", (double)*base, base)) return false;
  if (key->kind == KEY_SCALING || class_key(r->out->class, KEY_ROTARY)) return true;
  if (!read_number(r, r->root, PART, key->absent, &part) || !read_number(r, rope, PART, (double)part, &part))
    return false;
  return part == 1.0f || refuse(r, "%s is %g; only 1 is supported", PART, (double)part);
}

/* Returns whether a layer has RoPE; -1: the list has no integer for it. */
static int layer_rope(const json_t *list, json_int_t interval, int layer) {
  if (!list) return (layer + 1) % interval != 0;
  const json_t *value = json_array_get(list, (size_t)layer);
  return json_is_integer(value) ? json_integer_value(value) != 0 : -1;
}

static bool read_rope_layers(const ConfigReader *r, const ConfigKey *key) {
  static const char INTERVAL[] = "no_rope_layer_interval";
  ModelConfig *c = &r->out->config;
  const json_t *list = lookup(r->root, key->name), *every = lookup(r->root, INTERVAL);
  if (list && !json_is_array(list)) return refuse(r, "%s is not a list", key->name);
  if (every && (!json_is_integer(every) || json_integer_value(every) < 1))
    return refuse(r, "%s is not a positive integer", INTERVAL);
  const json_int_t interval = every ? json_integer_value(every) : 4;
  c->positions = POSITIONS_NONE;
  for (int i = 0; i < c->layers; i++) {
    const int rope = layer_rope(list, interval, i);
    if (rope < 0) return refuse(r, "%s does not have an integer for each layer", key->name);
    if (rope) c->positions = POSITIONS_ROPE;
    c->mixers[i] = rope ? MIXER_ATTENTION : MIXER_NOPE;
  }
  c->mixers[c->positions == POSITIONS_ROPE ? c->layers : 0] = '\0';
  return true;
}

/* ---- mixers ---- */

/* Reads the numbers of the layers with attention; the others have convolutions. */
static bool read_attention_layers(const ConfigReader *r, const char *key, const json_t *list) {
  ModelConfig *c = &r->out->config;
  if (!json_is_array(list)) return refuse(r, "%s is not a list", key);
  memset(c->mixers, MIXER_CONVOLUTION, (size_t)c->layers);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *value = json_array_get(list, i);
    const json_int_t layer = json_is_integer(value) ? json_integer_value(value) : -1;
    if (layer < 0 || layer >= c->layers)
      return refuse(r, "%s has %s, which is none of the layers 0 to %d", key, shown(value).text, c->layers - 1);
    c->mixers[layer] = MIXER_ATTENTION;
  }
  return true;
}

static bool read_mixers(const ConfigReader *r, const ConfigKey *key) {
  const json_t *list = lookup(r->root, key->name), *attention = key->text ? lookup(r->root, key->text) : NULL;
  ModelConfig *c = &r->out->config;
  if (!list) return !attention || read_attention_layers(r, key->text, attention);
  if (!json_is_array(list)) return refuse(r, "%s is not a list", key->name);
  if (json_array_size(list) != (size_t)c->layers)
    return refuse(r, "%s has %zu entries for %d layers", key->name, json_array_size(list), c->layers);
  for (int i = 0; i < c->layers; i++) {
    const json_t *value = json_array_get(list, (size_t)i);
    const int mixer = json_is_string(value) ? find_choice(key, json_string_value(value), false) : -1;
    if (mixer < 0) return refuse_choice(r, key, shown(value).text);
    c->mixers[i] = (char)mixer;
  }
  return true;
}

/* Derives the width of the MLP as class Lfm2MLP does: 2/3 of intermediate_size; with a factor multiplied by it, in
 * double precision, and rounded up to a multiple of a block. */
static bool read_adjusted_ffn(const ConfigReader *r, const ConfigKey *key) {
  static const char FACTOR[] = "block_ffn_dim_multiplier", BLOCK[] = "block_multiple_of";
  const json_t *multiple = lookup(r->root, BLOCK), *factor = lookup(r->root, FACTOR);
  const json_int_t block = multiple ? json_integer_value(multiple) : 256;
  int *ffn = int_field(&r->out->config, key);
  bool adjust;
  float valid;
  if (!read_flag(r, key, &adjust) || !read_number(r, r->root, FACTOR, 1, &valid)) return false;
  if (!adjust) return true;
  if (block < 1 || block > key->high)
    return refuse(r, "%s is %s; it must be from 1 to %d", BLOCK, shown(multiple).text, key->high);
  const double width = (factor ? json_number_value(factor) : 1) * (2 * *ffn / 3);
  if (!(width >= 1 && width <= key->high))
    return refuse(r, "%s makes the MLP %g wide; it must be from 1 to %d", key->name, width, key->high);
  const bool rounded = factor || !json_object_get(r->root, FACTOR); /* not with null */
  *ffn = rounded ? (int)(((json_int_t)width + block - 1) / block * block) : (int)width;
  return true;
}

static bool read_key(const ConfigReader *r, const ConfigKey *row) {
  ConfigKey found = *row;
  const ConfigKey *key = &found;
  if (row->also && lookup(r->root, row->also)) found.name = row->also;
  switch (key->kind) {
  case KEY_SET: return true;
  case KEY_FIXED: return read_fixed(r, key);
  case KEY_INT: return read_int(r, key);
  case KEY_INT_AGAIN: return read_int_again(r, key);
  case KEY_REAL:
  case KEY_THETA: return read_number(r, r->root, key->name, key->absent, real_field(&r->out->config, key));
  case KEY_BOOL: return read_bool(r, key);
  case KEY_BOOL_AGAIN: return read_bool_again(r, key);
  case KEY_CHOICE: return read_choice(r, key);
  case KEY_BIASES: return read_biases(r, key);
  case KEY_ROPE:
  case KEY_SCALING: return read_rope(r, key);
  case KEY_ROTARY: return read_rotary(r, key);
  case KEY_WINDOW: return read_window(r, key);
  case KEY_ROPE_LAYERS: return read_rope_layers(r, key);
  case KEY_MIXERS: return read_mixers(r, key);
  case KEY_FFN_ADJUSTED: return read_adjusted_ffn(r, key);
  }
  return false;
}

/* ---- reading a file ---- */

enum { MAX_CONFIG_BYTES = 16 << 20 };

/* Reads the name under a key, or the first name of a list; NULL when the key is absent. */
static bool read_name(const ConfigReader *r, const char *key, bool list, const char **out) {
  const json_t *value = lookup(r->root, key);
  *out = NULL;
  if (!value) return true;
  if (list && json_array_size(value) < 1) return refuse(r, "%s is not a list of names", key);
  if (list) value = json_array_get(value, 0);
  *out = json_string_value(value);
  return *out || refuse(r, "%s is not a string", key);
}

static bool refuse_class(const ConfigReader *r, const char *key, const char *given) {
  char types[300];
  class_types(types, sizeof types);
  return refuse(r, "%s is \"%s\"; supported are models whose model_type is one of %s", key,
                text_one_line(given, 80).text, types);
}

static bool read_class(const ConfigReader *r) {
  const char *type, *class;
  if (!read_name(r, "model_type", false, &type) || !read_name(r, "architectures", true, &class)) return false;
  if (!type && !class) return refuse(r, "it names neither model_type nor architectures; is this a model's config?");
  const ModelClass *a = class_named(type, class), *other = a ? NULL : class_named(type, NULL);
  if (!a && (!type || !other)) return refuse_class(r, type ? "model_type" : "architectures", type ? type : class);
  if (!a)
    return refuse(r, "architectures is \"%s\"; of model_type \"%s\" only \"%s\" is supported",
                  text_one_line(class, 80).text, other->model_type, other->class);
  r->out->class = a;
  r->out->config = a->base;
  r->out->biases = a->biases;
  return true;
}

static bool read_keys(const ConfigReader *r) {
  if (lookup(r->root, "quantization_config"))
    return refuse(r, "the model is quantized; use its original in float32, float16 or bfloat16");
  if (json_is_false(lookup(r->root, "is_causal")))
    return refuse(r, "is_causal is false; only models whose attention is causal are supported");
  for (const ConfigKey *key = r->out->class->keys; key->name; key++)
    if (!read_key(r, key)) return false;
  return true;
}

/* Derives the rotated numbers of a head as the classes do. */
static bool complete_rotary(const ConfigReader *r) {
  ModelConfig *c = &r->out->config;
  const int rotated = (int)((float)c->head_dim * r->out->rotated);
  if (r->out->rotated == 0 || rotated == c->head_dim || c->positions != POSITIONS_ROPE) return true;
  c->rotary_dims = rotated;
  return (rotated >= 2 && rotated % 2 == 0) ||
         refuse(r, "%s is %g, which is %d numbers of a head of %d; only an even number from 2 on is supported", PART,
                (double)r->out->rotated, rotated, c->head_dim);
}

/* Derives sizes without keys from other sizes. */
static bool complete_sizes(const ConfigReader *r) {
  ModelConfig *c = &r->out->config;
  model_shorten_mixers(c->mixers);
  if (!c->vocab) c->vocab = c->source_vocab;
  if (!c->source_vocab && c->encoder_layers) c->source_vocab = c->vocab;
  if (!c->ffn) c->ffn = 4 * c->dim;
  if (!c->kv_heads) c->kv_heads = c->heads;
  if (!c->head_dim && c->dim % c->heads != 0)
    return refuse(r, "the width %d is not a multiple of the %d heads, and there is no head_dim", c->dim, c->heads);
  if (!c->head_dim) c->head_dim = c->dim / c->heads;
  return complete_rotary(r);
}

/* Returns the flag of a name in a list of biases; 0: unknown name. */
static unsigned bias_kind(const json_t *name) {
  for (unsigned i = 0; i < BIAS_KINDS; i++)
    if (json_is_string(name) && strcmp(json_string_value(name), bias_names[i]) == 0) return 1u << i;
  return 0;
}

/* Finds the biases of the model: those of the file without those that are listed as missing. */
static bool find_biases(const ConfigReader *r) {
  const json_t *list = lookup(r->root, KEY_MISSING_BIASES);
  unsigned biases = r->out->biases;
  if (list && !json_is_array(list)) return refuse(r, KEY_MISSING_BIASES " is not a list");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const unsigned kind = bias_kind(json_array_get(list, i));
    if (!kind) return refuse(r, KEY_MISSING_BIASES " has a name other than \"qkv\", \"output\", \"mlp\" and \"head\"");
    biases &= ~kind;
  }
  r->out->config.qkv_bias = (biases & BIAS_QKV) != 0;
  r->out->config.bias = (biases & (BIAS_OUTPUT | BIAS_MLP)) != 0;
  r->out->config.head_bias = (biases & BIAS_HEAD) != 0;
  return true;
}

/* Reads a token id; -1: none. */
static bool read_token(const ConfigReader *r, const char *key, int absent, int *out) {
  const int vocab = r->out->config.vocab;
  const json_t *value = json_object_get(r->root, key);
  *out = value || absent >= vocab ? -1 : absent;
  if (!value || json_is_null(value)) return true;
  if (!json_is_integer(value)) return refuse(r, "%s is not an integer", key);
  const json_int_t id = json_integer_value(value);
  if (id < -1 || id >= vocab) return refuse(r, "%s %jd lies outside the vocabulary of %d", key, (intmax_t)id, vocab);
  *out = (int)id;
  return true;
}

static bool add_end(const ConfigReader *r, json_int_t id) {
  SpecialTokens *tokens = &r->out->tokens;
  EndTokens *others = &tokens->others;
  bool known = id == tokens->end;
  for (int i = 0; i < others->count; i++) known = known || id == others->ids[i];
  if (known || id < 0 || id >= r->out->config.vocab) return true; /* no text has a token outside the vocabulary */
  if (others->count == END_TOKENS - 1) return refuse(r, "eos_token_id lists more than %d tokens", END_TOKENS);
  if (tokens->end < 0) tokens->end = (int)id;
  else others->ids[others->count++] = (int32_t)id;
  return true;
}

/* Adds the end tokens of a file, an id or a list. */
static bool read_ends(const ConfigReader *r, json_int_t absent) {
  const json_t *value = json_object_get(r->root, "eos_token_id");
  const bool list = json_is_array(value);
  if (!value || json_is_null(value)) return value || add_end(r, absent);
  for (size_t i = 0; i < (list ? json_array_size(value) : 1); i++) {
    const json_t *id = list ? json_array_get(value, i) : value;
    if (!json_is_integer(id)) return refuse(r, "eos_token_id is not an integer");
    if (!add_end(r, json_integer_value(id))) return false;
  }
  return true;
}

/* Reads the special tokens. With an encoder, text of the decoder begins with decoder_start_token_id, if there is
 * one. */
static bool read_tokens(const ConfigReader *r) {
  const SpecialTokens absent = r->out->class->tokens;
  SpecialTokens *out = &r->out->tokens;
  const bool encoder = r->out->config.encoder_layers > 0;
  *out = (SpecialTokens){.end = -1};
  return read_ends(r, absent.end) &&
         read_token(r, encoder ? "decoder_start_token_id" : "bos_token_id", absent.start, &out->start) &&
         (!encoder || out->start >= 0 || read_token(r, "bos_token_id", -1, &out->start));
}

static bool read_config(const ConfigReader *r) {
  Error problem = {0};
  if (!read_class(r) || !read_keys(r) || !complete_sizes(r) || !find_biases(r) || !read_tokens(r)) return false;
  return model_config_check(&r->out->config, EXIT_CHECKPOINT, &problem) || refuse(r, "%s", problem.text);
}

json_t *model_files_read_json(const char *path, size_t limit, Error *error) {
  MappedFile file;
  if (!file_map(&file, path, EXIT_CHECKPOINT, error)) return NULL;
  json_error_t problem;
  json_t *root = NULL;
  if (file.size == 0 || file.size > limit)
    fail(error, EXIT_CHECKPOINT, "%s has %zu bytes; expected 1 to %zu", path, file.size, limit);
  else if (!(root = json_parse(file.bytes, file.size, JSON_REJECT_DUPLICATES, &problem, path, error)))
    fail(error, EXIT_CHECKPOINT, "%s is not valid JSON (line %d, column %d: %s)", path, problem.line, problem.column,
         text_one_line(problem.text, 80).text);
  file_unmap(&file);
  return root;
}

/* generate() of transformers takes its end tokens from there. */
static bool read_generation_config(const char *dir, ConfigFile *out, Error *error) {
  const PathText path = path_in(dir, MODEL_FILE_GENERATION_CONFIG);
  if (file_size(path.text) <= 0) return true;
  json_t *root = model_files_read_json(path.text, MAX_CONFIG_BYTES, error);
  const bool ok = root && read_ends(&(ConfigReader){root, path.text, out, error}, -1);
  json_decref(root);
  return ok;
}

void config_file_set_ends(const ConfigFile *file, Tokenizer *tokenizer) {
  EndTokens ends = file->tokens.others;
  if (file->tokens.end >= 0) ends.ids[ends.count++] = file->tokens.end;
  tokenizer_set_other_ends(tokenizer, &ends);
}

bool config_file_read(const char *dir, ConfigFile *out, Error *error) {
  const PathText path = path_in(dir, MODEL_FILE_CONFIG);
  json_t *root = model_files_read_json(path.text, MAX_CONFIG_BYTES, error);
  const ConfigReader reader = {.root = root, .path = path.text, .out = out, .error = error};
  bool ok = root && (json_is_object(root) || fail(error, EXIT_CHECKPOINT, "%s is not a JSON object", path.text)) &&
            read_config(&reader) && read_generation_config(dir, out, error);
  json_decref(root);
  return ok;
}
