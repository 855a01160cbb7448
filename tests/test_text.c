/* text/: the byte tokenizer and its files, and data sets against a naive reference. */
#include "kernels/philox.h"
#include "store/file.h"
#include "text/dataset.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { END = 256, MARK = 13 /* bytes of <|endoftext|> */ };

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

typedef struct Fixture {
  char dir[64];
  char path[128], config[128]; /* dir/tokenizer.json, dir/tokenizer_config.json */
  Tokenizer *tokenizer;
} Fixture;

static int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-text-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  snprintf(f->path, sizeof f->path, "%s/tokenizer.json", f->dir);
  snprintf(f->config, sizeof f->config, "%s/tokenizer_config.json", f->dir);
  f->tokenizer = tokenizer_byte();
  assert_non_null(f->tokenizer);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  unlink(f->path);
  unlink(f->config);
  rmdir(f->dir);
  tokenizer_free(f->tokenizer);
  free(f);
  return 0;
}

static void put_file(const char *path, const void *bytes, size_t size) {
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, size, stream), size);
  assert_int_equal(fclose(stream), 0);
}

static Dataset *open_bytes(const Fixture *f, const void *bytes, size_t size) {
  Error error = {0};
  Dataset *dataset = NULL;
  put_file(f->path, bytes, size);
  if (!dataset_open(&dataset, f->path, f->tokenizer, &error)) fail_msg("%s", error.text);
  return dataset;
}

static Dataset *open_text(const Fixture *f, const char *text) { return open_bytes(f, text, strlen(text)); }

/* A fixed sequence of random words. */
typedef struct Random {
  uint32_t next;
} Random;

static uint32_t draw(Random *random, uint32_t below) { return philox(7, random->next++, 0, 0, 0).word[0] % below; }

/* ---- Tokenizer --------------------------------------------------------------------------------------------------- */

static BpeIds encode(const Tokenizer *tokenizer, const void *text, size_t size) {
  BpeIds ids = {0};
  Error error = {0};
  if (!tokenizer_encode(tokenizer, text, size, &ids, &error)) fail_msg("%s", error.text);
  return ids;
}

static void all_bytes_round_trip(void **state) {
  const Fixture *f = *state;
  uint8_t text[256];
  for (int i = 0; i < 256; i++) text[i] = (uint8_t)(255 - i);
  assert_string_equal(tokenizer_name(f->tokenizer), "byte");
  assert_int_equal(tokenizer_vocab(f->tokenizer), 257);
  assert_int_equal(tokenizer_end(f->tokenizer), END);
  BpeIds ids = encode(f->tokenizer, text, 256);
  assert_int_equal(ids.count, 256);
  for (int i = 0; i < 256; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(f->tokenizer, ids.ids[i], &size);
    assert_int_equal(ids.ids[i], 255 - i);
    assert_int_equal(size, 1);
    assert_int_equal(bytes[0], text[i]);
  }
  free(ids.ids);
}

static void nothing_is_no_ids(void **state) {
  const Fixture *f = *state;
  BpeIds ids = encode(f->tokenizer, NULL, 0);
  assert_int_equal(ids.count, 0);
  free(ids.ids);
}

static void special_text_is_plain_bytes(void **state) {
  const Fixture *f = *state;
  BpeIds ids = encode(f->tokenizer, END_OF_TEXT, MARK);
  assert_int_equal(ids.count, MARK);
  for (int i = 0; i < MARK; i++) assert_int_equal(ids.ids[i], END_OF_TEXT[i]);
  free(ids.ids);
}

static void other_ids_stand_for_nothing(void **state) {
  const Fixture *f = *state;
  const int32_t ids[] = {END, 257, -1, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 5; i++) {
    size_t size = 99;
    assert_non_null(tokenizer_decode(f->tokenizer, ids[i], &size));
    assert_int_equal(size, 0);
  }
}

