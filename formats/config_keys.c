/* Reading and writing of each kind of key in config.json. */
#include "formats/config_keys.h"

#include "util/json.h"
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields of ModelConfig ---- */

static void *field(ModelConfig *c, const ConfigKey *key) { return (char *)c + key->field; }
static int *int_field(ModelConfig *c, const ConfigKey *key) { return field(c, key); }
static float *real_field(ModelConfig *c, const ConfigKey *key) { return field(c, key); }

/* ---- reading ---- */

bool config_refuse(const ConfigReader *r, const char *format, ...) {
  char detail[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return fail(r->error, EXIT_CHECKPOINT, "%s: %s", r->path, detail);
}

const json_t *config_lookup(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_null(value) ? NULL : value;
}

/* Returns the JSON value of the key's text; NULL without memory. */
static json_t *constant(const ConfigKey *key, Error *error) {
  return json_parse(key->text, strlen(key->text), JSON_DECODE_ANY, NULL, key->name, error);
}

/* Formats a value for a message. */
static OneLine shown(const json_t *value) {
  char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const OneLine line = text_one_line(text ? text : "?", 80);
  free(text);
  return line;
}

static bool read_int(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = config_lookup(r->root, key->name);
  int *out = int_field(&r->out->config, key);
  *out = key->null_follows && json_object_get(r->root, key->name) ? 0 : (int)key->absent;
  if (!value) return true;
  if (!json_is_integer(value)) return config_refuse(r, "%s is not an integer", key->name);
  const json_int_t number = json_integer_value(value);
  if (number < 1 || number > key->high)
    return config_refuse(r, "%s is %jd; it must be from 1 to %d", key->name, (intmax_t)number, key->high);
  *out = (int)number;
  return true;
}

static bool read_int_again(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = config_lookup(r->root, key->name);
  const int wanted = *int_field(&r->out->config, key), absent = key->absent != 0 ? (int)key->absent : wanted;
  if (value ? json_is_integer(value) && json_integer_value(value) == wanted : absent == wanted) return true;
  if (value)
    return config_refuse(r, "%s is %s; only %d, as %s, is supported", key->name, shown(value).text, wanted, key->text);
  return config_refuse(r, "%s is %d when it is absent; only %d, as %s, is supported", key->name, absent, wanted,
                       key->text);
}

static bool read_number(const ConfigReader *r, const json_t *object, const char *key, double absent, float *out) {
  const json_t *value = config_lookup(object, key);
  *out = (float)absent;
  if (!value) return true;
  if (!json_is_number(value)) return config_refuse(r, "%s is not a number", key);
  const double number = json_number_value(value);
  /* the bounds are in fp32's normal range: beyond them the conversion would give 0 or infinity */
  if (!(number >= 1e-30 && number <= 1e30))
    return config_refuse(r, "%s is %g; it must be positive and finite", key, number);
  *out = (float)number;
  return true;
}

static bool read_real(const ConfigReader *r, const ConfigKey *key) {
  return read_number(r, r->root, key->name, key->absent, real_field(&r->out->config, key));
}

static bool read_flag(const ConfigReader *r, const ConfigKey *key, bool *out) {
  const json_t *value = config_lookup(r->root, key->name);
  *out = key->absent != 0;
  if (!value) return true;
  if (!json_is_boolean(value)) return config_refuse(r, "%s is neither true nor false", key->name);
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
         (given == wanted || config_refuse(r, "%s is %s; only %s, as %s, is supported", key->name,
                                           given ? "true" : "false", wanted ? "true" : "false", key->text));
}

static bool read_biases(const ConfigReader *r, const ConfigKey *key) {
  bool has;
  if (!read_flag(r, key, &has)) return false;
  if (has) r->out->biases |= key->biases;
  return true;
}

static bool read_nothing(const ConfigReader *r, const ConfigKey *key) { return r && key; }

static bool read_fixed(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = config_lookup(r->root, key->name);
  if (!value) return true;
  json_t *wanted = constant(key, r->error);
  const bool same = json_equal(value, wanted);
  json_decref(wanted);
  return same || config_refuse(r, "%s is %s; only %s is supported", key->name, shown(value).text, key->text);
}

/* Reads the size of an attention window. A window of at least the context size has no effect. */
static bool read_window(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = json_object_get(r->root, key->name);
  const json_int_t window = value ? json_integer_value(value) : (json_int_t)key->absent;
  if (json_is_null(value)) return true;
  if (value && !json_is_integer(value))
    return config_refuse(r, "%s is %s, which is not an integer", key->name, shown(value).text);
  return window >= r->out->config.ctx ||
         config_refuse(r, "%s is %lld%s, less than the context of %d; attention with a window is not supported",
                       key->name, (long long)window, value ? "" : " when it is absent", r->out->config.ctx);
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

/* Refuses a value and lists the supported ones, each by its first name. */
static bool refuse_choice(const ConfigReader *r, const ConfigKey *key, const char *given) {
  char names[200] = "";
  Choice c, last = {NULL, -1};
  for (int i = 0; c = choice_at(key, i), c.text; last = c, i++)
    if (c.value != last.value)
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "", c.text);
  return config_refuse(r, "%s is %s; supported: %s", key->name, given, names);
}

static bool read_choice(const ConfigReader *r, const ConfigKey *key) {
  const json_t *value = config_lookup(r->root, key->name);
  const bool flag = value ? json_is_boolean(value) : is_flag(key->text);
  const char *text = !value ? key->text : flag ? (json_is_true(value) ? "true" : "false") : json_string_value(value);
  const int found = text ? find_choice(key, text, flag) : -1;
  if (found < 0) return refuse_choice(r, key, value ? shown(value).text : text);
  *int_field(&r->out->config, key) = found;
  return true;
}

/* ---- rotary positions ---- */

/* Refuses every rope type but "default". */
static bool check_rope_type(const ConfigReader *r, const json_t *rope, const char *key, const char *name) {
  const json_t *value = config_lookup(rope, key);
  if (!value) return true;
  if (!json_is_string(value)) return config_refuse(r, "%s is not a string", name);
  if (strcmp(json_string_value(value), "default") == 0) return true;
  return config_refuse(r, "%s is %s; only \"default\" is supported", name, shown(value).text);
}

static bool check_scaling(const ConfigReader *r, const char *key) {
  const json_t *rope = config_lookup(r->root, key);
  if (!rope) return true;
  if (!json_is_object(rope)) return config_refuse(r, "%s is not an object", key);
  return check_rope_type(r, rope, "rope_type", "rope_type") && check_rope_type(r, rope, "type", "rope type");
}

static bool read_scaling(const ConfigReader *r, const ConfigKey *key) {
  const json_t *rope = config_lookup(r->root, key->name);
  float *base = real_field(&r->out->config, key);
  return check_scaling(r, key->name) && read_number(r, rope, "rope_theta", (double)*base, base);
}

/* Reads the base and the rotated fraction of a head, which may stand in this object or beside it. */
static bool read_rope(const ConfigReader *r, const ConfigKey *key) {
  static const char PART[] = "partial_rotary_factor";
  const json_t *rope = config_lookup(r->root, key->name);
  float *base = real_field(&r->out->config, key), part;
  if (!check_scaling(r, key->name) || !read_number(r, rope, "rope_theta", (double)*base, base) ||
      !read_number(r, r->root, PART, key->absent, &part) || !read_number(r, rope, PART, (double)part, &part))
    return false;
  return part == 1.0f || config_refuse(r, "%s is %g; only 1 is supported", PART, (double)part);
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
  const json_t *list = config_lookup(r->root, key->name), *every = config_lookup(r->root, INTERVAL);
  if (list && !json_is_array(list)) return config_refuse(r, "%s is not a list", key->name);
  if (every && (!json_is_integer(every) || json_integer_value(every) < 1))
    return config_refuse(r, "%s is not a positive integer", INTERVAL);
  const json_int_t interval = every ? json_integer_value(every) : 4;
  const int first = layer_rope(list, interval, 0);
  for (int i = 0; i < c->layers; i++) {
    const int rope = layer_rope(list, interval, i);
    if (rope < 0) return config_refuse(r, "%s does not have an integer for each layer", key->name);
    if (rope != first)
      return config_refuse(r, "%s: layer 0 and layer %d differ; RoPE in only some layers is not supported", key->name,
                           i);
  }
  c->positions = first ? POSITIONS_ROPE : POSITIONS_NONE;
  return true;
}

/* ---- writing: new values, NULL without memory ---- */

/* Returns the shortest decimal that is `value` in fp32: 1e-5f becomes 1e-05, not 9.99999974737875e-06. */
static json_t *real_json(float value) { return json_real(strtod(text_number((double)value, true).text, NULL)); }

static json_t *write_text(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)a, (void)c;
  Error memory = {0}; /* the caller checks the whole object for memory errors */
  return constant(key, &memory);
}

