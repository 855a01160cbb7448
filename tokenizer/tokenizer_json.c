/* tokenizer.json and tokenizer_config.json: Hugging Face's files of a byte-level BPE. */
#include "tokenizer/alphabet.h"
#include "tokenizer/internal.h"

#include "util/file.h"
#include "util/json.h"
#include "util/path.h"
#include "util/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
  FILE_LIMIT = 256 << 20, /* bytes of a tokenizer.json; a vocabulary of 150,000 takes 10 MB, of a million 95 MB */
  ID_LIMIT = 1 << 22
};

#define SEPARATE_VOCABS "separate_vocabs"

/* What may end documents, the first that a file has. */
static const char *const end_texts[] = {"<|endoftext|>", "</s>"};

/* ---- writing ---- */

static bool add_tokens(json_t *vocab, const Alphabet *alphabet, const Bpe *bpe) {
  bool ok = true;
  for (int32_t id = 0; ok && id < bpe->tokens.size; id++) {
    char *key = alphabet_token(alphabet, bpe, id);
    ok = key && (!*key || json_object_set_new(vocab, key, json_integer(id)) == 0);
    free(key);
  }
  return ok;
}

static bool add_merges(json_t *merges, const Alphabet *alphabet, const Bpe *bpe) {
  bool ok = true;
  for (int32_t i = 0; ok && i < bpe->merge_count; i++) {
    char *left = alphabet_token(alphabet, bpe, bpe->merges[i].left),
         *right = alphabet_token(alphabet, bpe, bpe->merges[i].right);
    ok = left && right && json_array_append_new(merges, json_sprintf("%s %s", left, right)) == 0;
    free(left);
    free(right);
  }
  return ok;
}

static json_t *model_json(const Bpe *bpe) {
  Alphabet alphabet = alphabet_make();
  json_t *vocab = json_object(), *merges = json_array();
  if (!vocab || !merges || !add_tokens(vocab, &alphabet, bpe) || !add_merges(merges, &alphabet, bpe)) {
    json_decref(vocab);
    json_decref(merges);
    return NULL;
  }
  return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                   "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                   "ignore_merges", 0, "vocab", vocab, "merges", merges);
}

static json_t *end_token_json(const Tokenizer *t) {
  return json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", t->end_text, "single_word", 0, "lstrip", 0, "rstrip", 0,
                   "normalized", 0, "special", 1);
}

static json_t *added_tokens_json(const Tokenizer *t) {
  json_t *token = json_pack("{s:i}", "id", t->end), *rest = end_token_json(t);
  if (token && rest) json_object_update(token, rest);
  json_decref(rest);
  return json_pack("[o]", token); /* NULL when `token` is */
}

static json_t *byte_level_json(void) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                   1);
}

static json_t *template_part(const char *kind, const char *id, int type_id) {
  return json_pack("{s:{s:s, s:i}}", kind, "id", id, "type_id", type_id);
}

/* A template for a text, or for a pair of them. */
static json_t *template_json(const Tokenizer *t, bool pair) {
  json_t *end = template_part("SpecialToken", t->end_text, 0), *first = template_part("Sequence", "A", 0),
         *second = template_part("Sequence", "B", 1);
  if (!pair) {
    json_decref(second);
    return t->begins_with_end ? json_pack("[o, o]", end, first) : json_pack("[o, o]", first, end);
  }
  return t->begins_with_end ? json_pack("[o, o, o]", end, first, second) : json_pack("[o, o, o]", first, second, end);
}

/* Nothing, or what puts the end token before a text or behind it. */
static json_t *post_processor_json(const Tokenizer *t) {
  const char *end = t->end_text;
  if (!t->begins_with_end && !t->ends_with_end) return json_null();
  return json_pack("{s:s, s:o, s:o, s:{s:{s:s, s:[i], s:[s]}}}", "type", "TemplateProcessing", "single",
                   template_json(t, false), "pair", template_json(t, true), "special_tokens", end, "id", end, "ids",
                   t->end, "tokens", end);
}

static json_t *tokenizer_json(const Tokenizer *t) {
  return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                   "added_tokens", added_tokens_json(t), "normalizer", "pre_tokenizer", byte_level_json(),
                   "post_processor", post_processor_json(t), "decoder", byte_level_json(), "model", model_json(t->bpe));
}

