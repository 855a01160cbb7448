#include "store/run.h"

#include "cli/one_line.h"
#include "store/checksum.h"
#include "store/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool no_memory(const char *path, Error *error) {
  fail(error, EXIT_MEMORY, "out of memory while reading or writing %s", path);
  return false; /* said outright, for static analysis */
}

/* ---- configuration, written ---- */

/* The shortest decimal that is `value` in fp32: 1e-5f becomes 1e-05, not 9.99999974737875e-06. */
static double shortest(float value) {
  double decimal = (double)value;
  for (int digits = 6; digits <= 9; digits++) {
    char text[32];
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    decimal = strtod(text, NULL);
    if ((float)decimal == value) break;
  }
  return decimal;
}

static json_t *token_json(int token) { return token < 0 ? json_null() : json_integer(token); }

static json_t *config_json(const ModelConfig *config, SpecialTokens tokens) {
  double rope_theta = shortest(config->rope_base);
  json_t *root = json_pack("{s:[s], s:s, s:s, s:s, s:s}", "architectures", "LlamaForCausalLM", "model_type", "llama",
                           "dtype", "float32", "torch_dtype", "float32", "hidden_act", "silu");
  json_t *sizes = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "vocab_size", config->vocab, "hidden_size",
                            config->dim, "intermediate_size", config->ffn, "num_hidden_layers", config->layers,
                            "num_attention_heads", config->heads, "num_key_value_heads", config->kv_heads, "head_dim",
                            config->head_dim, "max_position_embeddings", config->ctx);
  /* Readers differ: transformers 5 looks into rope_parameters, 4 and the others at the top level. */
  json_t *numbers = json_pack("{s:f, s:f, s:{s:s, s:f}, s:n, s:f, s:f}", "rms_norm_eps", shortest(config->norm_eps),
                              "rope_theta", rope_theta, "rope_parameters", "rope_type", "default", "rope_theta",
                              rope_theta, "rope_scaling", "attention_dropout", 0.0, "initializer_range", 0.02);
  json_t *rest = json_pack("{s:b, s:b, s:b, s:b, s:o, s:o, s:n}", "tie_word_embeddings", config->tie, "attention_bias",
                           0, "mlp_bias", 0, "use_cache", 1, "bos_token_id", token_json(tokens.start), "eos_token_id",
                           token_json(tokens.end), "pad_token_id");
  bool ok = json_object_update(root, sizes) == 0 && json_object_update(root, numbers) == 0 &&
            json_object_update(root, rest) == 0;
  json_decref(sizes);
  json_decref(numbers);
  json_decref(rest);
  if (ok) return root;
  json_decref(root);
  return NULL;
}

/* Writes DIR/name; takes `root`, which may be NULL (no memory). */
static bool write_json(const char *dir, const char *name, json_t *root, Error *error) {
  char *path = path_join(dir, name);
  /* 9 digits: enough for any fp32, and few enough that shortest() is not undone */
  char *text = root != NULL ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
  bool ok = false;
  if (path == NULL || text == NULL) {
    no_memory(name, error);
  } else {
    size_t length = strlen(text);
    text[length] = '\n'; /* the terminator gives way: the length is known */
    ok = file_write(path, text, length + 1, error);
  }
  json_decref(root);
  free(text);
  free(path);
  return ok;
}

bool run_write_config(const char *dir, const ModelConfig *config, SpecialTokens tokens, Error *error) {
  if (tokens.end >= config->vocab || tokens.start >= config->vocab)
    return fail(error, EXIT_INTERNAL, "special tokens %d and %d: one lies outside the vocabulary of %d", tokens.start,
                tokens.end, config->vocab);
  json_t *generation =
      json_pack("{s:o, s:o}", "bos_token_id", token_json(tokens.start), "eos_token_id", token_json(tokens.end));
  if (write_json(dir, "config.json", config_json(config, tokens), error))
    return write_json(dir, "generation_config.json", generation, error);
  json_decref(generation);
  return false;
}

