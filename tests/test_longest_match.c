/* inference/longest_match: against the plain way to find it, on random texts and across the borders of
 * chunks. */
#include "inference/longest_match.h"
#include "tests/cli_helpers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 400 };

enum { LONGEST_MATCH_LEAST = 4 };

/* The longest of all: *length tokens from ids[*begin] on, the first of equal ones, or none of so few. */
static bool longest_match(const TokenRange *range, const int32_t *ids, size_t count, size_t *begin, size_t *length,
                          Progress progress, Error *error) {
  *begin = *length = 0;
  if (count > LONGEST_MATCH_TOKENS) count = LONGEST_MATCH_TOKENS;
  if (count < LONGEST_MATCH_LEAST) return true;
  int32_t *lengths = malloc(count * sizeof *lengths);
  bool ok = lengths || error_memory(error, "a comparison of texts");
  ok = ok && longest_match_lengths(range, ids, count, lengths, progress, error);
  for (size_t i = 0; ok && i < count; i++) {
    const size_t here = (size_t)lengths[i];
    if (here < LONGEST_MATCH_LEAST || here <= *length) continue;
    *begin = i + 1 - here;
    *length = here;
  }
  free(lengths);
  return ok;
}

static TokenFile text_of(const int32_t *ids, size_t count) {
  TokenFile file = {0};
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

static uint32_t drawn(uint32_t *seed, uint32_t below) {
  return (*seed = *seed * 1664525u + 1013904223u) % 65537 % below;
}

static void lengths_of(const int32_t *text, size_t size, const int32_t *ids, size_t count, int32_t *lengths) {
  TokenFile file = text_of(text, size);
  Error error = {0};
  if (!longest_match_lengths(&(TokenRange){&file, 0, (int64_t)size}, ids, count, lengths, (Progress){0}, &error))
    fail_msg("%s", error.text);
  token_file_close(&file);
}

/* Of the passages that end with ids[end], the longest that stands in the text. */
static int32_t plain_length(const int32_t *text, size_t size, const int32_t *ids, size_t end) {
  size_t most = 0;
  for (size_t at = 0; at < size; at++) {
    size_t same = 0;
    while (same <= at && same <= end && text[at - same] == ids[end - same]) same++;
    most = same > most ? same : most;
  }
  return (int32_t)most;
}

/* Thousands of short texts of one to four different tokens, in some of which a negative id parts the ids. */
static void lengths_everywhere(void **state) {
  (void)state;
  enum { SIZE = 60, COUNT = 40 };
  uint32_t seed = 7;
  for (int round = 0; round < 2000; round++) {
    int32_t text[SIZE], ids[COUNT], lengths[COUNT];
    const uint32_t letters = (uint32_t)round % 4 + 1;
    const size_t size = 1 + drawn(&seed, SIZE), count = 1 + drawn(&seed, COUNT);
    for (size_t i = 0; i < size; i++) text[i] = (int32_t)drawn(&seed, letters);
    for (size_t i = 0; i < count; i++)
      ids[i] = round % 5 == 0 && drawn(&seed, 9) == 0 ? -1 : (int32_t)drawn(&seed, letters + 1);
    lengths_of(text, size, ids, count, lengths);
    for (size_t i = 0; i < count; i++) assert_int_equal(lengths[i], plain_length(text, size, ids, i));
  }
}

/* Passages at the beginning and the end, across the borders of what is read at a time, and none. */
static void planted_copies(void **state) {
  (void)state;
  enum { SIZE = 200000, RUN = 50 };
  int32_t *text = malloc(SIZE * sizeof *text), ids[3 * RUN], lengths[3 * RUN];
  for (int i = 0; i < 3 * RUN; i++) ids[i] = 100 + i;
  const int places[] = {0, 1, 65536 - RUN, 65536 - 1, 65536 - RUN / 2, 65536, 131072 - 3, SIZE - RUN, -1};
  for (const int *place = places; place < places + sizeof places / sizeof *places; place++) {
    for (int i = 0; i < SIZE; i++) text[i] = i % 100;
    if (*place >= 0) memcpy(text + *place, ids + RUN, RUN * sizeof *text);
    lengths_of(text, SIZE, ids, 3 * RUN, lengths);
    for (int i = 0; i < 3 * RUN; i++)
      assert_int_equal(lengths[i], *place >= 0 && i >= RUN && i < 2 * RUN ? i - RUN + 1 : 0);
  }
  free(text);
}

/* Of a text that repeats itself, and of the most ids there may be: in time that grows with their number. */
static void many_ids(void **state) {
  (void)state;
  enum { SIZE = 3000, COUNT = LONGEST_MATCH_TOKENS };
  int32_t *ids = malloc((COUNT + 1) * sizeof *ids), *lengths = malloc((COUNT + 1) * sizeof *lengths), text[SIZE];
  uint32_t seed = 3;
  for (int i = 0; i < SIZE; i++) text[i] = i == 0 ? 1 : i % 7 == 0 ? 0 : 5 + (int32_t)drawn(&seed, 300);
  for (int i = 0; i < COUNT; i++) ids[i] = i < COUNT / 2 ? 0 : text[i % SIZE];
  lengths_of(text, SIZE, ids, COUNT, lengths);
  for (int i = 0; i < COUNT / 2; i++) assert_int_equal(lengths[i], 1);
  for (int i = COUNT / 2 + SIZE; i < COUNT; i++) assert_int_equal(lengths[i], i % SIZE + 1);
  TokenFile file = text_of(text, SIZE);
  Error error = {0};
  assert_false(longest_match_lengths(&(TokenRange){&file, 0, SIZE}, ids, COUNT + 1, lengths, (Progress){0}, &error));
  assert_int_equal(error.code, EXIT_INTERNAL);
  token_file_close(&file);
  free(ids);
  free(lengths);
}

/* What the spans have to cover: every passage of the text that is long enough, wherever it begins. */
static void mark_plainly(const int32_t *text, size_t size, const int32_t *ids, const int64_t *offsets, size_t count,
                         int tokens, int64_t bytes, bool *marked, int64_t *most) {
  *most = 0;
  memset(marked, 0, count);
  for (size_t at = 0; at < size; at++)
    for (size_t i = 0; i < count; i++) {
      size_t same = 0;
      while (at + same < size && i + same < count && text[at + same] == ids[i + same]) same++;
      if (same < (size_t)tokens || offsets[i + same] - offsets[i] < bytes) continue;
      memset(marked + i, 1, same);
      if (offsets[i + same] - offsets[i] > *most) *most = offsets[i + same] - offsets[i];
    }
}

static bool stands_in(const int32_t *text, size_t size, const int32_t *ids, size_t count) {
  for (size_t at = 0; at + count <= size; at++)
    if (memcmp(text + at, ids, count * sizeof *ids) == 0) return true;
  return false;
}

/* No token of a passage is left out, and each span is a passage that the others do not make needless. */
static void check_spans(const int32_t *text, size_t size, const int32_t *ids, const int64_t *offsets, size_t count,
                        int tokens, int64_t bytes) {
  int32_t lengths[64];
  bool marked[64], covered[64] = {false};
  MatchSpan spans[64];
  int64_t most;
  size_t longest;
  lengths_of(text, size, ids, count, lengths);
  const size_t found = longest_match_spans(lengths, offsets, count, tokens, bytes, spans, &longest);
  mark_plainly(text, size, ids, offsets, count, tokens, bytes, marked, &most);
  for (size_t k = 0; k < found; k++) {
    const MatchSpan s = spans[k];
    assert_true(s.end - s.begin >= (size_t)tokens && offsets[s.end] - offsets[s.begin] >= bytes);
    assert_true(stands_in(text, size, ids + s.begin, s.end - s.begin));
    assert_true(k == 0 || (s.begin > spans[k - 1].begin && s.end > spans[k - 1].end));
    assert_true(k < 2 || s.begin >= spans[k - 2].end || k - 1 == longest || k == longest || k - 2 == longest);
    memset(covered + s.begin, 1, s.end - s.begin);
  }
  assert_memory_equal(marked, covered, count);
  assert_true(found == 0 ? most == 0 : offsets[spans[longest].end] - offsets[spans[longest].begin] == most);
}

static void spans_cover_all(void **state) {
  (void)state;
  enum { SIZE = 60, COUNT = 50 };
  uint32_t seed = 11;
  for (int round = 0; round < 2000; round++) {
    int32_t text[SIZE], ids[COUNT];
    int64_t offsets[COUNT + 1] = {0};
    const uint32_t letters = (uint32_t)round % 4 + 1;
    const size_t size = 1 + drawn(&seed, SIZE), count = 1 + drawn(&seed, COUNT);
    for (size_t i = 0; i < size; i++) text[i] = (int32_t)drawn(&seed, letters);
    for (size_t i = 0; i < count; i++) {
      ids[i] = (int32_t)drawn(&seed, letters);
      offsets[i + 1] = offsets[i] + drawn(&seed, 5);
    }
    check_spans(text, size, ids, offsets, count, 1 + (int)drawn(&seed, 8), drawn(&seed, 12));
  }
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
      cmocka_unit_test(random_texts),       cmocka_unit_test(borders),           cmocka_unit_test(short_texts),
      cmocka_unit_test(lengths_everywhere), cmocka_unit_test(planted_copies),    cmocka_unit_test(many_ids),
      cmocka_unit_test(spans_cover_all),    cmocka_unit_test(it_can_be_stopped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
