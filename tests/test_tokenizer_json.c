/* text/tokenizer/tokenizer_json: files of other programs, and files that are not what they should be. */
#include "tests/tokenizer_helpers.h"

static void put_file(const char *path, const void *bytes, size_t size) {
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, size, stream), size);
  assert_int_equal(fclose(stream), 0);
}

#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}"
#define STEPS(steps) "{\"type\": \"Sequence\", \"pretokenizers\": [" steps "]}"
#define SPLIT(pattern, behavior)                                                                                       \
  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern "\"}, \"behavior\": \"" behavior "\", \"invert\": "      \
  "false}"

static void bad_files_are_refused(void **state) {
  const Fixture *f = *state;
  const char *bpe = "supported are BPEs of bytes";
  const struct {
    const char *path, *value, *message;
  } cases[] = {
      {"model", "-", "model is missing"},
      {"model", "[]", "model is missing"},
      {"model.type", "\"WordPiece\"", "its model is of the type \"WordPiece\"; supported are"},
      {"model.type", "7", "\"unknown\""},
      {"model", "{\"max_input_chars_per_word\": 100, \"vocab\": {}}", "\"WordPiece\""},
      {"model", "{\"unk_id\": null, \"vocab\": []}", "\"Unigram\""},
      {"model", "{\"vocab\": {\"a\": 0}}", "its model is WordLevel, with another"},
      {"model.merges", "[\"a b\"]", "merge 0 does not join two tokens"},
      {"model.merges", "[[\"a\", \"b\"]]", "merge 0 does not join two tokens"},
      {"model.merges", "[\"ab\"]", "merge 0 does not join two tokens"},
      {"model.merges", "[7]", "merge 0 does not join two tokens"},
      {"model.merges", "-", "model.merges is missing"},
      {"model.merges", "{}", "model.merges is missing"},
      {"model.dropout", "0.1", "its model has dropout; supported are"},
      {"model.dropout", "true", "its model has dropout"},
      {"model.end_of_word_suffix", "\"</w>\"", "its model has end_of_word_suffix"},
      {"model.continuing_subword_prefix", "\"##\"", "its model has continuing_subword_prefix"},
      {"model.vocab", "-", "model.vocab is missing"},
      {"model.vocab", "[1, 2]", "model.vocab is missing"},
      {"model.vocab", "{}", "no id is the byte 0x00"},
      {"model.vocab.A", "-", "no id is the byte 0x41"},
      {"model.vocab.A", "66", "have the same id 66"},
      {"model.vocab.A", "-1", "not a whole number from 0"},
      {"model.vocab.A", "9223372036854775807", "not a whole number from 0"},
      {"model.vocab.A", "65.0", "not a whole number"},
      {"model.vocab.A", "\"65\"", "not a whole number"},
      {"model.vocab.\u20ac", "257", "not in the alphabet"},
      {"model.vocab.<|endoftext|>", "0", "have the same id 0"},
      {"added_tokens", "-", "no added token ends a document"},
      {"added_tokens", "null", "no added token ends a document"},
      {"added_tokens", "{}", "added_tokens is not a list"},
      {"added_tokens", "[]", "no added token ends a document"},
      {"added_tokens", "[7]", "added token 0 has no text"},
      {"added_tokens.0.id", "\"256\"", "added token 0 has no text, or no id"},
      {"added_tokens.0.content", "\"<s>\"", "no added token ends a document"},
      {"normalizer", "{\"type\": \"Lowercase\"}", bpe},
      {"normalizer", "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"b\"}", "\"Replace\""},
      {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}]}", "\"NFKC\""},
      {"normalizer", "{\"type\": \"Sequence\"}", "no list of normalizers"},
      {"pre_tokenizer", "null", bpe},
      {"pre_tokenizer", "{\"type\": \"Whitespace\"}", bpe},
      {"pre_tokenizer", STEPS(BYTES ", " BYTES), "ByteLevel is not the last step"},
      {"pre_tokenizer", STEPS("{\"type\": \"Punctuation\"}, " BYTES), "\"Punctuation\""},
      {"pre_tokenizer", STEPS(SPLIT("(a", "Isolated") ", " BYTES), "missing closing parenthesis"},
      {"pre_tokenizer", STEPS(SPLIT("[a&&b]", "Isolated") ", " BYTES), "&& in a class"},
      {"pre_tokenizer", STEPS(SPLIT("[[:alpha:]]", "Isolated") ", " BYTES), "[:alpha:]"},
      {"pre_tokenizer", STEPS(SPLIT("(?m)a", "Isolated") ", " BYTES), "a group other than"},
      {"pre_tokenizer", STEPS(SPLIT("(*UTF)a", "Isolated") ", " BYTES), "a group other than"},
      {"pre_tokenizer", STEPS(SPLIT("a\\\\1", "Isolated") ", " BYTES), "\\1 is not supported"},
      {"pre_tokenizer", STEPS(SPLIT("\\\\x41", "Isolated") ", " BYTES), "\\x is not supported"},
      {"pre_tokenizer", STEPS(SPLIT("a{2,3}+", "Isolated") ", " BYTES), "{n,m}+ other than {1,m}+"},
      {"pre_tokenizer", STEPS(SPLIT("\\\\p{Nothing}", "Isolated") ", " BYTES), "unknown property"},
      {"pre_tokenizer", STEPS(SPLIT("a", "Shaken") ", " BYTES), "no behavior that is known"},
      {"pre_tokenizer.add_prefix_space", "-", bpe},
      {"post_processor", "{\"type\": \"TemplateProcessing\"}", bpe},
      {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [1], \"special_tokens\": {\"a\": 1}}", bpe},
      {"post_processor", "{\"type\": \"TemplateProcessing\", \"single\": [1, 1], \"special_tokens\": {}}", bpe},
      {"decoder", "null", "its decoder is \"null\", not ByteLevel"},
      {"added_tokens.0.id", "300", "has the id 300; expected 256: the tokenizers library numbers added tokens without"},
      {"model.vocab.AB", "257", "has the id 256; expected 257: "},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *root = saved_json(f);
    change(root, cases[i].path, cases[i].value);
    assert_int_equal(json_dump_file(root, f->path, 0), 0);
    json_decref(root);
    expect_refused(f, cases[i].path, cases[i].message);
  }
}