/* ---- configuration, read ---- */

enum { MAX_CONFIG_BYTES = 16 << 20 };
/* Beyond every model there is, and small enough that products of two fit 64 bits many times over. */
enum { MAX_LAYERS = 4096, MAX_HEADS = 1 << 16, MAX_HEAD_DIM = 1 << 16, MAX_WIDTH = 1 << 20, MAX_FFN = 1 << 22 };
enum { MAX_POSITIONS = 1 << 24 }; /* of the context, and tokens of the vocabulary */

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
  if (value == NULL) return true;
  if (!json_is_integer(value)) return refuse(r, "%s is not an integer", key);
  json_int_t number = json_integer_value(value);
  if (number < 1 || number > high) return refuse(r, "%s is %jd; 1 to %d is possible", key, (intmax_t)number, high);
  *out = (int)number;
  return true;
}

static bool read_real(const ConfigReader *r, const json_t *object, const char *key, float fallback, float *out) {
  const json_t *value = lookup(object, key);
  *out = fallback;
  if (value == NULL) return true;
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
  if (value == NULL) return true;
  if (!json_is_boolean(value)) return refuse(r, "%s is neither true nor false", key);
  *out = json_is_true(value);
  return true;
}

/* A string that has to be one of two (`other` may be NULL), when it is there. */
static bool require_text(const ConfigReader *r, const json_t *value, const char *key, const char *wanted,
                         const char *other) {
  if (value == NULL) return true;
  if (!json_is_string(value)) return refuse(r, "%s is not a string", key);
  const char *given = json_string_value(value);
  if (strcmp(given, wanted) == 0 || (other != NULL && strcmp(given, other) == 0)) return true;
  return refuse(r, "%s is \"%s\"; only \"%s\" is supported", key, one_line(given, 80).text, wanted);
}

static bool check_architecture(const ConfigReader *r) {
  const json_t *type = lookup(r->root, "model_type"), *list = lookup(r->root, "architectures");
  if (type == NULL && list == NULL)
    return refuse(r, "it names neither model_type nor architectures; is this a model's config?");
  if (!require_text(r, type, "model_type", "llama", NULL)) return false;
  if (list == NULL) return true;
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
  if (lookup(r->root, "quantization_config") != NULL)
    return refuse(r, "the model is quantised; use its original in float32, float16 or bfloat16");
  return true;
}

/* rope_parameters (transformers 5) or rope_scaling (4): both may only say that nothing special is done. */
static bool check_rope(const ConfigReader *r, const char *key) {
  const json_t *rope = lookup(r->root, key);
  if (rope == NULL) return true;
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
  if (!read_int(r, "vocab_size", 32000, MAX_POSITIONS, &c->vocab) ||
      !read_int(r, "hidden_size", 4096, MAX_WIDTH, &c->dim) ||
      !read_int(r, "intermediate_size", 11008, MAX_FFN, &c->ffn) ||
      !read_int(r, "num_hidden_layers", 32, MAX_LAYERS, &c->layers) ||
      !read_int(r, "num_attention_heads", 32, MAX_HEADS, &c->heads) ||
      !read_int(r, "num_key_value_heads", c->heads, MAX_HEADS, &c->kv_heads) ||
      !read_int(r, "head_dim", 0, MAX_HEAD_DIM, &c->head_dim) ||
      !read_int(r, "max_position_embeddings", 2048, MAX_POSITIONS, &c->ctx))
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
  if (value != NULL && !json_is_integer(value)) return refuse(r, "%s is not an integer", key);
  json_int_t id = value != NULL ? json_integer_value(value) : fallback;
  if (id < -1 || id >= vocab) return refuse(r, "%s %jd lies outside the vocabulary of %d", key, (intmax_t)id, vocab);
  *out = (int)id;
  return true;
}

