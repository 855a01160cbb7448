/* tokenizer/tokenizer: the byte tokenizer, and the files of tokenizers. */
#include "tokenizer/tokenizer.h"

#include <jansson.h>
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

/* ---- helpers ---- */

typedef struct Fixture {
  char dir[64];
  char path[128], config[128]; /* dir/tokenizer.json, dir/tokenizer_config.json */
  Tokenizer *tokenizer;
} Fixture;

static int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-tokenizer-XXXXXX");
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
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    assert_int_equal(json_integer_value(json_object_get(vocab, known[i].token)), known[i].id);
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
  if (ok || error.code != EXIT_CHECKPOINT || !strstr(error.text, part))
    fail_msg("%s: ok %d, code %d, \"%s\" lacks \"%s\"", what, ok, error.code, error.text, part);
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
  assert_int_equal(fseek(stream, 256L << 20, SEEK_SET), 0); /* a hole: takes no disk */
  fputc('x', stream);
  fclose(stream);
  expect_refused(f, "huge", "268435457 bytes, more than");
}

/* ---- texts that begin with the end token ---- */

#define PART(kind, id, type) "{\"" kind "\": {\"id\": \"" id "\", \"type_id\": " type "}}"
#define PART_END PART("SpecialToken", END_OF_TEXT, "0")
#define PART_A PART("Sequence", "A", "0")
#define PART_B PART("Sequence", "B", "1")
#define SPECIAL(name, ids) "\"" name "\": {\"id\": \"" name "\", \"ids\": [" ids "], \"tokens\": [\"" name "\"]}"
#define TEMPLATE(single, pair, special)                                                                                \
  "{\"type\": \"TemplateProcessing\", \"single\": [" single "], \"pair\": [" pair "], \"special_tokens\": {" special   \
  "}}"
#define OURS(id) TEMPLATE(PART_END ", " PART_A, PART_END ", " PART_A ", " PART_B, SPECIAL(END_OF_TEXT, id))
#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": false, \"use_regex\": true}"
#define STEPS(first, second) "{\"type\": \"Sequence\", \"processors\": [" first ", " second "]}"

static char *whole_file(const char *path) {
  char *out = calloc(1, 1 << 16);
  FILE *stream = fopen(path, "rb");
  assert_non_null(out);
  assert_non_null(stream);
  assert_in_range(fread(out, 1, 1 << 16, stream), 1, (1 << 16) - 1);
  fclose(stream);
  return out;
}

/* The file of the byte tokenizer with another post_processor, in as few bytes as possible. */
static void put_post_processor(const Fixture *f, const char *value) {
  json_t *root = saved_json(f);
  change(root, "post_processor", value);
  assert_int_equal(json_dump_file(root, f->path, JSON_COMPACT), 0);
  json_decref(root);
}

static Tokenizer *load(const Fixture *f) {
  Error error = {0};
  Tokenizer *out;
  if (!tokenizer_load(&out, f->path, &error)) fail_msg("%s", error.text);
  return out;
}

static void save(const Fixture *f, const Tokenizer *tokenizer) {
  Error error = {0};
  if (!tokenizer_save(tokenizer, f->dir, 64, &error)) fail_msg("%s", error.text);
}

/* The file in the fixture says that texts begin with the end token, and is kept as it is. */
static void expect_beginning(const Fixture *f, const char *what) {
  char *before = whole_file(f->path);
  Tokenizer *loaded = load(f);
  if (!tokenizer_begins_with_end(loaded)) fail_msg("%s: does not begin with the end token", what);
  tokenizer_set_begins_with_end(loaded, true); /* changes nothing */
  save(f, loaded);
  tokenizer_free(loaded);
  char *after = whole_file(f->path);
  assert_string_equal(after, before);
  free(before);
  free(after);
}

/* Sets it, and expects `template` in the file; ids and fingerprint stay. */
static void begin_with_end(const Fixture *f, Tokenizer *tokenizer, const char *template) {
  const uint64_t fingerprint = tokenizer_fingerprint(tokenizer);
  BpeIds before = encode(tokenizer, "hello", 5);
  assert_false(tokenizer_begins_with_end(tokenizer));
  save(f, tokenizer);
  json_t *want = json_load_file(f->path, 0, NULL);
  tokenizer_set_begins_with_end(tokenizer, true);
  assert_true(tokenizer_begins_with_end(tokenizer));
  save(f, tokenizer);
  json_t *got = json_load_file(f->path, 0, NULL);
  change(want, "post_processor", template);
  assert_true(json_equal(got, want));
  expect_beginning(f, "what was saved");
  BpeIds after = encode(tokenizer, "hello", 5);
  assert_int_equal(after.count, before.count);
  assert_memory_equal(after.ids, before.ids, before.count * sizeof *before.ids);
  assert_true(tokenizer_fingerprint(tokenizer) == fingerprint);
  json_decref(want);
  json_decref(got);
  free(before.ids);
  free(after.ids);
}

