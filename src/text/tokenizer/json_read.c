/* tokenizer.json: the file, its vocabulary and its merges. The file is untrusted input. The reader refuses, and does
 * not skip, features for which it would produce other ids than the library that wrote the file. */
#include "text/tokenizer/internal.h"

#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* jansson's accessors accept NULL and values of other types, and return NULL for them. */
bool json_is_absent(const json_t *value) { return !value || json_is_null(value); }

bool json_has_text(const json_t *object, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(object, key));
  return value && strcmp(value, text) == 0;
}

const char *json_type_name(const json_t *object) {
  /* the library reads them in this order, too: a WordPiece also has what a WordLevel has */
  static const char *const implied[][2] = {{"merges", "BPE"},           {"max_input_chars_per_word", "WordPiece"},
                                           {"unk_id", "Unigram"},       {"vocab", "WordLevel"},
                                           {"normalizers", "Sequence"}, {"processors", "Sequence"},
                                           {"decoders", "Sequence"},    {"single", "TemplateProcessing"},
                                           {"prepend", "Prepend"},      {"pattern", "Replace"},
                                           {"start", "Strip"}};
  const json_t *type = json_object_get(object, "type");
  if (json_is_string(type)) return json_string_value(type);
  for (size_t i = 0; json_is_absent(type) && i < sizeof implied / sizeof *implied; i++)
    if (json_object_get(object, implied[i][0])) return implied[i][1];
  return json_is_absent(object) ? "null" : "unknown";
}

bool json_is_type(const json_t *object, const char *type) { return strcmp(json_type_name(object), type) == 0; }

int32_t json_id(const json_t *value) {
  const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
  return id >= 0 && id < JSON_ID_LIMIT ? (int32_t)id : -1;
}

json_t *json_read_beside(const char *path, const char *name) {
  enum { LIMIT = 16 << 20 };
  const PathText beside = path_in(path_directory(path).text, name);
  MappedFile file = {0};
  Error ignored = {0};
  json_t *root = NULL;
  if (file_map(&file, beside.text, EXIT_CHECKPOINT, &ignored) && file.size > 0 && file.size < LIMIT)
    root = json_parse(file.bytes, file.size, 0, NULL, beside.text, &ignored);
  file_unmap(&file);
  return root;
}

/* Returns the bytes of a file; NULL with the error. */
static char *read_file(const char *path, size_t *size, Error *error) {
  MappedFile file;
  char *text = NULL;
  if (!file_map(&file, path, EXIT_CHECKPOINT, error)) return NULL;
  if (file.size == 0) fail(error, EXIT_CHECKPOINT, "%s is empty", path);
  else if (file.size > JSON_FILE_LIMIT)
    fail(error, EXIT_CHECKPOINT, "%s: %zu bytes, more than the %d a tokenizer may have", path, file.size,
         JSON_FILE_LIMIT);
  else if (!(text = malloc(file.size))) error_memory(error, path);
  if (text) memcpy(text, file.bytes, *size = file.size);
  file_unmap(&file);
  return text;
}

/* ---- the vocabulary ---- */

/* The vocabulary while it is read. */
typedef struct Vocabulary {
  const char **texts; /* [size], owned by the JSON; NULL: encoding never returns the id */
  int32_t size;
  int32_t byte_tokens[BPE_BYTES]; /* <0x00> to <0xFF> of a vocabulary of characters; -1 in one of bytes */
  bool *merged;                   /* [size] whether a merge contains the id */
  bool ignore_merges;             /* a word that equals a token becomes that token */
  BpeTokens tokens;
  BpeMerge *merges;
} Vocabulary;

static void free_vocabulary(Vocabulary *v) {
  free(v->texts);
  free(v->merged);
  free(v->tokens.bytes);
  free(v->tokens.begins);
  free(v->merges);
}