static bool read_config(const ConfigReader *r, ModelConfig *config, SpecialTokens *tokens) {
  *config = (ModelConfig){.norm = NORM_RMS, .mlp = MLP_SWIGLU};
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
    fail(error, EXIT_CHECKPOINT, "%s has %zu bytes; 1 to %d is possible", path, file.size, MAX_CONFIG_BYTES);
  else if ((root = json_loadb((const char *)file.bytes, file.size, JSON_REJECT_DUPLICATES, &problem)) == NULL)
    fail(error, EXIT_CHECKPOINT, "%s is not proper JSON (line %d, column %d: %s)", path, problem.line, problem.column,
         one_line(problem.text, 80).text);
  file_unmap(&file);
  if (root == NULL || json_is_object(root)) return root;
  fail(error, EXIT_CHECKPOINT, "%s is not a JSON object", path);
  json_decref(root);
  return NULL;
}

bool run_read_config(const char *dir, ModelConfig *config, SpecialTokens *tokens, Error *error) {
  char *path = path_join(dir, "config.json");
  if (path == NULL) return no_memory(dir, error);
  json_t *root = parse_config(path, error);
  ConfigReader reader = {.root = root, .path = path, .error = error};
  bool ok = root != NULL && read_config(&reader, config, tokens) && model_config_check(config, EXIT_CHECKPOINT, error);
  json_decref(root);
  free(path);
  return ok;
}

/* ---- weights ---- */

static size_t elements(const ParameterTensor *p) { return (size_t)p->rows * (size_t)p->cols; }

/* A row of the table as a tensor of a file, under another name perhaps. */
static SafeTensor describe(const ParameterTensor *p, const char *name, const float *arena) {
  SafeTensor tensor = {.name = name, .type = TENSOR_F32, .rank = p->rank == 1 ? 1 : 2, .data = arena + p->offset};
  tensor.shape[0] = p->rank == 1 ? p->cols : p->rows;
  tensor.shape[1] = p->rank == 1 ? 0 : p->cols;
  return tensor;
}

bool run_write_weights(const char *path, const ParameterTable *table, const float *arena, const MetadataEntry *metadata,
                       int metadata_count, Error *error) {
  SafeTensor *tensors = calloc((size_t)table->count + 1, sizeof *tensors);
  if (tensors == NULL) return no_memory(path, error);
  for (int i = 0; i < table->count; i++) tensors[i] = describe(&table->tensors[i], table->tensors[i].name, arena);
  bool ok = safetensors_write(path, tensors, table->count, metadata, metadata_count, error);
  free(tensors);
  return ok;
}

static bool same_shape(const SafeTensor *tensor, const ParameterTensor *p) {
  if (p->rank == 1) return tensor->rank == 1 && tensor->shape[0] == p->cols;
  return tensor->rank == 2 && tensor->shape[0] == p->rows && tensor->shape[1] == p->cols;
}

static void shape_text(char *out, size_t size, int rank, const int64_t *shape) {
  size_t used = (size_t)snprintf(out, size, "[");
  for (int i = 0; i < rank && used < size; i++)
    used += (size_t)snprintf(out + used, size - used, "%s%jd", i > 0 ? ", " : "", (intmax_t)shape[i]);
  if (used < size) snprintf(out + used, size - used, "]");
}

static bool check_shape(const char *path, const SafeTensor *tensor, const ParameterTensor *p, Error *error) {
  if (same_shape(tensor, p)) return true;
  char given[256], wanted[64];
  SafeTensor due = describe(p, p->name, NULL);
  shape_text(given, sizeof given, tensor->rank, tensor->shape);
  shape_text(wanted, sizeof wanted, due.rank, due.shape);
  return fail(error, EXIT_CHECKPOINT,
              "%s: tensor %s is %s where the configuration says %s; is config.json of the same model?", path,
              tensor->name, given, wanted);
}