static json_t *write_int(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)a;
  return json_integer(*int_field(c, key));
}

static json_t *write_real(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)a;
  return real_json(*real_field(c, key));
}

static json_t *write_bool(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)a;
  return json_boolean(*int_field(c, key));
}

static json_t *write_choice(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)a;
  Choice choice;
  for (int i = 0; choice = choice_at(key, i), choice.text; i++)
    if (choice.value == *int_field(c, key))
      return is_flag(choice.text) ? json_boolean(strcmp(choice.text, "true") == 0) : json_string(choice.text);
  return NULL;
}

static json_t *write_biases(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  return json_boolean((class_file_biases(a, c) & key->biases) != 0);
}

static json_t *write_rope(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  return json_pack("{s:s, s:o}", "rope_type", "default", "rope_theta", write_real(key, a, c));
}

static json_t *write_null(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)key, (void)a, (void)c;
  return json_null();
}

static json_t *write_rope_layers(const ConfigKey *key, const ModelClass *a, ModelConfig *c) {
  (void)key, (void)a;
  json_t *list = json_array();
  for (int i = 0; i < c->layers; i++)
    if (json_array_append_new(list, json_integer(c->positions == POSITIONS_ROPE)) != 0) {
      json_decref(list);
      return NULL;
    }
  return list;
}