static bool find_largest_id(TokenizerReader *r, json_t *vocab) {
  const char *text;
  json_t *value;
  if (!json_is_object(vocab)) return json_refuse(r, "model.vocab is missing or not an object");
  json_object_foreach(vocab, text, value) {
    const int32_t id = json_id(value);
    if (id < 0)
      return json_refuse(r, "model.vocab: the id of \"%.60s\" is not a whole number from 0 to %d", text,
                         JSON_ID_LIMIT - 1);
    if (id > r->largest) r->largest = id;
  }
  return true;
}

/* ---- merges: "left right" or ["left", "right"] ---- */

/* Returns false for an invalid merge, and with EXIT_MEMORY. */
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
  char *text = malloc(left_size + strlen(right) + 1); /* first the left token, then both */
  if (!text) return error_memory(error, TOKENIZER_JSON);
  memcpy(text, left, left_size);
  text[left_size] = '\0';
  *out = (BpeMerge){.left = json_id(json_object_get(vocab, text)), .right = json_id(json_object_get(vocab, right))};
  strcpy(text + left_size, right);
  out->id = json_id(json_object_get(vocab, text));
  free(text);
  return out->left >= 0 && out->right >= 0 && out->id >= 0;
}

static bool read_merges(const TokenizerReader *r, Vocabulary *out, const json_t *vocab, const json_t *merges) {
  const size_t count = json_array_size(merges);
  out->merges = malloc((count + 1) * sizeof *out->merges);
  out->merged = calloc((size_t)out->size, sizeof *out->merged);
  if (!out->merges || !out->merged) return error_memory(r->error, "a tokenizer");
  for (size_t i = 0; i < count; i++) {
    BpeMerge *merge = &out->merges[i];
    if (!read_merge(merge, vocab, json_array_get(merges, i), r->error))
      return json_refuse(r, "merge %zu does not join two tokens of model.vocab to a third one", i);
    out->merged[merge->left] = out->merged[merge->right] = out->merged[merge->id] = true;
  }
  return true;
}

/* ---- tokens ---- */

static bool find_byte_tokens(const TokenizerReader *r, Vocabulary *v, const json_t *vocab) {
  for (int byte = 0; byte < BPE_BYTES; byte++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
    const bool characters = !r->bytes && !r->level;
    v->byte_tokens[byte] = characters ? json_id(json_object_get(vocab, name)) : -1;
    if (characters && v->byte_tokens[byte] < 0)
      return json_refuse(r, "byte_fallback needs a token %s, which model.vocab does not have", name);
  }
  return true;
}

static bool is_byte_token(const Vocabulary *v, int32_t id, uint8_t *byte) {
  const char *text = v->texts[id];
  if (!text || strlen(text) != 6 || !isxdigit((unsigned char)text[3]) || !isxdigit((unsigned char)text[4]))
    return false;
  *byte = (uint8_t)strtoul(text + 3, NULL, 16);
  return v->byte_tokens[*byte] == id;
}

/* Whether a token is one character; in a vocabulary of bytes, a character that represents a byte. */
static bool is_character(const TokenizerReader *r, const char *text) {
  uint32_t point;
  uint8_t byte[4];
  const size_t size = strlen(text);
  return size && utf8_read((const uint8_t *)text, size, &point) == size &&
         (!r->bytes || alphabet_read(text, byte) == 1);
}

/* Whether encoding can return a token without matching it as an added token. */
static bool is_in_words(const TokenizerReader *r, const Vocabulary *v, int32_t id) {
  uint8_t byte;
  return v->texts[id] && (r->level || v->merged[id] || is_character(r, v->texts[id]) || is_byte_token(v, id, &byte));
}

/* Whether encoding returns a token only as an added token. With ignore_merges a word may be any token of the
 * vocabulary; here it is never the end token, because that would cut the text. */
static bool is_only_added(const TokenizerReader *r, const Vocabulary *v, const AddedToken *entry) {
  uint8_t bytes[ADDED_TOKEN_BYTES];
  if (is_in_words(r, v, entry->id)) return false;
  if (entry->special && (!v->ignore_merges || entry->id == r->out->end)) return true;
  return strlen(entry->text) > sizeof bytes || (r->bytes && alphabet_read(entry->text, bytes) < 0);
}