static json_t *saved_json(const Fixture *f) {
  Error error = {0};
  assert_true(tokenizer_save(f->tokenizer, f->dir, 64, &error));
  json_t *root = json_load_file(f->path, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(root);
  return root;
}

static void saved_file_loads(void **state) {
  const Fixture *f = *state;
  Error error = {0};
  Tokenizer *loaded;
  json_decref(saved_json(f));
  assert_true(tokenizer_load(&loaded, f->path, &error));
  assert_string_equal(tokenizer_name(loaded), "byte");
  assert_int_equal(tokenizer_vocab(loaded), 257);
  tokenizer_free(loaded);
}

/* Merges, written and read: the same ids, name and fingerprint; and another fingerprint than without them. */
static void merges_are_saved(void **state) {
  const Fixture *f = *state;
  const BpeMerge merges[] = {{'h', 'e', 256}, {256, 'l', 257}, {' ', 257, 258}, {0xC3, 0xA9, 259}, {'\n', '\n', 260}};
  const char text[] = "hel hello he \303\251t\303\251\n\n\n<|endoftext|>";
  Tokenizer *made, *loaded;
  Error error = {0};
  if (!tokenizer_from_merges(&made, merges, 5, &error)) fail_msg("%s", error.text);
  assert_string_equal(tokenizer_name(made), "BPE");
  assert_int_equal(tokenizer_vocab(made), 262);
  assert_int_equal(tokenizer_end(made), 261);
  for (int again = 0; again < 2; again++) { /* of what was made, then of what was loaded */
    assert_true(tokenizer_save(made, f->dir, 64, &error));
    if (!tokenizer_load(&loaded, f->path, &error)) fail_msg("%s", error.text);
    assert_true(tokenizer_fingerprint(loaded) == tokenizer_fingerprint(made));
    assert_true(tokenizer_fingerprint(loaded) != tokenizer_fingerprint(f->tokenizer));
    BpeIds want = encode(made, text, sizeof text - 1), got = encode(loaded, text, sizeof text - 1);
    assert_int_equal(want.ids[0], 257);
    assert_int_equal(want.ids[1], 258);
    assert_int_equal(got.count, want.count);
    assert_memory_equal(got.ids, want.ids, got.count * sizeof *got.ids);
    free(want.ids);
    free(got.ids);
    tokenizer_free(made);
    made = loaded;
  }
  tokenizer_free(made);
}

static void saved_file_has_the_alphabet(void **state) {
  json_t *root = saved_json(*state);
  json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
  assert_int_equal(json_object_size(vocab), 256);
  /* Values from the table in GPT-2's encoder: space is U+0120, newline U+010A, 0 is U+0100, 0xAD is U+0143. */
  const struct {
    const char *token;
    int id;
  } known[] = {{"A", 65},  {"Ġ", 32},   {"Ċ", 10},   {"Ā", 0},   {"Ń", 0xAD},
               {"ÿ", 255}, {"¡", 0xA1}, {"ġ", 0x7F}, {"Ģ", 0x80}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    assert_int_equal(json_integer_value(json_object_get(vocab, known[i].token)), known[i].id);
  }
  json_decref(root);
}

static void config_has_the_context(void **state) {
  const Fixture *f = *state;
  json_decref(saved_json(f));
  json_t *root = json_load_file(f->config, JSON_REJECT_DUPLICATES, NULL);
  assert_int_equal(json_integer_value(json_object_get(root, "model_max_length")), 64);
  assert_string_equal(json_string_value(json_object_get(root, "eos_token")), END_OF_TEXT);
  assert_string_equal(json_string_value(json_object_get(root, "tokenizer_class")), "PreTrainedTokenizerFast");
  json_decref(root);
}

static void save_fails_without_directory(void **state) {
  const Fixture *f = *state;
  Error error = {0};
  assert_false(tokenizer_save(f->tokenizer, f->path, 64, &error));
  assert_int_equal(error.code, EXIT_OUTPUT);
}

static void expect_refused(const Fixture *f, const char *what, const char *part) {
  Error error = {0};
  Tokenizer *loaded = (Tokenizer *)&error;
  bool ok = tokenizer_load(&loaded, f->path, &error);
  if (ok || error.code != EXIT_CHECKPOINT || !strstr(error.text, part)) {
    fail_msg("%s: ok %d, code %d, \"%s\" lacks \"%s\"", what, ok, error.code, error.text, part);
  }
  assert_null(loaded);
}

/* A change at a path like "model.merges" (list entries as numbers), to the value in JSON; "-" deletes. */
static void change(json_t *root, const char *path, const char *value) {
  char name[64];
  json_t *at = root;
  const char *dot;
  while ((dot = strchr(path, '.'))) {
    snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
    at = json_is_array(at) ? json_array_get(at, (size_t)atoi(name)) : json_object_get(at, name);
    path = dot + 1;
  }
  if (strcmp(value, "-") == 0) {
    assert_int_equal(json_object_del(at, path), 0);
  } else {
    json_t *fresh = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(fresh);
    assert_int_equal(json_object_set_new(at, path, fresh), 0);
  }
}

static void bad_files_are_refused(void **state) {
  const Fixture *f = *state;
  const char *bpe = "what is read is byte-level BPE";
  const struct {
    const char *path, *value, *message;
  } cases[] = {
      {"model", "-", "model is missing"},
      {"model", "[]", "model is missing"},
      {"model.type", "\"WordPiece\"", bpe},
      {"model.type", "7", bpe},
      {"model.merges", "[\"a b\"]", "merge 0 is not of two tokens"},
      {"model.merges", "[[\"a\", \"b\"]]", "merge 0 is not of two tokens"},
      {"model.merges", "[\"ab\"]", "merge 0 is not of two tokens"},
      {"model.merges", "[7]", "merge 0 is not of two tokens"},
      {"model.merges", "-", "model.merges is missing"},
      {"model.merges", "{}", "model.merges is missing"},
      {"model.dropout", "0.1", bpe},
      {"model.end_of_word_suffix", "\"</w>\"", bpe},
      {"model.vocab", "-", "model.vocab is missing"},
      {"model.vocab", "[1, 2]", "model.vocab is missing"},
      {"model.vocab", "{}", "no id is the byte 0x00"},
      {"model.vocab.A", "-", "no id is the byte 0x41"},
      {"model.vocab.A", "66", "have the same id 66"},
      {"model.vocab.A", "-1", "no whole number from 0"},
      {"model.vocab.A", "9223372036854775807", "no whole number from 0"},
      {"model.vocab.A", "65.0", "no whole number"},
      {"model.vocab.A", "\"65\"", "no whole number"},
      {"model.vocab.\u20ac", "257", "not in the alphabet"},
      {"model.vocab.<|endoftext|>", "0", "have the same id 0"},
      {"added_tokens", "-", "added_tokens is missing"},
      {"added_tokens", "{}", "added_tokens is missing"},
      {"added_tokens", "[]", "no added token ends a document"},
      {"added_tokens", "[7]", "added token 0 has no text"},
      {"added_tokens.0.id", "\"256\"", "added token 0 has no text, or no id"},
      {"added_tokens.0.content", "\"<s>\"", "no added token ends a document"},
      {"added_tokens.0.special", "false", "is not special"},
      {"normalizer", "{\"type\": \"Lowercase\"}", bpe},
      {"pre_tokenizer", "null", bpe},
      {"pre_tokenizer.add_prefix_space", "true", bpe},
      {"pre_tokenizer.add_prefix_space", "-", bpe},
      {"post_processor", "{\"type\": \"TemplateProcessing\"}", bpe},
      {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [1], \"special_tokens\": {\"a\": 1}}", bpe},
      {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [1, 1], \"special_tokens\": {}}", bpe},
      {"decoder", "null", bpe},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *root = saved_json(f);
    change(root, cases[i].path, cases[i].value);
    assert_int_equal(json_dump_file(root, f->path, 0), 0);
    json_decref(root);
    expect_refused(f, cases[i].path, cases[i].message);
  }
}

static void harmless_variants_load(void **state) {
  const Fixture *f = *state;
  const char *template = "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {}}], \"special_tokens\": {}}";
  const char *const cases[][2] = {{"model.vocab.<|endoftext|>", "256"},
                                  {"model.vocab.AB", "257"},
                                  {"added_tokens.0.id", "300"},
                                  {"added_tokens.0.content", "\"</s>\""},
                                  {"truncation", "{\"max_length\": 8}"},
                                  {"model.unk_token", "\"<|endoftext|>\""},
                                  {"model.continuing_subword_prefix", "\"\""},
                                  {"post_processor", "{\"type\": \"ByteLevel\"}"},
                                  {"post_processor", template},
                                  {"version", "-"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Error error = {0};
    Tokenizer *loaded;
    json_t *root = saved_json(f);
    change(root, cases[i][0], cases[i][1]);
    assert_int_equal(json_dump_file(root, f->path, 0), 0);
    json_decref(root);
    if (!tokenizer_load(&loaded, f->path, &error)) fail_msg("%s: %s", cases[i][0], error.text);
    tokenizer_free(loaded);
  }
}

static void damaged_files_are_refused(void **state) {
  const Fixture *f = *state;
  const char *const cases[][2] = {{"", "is empty"},
                                  {"{", "not valid JSON"},
                                  {"[]", "model is missing"},
                                  {"null", "not valid JSON"},
                                  {"\xff\xfe", "not valid JSON"},
                                  {"{\"model\": 1, \"model\": 2}", "not valid JSON"},
                                  {"{\"model\": {\"vocab\": {\"a\\u0000\": 1}}}", "not valid JSON"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_file(f->path, cases[i][0], strlen(cases[i][0]));
    expect_refused(f, cases[i][0], cases[i][1]);
  }
  unlink(f->path);
  expect_refused(f, "missing", "tokenizer.json");
}

static void every_truncation_is_refused(void **state) {
  const Fixture *f = *state;
  static char text[1 << 16];
  json_decref(saved_json(f));
  FILE *stream = fopen(f->path, "rb");
  assert_non_null(stream);
  size_t size = fread(text, 1, sizeof text, stream);
  fclose(stream);
  assert_true(size < sizeof text);
  for (size_t cut = 0; cut + 2 < size; cut += 37) {
    put_file(f->path, text, cut);
    expect_refused(f, "truncated", cut ? "not valid JSON" : "is empty");
  }
}

static void deep_and_huge_files_are_refused(void **state) {
  const Fixture *f = *state;
  static char deep[100000];
  memset(deep, '[', sizeof deep);
  put_file(f->path, deep, sizeof deep);
  expect_refused(f, "deep", "not valid JSON");
  FILE *stream = fopen(f->path, "wb");
  assert_non_null(stream);
  assert_int_equal(fseek(stream, 64L << 20, SEEK_SET), 0); /* a hole: takes no disk */
  fputc('x', stream);
  fclose(stream);
  expect_refused(f, "huge", "67108865 bytes, more than");
}

/* ---- Data sets --------------------------------------------------------------------------------------------------- */

typedef struct Reference {
  int32_t *ids;
  int64_t *bytes; /* bytes that each token stands for */
  int64_t count;
} Reference;

static void reference_add(Reference *r, int32_t id, int64_t bytes) {
  r->ids[r->count] = id;
  r->bytes[r->count++] = bytes;
}

/* Line by line, the way the header tells it. */
static Reference reference_of(const char *text, size_t size) {
  Reference r = {malloc((size + 1) * sizeof *r.ids), malloc((size + 1) * sizeof *r.bytes), 0};
  assert_non_null(r.ids);
  assert_non_null(r.bytes);
  bool closed = false;
  for (size_t at = 0; at < size;) {
    const char *newline = memchr(text + at, '\n', size - at);
    size_t line = newline ? (size_t)(newline - text) - at : size - at;
    size_t whole = line + (newline != NULL);
    size_t bare = newline && line && text[at + line - 1] == '\r' ? line - 1 : line;
    closed = bare == MARK && memcmp(text + at, END_OF_TEXT, MARK) == 0;
    if (closed) reference_add(&r, END, (int64_t)whole);
    for (size_t i = 0; !closed && i < whole; i++) reference_add(&r, (uint8_t)text[at + i], 1);
    at += whole;
  }
  if (!closed) reference_add(&r, END, 0);
  return r;
}

static void reference_free(Reference *r) {
  free(r->ids);
  free(r->bytes);
}

static int64_t sum(const int64_t *values, int64_t count) {
  int64_t out = 0;
  for (int64_t i = 0; i < count; i++) out += values[i];
  return out;
}

/* Every part [begin, end) for a short text, random ones for a long one. */
static void expect_part(const Dataset *dataset, const Reference *r, int64_t begin, int64_t end) {
  int32_t *ids = malloc((size_t)(end - begin + 1) * sizeof *ids);
  assert_non_null(ids);
  ids[end - begin] = -7;
  dataset_read(dataset, begin, end - begin, ids);
  assert_memory_equal(ids, r->ids + begin, (size_t)(end - begin) * sizeof *ids);
  assert_int_equal(ids[end - begin], -7);
  assert_int_equal(dataset_bytes(dataset, begin, end), sum(r->bytes + begin, end - begin));
  free(ids);
}

static void compare_with_reference(const Fixture *f, const char *text, size_t size, Random *random) {
  Dataset *dataset = open_bytes(f, text, size);
  Reference r = reference_of(text, size);
  assert_int_equal(dataset_tokens(dataset), r.count);
  assert_int_equal(dataset_bytes(dataset, 0, r.count), size);
  for (int i = 0; i < 30; i++) {
    int64_t begin = draw(random, (uint32_t)r.count + 1);
    expect_part(dataset, &r, begin, begin + draw(random, (uint32_t)(r.count - begin) + 1));
  }
  expect_part(dataset, &r, 0, r.count);
  reference_free(&r);
  dataset_close(dataset);
}

static void random_texts_match_the_reference(void **state) {
  static const char *const pieces[] = {"a",
                                       "\n",
                                       "\r\n",
                                       "\r",
                                       "<",
                                       "<|en",
                                       "word",
                                       "\xff",
                                       ">\n",
                                       END_OF_TEXT,
                                       END_OF_TEXT "\n",
                                       "\n" END_OF_TEXT "\n",
                                       END_OF_TEXT "\r\n",
                                       END_OF_TEXT " \n"};
  const uint32_t count = sizeof pieces / sizeof *pieces;
  Random random = {0};
  char text[2048];
  for (int round = 0; round < 1500; round++) {
    size_t size = 0;
    for (uint32_t n = 1 + draw(&random, 40); n > 0; n--) {
      const char *piece = pieces[draw(&random, count)];
      memcpy(text + size, piece, strlen(piece));
      size += strlen(piece);
    }
    compare_with_reference(*state, text, size, &random);
  }
}

static void expect_stream(const Fixture *f, const char *text, int64_t documents, const char *expected) {
  int32_t ids[64];
  char shown[65] = "";
  Dataset *dataset = open_text(f, text);
  int64_t count = dataset_tokens(dataset);
  dataset_read(dataset, 0, count, ids);
  for (int64_t i = 0; i < count; i++) shown[i] = ids[i] == END ? '$' : (char)ids[i];
  assert_string_equal(shown, expected);
  assert_int_equal(dataset_documents(dataset), documents);
  dataset_close(dataset);
}

/* $ is the end token. */
static void separators(void **state) {
  const Fixture *f = *state;
  expect_stream(f, "a", 1, "a$");
  expect_stream(f, "a\n", 1, "a\n$");
  expect_stream(f, "a\n<|endoftext|>\nb\n", 2, "a\n$b\n$");
  expect_stream(f, "a\n<|endoftext|>\nb\n<|endoftext|>\n", 2, "a\n$b\n$"); /* no second end token at the end */
  expect_stream(f, "a\n<|endoftext|>\nb\n<|endoftext|>", 2, "a\n$b\n$");
  expect_stream(f, "<|endoftext|>\na", 1, "$a$");
  expect_stream(f, "<|endoftext|>", 0, "$");
  expect_stream(f, "<|endoftext|>\n", 0, "$");
  expect_stream(f, "a\n<|endoftext|>\n<|endoftext|>\nb", 2, "a\n$$b$");
  expect_stream(f, "a\n<|endoftext|>\n\n<|endoftext|>\n", 2, "a\n$\n$");
  expect_stream(f, "a\r\n<|endoftext|>\r\nb\r\n", 2, "a\r\n$b\r\n$");
  expect_stream(f, "a\n<|endoftext|>\r\n", 1, "a\n$");
  expect_stream(f, "a\n<|endoftext|>\r", 1, "a\n<|endoftext|>\r$");
  expect_stream(f, "a<|endoftext|>\nb", 1, "a<|endoftext|>\nb$"); /* not at the start of a line */
  expect_stream(f, "a\n <|endoftext|>\n", 1, "a\n <|endoftext|>\n$");
  expect_stream(f, "a\n<|endoftext|> \nb", 1, "a\n<|endoftext|> \nb$");
  expect_stream(f, "<|endoftext|><|endoftext|>\n", 1, "<|endoftext|><|endoftext|>\n$");
  expect_stream(f, "a\n<|endoftext|", 1, "a\n<|endoftext|$");
}

static void unusable_inputs(void **state) {
  const Fixture *f = *state;
  Dataset *dataset;
  Error missing = {0}, empty = {0}, directory = {0};
  assert_false(dataset_open(&dataset, f->path, f->tokenizer, &missing));
  assert_int_equal(missing.code, EXIT_INPUT);
  assert_null(dataset);
  put_file(f->path, "", 0);
  assert_false(dataset_open(&dataset, f->path, f->tokenizer, &empty));
  assert_int_equal(empty.code, EXIT_INPUT);
  assert_non_null(strstr(empty.text, "empty"));
  assert_false(dataset_open(&dataset, f->dir, f->tokenizer, &directory));
  assert_int_equal(directory.code, EXIT_INPUT);
  dataset_close(NULL);
}

static Dataset *open_filled(const Fixture *f, size_t size) {
  char *text = malloc(size);
  assert_non_null(text);
  memset(text, 'x', size);
  Dataset *dataset = open_bytes(f, text, size);
  free(text);
  return dataset;
}

static void expect_split(const Dataset *dataset, double fraction, int64_t max_tail, int64_t train_tokens) {
  Split train, tail;
  dataset_split(dataset, fraction, max_tail, &train, &tail);
  assert_int_equal(train.begin, 0);
  assert_int_equal(train.end, train_tokens);
  assert_int_equal(tail.begin, train_tokens);
  assert_int_equal(tail.end, dataset_tokens(dataset));
  assert_ptr_equal(train.dataset, dataset);
  assert_ptr_equal(tail.dataset, dataset);
}

static void splits(void **state) {
  Dataset *dataset = open_filled(*state, 1115394); /* the size of tinyshakespeare: 1,115,395 tokens with the end */
  expect_split(dataset, 0.1, 1000000, 1003855);
  expect_split(dataset, 0.1, 100000, 1015395);
  expect_split(dataset, 0.1, 0, 1115395);
  expect_split(dataset, 0.5, 1000000, 557697);
  expect_split(dataset, 0, 1000000, 1115395);
  expect_split(dataset, 1, INT64_MAX, 0);
  expect_split(dataset, 1, 1000000, 115395);
  expect_split(dataset, 2, INT64_MAX, 0);
  expect_split(dataset, -1, INT64_MAX, 1115395);
  expect_split(dataset, (double)NAN, INT64_MAX, 1115395);
  dataset_close(dataset);
}

static void windows_lie_inside(void **state) {
  Dataset *dataset = open_filled(*state, 99);
  Split split = {dataset, 20, 60};
  enum { CTX = 32, WINDOWS = 8 }; /* 40 tokens hold 8 windows of 33 */
  int seen[WINDOWS] = {0};
  for (uint32_t step = 0; step < 200; step++) {
    for (uint32_t sequence = 0; sequence < 20; sequence++) {
      int64_t begin = split_window(&split, 1337, step, sequence, CTX);
      assert_true(begin >= 20 && begin + CTX + 1 <= 60);
      assert_int_equal(begin, split_window(&split, 1337, step, sequence, CTX));
      seen[begin - 20]++;
    }
  }
  for (int i = 0; i < WINDOWS; i++) assert_true(seen[i] > 400 && seen[i] < 600); /* 500 +- 21 */
  Split exact = {dataset, 7, 7 + CTX + 1};
  assert_int_equal(split_window(&exact, 1, 2, 3, CTX), 7);
  dataset_close(dataset);
}

/* floor(u * windows / 2^64) for huge streams, against long division of the product's halves. */
static void windows_are_64_bit(void **state) {
  (void)state;
  const int64_t sizes[] = {2, 1000, ((int64_t)1 << 32) + 12345, (int64_t)1 << 40, ((int64_t)1 << 62) + 99999999};
  for (int i = 0; i < 5; i++) {
    Split split = {NULL, 5, 5 + sizes[i] + 1};
    for (uint32_t step = 0; step < 100; step++) {
      PhiloxWords words = philox(11, 0, SITE_WINDOW, step, 3);
      long double u = (long double)((uint64_t)words.word[1] << 32 | words.word[0]) * 0x1p-64L;
      long double expected = floorl(u * (long double)sizes[i]);
      long double got = (long double)(split_window(&split, 11, step, 3, 1) - 5);
      assert_true(fabsl(got - expected) <= 1 && got >= 0 && got < (long double)sizes[i]);
      if (sizes[i] <= 1000) assert_true(got == expected);
    }
  }
}

static void windows_depend_on_everything(void **state) {
  (void)state;
  Split split = {NULL, 0, (int64_t)1 << 40};
  int64_t base = split_window(&split, 1, 1, 1, 16);
  assert_int_not_equal(base, split_window(&split, 2, 1, 1, 16));
  assert_int_not_equal(base, split_window(&split, 1, 2, 1, 16));
  assert_int_not_equal(base, split_window(&split, 1, 1, 2, 16));
  assert_int_not_equal(base, split_window(&split, 1 + ((uint64_t)1 << 32), 1, 1, 16));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(all_bytes_round_trip, set_up, tear_down),
      cmocka_unit_test_setup_teardown(nothing_is_no_ids, set_up, tear_down),
      cmocka_unit_test_setup_teardown(special_text_is_plain_bytes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(other_ids_stand_for_nothing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(saved_file_loads, set_up, tear_down),
      cmocka_unit_test_setup_teardown(merges_are_saved, set_up, tear_down),
      cmocka_unit_test_setup_teardown(saved_file_has_the_alphabet, set_up, tear_down),
      cmocka_unit_test_setup_teardown(config_has_the_context, set_up, tear_down),
      cmocka_unit_test_setup_teardown(save_fails_without_directory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(bad_files_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(harmless_variants_load, set_up, tear_down),
      cmocka_unit_test_setup_teardown(damaged_files_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(every_truncation_is_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(deep_and_huge_files_are_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(random_texts_match_the_reference, set_up, tear_down),
      cmocka_unit_test_setup_teardown(separators, set_up, tear_down),
      cmocka_unit_test_setup_teardown(unusable_inputs, set_up, tear_down),
      cmocka_unit_test_setup_teardown(splits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(windows_lie_inside, set_up, tear_down),
      cmocka_unit_test(windows_are_64_bit),
      cmocka_unit_test(windows_depend_on_everything),
  };
  return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