/* ---- the kinds ---- */

static const struct {
  json_t *(*write)(const ConfigKey *key, const ModelClass *a, ModelConfig *c);
  bool (*read)(const ConfigReader *r, const ConfigKey *key);
} kinds[] = {
    [KEY_SET] = {write_text, read_nothing},
    [KEY_FIXED] = {write_text, read_fixed},
    [KEY_INT] = {write_int, read_int},
    [KEY_INT_AGAIN] = {write_int, read_int_again},
    [KEY_REAL] = {write_real, read_real},
    [KEY_BOOL] = {write_bool, read_bool},
    [KEY_BOOL_AGAIN] = {write_bool, read_bool_again},
    [KEY_CHOICE] = {write_choice, read_choice},
    [KEY_BIASES] = {write_biases, read_biases},
    [KEY_THETA] = {write_real, read_real},
    [KEY_ROPE] = {write_rope, read_rope},
    [KEY_SCALING] = {write_null, read_scaling},
    [KEY_WINDOW] = {write_null, read_window},
    [KEY_ROPE_LAYERS] = {write_rope_layers, read_rope_layers},
};

bool config_key_write(json_t *root, const ConfigKey *key, const ModelClass *a, const ModelConfig *config) {
  ModelConfig copy = *config;
  if (key->optional && find_choice(key, key->text, is_flag(key->text)) == *int_field(&copy, key)) return true;
  return json_object_set_new(root, key->name, kinds[key->kind].write(key, a, &copy)) == 0;
}

bool config_key_read(const ConfigReader *r, const ConfigKey *key) { return kinds[key->kind].read(r, key); }
