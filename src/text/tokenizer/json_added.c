/* Reads the added tokens of tokenizer.json, the token that ends documents, and the tokens before and after a text. */
#include "text/tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static bool read_entry(TokenizerReader *r, size_t i, const json_t *token) {
  const int32_t id = json_id(json_object_get(token, "id"));
  const char *text = json_string_value(json_object_get(token, "content"));
  if (!text || id < 0)
    return json_refuse(r, "added token %zu has no text, or no id from 0 to %d", i, JSON_ID_LIMIT - 1);
  const bool special = json_is_true(json_object_get(token, "special"));
  const json_t *normalized = json_object_get(token, "normalized");
  AddedToken *entry = &r->out->added[r->out->added_count];
  *entry = (AddedToken){.text = strdup(text),
                        .id = id,
                        .special = special,
                        .normalized = normalized ? json_is_true(normalized) : !special,
                        .single_word = json_is_true(json_object_get(token, "single_word")),
                        .lstrip = json_is_true(json_object_get(token, "lstrip")),
                        .rstrip = json_is_true(json_object_get(token, "rstrip"))};
  if (!entry->text) return error_memory(r->error, "the added tokens");
  r->out->added_count++;
  if (id > r->largest) r->largest = id;
  return true;
}

static int by_id(const void *left, const void *right) {
  const AddedToken *a = left, *b = right;
  return a->id != b->id ? (a->id < b->id ? -1 : 1) : strcmp(a->text, b->text);
}

static const AddedToken *find_text(const TokenizerReader *r, const char *text) {
  for (size_t i = 0; i < r->out->added_count; i++)
    if (strcmp(r->out->added[i].text, text) == 0) return &r->out->added[i];
  return NULL;
}

/* ---- the token that ends a document ---- */

/* Returns the token that a string, or an object with the string, names. */
static const AddedToken *named_token(const TokenizerReader *r, const json_t *name) {
  const char *text = json_string_value(json_is_object(name) ? json_object_get(name, "content") : name);
  return text ? find_text(r, text) : NULL;
}

static const AddedToken *numbered_token(const TokenizerReader *r, const json_t *id) {
  if (json_is_array(id)) id = json_array_get(id, 0);
  return tokenizer_added(r->out, json_id(id));
}

/* Takes the token from tokenizer_config.json, else from the files of the model, else the name that GPT-2 or Llama 2
 * use. */
static const AddedToken *find_end(const TokenizerReader *r) {
  static const char *const files[] = {"config.json", "generation_config.json"};
  const AddedToken *end = named_token(r, json_object_get(r->config, "eos_token"));
  for (int i = 0; !end && i < 2; i++) {
    json_t *model = json_read_beside(r->path, files[i]);
    end = numbered_token(r, json_object_get(model, "eos_token_id"));
    json_decref(model);
  }
  if (!end) end = find_text(r, END_OF_TEXT);
  if (!end) end = find_text(r, "</s>");
  return end;
}

static bool read_end(TokenizerReader *r) {
  const AddedToken *end = r->end < 0 ? find_end(r) : tokenizer_added(r->out, r->end);
  if (!end)
    return json_refuse(r, "no added token ends a document: it has neither \"" END_OF_TEXT "\" nor \"</s>\", and no "
                          "eos_token of tokenizer_config.json or eos_token_id of config.json beside it names another");
  r->out->end = end->id;
  /* The end token separates documents, so it is special even if the file does not say so. */
  for (size_t i = 0; i < r->out->added_count; i++)
    if (r->out->added[i].id == r->out->end) r->out->added[i].special = true;
  return true;
}

bool json_read_added(TokenizerReader *r) {
  const json_t *tokens = json_object_get(r->root, "added_tokens");
  if (!json_is_absent(tokens) && !json_is_array(tokens)) return json_refuse(r, "added_tokens is not a list");
  const size_t count = json_array_size(tokens);
  r->out->added = calloc(count + 1, sizeof *r->out->added);
  if (!r->out->added) return error_memory(r->error, "the added tokens");
  for (size_t i = 0; i < count; i++)
    if (!read_entry(r, i, json_array_get(tokens, i))) return false;
  qsort(r->out->added, count, sizeof *r->out->added, by_id);
  return read_end(r);
}