static bool fill_texts(const TokenizerReader *r, Vocabulary *out, json_t *vocab) {
  const char *text;
  json_t *value;
  json_object_foreach(vocab, text, value) {
    const int32_t id = json_id(value);
    if (out->texts[id])
      return json_refuse(r, "model.vocab: \"%.60s\" and \"%.60s\" have the same id %d", out->texts[id], text, id);
    out->texts[id] = text;
  }
  for (size_t i = 0; i < r->out->added_count; i++) {
    const AddedToken *entry = &r->out->added[i];
    const int32_t id = entry->id;
    const json_t *known = json_object_get(vocab, entry->text);
    if (known ? json_id(known) != id : out->texts[id] && strcmp(out->texts[id], entry->text) != 0)
      return json_refuse(r, "the added token \"%.60s\" has the id %d, %s in model.vocab", entry->text, id,
                         known ? "but another id" : "which another token has");
    if (is_only_added(r, out, entry)) out->texts[id] = NULL;
    else if (id == r->out->end)
      return json_refuse(r,
                         "the token \"%.60s\" ends documents, but words are made of it, too; expected one that no text "
                         "becomes",
                         entry->text);
  }
  return true;
}

/* Writes the bytes of a token and returns their number; -1: it is not written in the alphabet. */
static int64_t token_bytes(const TokenizerReader *r, const Vocabulary *v, int32_t id, uint8_t *out) {
  if (r->bytes) return alphabet_read(v->texts[id], out);
  if (is_byte_token(v, id, out)) return 1;
  const size_t size = strlen(v->texts[id]);
  memcpy(out, v->texts[id], size);
  return (int64_t)size;
}

/* Allocates `tokens` for `capacity` bytes. */
static bool allocate_tokens(const TokenizerReader *r, BpeTokens *tokens, int32_t size, size_t capacity) {
  *tokens = (BpeTokens){size, malloc(capacity + 1), malloc(((size_t)size + 1) * sizeof(uint32_t))};
  return (tokens->bytes && tokens->begins) || error_memory(r->error, "a tokenizer");
}

static bool make_tokens(const TokenizerReader *r, Vocabulary *v) {
  BpeTokens *out = &v->tokens;
  size_t capacity = 0;
  for (int32_t id = 0; id < v->size; id++) capacity += v->texts[id] ? strlen(v->texts[id]) : 0;
  if (!allocate_tokens(r, out, v->size, capacity)) return false;
  uint32_t at = 0; /* the file is smaller than 2^32 bytes */
  for (int32_t id = 0; id < v->size; id++) {
    out->begins[id] = at;
    if (!v->texts[id]) continue;
    const int64_t bytes = token_bytes(r, v, id, out->bytes + at);
    if (bytes < 0) return json_refuse(r, "the token \"%.60s\" is not in the alphabet of byte-level BPE", v->texts[id]);
    at += (uint32_t)bytes;
  }
  out->begins[v->size] = at;
  return true;
}

/* ---- the texts of tokens ---- */

static size_t copy_around(const char *around, uint8_t *out) {
  const size_t size = strlen(around);
  memcpy(out, around, size);
  return size;
}

/* Copies a text; in a vocabulary of characters it replaces SPACE_SYMBOL by a space, in one of whole pieces it adds what
 * is between them. Returns the number of bytes. */
static size_t copy_decoded(const TokenizerReader *r, const uint8_t *text, size_t size, uint8_t *out) {
  const WordLevelKind *kind = r->level && size > 0 && text[0] != '\n' ? &word_level_kinds[r->level] : NULL;
  size_t used = kind ? copy_around(kind->before, out) : 0;
  for (size_t at = 0; at < size;) {
    const bool space = !r->bytes && !r->level && size - at >= 3 && memcmp(text + at, SPACE_SYMBOL, 3) == 0;
    out[used++] = space ? ' ' : text[at];
    at += space ? 3 : 1;
  }
  return used + (kind ? copy_around(kind->after, out + used) : 0);
}

/* Fills out->decoded where decoded texts differ from the bytes that encoding uses: spaces have a symbol, or added
 * tokens have a text. */