static float half_to_float(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 0x3FFu, bits;
  if (exponent == 0) {
    float tiny = (float)fraction * 0x1p-24f; /* zero and subnormals, exact */
    return sign != 0 ? -tiny : tiny;
  }
  bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float brain_to_float(uint16_t brain) {
  uint32_t bits = (uint32_t)brain << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* `data` may be unaligned. */
static void convert(float *out, const SafeTensor *tensor, size_t count) {
  if (tensor->type == TENSOR_F32) {
    memcpy(out, tensor->data, count * sizeof *out);
    return;
  }
  const uint8_t *bytes = tensor->data;
  for (size_t i = 0; i < count; i++) {
    uint16_t word;
    memcpy(&word, bytes + 2 * i, sizeof word);
    out[i] = tensor->type == TENSOR_F16 ? half_to_float(word) : brain_to_float(word);
  }
}

static bool read_tensor(const char *path, const SafeTensor *tensor, const ParameterTensor *p, float *out,
                        Error *error) {
  if (!check_shape(path, tensor, p, error)) return false;
  if (tensor->type != TENSOR_F32 && tensor->type != TENSOR_F16 && tensor->type != TENSOR_BF16)
    return fail(error, EXIT_CHECKPOINT, "%s: tensor %s is %s; F32, F16 and BF16 are supported", path, tensor->name,
                tensor_type_name(tensor->type));
  convert(out, tensor, elements(p));
  for (size_t i = 0; i < elements(p); i++)
    if (!isfinite(out[i]))
      return fail(error, EXIT_CHECKPOINT,
                  "%s: element %zu of tensor %s is %f; choose a checkpoint from before training went wrong", path, i,
                  tensor->name, (double)out[i]);
  return true;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* May a tensor that the table does not have be in the file? */
static bool tolerated(const SafeTensors *file, const SafeTensor *tensor) {
  if (ends_with(tensor->name, ".rotary_emb.inv_freq")) return true;
  if (strcmp(tensor->name, "lm_head.weight") != 0) return false;
  const SafeTensor *embedding = safetensors_find(file, "model.embed_tokens.weight");
  return embedding != NULL && tensor->rank == embedding->rank &&
         memcmp(tensor->shape, embedding->shape, sizeof tensor->shape) == 0;
}

static bool read_tensors(const char *path, const SafeTensors *file, const ParameterTable *table, float *arena,
                         bool *used, Error *error) {
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *p = &table->tensors[i];
    const SafeTensor *tensor = safetensors_find(file, p->name);
    if (tensor == NULL)
      return fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is config.json of the same model?", path, p->name);
    if (!read_tensor(path, tensor, p, arena + p->offset, error)) return false;
    used[tensor - file->tensors] = true;
  }
  for (int i = 0; i < file->count; i++) {
    if (!used[i] && !tolerated(file, &file->tensors[i]))
      return fail(error, EXIT_CHECKPOINT, "%s has a tensor '%s' that a model of this configuration does not have", path,
                  one_line(file->tensors[i].name, 80).text);
  }
  return true;
}

/* Large foreign models come in pieces: say so instead of "no such file". */
static bool refuse_sharded(const char *path, Error *error) {
  char *index = NULL;
  if (access(path, F_OK) == 0) return true;
  size_t size = strlen(path) + sizeof ".index.json";
  if ((index = malloc(size)) == NULL) return no_memory(path, error);
  snprintf(index, size, "%s.index.json", path);
  bool sharded = access(index, F_OK) == 0;
  free(index);
  return !sharded ||
         fail(error, EXIT_CHECKPOINT, "%s comes in several files, which is not supported; save it as one", path);
}

bool run_read_weights(const char *path, const ParameterTable *table, float *arena, Error *error) {
  SafeTensors file;
  if (!refuse_sharded(path, error) || !safetensors_open(&file, path, error)) return false;
  bool *used = calloc((size_t)file.count + 1, sizeof *used);
  bool ok = used != NULL ? read_tensors(path, &file, table, arena, used, error) : no_memory(path, error);
  free(used);
  safetensors_close(&file);
  return ok;
}

/* ---- exact resume: one state file ---- */

enum { PARTS = 3, STATE_NAME = 80 };
static const char *const part_prefix[PARTS] = {"", "adam.m.", "adam.v."};
static const char CHECKSUM_KEY[] = "checksum";

/* Of the data in the order of `tensors`, each with the sum so far as its seed; the first seed is a sum over the
 * metadata, which therefore may come in any order. */
static uint64_t state_checksum(const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                               int metadata_count) {
  uint64_t sum = 0;
  for (int i = 0; i < metadata_count; i++) {
    const MetadataEntry *entry = &metadata[i];
    if (strcmp(entry->key, CHECKSUM_KEY) == 0 || strcmp(entry->key, "format") == 0) continue;
    sum += xxh64(entry->value, strlen(entry->value), xxh64(entry->key, strlen(entry->key), 0));
  }
  for (int i = 0; i < count; i++) {
    size_t bytes = tensor_type_bytes(tensors[i].type);
    for (int d = 0; d < tensors[i].rank; d++) bytes *= (size_t)tensors[i].shape[d];
    sum = xxh64(tensors[i].data, bytes, sum);
  }
  return sum;
}

static void checksum_text(char out[17], uint64_t sum) { snprintf(out, 17, "%016jx", (uintmax_t)sum); }

static void state_name(char out[STATE_NAME], int part, const ParameterTensor *p) {
  snprintf(out, STATE_NAME, "%s%s", part_prefix[part], p->name);
}

/* Writes one state; `tensors` and `names` are scratch for PARTS * table->count, `strings` for metadata_count + 1. */
static bool write_state_file(const char *path, const ParameterTable *table, const float *const arenas[PARTS],
                             const MetadataEntry *metadata, int metadata_count, SafeTensor *tensors,
                             char (*names)[STATE_NAME], MetadataEntry *strings, Error *error) {
  int count = 0;
  for (int part = 0; part < PARTS; part++)
    for (int i = 0; i < table->count; i++, count++) {
      state_name(names[count], part, &table->tensors[i]);
      tensors[count] = describe(&table->tensors[i], names[count], arenas[part]);
    }
  char text[17];
  checksum_text(text, state_checksum(tensors, count, metadata, metadata_count));
  for (int i = 0; i < metadata_count; i++) strings[i] = metadata[i];
  strings[metadata_count] = (MetadataEntry){CHECKSUM_KEY, text};
  return safetensors_write(path, tensors, count, strings, metadata_count + 1, error);
}

static bool make_state_file(const char *path, const ParameterTable *table, const float *const arenas[PARTS],
                            const MetadataEntry *metadata, int metadata_count, Error *error) {
  size_t count = PARTS * (size_t)table->count + 1;
  SafeTensor *tensors = calloc(count, sizeof *tensors);
  char(*names)[STATE_NAME] = calloc(count, sizeof *names);
  MetadataEntry *strings = calloc((size_t)metadata_count + 1, sizeof *strings);
  bool ok = tensors != NULL && names != NULL && strings != NULL
                ? write_state_file(path, table, arenas, metadata, metadata_count, tensors, names, strings, error)
                : no_memory(path, error);
  free(strings);
  free(names);
  free(tensors);
  return ok;
}

static bool damaged(const char *path, Error *error, const char *what, const char *name) {
  return fail(error, EXIT_CHECKPOINT, "%s is damaged: %s%s", path, what, name);
}

static bool all_finite(const SafeTensor *tensor) {
  const uint8_t *bytes = tensor->data;
  for (size_t i = 0; i < tensor->bytes; i += sizeof(float)) {
    float value;
    memcpy(&value, bytes + i, sizeof value);
    if (!isfinite(value)) return false;
  }
  return true;
}

/* Finds the tensors of a state, in the order of state_checksum(), and checks all that can be wrong with them. */
static bool verify_state(const char *path, const SafeTensors *file, const ParameterTable *table, SafeTensor *tensors,
                         Error *error) {
  int count = 0;
  for (int part = 0; part < PARTS; part++)
    for (int i = 0; i < table->count; i++, count++) {
      char name[STATE_NAME];
      state_name(name, part, &table->tensors[i]);
      const SafeTensor *tensor = safetensors_find(file, name);
      if (tensor == NULL)
        return fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is config.json of the same run?", path, name);
      if (!check_shape(path, tensor, &table->tensors[i], error)) return false;
      if (tensor->type != TENSOR_F32) return damaged(path, error, "F32 is due for tensor ", name);
      tensors[count] = *tensor;
    }
  if (file->count != count) return damaged(path, error, "it has tensors that are not the model's", "");
  const char *given = safetensors_metadata(file, CHECKSUM_KEY);
  if (given == NULL) return damaged(path, error, "it has no checksum", "");
  char text[17];
  checksum_text(text, state_checksum(tensors, count, file->metadata, file->metadata_count));
  if (strcmp(text, given) != 0) return damaged(path, error, "its checksum does not fit; it should be ", text);
  for (int i = 0; i < count; i++)
    if (!all_finite(&tensors[i]))
      return damaged(path, error, "numbers that are not finite in tensor ", tensors[i].name);
  return true;
}

static void copy_state(const SafeTensor *tensors, const ParameterTable *table, float *const arenas[PARTS]) {
  for (int part = 0; part < PARTS; part++)
    for (int i = 0; i < table->count; i++) {
      const SafeTensor *tensor = &tensors[part * table->count + i];
      if (tensor->bytes > 0) memcpy(arenas[part] + table->tensors[i].offset, tensor->data, tensor->bytes);
    }
}

/* Reads DIR/generation/state.safetensors into the arenas; leaves only the metadata open in `file`. */
static bool read_generation(const char *path, const ParameterTable *table, float *const arenas[PARTS],
                            SafeTensors *file, Error *error) {
  if (!safetensors_open(file, path, error)) return false;
  SafeTensor *tensors = calloc(PARTS * (size_t)table->count + 1, sizeof *tensors);
  bool ok = tensors != NULL ? verify_state(path, file, table, tensors, error) : no_memory(path, error);
  if (ok) copy_state(tensors, table, arenas);
  free(tensors);
  if (!ok) {
    safetensors_close(file);
    return false;
  }
  free(file->tensors); /* they point into the mapping, which would keep a deleted file on the disk */
  file->tensors = NULL;
  file->count = 0;
  file_unmap(&file->file);
  return true;
}

/* ---- exact resume: the two generations ---- */

typedef struct StatePaths {
  char *last_dir, *prev_dir;
  char *last, *prev; /* the files */
  char *old;         /* a second name of the file in last/ while it is replaced */
} StatePaths;

static void free_paths(StatePaths *p) {
  free(p->last_dir);
  free(p->prev_dir);
  free(p->last);
  free(p->prev);
  free(p->old);
}

static bool make_paths(StatePaths *p, const char *dir, Error *error) {
  *p = (StatePaths){.last_dir = path_join(dir, "last"), .prev_dir = path_join(dir, "prev")};
  if (p->last_dir != NULL && p->prev_dir != NULL) {
    p->last = path_join(p->last_dir, "state.safetensors");
    p->prev = path_join(p->prev_dir, "state.safetensors");
    p->old = path_join(p->last_dir, ".state.safetensors.old");
  }
  if (p->last != NULL && p->prev != NULL && p->old != NULL) return true;
  free_paths(p);
  return no_memory(dir, error);
}

static bool system_failed(const char *what, const char *path, Error *error) {
  return fail(error, EXIT_OUTPUT, "cannot %s %s: %s; check the directory, or choose another with --out", what, path,
              strerror(errno));
}

static bool make_directory(const char *path, Error *error) {
  return mkdir(path, 0777) == 0 || errno == EEXIST || system_failed("make the directory", path, error);
}

static bool rename_file(const char *from, const char *to, Error *error) {
  return rename(from, to) == 0 || system_failed("move a file to", to, error);
}

/* The new state replaces the old one in last/ by one rename, so last/ is never without; then the old one, kept by a
 * second name, becomes prev/. A damaged last/ (this run resumed from prev/) therefore never replaces prev/ before the
 * new last/ is safe. */
static bool rotate_linked(const StatePaths *p, const ParameterTable *table, const float *const arenas[PARTS],
                          const MetadataEntry *metadata, int metadata_count, Error *error) {
  if (!make_state_file(p->last, table, arenas, metadata, metadata_count, error)) {
    unlink(p->old);
    return false;
  }
  return rename_file(p->old, p->prev, error) && directory_sync(p->prev_dir, error) &&
         directory_sync(p->last_dir, error);
}

/* For file systems without hard links: the new state is complete beside the old one, then both move up. */
static bool rotate_renaming(const StatePaths *p, const ParameterTable *table, const float *const arenas[PARTS],
                            const MetadataEntry *metadata, int metadata_count, Error *error) {
  if (!make_state_file(p->old, table, arenas, metadata, metadata_count, error)) return false;
  if (rename_file(p->last, p->prev, error) && directory_sync(p->prev_dir, error) &&
      rename_file(p->old, p->last, error) && directory_sync(p->last_dir, error))
    return true;
  unlink(p->old);
  return false;
}

bool run_write_state(const char *dir, const ParameterTable *table, const float *master, const float *m, const float *v,
                     const MetadataEntry *metadata, int metadata_count, Error *error) {
  const float *const arenas[PARTS] = {master, m, v};
  StatePaths p;
  if (!make_paths(&p, dir, error)) return false;
  bool ok = make_directory(p.last_dir, error) && make_directory(p.prev_dir, error) && directory_sync(dir, error);
  if (ok) {
    unlink(p.old); /* of a killed process */
    if (access(p.last, F_OK) != 0) ok = make_state_file(p.last, table, arenas, metadata, metadata_count, error);
    else if (link(p.last, p.old) == 0) ok = rotate_linked(&p, table, arenas, metadata, metadata_count, error);
    else ok = rotate_renaming(&p, table, arenas, metadata, metadata_count, error);
  }
  free_paths(&p);
  return ok;
}

static bool read_either(const StatePaths *p, const char *dir, const ParameterTable *table, float *const arenas[PARTS],
                        RunState *state, Error *error) {
  if (access(p->last, F_OK) != 0 && access(p->prev, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT,
                "%s holds no state to resume from (no last/state.safetensors); start it again: ./train FILE --out %s "
                "--overwrite",
                dir, dir);
  Error first = {0}, second = {0};
  if (read_generation(p->last, table, arenas, &state->file, &first)) return true;
  if (first.code == EXIT_MEMORY) return fail(error, first.code, "%s", first.text);
  if (read_generation(p->prev, table, arenas, &state->file, &second)) {
    snprintf(state->warning, sizeof state->warning, "%.700s; going on from the state saved before it, %.200s",
             first.text, p->prev);
    return true;
  }
  if (second.code == EXIT_MEMORY) return fail(error, second.code, "%s", second.text);
  return fail(error, EXIT_CHECKPOINT, "no usable state to resume from: %.450s; and %.450s", first.text, second.text);
}

bool run_read_state(const char *dir, const ParameterTable *table, float *master, float *m, float *v, RunState *state,
                    Error *error) {
  float *const arenas[PARTS] = {master, m, v};
  *state = (RunState){0};
  StatePaths p;
  if (!make_paths(&p, dir, error)) return false;
  bool ok = read_either(&p, dir, table, arenas, state, error);
  free_paths(&p);
  return ok;
}

const char *run_state_get(const RunState *state, const char *key) { return safetensors_metadata(&state->file, key); }

void run_state_free(RunState *state) {
  safetensors_close(&state->file);
  *state = (RunState){0};
}

/* ---- lock ---- */

static bool busy(const char *dir, int fd, Error *error) {
  char who[32] = {0};
  ssize_t size = pread(fd, who, sizeof who - 1, 0);
  long process = size > 0 ? strtol(who, NULL, 10) : 0;
  if (process <= 0)
    return fail(error, EXIT_BUSY, "%s is in use by another train; wait for it or choose another --out", dir);
  return fail(error, EXIT_BUSY, "%s is in use by another train (process %ld); wait for it or choose another --out", dir,
              process);
}

/* Someone may have deleted the file between open() and flock(): then the lock is on nothing. */
static bool still_there(int fd, const char *path) {
  struct stat ours, theirs;
  return fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
         ours.st_dev == theirs.st_dev;
}

static bool lock_file(const char *dir, const char *path, int *fd, Error *error) {
  for (int attempt = 0; attempt < 10; attempt++) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*fd < 0) return system_failed("make the lock", path, error);
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
      bool taken = errno == EWOULDBLOCK;
      if (taken) busy(dir, *fd, error);
      else system_failed("lock", path, error);
      close(*fd);
      *fd = -1;
      return false;
    }
    if (still_there(*fd, path)) return true;
    close(*fd);
    *fd = -1;
  }
  return fail(error, EXIT_BUSY, "%s keeps being deleted; is another train clearing %s?", path, dir);
}