/* ---- the ids of added tokens ---- */

/* The library takes the id of a text in model.vocab from there. Any other text gets the next id after the vocabulary
 * and the previous added tokens. */
static bool check_id(const TokenizerReader *r, const json_t *vocab, const json_t *token, json_t *seen,
                     int32_t *largest) {
  const int32_t size = (int32_t)json_object_size(vocab), next = *largest >= size ? *largest + 1 : size;
  const char *text = json_string_value(json_object_get(token, "content"));
  const json_t *known = json_object_get(vocab, text);
  const int32_t id = json_id(json_object_get(token, "id"));
  if (!*text || json_object_get(seen, text)) return true;
  if (!known && id != next)
    return json_refuse(r,
                       "the added token \"%.60s\" has the id %d; expected %d: the tokenizers library numbers added "
                       "tokens without gaps from %d on, the size of model.vocab",
                       text, (int)id, (int)next, (int)size);
  if (id > *largest) *largest = id;
  return json_object_set_new(seen, text, json_true()) == 0 || error_memory(r->error, "the added tokens");
}

bool json_check_added_ids(const TokenizerReader *r) {
  const json_t *vocab = json_object_get(json_object_get(r->root, "model"), "vocab"),
               *tokens = json_object_get(r->root, "added_tokens");
  json_t *seen = json_object();
  int32_t largest = -1;
  bool ok = seen || error_memory(r->error, "the added tokens");
  for (size_t i = 0; ok && i < json_array_size(tokens); i++)
    ok = check_id(r, vocab, json_array_get(tokens, i), seen, &largest);
  json_decref(seen);
  return ok;
}

/* ---- tokens before and after a text ---- */

/* transformers 5 writes a template without special tokens where there is nothing to add. */
static bool adds_nothing(const json_t *post) {
  const json_t *special = json_object_get(post, "special_tokens");
  const bool empty = json_is_object(special) && json_object_size(special) == 0;
  const bool once = json_array_size(json_object_get(post, "single")) == 1;
  return json_is_absent(post) || json_is_type(post, "ByteLevel") ||
         (json_is_type(post, "TemplateProcessing") && empty && once);
}

/* Returns the token at index 0 or 1 of a template of a token and a text, or NULL. The template for pairs of texts is
 * not used. */
static const AddedToken *token_at(const TokenizerReader *r, const json_t *post, size_t index) {
  const json_t *single = json_object_get(post, "single"), *tokens = json_object_get(post, "special_tokens");
  const json_t *special = json_object_get(json_array_get(single, index), "SpecialToken"),
               *text = json_object_get(json_array_get(single, 1 - index), "Sequence"),
               *token = json_object_get(tokens, json_string_value(json_object_get(special, "id"))),
               *ids = json_object_get(token, "ids");
  const bool is = json_is_type(post, "TemplateProcessing") && json_array_size(single) == 2 &&
                  json_has_text(text, "id", "A") && json_array_size(ids) == 1;
  return is ? numbered_token(r, ids) : NULL;
}

/* Skips ByteLevel in a Sequence, because it changes only offsets; Llama 3 has it before the template. */
static const json_t *without_byte_level(const json_t *post) {
  const json_t *steps = json_object_get(post, "processors"), *only = NULL;
  if (!json_is_type(post, "Sequence")) return post;
  for (size_t i = 0; i < json_array_size(steps); i++) {
    const json_t *step = json_array_get(steps, i);
    if (json_is_type(step, "ByteLevel")) continue;
    if (only) return post;
    only = step;
  }
  return only;
}

bool json_read_post_processor(TokenizerReader *r) {
  const json_t *post = without_byte_level(json_object_get(r->root, "post_processor"));
  const AddedToken *before = token_at(r, post, 0), *after = token_at(r, post, 1);
  r->out->begin = before ? before->id : -1;
  r->out->ends_with_end = after && after->id == r->out->end;
  return before || r->out->ends_with_end || adds_nothing(post) ||
         json_refuse(r,
                     "its post_processor adds more than a token before a text, or the end token behind it" SUPPORTED);
}