static bool make_decoded(const TokenizerReader *r, const Vocabulary *v) {
  const BpeTokens *words = &v->tokens;
  BpeTokens *out = &r->out->decoded;
  const AddedToken *added = r->out->added, *const last = added + r->out->added_count;
  size_t capacity = words->begins[v->size] + (r->level ? (size_t)v->size : 0);
  bool differs = !r->bytes;
  for (const AddedToken *entry = added; entry < last; entry++) {
    const size_t size = entry->special ? 0 : strlen(entry->text);
    capacity += size;
    differs = differs || size > 0 || v->texts[entry->id];
  }
  if (!differs) return true;
  if (!allocate_tokens(r, out, v->size, capacity)) return false;
  uint32_t at = 0;
  for (int32_t id = 0; id < v->size; id++) {
    uint8_t byte;
    size_t size;
    const uint8_t *text = bpe_token(words, id, &size);
    for (; added < last && added->id == id; added++) {
      if (is_byte_token(v, id, &byte)) continue;
      text = (const uint8_t *)added->text;
      size = added->special ? 0 : strlen(added->text);
    }
    out->begins[id] = at;
    at += (uint32_t)copy_decoded(r, text, size, out->bytes + at);
  }
  out->begins[v->size] = at;
  return true;
}

/* ---- reading ---- */

/* Refuses a model with an option unless it is absent, null, 0 or "". */
static bool is_off(const TokenizerReader *r, const json_t *model, const char *key) {
  const json_t *value = json_object_get(model, key);
  if (json_is_absent(value) || json_has_text(model, key, "")) return true;
  return (json_is_number(value) && json_number_value(value) == 0) || json_refuse(r, "its model has %s" SUPPORTED, key);
}

static bool check_model(const TokenizerReader *r, const json_t *model) {
  if (!json_is_object(model)) return json_refuse(r, "model is missing or not an object");
  if (json_is_type(model, "WordLevel")) return true;
  if (!json_is_type(model, "BPE"))
    return json_refuse(r, "its model is of the type \"%s\"" SUPPORTED, text_one_line(json_type_name(model), 40).text);
  if (!json_is_array(json_object_get(model, "merges"))) return json_refuse(r, "model.merges is missing or not a list");
  return is_off(r, model, "dropout") && is_off(r, model, "continuing_subword_prefix") &&
         is_off(r, model, "end_of_word_suffix");
}

static bool make_bpe(const TokenizerReader *r, Vocabulary *v, const json_t *model) {
  json_t *vocab = json_object_get(model, "vocab");
  const json_t *merges = json_object_get(model, "merges");
  const char *unknown = json_string_value(json_object_get(model, "unk_token"));
  const BpeOptions options = {.byte_tokens = r->bytes || r->level ? NULL : v->byte_tokens,
                              .ignore_merges = v->ignore_merges,
                              .level = r->level,
                              .unknown = unknown ? json_id(json_object_get(vocab, unknown)) : -1};
  return find_byte_tokens(r, v, vocab) && read_merges(r, v, vocab, merges) && fill_texts(r, v, vocab) &&
         make_tokens(r, v) && make_decoded(r, v) &&
         bpe_create(&r->out->bpe, &v->tokens, v->merges, json_array_size(merges), options, r->error);
}

/* transformers makes the unknown token a special one, which it would then find inside of words. */
static bool read_unknown(TokenizerReader *r, const json_t *model) {
  if (r->level) return true;
  const char *text = json_string_value(json_object_get(model, "unk_token"));
  return !text || (r->out->unknown = strdup(text)) || error_memory(r->error, "a tokenizer");
}

