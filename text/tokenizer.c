#include "text/tokenizer.h"

#include "store/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
  BYTES = 256,
  FILE_LIMIT = 64 << 20, /* bytes of a tokenizer.json; a vocabulary of 150,000 takes 10 MB */
  SYMBOL_BYTES = 3       /* a symbol of the alphabet in UTF-8, and its end */
};

typedef enum TokenizerKind { TOKENIZER_BYTE } TokenizerKind;

/* All kinds share the vocabulary table, so decoding and saving are the same for all; encoding is what differs. */
struct Tokenizer {
  TokenizerKind kind;
  int vocab, end;
  uint8_t *bytes;   /* what the ids stand for, one after the other */
  uint32_t *begins; /* [vocab + 1]: id i is bytes[begins[i] .. begins[i + 1]) */
};

/* ---- The vocabulary ---------------------------------------------------------------------------------------------- */

void tokenizer_free(Tokenizer *tokenizer) {
  if (!tokenizer) return;
  free(tokenizer->bytes);
  free(tokenizer->begins);
  free(tokenizer);
}

Tokenizer *tokenizer_byte(void) {
  Tokenizer *out = calloc(1, sizeof *out);
  if (!out) return NULL;
  out->kind = TOKENIZER_BYTE;
  out->vocab = BYTES + 1;
  out->end = BYTES;
  out->bytes = malloc(BYTES);
  out->begins = malloc((BYTES + 2) * sizeof *out->begins);
  if (!out->bytes || !out->begins) {
    tokenizer_free(out);
    return NULL;
  }
  for (uint32_t i = 0; i < BYTES; i++) {
    out->bytes[i] = (uint8_t)i;
    out->begins[i] = i;
  }
  out->begins[BYTES] = out->begins[BYTES + 1] = BYTES; /* the end token stands for nothing */
  return out;
}

const char *tokenizer_name(const Tokenizer *tokenizer) {
  switch (tokenizer->kind) {
  case TOKENIZER_BYTE: return "byte";
  }
  return "";
}

int tokenizer_vocab(const Tokenizer *tokenizer) { return tokenizer->vocab; }

int tokenizer_end(const Tokenizer *tokenizer) { return tokenizer->end; }

static size_t encode_bytes(const uint8_t *text, size_t size, int32_t *ids, size_t capacity) {
  for (size_t i = 0; i < size && i < capacity; i++) ids[i] = text[i];
  return size;
}

size_t tokenizer_encode(const Tokenizer *tokenizer, const uint8_t *text, size_t size, int32_t *ids, size_t capacity) {
  switch (tokenizer->kind) {
  case TOKENIZER_BYTE: return encode_bytes(text, size, ids, capacity);
  }
  return 0;
}

const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, size_t *size) {
  *size = 0;
  if (id < 0 || id >= tokenizer->vocab) return tokenizer->bytes;
  *size = tokenizer->begins[id + 1] - tokenizer->begins[id];
  return tokenizer->bytes + tokenizer->begins[id];
}

/* ---- The alphabet of GPT-2 (bytes_to_unicode in its encoder.py) -------------------------------------------------- */

/* Every byte has a character that can be seen: the 188 printable ones of Latin-1 are themselves, the other 68, in their
 * order, are U+0100 and up. */
static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

typedef struct Alphabet {
  char symbol[BYTES][SYMBOL_BYTES]; /* UTF-8 */
} Alphabet;

static Alphabet gpt2_alphabet(void) {
  Alphabet out = {{{0}}};
  int hidden = 0;
  for (int byte = 0; byte < BYTES; byte++) {
    int point = is_printable(byte) ? byte : BYTES + hidden++;
    if (point < 0x80) {
      out.symbol[byte][0] = (char)point;
    } else {
      out.symbol[byte][0] = (char)(0xC0 | point >> 6);
      out.symbol[byte][1] = (char)(0x80 | (point & 0x3F));
    }
  }
  return out;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* A token in the alphabet, as it stands in the vocabulary of tokenizer.json. */
static bool add_token(json_t *vocab, const Alphabet *alphabet, const uint8_t *bytes, size_t size, int id) {
  char *key = malloc(size * (SYMBOL_BYTES - 1) + 1);
  if (!key) return false;
  char *at = key;
  for (size_t i = 0; i < size; i++) {
    size_t length = strlen(alphabet->symbol[bytes[i]]);
    memcpy(at, alphabet->symbol[bytes[i]], length);
    at += length;
  }
  *at = '\0';
  bool done = json_object_set_new(vocab, key, json_integer(id)) == 0;
  free(key);
  return done;
}

static json_t *vocab_json(const Tokenizer *tokenizer) {
  Alphabet alphabet = gpt2_alphabet();
  json_t *vocab = json_object();
  for (int id = 0; vocab && id < tokenizer->vocab; id++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(tokenizer, id, &size);
    if (id == tokenizer->end || add_token(vocab, &alphabet, bytes, size, id)) continue;
    json_decref(vocab);
    return NULL;
  }
  return vocab;
}

static json_t *end_token_json(void) {
  return json_pack("{s:s, s:b, s:b, s:b, s:b, s:b}", "content", END_OF_TEXT, "single_word", 0, "lstrip", 0, "rstrip", 0,
                   "normalized", 0, "special", 1);
}

static json_t *added_tokens_json(const Tokenizer *tokenizer) {
  json_t *token = json_pack("{s:i}", "id", tokenizer->end), *rest = end_token_json();
  if (token && rest) json_object_update(token, rest);
  json_decref(rest);
  return json_pack("[o]", token); /* NULL when `token` is */
}

static json_t *byte_level_json(void) {
  return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                   1);
}

