/* dataset/longest_match: against the plain way to find it, on random texts and across the borders of chunks. */
#include "dataset/longest_match.h"
#include "tests/cli_helpers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 400 };

static TokenFile text_of(const int32_t *ids, size_t count) {
  TokenFile file;
  Error error = {0};
  char *path = NULL;
  TokenWriter writer;
  if (!file_temporary(&path, &error) || !token_writer_begin(&writer, path, &(TokenFileInfo){.vocab = VOCAB}, &error) ||
      !token_writer_add(&writer, ids, count, true, &error) || !token_writer_commit(&writer, 1, 1, &error) ||
      !token_file_open(&file, path, &error))
    fail_msg("%s", error.text);
  unlink(path);
  free(path);
  return file;
}

/* Every pair of places. */
static size_t plain(const int32_t *text, size_t size, const int32_t *ids, size_t count) {
  size_t most = 0;
  for (size_t at = 0; at < size; at++)
    for (size_t i = 0; i < count; i++) {
      size_t same = 0;
      while (at + same < size && i + same < count && text[at + same] == ids[i + same]) same++;
      most = same > most ? same : most;
    }
  return most < LONGEST_MATCH_LEAST ? 0 : most;
}

static size_t found(const int32_t *text, size_t size, const int32_t *ids, size_t count) {
  TokenFile file = text_of(text, size);
  Error error = {0};
  size_t begin, length;
  if (!longest_match(&(TokenRange){&file, 0, (int64_t)size}, ids, count, &begin, &length, (Progress){0}, &error))
    fail_msg("%s", error.text);
  assert_true(begin + length <= count);
  token_file_close(&file);
  return length;
}

static void random_texts(void **state) {
  (void)state;
  int32_t text[700], ids[90];
  uint32_t seed = 1;
  for (int round = 0; round < 60; round++) {
    const uint32_t letters = round % 3 == 0 ? 1 : round % 3 == 1 ? 2 : 5; /* a single one, and lists of many places */
    const size_t size = (size_t)(round * 11 + 1), count = (size_t)(round % 89 + 1);
    for (size_t i = 0; i < 700; i++)
      text[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 16) % (int32_t)letters;
    for (size_t i = 0; i < 90; i++) ids[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 16) % (int32_t)letters;
    assert_int_equal(found(text, size, ids, count), plain(text, size, ids, count));
  }
}

/* A run of 200 tokens anywhere about the border between two chunks, and at the end of the text. */
static void borders(void **state) {
  (void)state;
  enum { SIZE = 140000, RUN = 200 };
  int32_t *text = malloc(SIZE * sizeof *text), ids[RUN + 20];
  for (int i = 0; i < RUN + 20; i++) ids[i] = 1 + i * 7 % 399;
  const int places[] = {0, 65536 - RUN - 20, 65536 - RUN, 65536 - 100, 65535, 65536, 131072 - 3, SIZE - RUN};
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    memset(text, 0, SIZE * sizeof *text);
    memcpy(text + places[k], ids + 10, RUN * sizeof *text);
    assert_int_equal(found(text, SIZE, ids, RUN + 20), RUN);
  }
  free(text);
}

static void short_texts(void **state) {
  (void)state;
  const int32_t text[] = {1, 2, 3, 4, 5}, same[] = {1, 2, 3, 4, 5, 6};
  for (size_t count = 0; count <= 6; count++)
    for (size_t size = 1; size <= 5; size++)
      assert_int_equal(found(text, size, same, count), plain(text, size, same, count));
}

static bool stop(void *context, int64_t done, Error *error) {
  (void)context, (void)done;
  return (fail)(error, EXIT_INTERNAL, "enough");
}

static void it_can_be_stopped(void **state) {
  (void)state;
  int32_t text[100] = {0};
  TokenFile file = text_of(text, 100);
  size_t begin, length;
  Error error = {0};
  assert_false(longest_match(&(TokenRange){&file, 0, 100}, text, 100, &begin, &length, (Progress){stop, NULL}, &error));
  assert_string_equal(error.text, "enough");
  token_file_close(&file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_texts),
      cmocka_unit_test(borders),
      cmocka_unit_test(short_texts),
      cmocka_unit_test(it_can_be_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
