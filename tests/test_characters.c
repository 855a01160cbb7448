/* text/dataset/characters: what the automatic choice of a tokenizer counts. */
#include "text/dataset/characters.h"
#include "tests/corpus_helpers.h"

static Characters count(Fixture *f, const char *name, const char *text, size_t size) {
  Characters found;
  Error error = {0};
  Corpus *corpus = open_one(put(f, name, text, size));
  if (!characters_count(&found, corpus, (Progress){0}, &error)) fail_msg("%s", error.text);
  corpus_close(corpus);
  return found;
}

static void expect_characters(Characters c, int64_t bytes, int64_t count, int distinct) {
  assert_int_equal(c.bytes, bytes);
  assert_int_equal(c.count, count);
  assert_int_equal(c.distinct, distinct);
}

static void counts_scripts(void **state) {
  Fixture *f = *state;
  expect_characters(count(f, "a.txt", "abba", 4), 4, 4, 2);
  expect_characters(count(f, "b.txt", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\xC3\xA9", 11), 11, 4, 3);
  /* A separator belongs to no document, an escape is the character that it stands for. */
  expect_characters(count(f, "c.txt", "ab\n<|endoftext|>\nb", 18), 4, 4, 3);
  expect_characters(count(f, "d.jsonl", "{\"text\": \"\\u4e2d\\u4e2d\"}\n", 25), 6, 2, 1);
}

static void counts_bytes_that_are_not_utf8(void **state) {
  Fixture *f = *state;
  expect_characters(count(f, "a.txt", "\xE9t\xE9", 3), 3, 3, 2);
  expect_characters(count(f, "b.txt", "\xE4\xB8", 2), 2, 2, 2);
}

static void reads_a_megabyte(void **state) {
  Fixture *f = *state;
  const size_t size = 3000000;
  char *text = malloc(size);
  assert_non_null(text);
  memset(text, 'a', size);
  memset(text + 1000000, 'b', size - 1000000);
  expect_characters(count(f, "a.txt", text, size), 1000000, 1000000, 1);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(counts_scripts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(counts_bytes_that_are_not_utf8, set_up, tear_down),
      cmocka_unit_test_setup_teardown(reads_a_megabyte, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