static void beginning_is_saved(void **state) {
  const Fixture *f = *state;
  const BpeMerge merges[] = {{'h', 'e', 256}, {256, 'l', 257}};
  Tokenizer *made;
  Error error = {0};
  begin_with_end(f, f->tokenizer, OURS("256"));
  assert_true(tokenizer_from_merges(&made, merges, 2, &error));
  begin_with_end(f, made, OURS("258"));
  tokenizer_free(made);
}

/* Files of others: written back byte for byte, then with nothing but another post_processor. */
static void beginning_is_saved_in_foreign_files(void **state) {
  const Fixture *f = *state;
  const char *const cases[] = {"null", "-", BYTE_LEVEL, TEMPLATE(PART_A, PART_A ", " PART_B, ""),
                               STEPS(BYTE_LEVEL, TEMPLATE(PART_A, PART_A ", " PART_B, ""))};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_post_processor(f, cases[i]);
    json_t *root = json_load_file(f->path, 0, NULL);
    change(root, "added_tokens.0.id", "300");
    change(root, "truncation", "{\"max_length\": 8, \"of others\": [0.5, 1e300, \"\xe2\x82\xac\", \"\\n\\u0001/\"]}");
    assert_int_equal(json_dump_file(root, f->path, JSON_COMPACT | JSON_ENSURE_ASCII), 0);
    json_decref(root);
    char *before = whole_file(f->path);
    Tokenizer *loaded = load(f);
    save(f, loaded);
    char *after = whole_file(f->path);
    assert_string_equal(after, before);
    begin_with_end(f, loaded, OURS("300"));
    tokenizer_free(loaded);
    free(before);
    free(after);
  }
}

/* As tokenizers and transformers write it for others. */
static void foreign_beginnings_load(void **state) {
  const Fixture *f = *state;
  const char *const cases[] = {
      OURS("256"), TEMPLATE(PART_END ", " PART_A, PART_A ", " PART_B, SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_A, PART_END ", " PART_A ", " PART("SpecialToken", END_OF_TEXT, "1") ", " PART_B,
               SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART("SpecialToken", "name", "0") ", " PART_A, PART_A ", " PART_B, SPECIAL("name", "256")),
      STEPS(BYTE_LEVEL, OURS("256"))};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_post_processor(f, cases[i]);
    expect_beginning(f, cases[i]);
  }
}

static void other_templates_are_refused(void **state) {
  const Fixture *f = *state;
  const char *const cases[] = {
      OURS("65"),
      OURS("257"),
      OURS("\"256\""),
      OURS("256, 256"),
      OURS(""),
      TEMPLATE(PART_END ", " PART_A, "", ""),
      TEMPLATE(PART("SpecialToken", "other", "0") ", " PART_A, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_B, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_END, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_A ", " PART_END, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_A ", " PART_END, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_END ", " PART_A, "", SPECIAL(END_OF_TEXT, "256")),
      STEPS(BYTE_LEVEL, OURS("65")),
      STEPS(OURS("256"), OURS("256")),
      STEPS(BYTE_LEVEL, OURS("256") ", " OURS("256")),
      STEPS(BYTE_LEVEL, STEPS(BYTE_LEVEL, OURS("256"))),
      "{\"type\": \"RobertaProcessing\", \"sep\": [\"</s>\", 2], \"cls\": [\"<s>\", 0]}"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_post_processor(f, cases[i]);
    expect_refused(f, cases[i], "its post_processor adds more than the end token before a text");
  }
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
      cmocka_unit_test_setup_teardown(beginning_is_saved, set_up, tear_down),
      cmocka_unit_test_setup_teardown(beginning_is_saved_in_foreign_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(foreign_beginnings_load, set_up, tear_down),
      cmocka_unit_test_setup_teardown(other_templates_are_refused, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