/* What was loaded, with another post_processor. */
static json_t *changed_json(const Tokenizer *t) {
  Error memory = {0}; /* take_text() asks for it */
  json_t *root = json_parse(t->json, t->json_size, 0, NULL, TOKENIZER_JSON, &memory);
  if (root && json_object_set_new(root, "post_processor", post_processor_json(t)) == 0) return root;
  json_decref(root);
  return NULL;
}

static json_t *config_json(const Tokenizer *t, int ctx) {
  char id[16];
  snprintf(id, sizeof id, "%d", t->end);
  json_t *root =
      json_pack("{s:b, s:{s:o}, s:s?, s:b, s:s, s:i, s:s, s:s}", "add_prefix_space", 0, "added_tokens_decoder", id,
                end_token_json(t), "bos_token", t->starts_elsewhere ? NULL : t->end_text,
                "clean_up_tokenization_spaces", 0, "eos_token", t->end_text, "model_max_length", ctx, "tokenizer_class",
                "PreTrainedTokenizerFast", "unk_token", t->end_text);
  if (root && (!t->ends_with_end || json_object_set_new(root, "pad_token", json_string(t->end_text)) == 0) &&
      (!t->separate_vocabs || json_object_set_new(root, SEPARATE_VOCABS, json_true()) == 0))
    return root;
  json_decref(root);
  return NULL;
}

static bool write_text(const char *text, size_t size, const char *dir, const char *name, Error *error) {
  char *path = path_join(dir, name);
  bool ok = path ? file_write(path, text, size, error) : error_memory(error, "a path");
  free(path);
  return ok;
}

/* Takes `object` over. */
static bool take_text(json_t *object, const char *name, char **text, size_t *size, Error *error) {
  *text = json_text(object, JSON_INDENT(2), name, error);
  json_decref(object);
  if (!*text) return false;
  *size = strlen(*text);
  (*text)[(*size)++] = '\n'; /* in the place of the final zero: the file has none */
  return true;
}

bool tokenizer_text(const Tokenizer *t, char **text, size_t *size, Error *error) {
  if (t->json && !t->json_differs) {
    *text = malloc(t->json_size + 1);
    if (!*text) return error_memory(error, TOKENIZER_JSON);
    memcpy(*text, t->json, t->json_size);
    *size = t->json_size;
    return true;
  }
  return take_text(t->json ? changed_json(t) : tokenizer_json(t), TOKENIZER_JSON, text, size, error);
}

bool tokenizer_save(const Tokenizer *t, const char *dir, int ctx, Error *error) {
  char *text = NULL, *config = NULL;
  size_t size = 0, config_size = 0;
  const bool ok = tokenizer_text(t, &text, &size, error) && write_text(text, size, dir, TOKENIZER_JSON, error) &&
                  take_text(config_json(t, ctx), TOKENIZER_CONFIG_JSON, &config, &config_size, error) &&
                  write_text(config, config_size, dir, TOKENIZER_CONFIG_JSON, error);
  free(text);
  free(config);
  return ok;
}

/* ---- reading ---- */

bool tokenizer_read_separate_vocabs(const char *path) {
  MappedFile file = {0};
  Error ignored = {0};
  json_t *root = file_map(&file, path, EXIT_CHECKPOINT, &ignored) && file.size < FILE_LIMIT
                     ? json_parse(file.bytes, file.size, 0, NULL, path, &ignored)
                     : NULL;
  const bool separate = json_is_true(json_object_get(root, SEPARATE_VOCABS));
  json_decref(root);
  file_unmap(&file);
  return separate;
}

/* The file may come from anywhere. What would give a text other ids than the library that wrote it does is refused, not
 * skipped. */

static bool refuse(Error *error, const char *path, const char *reason) {
  return fail(error, EXIT_CHECKPOINT, "%s: %s", path, reason);
}

static bool unsupported(Error *error, const char *path, const char *what) {
  return fail(error, EXIT_CHECKPOINT, "%s: %s; only byte-level BPE that splits text as GPT-2 does is supported", path,
              what);
}

/* NULL-safe: jansson's accessors return NULL for an object that is not one. */
static bool is_absent(const json_t *value) { return !value || json_is_null(value); }

static bool has_text(const json_t *object, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(object, key));
  return value && strcmp(value, text) == 0;
}

static bool is_absent_or_empty(const json_t *object, const char *key) {
  return is_absent(json_object_get(object, key)) || has_text(object, key, "");
}

