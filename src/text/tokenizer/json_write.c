/* tokenizer.json and tokenizer_config.json, as Hugging Face's tokenizers and transformers read them. */
#include "text/tokenizer/internal.h"

#include "base/file.h"
#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The functions below need not check allocations: take_text() reports any that has failed (base/json.h). */

static json_t *vocab_json(const Bpe *bpe) {
  json_t *vocab = json_object();
  for (int32_t id = 0; id < bpe->tokens.size; id++) {
    char *key = alphabet_token(bpe, id);
    if (key && *key) json_object_set_new(vocab, key, json_integer(id));
    free(key);
  }
  return vocab;
}

static json_t *merges_json(const Bpe *bpe) {
  json_t *merges = json_array();
  for (int32_t i = 0; i < bpe->merge_count; i++) {
    char *left = alphabet_token(bpe, bpe->merges[i].left), *right = alphabet_token(bpe, bpe->merges[i].right);
    if (left && right) json_array_append_new(merges, json_sprintf("%s %s", left, right));
    free(left);
    free(right);
  }
  return merges;
}

static json_t *model_json(const Bpe *bpe) {
  return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                   "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                   "ignore_merges", 0, "vocab", vocab_json(bpe), "merges", merges_json(bpe));
}

static json_t *end_token_json(const char *text) {
  return json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", text, "single_word", 0, "lstrip", 0, "rstrip", 0,
                   "normalized", 0, "special", 1);
}

static json_t *added_tokens_json(int32_t end, const char *text) {
  json_t *token = json_pack("{s:i}", "id", end), *rest = end_token_json(text);
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

/* The template for one text, or for a pair of texts. */
static json_t *template_json(const Tokenizer *t, bool pair) {
  json_t *list = json_array(), *end = template_part("SpecialToken", tokenizer_end_text(t), 0);
  if (tokenizer_begins_with_end(t)) json_array_append(list, end);
  json_array_append_new(list, template_part("Sequence", "A", 0));
  if (pair) json_array_append_new(list, template_part("Sequence", "B", 1));
  if (!tokenizer_begins_with_end(t)) json_array_append(list, end);
  json_decref(end);
  return list;
}

/* Returns null, or a post_processor that puts the end token before or after a text. */
static json_t *post_processor_json(const Tokenizer *t) {
  const char *end = tokenizer_end_text(t);
  if (!tokenizer_begins_with_end(t) && !t->ends_with_end) return json_null();
  return json_pack("{s:s, s:o, s:o, s:{s:{s:s, s:[i], s:[s]}}}", "type", "TemplateProcessing", "single",
                   template_json(t, false), "pair", template_json(t, true), "special_tokens", end, "id", end, "ids",
                   t->end, "tokens", end);
}

static json_t *tokenizer_json(const Tokenizer *t) {
  return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                   "added_tokens", added_tokens_json(t->end, tokenizer_end_text(t)), "normalizer", "pre_tokenizer",
                   byte_level_json(), "post_processor", post_processor_json(t), "decoder", byte_level_json(), "model",
                   model_json(t->bpe));
}

/* Returns the loaded file with another post_processor. */
static json_t *changed_json(const Tokenizer *t) {
  Error ignored = {0};
  json_t *root = json_parse(t->json, t->json_size, 0, NULL, TOKENIZER_JSON, &ignored);
  json_object_set_new(root, "post_processor", post_processor_json(t));
  return root;
}

/* Returns the bos_token; NULL: only the configuration of the model names the start token. */
static const char *start_text(const Tokenizer *t) {
  if (t->begin >= 0 && t->begin != t->end) return tokenizer_added(t, t->begin)->text;
  return t->starts_elsewhere ? NULL : tokenizer_end_text(t);
}

static json_t *config_json(const Tokenizer *t, int ctx) {
  char id[16];
  snprintf(id, sizeof id, "%d", t->end);
  json_t *root = json_pack("{s:b, s:{s:o}, s:s?, s:b, s:s, s:i, s:s, s:s}", "add_prefix_space", t->prefix_space,
                           "added_tokens_decoder", id, end_token_json(tokenizer_end_text(t)), "bos_token",
                           start_text(t), "clean_up_tokenization_spaces", 0, "eos_token", tokenizer_end_text(t),
                           "model_max_length", ctx, "tokenizer_class", "PreTrainedTokenizerFast", "unk_token",
                           t->unknown ? t->unknown : tokenizer_end_text(t));
  if (t->ends_with_end) json_object_set_new(root, "pad_token", json_string(tokenizer_end_text(t)));
  if (t->separate_vocabs) json_object_set_new(root, SEPARATE_VOCABS, json_true());
  if (t->chat_template) json_object_set_new(root, "chat_template", json_string(t->chat_template));
  return root;
}

/* Converts `object` to text and frees it. */
static bool take_text(json_t *object, const char *name, char **text, size_t *size, Error *error) {
  *text = json_text(object, JSON_INDENT(2), name, error);
  json_decref(object);
  if (!*text) return false;
  *size = strlen(*text);
  (*text)[(*size)++] = '\n'; /* replaces the final zero, which the file does not have */
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

/* ---- a vocabulary of whole pieces: the tokenizer is made by reading what is written ---- */

static json_t *constant_json(const char *text) {
  Error ignored = {0};
  return json_parse(text, strlen(text), 0, NULL, TOKENIZER_JSON, &ignored);
}

bool word_level_tokenizer(Tokenizer **out, WordLevel level, json_t *vocab, Error *error) {
  const WordLevelKind *kind = &word_level_kinds[level];
  const int32_t end = (int32_t)json_object_size(vocab);
  char *text;
  size_t size;
  json_t *root =
      json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:{s:s, s:o, s:s}}", "version", "1.0", "truncation",
                "padding", "added_tokens", added_tokens_json(end, END_OF_TEXT), "normalizer", "pre_tokenizer",
                constant_json(kind->pre_tokenizer), "post_processor", "decoder", constant_json(kind->decoder), "model",
                "type", "WordLevel", "vocab", vocab, "unk_token", WORD_LEVEL_UNKNOWN);
  *out = NULL;
  if (!take_text(root, TOKENIZER_JSON, &text, &size, error)) return false;
  if (size <= JSON_FILE_LIMIT) return json_read_tokenizer(out, text, size, TOKENIZER_JSON, end, error);
  free(text);
  return fail(
      error, EXIT_INPUT,
      "the vocabulary of %d %ss takes %zu bytes, more than the %d that a tokenizer.json may have; give a smaller "
      "--vocab-size, or --tokenizer bpe",
      (int)end, kind->piece, size, JSON_FILE_LIMIT);
}

bool tokenizer_save(const Tokenizer *t, const char *dir, int ctx, Error *error) {
  char *text = NULL, *config = NULL;
  size_t size = 0, config_size = 0;
  const bool ok =
      tokenizer_text(t, &text, &size, error) && file_write_in(dir, TOKENIZER_JSON, text, size, error) &&
      take_text(config_json(t, ctx), TOKENIZER_CONFIG_JSON, &config, &config_size, error) &&
      file_write_in(dir, TOKENIZER_CONFIG_JSON, config, config_size, error) &&
      (!t->chat_template || file_write_in(dir, CHAT_TEMPLATE_JINJA, t->chat_template, strlen(t->chat_template), error));
  if (!t->chat_template) file_remove_in(dir, CHAT_TEMPLATE_JINJA); /* of an older model */
  free(text);
  free(config);
  return ok;
}
