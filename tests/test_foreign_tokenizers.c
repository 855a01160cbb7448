/* Tokenizers of other models: the tokens that Hugging Face's library gives a text (tests/golden/make_tokenizers.py). */
#include "tests/cut_helpers.h"
#include "tests/tokenizer_helpers.h"

static json_t *read_goldens(void) {
  const char *dir = getenv("INKLING_GOLDEN");
  char path[1024];
  snprintf(path, sizeof path, "%s/tokenizers.json", dir ? dir : "tests/golden");
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
  if (!json_array_size(root)) fail_msg("%s holds no goldens", path);
  return root;
}

static const char *text_of(const json_t *golden, const char *key) {
  return json_string_value(json_object_get(golden, key));
}

static Tokenizer *load(const Fixture *f, const json_t *golden) {
  enum { END = 0 };
  Tokenizer *tokenizer;
  Error error = {0};
  assert_int_equal(json_dump_file(json_object_get(golden, "tokenizer"), f->path, 0), 0);
  if (!tokenizer_load_alone(&tokenizer, f->path, END, &error)) fail_msg("%s", error.text);
  return tokenizer;
}

static void compare(Tokenizer *tokenizer, const json_t *golden, bool special) {
  const char *text = text_of(golden, "text");
  const json_t *wanted = json_object_get(golden, special ? "special" : "plain");
  BpeIds ids = {0};
  Error error = {0};
  tokenizer_set_special(tokenizer, special);
  if (!tokenizer_encode(tokenizer, (const uint8_t *)text, strlen(text), &ids, &error)) fail_msg("%s", error.text);
  for (size_t i = 0; i < ids.count && i < json_array_size(wanted); i++)
    if (ids.ids[i] != json_integer_value(json_array_get(wanted, i)))
      fail_msg("%s: token %zu is %d", text_of(golden, "name"), i, (int)ids.ids[i]);
  assert_int_equal(ids.count, json_array_size(wanted));
  free(ids.ids);
}

static void compare_back(const Tokenizer *tokenizer, const json_t *golden) {
  const char *wanted = text_of(golden, "back");
  const json_t *ids = json_object_get(golden, "plain");
  bool at_start = true;
  size_t at = 0;
  if (!wanted) return; /* added tokens stand for themselves here, and not always there */
  for (size_t i = 0, size; i < json_array_size(ids); i++, at += size) {
    const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
    const uint8_t *bytes = tokenizer_decode_next(tokenizer, id, &at_start, &size);
    if (strlen(wanted) < at + size || memcmp(wanted + at, bytes, size) != 0)
      fail_msg("%s: byte %zu of the text is another", text_of(golden, "name"), at);
  }
  assert_int_equal(at, strlen(wanted));
}

static void as_the_library(void **state) {
  json_t *goldens = read_goldens();
  for (size_t i = 0; i < json_array_size(goldens); i++) {
    const json_t *golden = json_array_get(goldens, i);
    Tokenizer *tokenizer = load(*state, golden);
    compare(tokenizer, golden, false);
    compare(tokenizer, golden, true);
    compare_back(tokenizer, golden);
    assert_int_equal(tokenizer_begin(tokenizer), json_integer_value(json_object_get(golden, "begin")));
    assert_false(tokenizer_is_gpt2(tokenizer));
    tokenizer_free(tokenizer);
  }
  json_decref(goldens);
}

/* ---- cutting ---- */

/* Added tokens that take white space with them, or are a word, forbid most places. */
static void keep_to_themselves(json_t *golden) {
  json_t *added = json_object_get(json_object_get(golden, "tokenizer"), "added_tokens");
  const char *const flags[] = {"lstrip", "rstrip", "single_word"};
  for (size_t i = 0; i < json_array_size(added); i++)
    for (size_t k = 0; k < 3; k++) json_object_set_new(json_array_get(added, i), flags[k], json_false());
}

static void cut_everywhere(const Tokenizer *tokenizer, const json_t *golden, bool special, int *cuts) {
  const char *text = text_of(golden, "text");
  Error error = {0};
  const size_t wrong =
      find_wrong_cut(tokenizer, (PipelineText){(const uint8_t *)text, strlen(text)}, special, cuts, &error);
  if (error.code) fail_msg("%s", error.text);
  if (wrong) fail_msg("%s: a cut at byte %zu changes the tokens", text_of(golden, "name"), wrong);
}

static void cuts_change_nothing(void **state) {
  json_t *goldens = read_goldens();
  int cuts = 0;
  for (size_t i = 0; i < 2 * json_array_size(goldens); i++) {
    json_t *golden = json_array_get(goldens, i / 2);
    if (i % 2) keep_to_themselves(golden);
    Tokenizer *tokenizer = load(*state, golden);
    cut_everywhere(tokenizer, golden, false, &cuts);
    cut_everywhere(tokenizer, golden, true, &cuts);
    tokenizer_free(tokenizer);
  }
  assert_true(cuts > 1000);
  json_decref(goldens);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(as_the_library, set_up, tear_down),
                                     cmocka_unit_test_setup_teardown(cuts_change_nothing, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