static json_t *model_json(const Tokenizer *tokenizer) {
  return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout", "unk_token",
                   "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                   "ignore_merges", 0, "vocab", vocab_json(tokenizer), "merges");
}

static json_t *tokenizer_json(const Tokenizer *tokenizer) {
  return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                   "added_tokens", added_tokens_json(tokenizer), "normalizer", "pre_tokenizer", byte_level_json(),
                   "post_processor", "decoder", byte_level_json(), "model", model_json(tokenizer));
}

static json_t *config_json(const Tokenizer *tokenizer, int ctx) {
  char id[16];
  snprintf(id, sizeof id, "%d", tokenizer->end);
  return json_pack("{s:b, s:{s:o}, s:s, s:b, s:s, s:i, s:s, s:s}", "add_prefix_space", 0, "added_tokens_decoder", id,
                   end_token_json(), "bos_token", END_OF_TEXT, "clean_up_tokenization_spaces", 0, "eos_token",
                   END_OF_TEXT, "model_max_length", ctx, "tokenizer_class", "PreTrainedTokenizerFast", "unk_token",
                   END_OF_TEXT);
}

/* Takes `object` over. */
static bool write_json(json_t *object, const char *dir, const char *name, Error *error) {
  char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL, *path = path_join(dir, name);
  json_decref(object);
  bool done = false;
  if (text && path) {
    size_t size = strlen(text);
    text[size] = '\n'; /* in the place of the final zero: the file has none */
    done = file_write(path, text, size + 1, error);
  } else {
    fail(error, EXIT_MEMORY, "out of memory while writing %s/%s", dir, name);
  }
  free(text);
  free(path);
  return done;
}