/* The process number is for the message of others only: that it may not be written (a full disk) is no failure. */
static void sign_lock(int fd) {
  char text[32];
  int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)length, 0) != length) return;
}

bool run_lock(const char *dir, int *fd, Error *error) {
  *fd = -1;
  StatePaths p;
  char *path = path_join(dir, ".lock");
  if (path == NULL) return no_memory(dir, error);
  bool ok = lock_file(dir, path, fd, error);
  free(path);
  if (!ok) return false;
  sign_lock(*fd);
  if (!make_paths(&p, dir, error)) {
    close(*fd);
    *fd = -1;
    return false;
  }
  atomic_sweep(dir);
  atomic_sweep(p.last_dir);
  atomic_sweep(p.prev_dir);
  free_paths(&p);
  return true;
}

/* ---- finding runs ---- */

static bool is_run(const char *name) {
  size_t length = strlen(name);
  return length > 4 && strcmp(name + length - 4, ".run") == 0;
}

/* When the model in a directory was written; false where there is none. */
static bool run_time(const char *name, struct timespec *time) {
  char *path = path_join(name, "config.json"), *weights = path_join(name, "model.safetensors");
  struct stat config, model;
  bool ok = path != NULL && weights != NULL && stat(path, &config) == 0 && stat(weights, &model) == 0;
  if (ok) *time = model.st_mtim;
  free(path);
  free(weights);
  return ok;
}

bool run_is_model(const char *dir) {
  struct timespec ignored;
  return run_time(dir, &ignored);
}

bool run_newest(char **out, Error *error) {
  *out = NULL;
  DIR *here = opendir(".");
  struct timespec best = {0}, time;
  for (struct dirent *entry; here != NULL && (entry = readdir(here)) != NULL;) {
    if (!is_run(entry->d_name) || !run_time(entry->d_name, &time)) continue;
    bool later = time.tv_sec > best.tv_sec || (time.tv_sec == best.tv_sec && time.tv_nsec > best.tv_nsec);
    if (*out != NULL && !later) continue;
    best = time;
    free(*out);
    *out = strdup(entry->d_name);
  }
  if (here != NULL) closedir(here);
  if (*out != NULL) return true;
  return fail(error, EXIT_USAGE, "there is no *.run in this directory; name one, or make one with ./train FILE");
}