/* Writes the file and reads it. */
static Tokenizer *load_json(const Fixture *f, json_t *root) {
  Error error = {0};
  Tokenizer *loaded;
  assert_int_equal(json_dump_file(root, f->path, 0), 0);
  json_decref(root);
  if (!tokenizer_load(&loaded, f->path, &error)) fail_msg("%s", error.text);
  return loaded;
}

static void harmless_variants_load(void **state) {
  const Fixture *f = *state;
  const char *template = "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {}}], \"special_tokens\": {}}",
             *untyped = "{\"single\": [{\"Sequence\": {}}], \"special_tokens\": {}}";
  const char *const cases[][2] = {{"model.vocab.<|endoftext|>", "256"},
                                  {"added_tokens.0.content", "\"</s>\""},
                                  {"truncation", "{\"max_length\": 8}"},
                                  {"added_tokens.0.special", "false"},
                                  {"added_tokens.0.normalized", "true"},
                                  {"added_tokens.0.single_word", "true"},
                                  {"normalizer", "{\"type\": \"Sequence\", \"normalizers\": []}"},
                                  {"pre_tokenizer.add_prefix_space", "true"},
                                  {"pre_tokenizer.use_regex", "false"},
                                  {"pre_tokenizer", STEPS(SPLIT("[^\\\\S\\\\n]+", "Removed") ", " BYTES)},
                                  {"model.ignore_merges", "true"},
                                  {"model.unk_token", "\"<|endoftext|>\""},
                                  {"model.continuing_subword_prefix", "\"\""},
                                  {"post_processor", "{\"type\": \"ByteLevel\"}"},
                                  {"post_processor", template},
                                  {"post_processor", untyped},
                                  {"model.type", "-"},
                                  {"model.type", "null"},
                                  {"model.dropout", "0"},
                                  {"model.dropout", "0.0"},
                                  {"model.end_of_word_suffix", "\"\""},
                                  {"normalizer", "{\"normalizers\": [{\"prepend\": \"\"}]}"},
                                  {"normalizer", "{\"pattern\": {\"String\": \"a\"}, \"content\": \"b\"}"},
                                  {"version", "-"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    json_t *root = saved_json(f);
    change(root, cases[i][0], cases[i][1]);
    tokenizer_free(load_json(f, root));
  }
}

/* What is between the ids of a vocabulary is no token. */
static void ids_may_have_gaps(void **state) {
  const Fixture *f = *state;
  json_t *root = saved_json(f);
  change(root, "model.vocab.<|endoftext|>", "256");
  change(root, "model.vocab.AB", "300");
  Tokenizer *loaded = load_json(f, root);
  assert_int_equal(tokenizer_vocab(loaded), 301);
  assert_int_equal(tokenizer_tokens(loaded), 258);
  assert_true(tokenizer_has_id(loaded, 300));
  assert_false(tokenizer_has_id(loaded, 299));
  tokenizer_free(loaded);
}

/* As with a pad_token of "!": texts are made of it as before, and in decoded ones it is left out. */
static void special_words_are_words(void **state) {
  const Fixture *f = *state;
  static const int32_t wanted[] = {'a', '!', '!', 'b'};
  static const char end[] = "{\"eos_token\": \"!\"}";
  BpeIds ids = {0};
  Error error = {0};
  size_t size;
  json_t *root = saved_json(f);
  json_array_append_new(json_object_get(root, "added_tokens"),
                        json_pack("{s:i, s:s, s:b}", "id", '!', "content", "!", "special", 1));
  Tokenizer *loaded = load_json(f, root);
  for (int special = 0; special < 2; special++) {
    tokenizer_set_special(loaded, special);
    assert_true(tokenizer_encode(loaded, (const uint8_t *)"a!!b", 4, &ids, &error));
    assert_int_equal(ids.count, 4);
    assert_memory_equal(ids.ids, wanted, sizeof wanted);
    ids.count = 0;
  }
  tokenizer_decode(loaded, '!', &size);
  assert_int_equal(size, 0);
  assert_string_equal(tokenizer_special(loaded, '!'), "!");
  tokenizer_decode(loaded, 'a', &size);
  assert_int_equal(size, 1);
  free(ids.ids);
  tokenizer_free(loaded);
  put_file(f->config, end, strlen(end));
  expect_refused(f, "an end in words", "the token \"!\" ends documents, but words are made of it, too");
}

/* With ignore_merges, as in Tekken: the ids are those of the library with encode_special_tokens. */
static void special_tokens_of_the_vocabulary_are_words(void **state) {
  const Fixture *f = *state;
  static const int32_t bytes[] = {'u', 's', 'e', 'r', ' ', 'u', 's', 'e', 'r', 's'},
                       word[] = {257, ' ', 'u', 's', 'e', 'r', 's'};
  for (int ignores = 0; ignores < 2; ignores++) {
    BpeIds ids = {0};
    Error error = {0};
    json_t *root = saved_json(f);
    change(root, "model.vocab.<|endoftext|>", "256");
    change(root, "model.vocab.user", "257");
    change(root, "model.ignore_merges", ignores ? "true" : "false");
    json_array_append_new(json_object_get(root, "added_tokens"),
                          json_pack("{s:i, s:s, s:b}", "id", 257, "content", "user", "special", 1));
    Tokenizer *loaded = load_json(f, root);
    assert_true(tokenizer_encode(loaded, (const uint8_t *)"user users", 10, &ids, &error));
    assert_int_equal(ids.count, ignores ? 7 : 10);
    assert_memory_equal(ids.ids, ignores ? word : bytes, ids.count * sizeof *ids.ids);
    assert_string_equal(tokenizer_special(loaded, 257), "user");
    free(ids.ids);
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

/* Patterns that would search for years say so. */
static void slow_patterns_end(void **state) {
  const Fixture *f = *state;
  static const char *const patterns[] = {"(?:a+)+[bc]", "(?:a|a)*[bc]", "(?:a*)*[bc]", "(?=(?:a+)+[bc])"};
  static uint8_t text[100000];
  memset(text, 'a', sizeof text);
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    char value[300];
    Error error = {0};
    Tokenizer *loaded;
    BpeIds ids = {0};
    json_t *root = saved_json(f);
    snprintf(value, sizeof value, STEPS(SPLIT("%s", "Isolated") ", " BYTES), patterns[i]);
    change(root, "pre_tokenizer", value);
    assert_int_equal(json_dump_file(root, f->path, 0), 0);
    json_decref(root);
    if (!tokenizer_load(&loaded, f->path, &error)) fail_msg("%s: %s", patterns[i], error.text);
    assert_false(tokenizer_encode(loaded, text, sizeof text, &ids, &error));
    if (error.code != EXIT_CHECKPOINT || !strstr(error.text, "too many steps")) fail_msg("%s", error.text);
    free(ids.ids);
    tokenizer_free(loaded);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(slow_patterns_end),
      WITH_FIXTURE(bad_files_are_refused),
      WITH_FIXTURE(harmless_variants_load),
      WITH_FIXTURE(ids_may_have_gaps),
      WITH_FIXTURE(special_words_are_words),
      WITH_FIXTURE(damaged_files_are_refused),
      WITH_FIXTURE(special_tokens_of_the_vocabulary_are_words),
      WITH_FIXTURE(every_truncation_is_refused),
      WITH_FIXTURE(deep_and_huge_files_are_refused),
  };
  return cmocka_run_group_tests_name("tokenizer_json", tests, NULL, NULL);
}
