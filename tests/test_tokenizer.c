/* text/tokenizer/tokenizer: ids and bytes, saved files, and texts that begin with the end token. */
#include "tests/tokenizer_helpers.h"

enum { END = 256, MARK = 13 /* bytes of <|endoftext|> */ };

static BpeIds encode(Tokenizer *tokenizer, const void *text, size_t size) {
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
    change(root, "model.vocab.<|endoftext|>", "300");
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
      TEMPLATE(PART_A ", " PART_END, "", SPECIAL(END_OF_TEXT, "65")),
      TEMPLATE(PART_B ", " PART_END, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_A ", " PART_END, "", SPECIAL(END_OF_TEXT, "256")),
      TEMPLATE(PART_END ", " PART_END ", " PART_A, "", SPECIAL(END_OF_TEXT, "256")),
      STEPS(BYTE_LEVEL, OURS("65")),
      STEPS(OURS("256"), OURS("256")),
      STEPS(BYTE_LEVEL, OURS("256") ", " OURS("256")),
      STEPS(BYTE_LEVEL, STEPS(BYTE_LEVEL, OURS("256"))),
      "{\"type\": \"RobertaProcessing\", \"sep\": [\"</s>\", 2], \"cls\": [\"<s>\", 0]}"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_post_processor(f, cases[i]);
    expect_refused(f, cases[i], "its post_processor adds more than a token before a text");
  }
}

/* ---- texts that end with it ---- */

#define AFTER(id) TEMPLATE(PART_A ", " PART_END, PART_A ", " PART_B ", " PART_END, SPECIAL(END_OF_TEXT, id))

static json_t *saved_config(const Fixture *f, const Tokenizer *tokenizer) {
  save(f, tokenizer);
  return json_load_file(f->config, JSON_REJECT_DUPLICATES, NULL);
}

/* The template, and a token to pad with: of nothing else. What stood before a text is gone, and the other way round. */
static void ending_is_saved(void **state) {
  const Fixture *f = *state;
  json_t *plain = saved_config(f, f->tokenizer), *want = json_load_file(f->path, 0, NULL);
  tokenizer_set_begins_with_end(f->tokenizer, true);
  tokenizer_set_ends_with_end(f->tokenizer, true);
  assert_true(tokenizer_ends_with_end(f->tokenizer) && !tokenizer_begins_with_end(f->tokenizer));
  json_t *config = saved_config(f, f->tokenizer), *got = json_load_file(f->path, 0, NULL);
  change(want, "post_processor", AFTER("256"));
  assert_true(json_equal(got, want));
  assert_string_equal(json_string_value(json_object_get(config, "pad_token")), END_OF_TEXT);
  json_object_del(config, "pad_token");
  assert_true(json_equal(config, plain));
  Tokenizer *loaded = load(f);
  assert_true(tokenizer_ends_with_end(loaded) && !tokenizer_begins_with_end(loaded));
  tokenizer_set_begins_with_end(loaded, false); /* changes nothing */
  assert_true(tokenizer_ends_with_end(loaded));
  tokenizer_set_begins_with_end(loaded, true);
  assert_true(tokenizer_begins_with_end(loaded) && !tokenizer_ends_with_end(loaded));
  json_t *begins = saved_config(f, loaded);
  assert_true(json_equal(begins, plain));
  tokenizer_free(loaded);
  json_decref(plain);
  json_decref(want);
  json_decref(config);
  json_decref(got);
  json_decref(begins);
}

/* ---- the token that ends a document, and what the vocabulary is padded with ---- */

static void put_text(const char *path, const char *text) {
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_true(fputs(text, stream) >= 0);
  assert_int_equal(fclose(stream), 0);
}

#define ADDED(id, text) "{\"id\": " id ", \"content\": \"" text "\", \"special\": true}"