/* An id inside the limits, or -1. */
static int32_t id_of(const json_t *value) {
  const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
  return id >= 0 && id < ID_LIMIT ? (int32_t)id : -1;
}

/* The whole file and what it says. */
static json_t *read_json(Tokenizer *out, const char *path, Error *error) {
  MappedFile file;
  json_error_t cause;
  json_t *root = NULL;
  if (!file_map(&file, path, EXIT_CHECKPOINT, error)) return NULL;
  if (file.size == 0) refuse(error, path, "is empty");
  else if (file.size > FILE_LIMIT)
    fail(error, EXIT_CHECKPOINT, "%s: %zu bytes, more than the %d a tokenizer may have", path, file.size, FILE_LIMIT);
  else if (!(out->json = malloc(file.size))) fail(error, EXIT_MEMORY, "out of memory while reading %s", path);
  else {
    memcpy(out->json, file.bytes, file.size);
    out->json_size = file.size;
    root = json_parse(out->json, out->json_size, JSON_REJECT_DUPLICATES, &cause, path, error);
    if (!root) fail(error, EXIT_CHECKPOINT, "%s:%d: not valid JSON: %s", path, cause.line, cause.text);
  }
  file_unmap(&file);
  return root;
}

/* ---- the vocabulary ---- */

/* While it is read: the texts of the ids, NULL where there is none, or none that stands for bytes. */
typedef struct Vocabulary {
  const char **texts; /* [size], of the JSON */
  int32_t size;
} Vocabulary;

/* Special tokens do not occur in texts: they are not encoded and stand for no bytes. */
static bool read_added_tokens(Tokenizer *out, const char *path, const json_t *root, int32_t *largest, Error *error) {
  const json_t *tokens = json_object_get(root, "added_tokens");
  size_t best = sizeof end_texts / sizeof end_texts[0];
  if (!json_is_array(tokens)) return refuse(error, path, "added_tokens is missing or not a list");
  for (size_t i = 0; i < json_array_size(tokens); i++) {
    const json_t *token = json_array_get(tokens, i);
    const int32_t id = id_of(json_object_get(token, "id"));
    const char *content = json_string_value(json_object_get(token, "content"));
    if (!content || id < 0)
      return fail(error, EXIT_CHECKPOINT, "%s: added token %zu has no text, or no id from 0 to %d", path, i,
                  ID_LIMIT - 1);
    if (!json_is_true(json_object_get(token, "special")))
      return fail(error, EXIT_CHECKPOINT,
                  "%s: the added token \"%.60s\" is not special: text that contains it would get other ids", path,
                  content);
    if (id > *largest) *largest = id;
    for (size_t k = 0; k < best; k++)
      if (strcmp(content, end_texts[k]) == 0) best = k, out->end = id, out->end_text = end_texts[k];
  }
  if (out->end_text) return true;
  return fail(error, EXIT_CHECKPOINT, "%s: no added token ends a document: \"%s\" or \"%s\" is needed", path,
              end_texts[0], end_texts[1]);
}

static bool find_largest_id(const char *path, json_t *vocab, int32_t *largest, Error *error) {
  const char *text;
  json_t *value;
  if (!json_is_object(vocab)) return refuse(error, path, "model.vocab is missing or not an object");
  json_object_foreach(vocab, text, value) {
    const int32_t id = id_of(value);
    if (id < 0)
      return fail(error, EXIT_CHECKPOINT, "%s: model.vocab: the id of \"%.60s\" is not a whole number from 0 to %d",
                  path, text, ID_LIMIT - 1);
    if (id > *largest) *largest = id;
  }
  return true;
}

static bool fill_vocabulary(Vocabulary *out, const char *path, json_t *vocab, const json_t *added, Error *error) {
  const char *text;
  json_t *value;
  json_object_foreach(vocab, text, value) {
    const int32_t id = id_of(value);
    if (out->texts[id])
      return fail(error, EXIT_CHECKPOINT, "%s: model.vocab: \"%.60s\" and \"%.60s\" have the same id %d", path,
                  out->texts[id], text, id);
    out->texts[id] = text;
  }
  for (size_t i = 0; i < json_array_size(added); i++)
    out->texts[id_of(json_object_get(json_array_get(added, i), "id"))] = NULL;
  return true;
}