static bool read_tokenizer(TokenizerReader *r) {
  const json_t *model = json_object_get(r->root, "model");
  Vocabulary vocabulary = {0};
  if (!check_model(r, model) || !find_largest_id(r, json_object_get(model, "vocab")) || !json_read_added(r) ||
      !json_find_kind(r) || !read_unknown(r, model))
    return false;
  vocabulary.size = r->out->vocab = r->largest + 1;
  vocabulary.ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
  vocabulary.texts = calloc((size_t)vocabulary.size, sizeof *vocabulary.texts);
  const bool ok = (vocabulary.texts || error_memory(r->error, "a tokenizer")) && make_bpe(r, &vocabulary, model) &&
                  json_check_added_ids(r) && json_read_pipeline(r) && json_read_post_processor(r);
  free_vocabulary(&vocabulary);
  return ok;
}

/* Returns the template of tokenizer_config.json, which may be a list of named ones; NULL: none. */
static const char *configured_template(const json_t *config) {
  const json_t *value = json_object_get(config, "chat_template"), *entry;
  size_t i;
  json_array_foreach(value, i, entry) {
    if (json_has_text(entry, "name", "default")) return json_string_value(json_object_get(entry, "template"));
  }
  return json_string_value(value);
}

/* Takes the chat template from its own file, else from tokenizer_config.json, as transformers does. */
static bool read_chat_template(TokenizerReader *r) {
  enum { LIMIT = 1 << 20 };
  const PathText path = path_in(path_directory(r->path).text, CHAT_TEMPLATE_JINJA);
  Error ignored = {0};
  MappedFile file = {0};
  const bool own = file_size(path.text) > 0 && file_map(&file, path.text, EXIT_CHECKPOINT, &ignored) && file.size > 0 &&
                   file.size < LIMIT && !memchr(file.bytes, '\0', file.size);
  char *text = own ? strndup((const char *)file.bytes, file.size) : NULL;
  file_unmap(&file);
  if (own && !text) return error_memory(r->error, "a chat template");
  const bool ok = tokenizer_set_chat_template(r->out, own ? text : configured_template(r->config), r->error);
  free(text);
  return ok;
}

/* Parses the text of a tokenizer.json. */
static json_t *parse(const Tokenizer *t, const char *path, Error *error) {
  json_error_t cause;
  json_t *root = json_parse(t->json, t->json_size, JSON_REJECT_DUPLICATES, &cause, path, error);
  if (!root) fail(error, EXIT_CHECKPOINT, "%s:%d: not valid JSON: %s", path, cause.line, cause.text);
  return root;
}

bool json_read_tokenizer(Tokenizer **out, char *text, size_t size, const char *path, int32_t end, Error *error) {
  Error why = {0}, named = {0};
  Tokenizer *t = *out = calloc(1, sizeof *t);
  if (!t) {
    free(text);
    return error_memory(error, "a tokenizer");
  }
  t->begin = -1;
  t->json = text;
  t->json_size = size;
  json_t *root = parse(t, path, &why), *config = end < 0 ? json_read_beside(path, TOKENIZER_CONFIG_JSON) : NULL;
  TokenizerReader reader = {.out = t, .path = path, .root = root, .config = config, .end = end, .error = &why};
  t->separate_vocabs = json_is_true(json_object_get(config, SEPARATE_VOCABS));
  const bool ok = root && read_tokenizer(&reader) && (end >= 0 || read_chat_template(&reader));
  json_decref(root);
  json_decref(config);
  if (ok) return true;
  tokenizer_free(t);
  *out = NULL;
  /* The errors of parse() contain the path. One line: the errors of read_tokenizer() quote the file. */
  if (!root || why.code == EXIT_MEMORY) named = why;
  else fail(&named, why.code, "%s: %s", path, why.text);
  return fail(error, named.code, "%s", text_one_line(named.text, ONE_LINE_BYTES).text);
}

bool tokenizer_load_alone(Tokenizer **out, const char *path, int32_t end, Error *error) {
  Error why = {0};
  size_t size;
  char *text = read_file(path, &size, &why);
  *out = NULL;
  if (!text) return fail(error, why.code, "%s", text_one_line(why.text, ONE_LINE_BYTES).text);
  return json_read_tokenizer(out, text, size, path, end, error);
}

bool tokenizer_load(Tokenizer **out, const char *path, Error *error) {
  return tokenizer_load_alone(out, path, -1, error);
}