/* tokenizer_config.json before config.json before what GPT-2 calls it; names that are none are passed over. */
static void end_token_is_found(void **state) {
  const Fixture *f = *state;
  const struct {
    const char *tokenizer, *model;
    int end;
    const char *generation; /* of the model; NULL: no such file */
  } cases[] = {{"{}", "{}", 256, NULL},
               {"{}", "{}", 257, "{\"eos_token_id\": [257, 258]}"},
               {"{}", "{\"eos_token_id\": null}", 258, "{\"eos_token_id\": 258}"},
               {"{}", "{\"eos_token_id\": 65}", 258, "{\"eos_token_id\": 258}"},
               {"{}", "{\"eos_token_id\": 257}", 257, "{\"eos_token_id\": 258}"},
               {"{\"eos_token\": \"<|im_end|>\"}", "{}", 257, NULL},
               {"{\"eos_token\": {\"content\": \"<|im_end|>\"}}", "{\"eos_token_id\": 258}", 257, NULL},
               {"{\"eos_token\": null}", "{\"eos_token_id\": 258}", 258, NULL},
               {"{\"eos_token\": \"<none>\"}", "{\"eos_token_id\": [257, 258]}", 257, NULL},
               {"[", "{\"eos_token_id\": 65}", 256, NULL},
               {"{\"eos_token\": 7}", "{\"eos_token_id\": \"x\"}", 256, NULL}};
  char model[128], generation[128];
  snprintf(model, sizeof model, "%s/config.json", f->dir);
  snprintf(generation, sizeof generation, "%s/generation_config.json", f->dir);
  json_t *root = saved_json(f);
  change(root, "added_tokens",
         "[" ADDED("256", END_OF_TEXT) ", " ADDED("257", "<|im_end|>") ", " ADDED("258", "<e>") "]");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(json_dump_file(root, f->path, 0), 0);
    put_text(f->config, cases[i].tokenizer);
    put_text(model, cases[i].model);
    if (cases[i].generation) put_text(generation, cases[i].generation);
    Tokenizer *loaded = load(f);
    assert_int_equal(tokenizer_end(loaded), cases[i].end);
    save(f, loaded); /* says so to the next reader */
    unlink(model);
    unlink(generation);
    tokenizer_free(loaded);
    loaded = load(f);
    assert_int_equal(tokenizer_end(loaded), cases[i].end);
    tokenizer_free(loaded);
  }
  json_decref(root);
}

/* Of a document in several calls only the beginning gets a space in front, even if there is nothing in the first. */
static void documents_continue(void **state) {
  const Fixture *f = *state;
  const PipelineText parts[] = {{NULL, 0}, {(const uint8_t *)"a", 1}, {(const uint8_t *)"b", 1}};
  const int32_t want[] = {' ', 'a', 'b', END, ' ', 'a', END};
  json_t *root = saved_json(f);
  change(root, "pre_tokenizer.add_prefix_space", "true");
  assert_int_equal(json_dump_file(root, f->path, 0), 0);
  json_decref(root);
  Tokenizer *loaded = load(f);
  BpeEncoder *encoder;
  BpeIds ids = {0};
  Error error = {0};
  assert_true(bpe_encoder_create(&encoder, tokenizer_pipeline(loaded), false, 2, NULL, &error));
  for (int i = 0; i < 3; i++)
    assert_true(bpe_encode(encoder, &parts[i], 1, i < 2 ? -1 : END, bpe_ids_sink, &ids, &error));
  assert_true(bpe_encode(encoder, &parts[1], 1, END, bpe_ids_sink, &ids, &error));
  assert_int_equal(ids.count, 7);
  assert_memory_equal(ids.ids, want, sizeof want);
  for (int i = 0; i < 2; i++) { /* texts by themselves do not continue each other */
    const BpeIds text = encode(loaded, "a", 1);
    assert_int_equal(text.count, 2);
    assert_memory_equal(text.ids, want, 2 * sizeof *want);
    free(text.ids);
  }
  free(ids.ids);
  bpe_encoder_free(encoder);
  tokenizer_free(loaded);
}

static void vocabularies_have_more_rows(void **state) {
  const Fixture *f = *state;
  static const int rows[] = {257, 258, 264, 257 + 1023, 257 + 2385, 1 << 20};
  size_t size;
  assert_false(tokenizer_set_vocab(f->tokenizer, 256));
  assert_int_equal(tokenizer_vocab(f->tokenizer), 257);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_true(tokenizer_set_vocab(f->tokenizer, rows[i]));
    assert_int_equal(tokenizer_vocab(f->tokenizer), rows[i]);
    assert_int_equal(tokenizer_tokens(f->tokenizer), 257);
    tokenizer_decode(f->tokenizer, rows[i] - 1, &size);
    assert_int_equal(size, 0);
  }
  assert_true(tokenizer_has_id(f->tokenizer, 256));
  assert_false(tokenizer_has_id(f->tokenizer, 257));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(all_bytes_round_trip),
      WITH_FIXTURE(nothing_is_no_ids),
      WITH_FIXTURE(special_text_is_plain_bytes),
      WITH_FIXTURE(other_ids_stand_for_nothing),
      WITH_FIXTURE(saved_file_loads),
      WITH_FIXTURE(merges_are_saved),
      WITH_FIXTURE(saved_file_has_the_alphabet),
      WITH_FIXTURE(config_has_the_context),
      WITH_FIXTURE(save_fails_without_directory),
      WITH_FIXTURE(beginning_is_saved),
      WITH_FIXTURE(beginning_is_saved_in_foreign_files),
      WITH_FIXTURE(foreign_beginnings_load),
      WITH_FIXTURE(other_templates_are_refused),
      WITH_FIXTURE(ending_is_saved),
      WITH_FIXTURE(end_token_is_found),
      WITH_FIXTURE(documents_continue),
      WITH_FIXTURE(vocabularies_have_more_rows),
  };
  return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