bool tokenizer_save(const Tokenizer *tokenizer, const char *dir, int ctx, Error *error) {
  return write_json(tokenizer_json(tokenizer), dir, "tokenizer.json", error) &&
         write_json(config_json(tokenizer, ctx), dir, "tokenizer_config.json", error);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* The file is anybody's. What would make these bytes mean other ids than in the library that wrote it is refused, not
 * skipped over. */

static bool refuse(Error *error, const char *path, const char *reason) {
  return fail(error, EXIT_CHECKPOINT, "%s: %s", path, reason);
}

static bool unsupported(Error *error, const char *path, const char *what) {
  return fail(error, EXIT_CHECKPOINT,
              "%s: %s. This version reads the byte tokenizer only (256 bytes and " END_OF_TEXT
              ", no merges); BPE is not supported yet",
              path, what);
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

static json_t *read_json(const char *path, Error *error) {
  MappedFile file;
  json_error_t cause;
  if (!file_map(&file, path, EXIT_CHECKPOINT, error)) return NULL;
  json_t *root = NULL;
  if (file.size == 0) {
    refuse(error, path, "is empty");
  } else if (file.size > FILE_LIMIT) {
    fail(error, EXIT_CHECKPOINT, "%s: %zu bytes, more than the %d a tokenizer may have", path, file.size, FILE_LIMIT);
  } else {
    root = json_loadb((const char *)file.bytes, file.size, JSON_REJECT_DUPLICATES, &cause);
    if (!root) fail(error, EXIT_CHECKPOINT, "%s:%d: not valid JSON: %s", path, cause.line, cause.text);
  }
  file_unmap(&file);
  return root;
}

/* The byte that a one-character token stands for, or -1. */
static int byte_of(const Alphabet *alphabet, const char *token) {
  for (int byte = 0; byte < BYTES; byte++) {
    if (strcmp(alphabet->symbol[byte], token) == 0) return byte;
  }
  return -1;
}

/* 256 different keys, key and id naming the same byte: nothing can be missing then. The end token may be here too. */
static bool check_vocab(const char *path, json_t *vocab, Error *error) {
  Alphabet alphabet = gpt2_alphabet();
  int found = 0;
  const char *token;
  json_t *id;
  if (!json_is_object(vocab)) return refuse(error, path, "model.vocab is missing or no object");
  if (json_object_size(vocab) > BYTES + 1) return unsupported(error, path, "model.vocab has more entries than bytes");
  json_object_foreach(vocab, token, id) {
    if (!json_is_integer(id)) {
      return fail(error, EXIT_CHECKPOINT, "%s: model.vocab: the id of \"%.60s\" is no whole number", path, token);
    }
    json_int_t number = json_integer_value(id);
    int byte = byte_of(&alphabet, token);
    bool is_end = strcmp(token, END_OF_TEXT) == 0;
    if (byte < 0 && !is_end) return unsupported(error, path, "model.vocab has a token that is not one byte");
    if (number != (is_end ? BYTES : byte)) {
      return fail(error, EXIT_CHECKPOINT, "%s: model.vocab: \"%.60s\" has id %lld, need %d", path, token,
                  (long long)number, is_end ? BYTES : byte);
    }
    found += !is_end;
  }
  if (found == BYTES) return true;
  return fail(error, EXIT_CHECKPOINT, "%s: model.vocab has %d of the %d bytes", path, found, BYTES);
}

static bool check_model(const char *path, const json_t *model, Error *error) {
  const json_t *merges = json_object_get(model, "merges");
  if (!json_is_object(model)) return refuse(error, path, "model is missing or no object");
  if (!has_text(model, "type", "BPE")) return unsupported(error, path, "model.type is not BPE");
  if (!json_is_array(merges)) return refuse(error, path, "model.merges is missing or no list");
  if (json_array_size(merges) > 0) return unsupported(error, path, "model.merges is not empty");
  bool plain = is_absent(json_object_get(model, "dropout")) && is_absent_or_empty(model, "continuing_subword_prefix") &&
               is_absent_or_empty(model, "end_of_word_suffix");
  if (!plain) return unsupported(error, path, "model has a dropout, prefix or suffix");
  return check_vocab(path, json_object_get(model, "vocab"), error);
}

/* Exactly one, the end of text. */
static bool check_added_tokens(const char *path, const json_t *tokens, Error *error) {
  if (!json_is_array(tokens)) return refuse(error, path, "added_tokens is missing or no list");
  if (json_array_size(tokens) != 1) return unsupported(error, path, "added_tokens has not exactly one entry");
  const json_t *token = json_array_get(tokens, 0), *id = json_object_get(token, "id");
  if (!has_text(token, "content", END_OF_TEXT)) return unsupported(error, path, "the added token is not " END_OF_TEXT);
  if (!json_is_integer(id) || json_integer_value(id) != BYTES) {
    return refuse(error, path, "the id of " END_OF_TEXT " is not 256");
  }
  return true;
}

/* ByteLevel moves offsets, not ids. A template without special tokens is what transformers 5 writes for none. */
static bool adds_nothing(const json_t *post) {
  const json_t *special = json_object_get(post, "special_tokens");
  bool empty = json_is_object(special) && json_object_size(special) == 0;
  bool once = json_array_size(json_object_get(post, "single")) == 1;
  return is_absent(post) || has_text(post, "type", "ByteLevel") ||
         (has_text(post, "type", "TemplateProcessing") && empty && once);
}

/* What happens to a text before and after the model: nothing but the alphabet. */
static bool check_pipeline(const char *path, const json_t *root, Error *error) {
  const json_t *before = json_object_get(root, "pre_tokenizer"), *after = json_object_get(root, "decoder");
  if (!is_absent(json_object_get(root, "normalizer"))) return unsupported(error, path, "it has a normalizer");
  if (!has_text(before, "type", "ByteLevel")) return unsupported(error, path, "pre_tokenizer is not ByteLevel");
  if (!json_is_false(json_object_get(before, "add_prefix_space"))) {
    return unsupported(error, path, "pre_tokenizer.add_prefix_space is not false");
  }
  if (!has_text(after, "type", "ByteLevel")) return unsupported(error, path, "decoder is not ByteLevel");
  if (adds_nothing(json_object_get(root, "post_processor"))) return true;
  return unsupported(error, path, "it has a post_processor");
}

bool tokenizer_load(Tokenizer **out, const char *path, Error *error) {
  *out = NULL;
  json_t *root = read_json(path, error);
  if (!root) return false;
  bool valid = check_model(path, json_object_get(root, "model"), error) &&
               check_added_tokens(path, json_object_get(root, "added_tokens"), error) &&
               check_pipeline(path, root, error);
  json_decref(root);
  if (!valid) return false;
  *out = tokenizer_byte();
  return *out || fail(error, EXIT_MEMORY, "out of memory while reading %s", path);
}