/* The bytes of all ids. */
static bool make_tokens(BpeTokens *out, const char *path, const Vocabulary *vocabulary, Error *error) {
  const Alphabet alphabet = alphabet_make();
  size_t room = 0;
  for (int32_t id = 0; id < vocabulary->size; id++) room += vocabulary->texts[id] ? strlen(vocabulary->texts[id]) : 0;
  *out = (BpeTokens){vocabulary->size, malloc(room + 1), malloc(((size_t)vocabulary->size + 1) * sizeof(uint32_t))};
  if (!out->bytes || !out->begins) return fail(error, EXIT_MEMORY, "out of memory while reading %s", path);
  uint32_t at = 0; /* the file is smaller than 2^32 bytes */
  for (int32_t id = 0; id < vocabulary->size; id++) {
    out->begins[id] = at;
    if (!vocabulary->texts[id]) continue;
    const int64_t bytes = alphabet_read(&alphabet, vocabulary->texts[id], out->bytes + at);
    if (bytes < 0)
      return fail(error, EXIT_CHECKPOINT, "%s: the token \"%.60s\" is not in the alphabet of byte-level BPE", path,
                  vocabulary->texts[id]);
    at += (uint32_t)bytes;
  }
  out->begins[vocabulary->size] = at;
  return true;
}

/* ---- merges: "left right" or ["left", "right"] ---- */

static int32_t id_of_text(const json_t *vocab, const char *text, size_t size) {
  return id_of(json_object_getn(vocab, text, size));
}

/* False: it is none, or EXIT_MEMORY. */
static bool read_merge(BpeMerge *out, const json_t *vocab, const json_t *merge, Error *error) {
  const char *left = json_string_value(merge), *right = left ? strchr(left, ' ') : NULL;
  size_t left_size = right ? (size_t)(right - left) : 0;
  if (right) right++;
  if (json_array_size(merge) == 2) {
    left = json_string_value(json_array_get(merge, 0));
    right = json_string_value(json_array_get(merge, 1));
    left_size = left ? strlen(left) : 0;
  }
  if (!left || !right) return false;
  const size_t right_size = strlen(right);
  char *both = malloc(left_size + right_size + 1);
  if (!both) return error_memory(error, TOKENIZER_JSON);
  memcpy(both, left, left_size);
  memcpy(both + left_size, right, right_size);
  *out = (BpeMerge){id_of_text(vocab, left, left_size), id_of_text(vocab, right, right_size),
                    id_of_text(vocab, both, left_size + right_size)};
  free(both);
  return out->left >= 0 && out->right >= 0 && out->id >= 0;
}

static bool read_merges(BpeMerge **out, const char *path, const json_t *vocab, const json_t *merges, Error *error) {
  const size_t count = json_array_size(merges);
  *out = malloc((count + 1) * sizeof **out);
  if (!*out) return fail(error, EXIT_MEMORY, "out of memory while reading %s", path);
  for (size_t i = 0; i < count; i++)
    if (!read_merge(&(*out)[i], vocab, json_array_get(merges, i), error))
      return fail(error, EXIT_CHECKPOINT, "%s: merge %zu is not of two tokens of model.vocab that make a third", path,
                  i);
  return true;
}

/* ---- everything ---- */

static bool check_model(const char *path, const json_t *model, Error *error) {
  if (!json_is_object(model)) return refuse(error, path, "model is missing or not an object");
  if (!has_text(model, "type", "BPE")) return unsupported(error, path, "model.type is not BPE");
  if (!json_is_array(json_object_get(model, "merges")))
    return refuse(error, path, "model.merges is missing or not a list");
  bool plain = is_absent(json_object_get(model, "dropout")) && is_absent_or_empty(model, "continuing_subword_prefix") &&
               is_absent_or_empty(model, "end_of_word_suffix") &&
               !json_is_true(json_object_get(model, "ignore_merges"));
  return plain || unsupported(error, path, "model has a dropout, prefix or suffix, or ignores merges");
}

/* ByteLevel moves offsets, not ids. A template without special tokens is what transformers 5 writes for none. */
static bool adds_nothing(const json_t *post) {
  const json_t *special = json_object_get(post, "special_tokens");
  bool empty = json_is_object(special) && json_object_size(special) == 0;
  bool once = json_array_size(json_object_get(post, "single")) == 1;
  return is_absent(post) || has_text(post, "type", "ByteLevel") ||
         (has_text(post, "type", "TemplateProcessing") && empty && once);
}

/* The end token at `place`, 0 or 1, beside the text. The template for pairs of texts does not matter: there are none
 * here. */
static bool puts_end(const json_t *post, size_t place, int32_t end) {
  const json_t *single = json_object_get(post, "single"), *tokens = json_object_get(post, "special_tokens");
  const json_t *special = json_object_get(json_array_get(single, place), "SpecialToken"),
               *text = json_object_get(json_array_get(single, 1 - place), "Sequence"),
               *token = json_object_get(tokens, json_string_value(json_object_get(special, "id"))),
               *ids = json_object_get(token, "ids");
  return has_text(post, "type", "TemplateProcessing") && json_array_size(single) == 2 && has_text(text, "id", "A") &&
         json_array_size(ids) == 1 && id_of(json_array_get(ids, 0)) == end;
}

static bool read_post_processor(Tokenizer *out, const char *path, const json_t *root, Error *error) {
  const json_t *post = json_object_get(root, "post_processor"), *steps = json_object_get(post, "processors");
  const bool after_byte_level = has_text(post, "type", "Sequence") && json_array_size(steps) == 2 &&
                                has_text(json_array_get(steps, 0), "type", "ByteLevel"); /* as LLaMA 3 has it */
  if (after_byte_level) post = json_array_get(steps, 1);
  out->begins_with_end = puts_end(post, 0, out->end);
  out->ends_with_end = puts_end(post, 1, out->end);
  return out->begins_with_end || out->ends_with_end || adds_nothing(post) ||
         unsupported(error, path, "its post_processor adds more than the end token before a text, or behind it");
}

/* What happens to a text before and after the model: nothing but the split and the alphabet. */
static bool check_pipeline(const char *path, const json_t *root, Error *error) {
  const json_t *before = json_object_get(root, "pre_tokenizer"), *after = json_object_get(root, "decoder");
  if (!is_absent(json_object_get(root, "normalizer"))) return unsupported(error, path, "it has a normalizer");
  if (!has_text(before, "type", "ByteLevel")) return unsupported(error, path, "pre_tokenizer is not ByteLevel");
  if (!json_is_false(json_object_get(before, "add_prefix_space")))
    return unsupported(error, path, "pre_tokenizer.add_prefix_space is not false");
  if (json_is_false(json_object_get(before, "use_regex")))
    return unsupported(error, path, "pre_tokenizer.use_regex is false");
  return has_text(after, "type", "ByteLevel") || unsupported(error, path, "decoder is not ByteLevel");
}

static bool read_bpe(Tokenizer *out, const char *path, const json_t *root, Error *error) {
  const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
  json_t *vocab = json_object_get(model, "vocab");
  int32_t largest = 0;
  if (!check_model(path, model, error) || !find_largest_id(path, vocab, &largest, error) ||
      !read_added_tokens(out, path, root, &largest, error) || !check_pipeline(path, root, error) ||
      !read_post_processor(out, path, root, error))
    return false;
  const json_t *merges = json_object_get(model, "merges");
  Vocabulary vocabulary = {calloc((size_t)largest + 1, sizeof *vocabulary.texts), largest + 1};
  BpeTokens tokens = {0};
  BpeMerge *list = NULL;
  Error why = {0};
  if (!vocabulary.texts) return fail(error, EXIT_MEMORY, "out of memory while reading %s", path);
  bool ok = fill_vocabulary(&vocabulary, path, vocab, added, error) && make_tokens(&tokens, path, &vocabulary, error) &&
            read_merges(&list, path, vocab, merges, error);
  if (ok && !bpe_create(&out->bpe, &tokens, list, json_array_size(merges), &why))
    ok = fail(error, why.code, "%s: %s", path, why.text);
  free(vocabulary.texts);
  free(tokens.bytes);
  free(tokens.begins);
  free(list);
  return ok;
}

bool tokenizer_load(Tokenizer **out, const char *path, Error *error) {
  Error why = {0}; /* quotes what the file says */
  Tokenizer *t = *out = calloc(1, sizeof *t);
  if (!t) return error_memory(error, "a tokenizer");
  json_t *root = read_json(t, path, &why);
  bool ok = root && read_bpe(t, path, root, &why);
  json_decref(root);
  if (ok) return true;
  tokenizer_free(t);
  *out = NULL;
  return fail(error, why.code, "%s", text_one_line(why.text, ONE_LINE_BYTES).text);
}
