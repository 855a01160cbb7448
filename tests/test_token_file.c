/* text/dataset/token_file.h: what is written is read back, in every width, and nothing damaged is believed. */
#include "text/dataset/token_file.h"

#include "kernels/philox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After the project's headers: cmocka.h makes fail() a macro. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { HEADER = 80, TOKENS = 200003 }; /* several buffers, and a part of one */

typedef struct Fixture {
  char dir[64], path[128];
  int32_t *ids, *got;
} Fixture;

static int set_up(void **state) {
  Fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-tokens-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  snprintf(f->path, sizeof f->path, "%s/tokens.bin", f->dir);
  f->ids = malloc(TOKENS * sizeof *f->ids);
  f->got = malloc(TOKENS * sizeof *f->got);
  assert_true(f->ids && f->got);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  unlink(f->path);
  assert_int_equal(rmdir(f->dir), 0); /* nothing temporary is left */
  free(f->ids);
  free(f->got);
  free(f);
  return 0;
}

static bool is_left_out(int64_t i) { return i / 5 % 3 == 0; }

/* Random ids and the largest; every run of 5 tokens is one call. */
static void write_tokens(Fixture *f, int32_t vocab, bool loss_mask) {
  TokenFileInfo info = {.vocab = vocab, .loss_mask = loss_mask, .fingerprint = 0x123456789ABCDEFu};
  TokenWriter writer;
  Error error = {0};
  for (int i = 0; i < TOKENS; i++)
    f->ids[i] = i % 7 ? (int32_t)(philox(1, (uint32_t)i, 0, 0, 0).word[0] % (uint32_t)vocab) : vocab - 1;
  if (!token_writer_begin(&writer, f->path, &info, &error)) fail_msg("%s", error.text);
  for (int i = 0; i < TOKENS; i += 5) {
    size_t count = (size_t)(TOKENS - i < 5 ? TOKENS - i : 5);
    if (!token_writer_add(&writer, f->ids + i, count, !loss_mask || !is_left_out(i), &error))
      fail_msg("%s", error.text);
  }
  if (!token_writer_commit(&writer, 42, 77, &error)) fail_msg("%s", error.text);
}

static TokenFile open_tokens(const Fixture *f) {
  TokenFile file;
  Error error = {0};
  if (!token_file_open(&file, f->path, &error)) fail_msg("%s", error.text);
  return file;
}

static void round_trip(Fixture *f, int32_t vocab, bool loss_mask, int word_bytes) {
  Error error = {0};
  write_tokens(f, vocab, loss_mask);
  TokenFile file = open_tokens(f);
  assert_int_equal(file.file.size, HEADER + (size_t)TOKENS * (size_t)word_bytes);
  assert_int_equal(file.info.vocab, vocab);
  assert_int_equal(file.info.loss_mask, loss_mask);
  assert_int_equal(file.info.tokens, TOKENS);
  assert_int_equal(file.info.documents, 42);
  assert_int_equal(file.info.bytes, 77);
  assert_true(file.info.fingerprint == 0x123456789ABCDEFu);
  assert_true(token_file_read_targets(&file, 0, TOKENS, -100, f->got, &error));
  for (int i = 0; i < TOKENS; i++) assert_int_equal(f->got[i], loss_mask && is_left_out(i) ? -100 : f->ids[i]);
  assert_true(token_file_read(&file, 0, TOKENS, f->got, &error));
  assert_memory_equal(f->got, f->ids, TOKENS * sizeof *f->ids);
  token_file_drop_pages(&file);
  assert_true(token_file_read(&file, 99999, 3, f->got, &error));
  assert_memory_equal(f->got, f->ids + 99999, 3 * sizeof *f->ids);
  assert_true(token_file_read(&file, TOKENS, 0, f->got, &error));
  token_file_close(&file);
}

static void test_round_trip(void **state) {
  round_trip(*state, 257, false, 2);
  round_trip(*state, 1 << 16, false, 2);
  round_trip(*state, (1 << 16) + 1, false, 4);
  round_trip(*state, 1 << 15, true, 2);
  round_trip(*state, (1 << 15) + 1, true, 4);
  round_trip(*state, 1, true, 2);
}

static void test_empty(void **state) {
  Fixture *f = *state;
  TokenFileInfo info = {.vocab = 5};
  TokenWriter writer;
  Error error = {0};
  assert_true(token_writer_begin(&writer, f->path, &info, &error) && token_writer_commit(&writer, 0, 0, &error));
  TokenFile file = open_tokens(f);
  assert_int_equal(file.info.tokens, 0);
  token_file_close(&file);
}

/* An abandoned file leaves the old one as it was. */
static void test_abort(void **state) {
  Fixture *f = *state;
  TokenFileInfo info = {.vocab = 5};
  TokenWriter writer;
  Error error = {0};
  const int32_t wrong[] = {4, 5};
  write_tokens(f, 300, false);
  assert_true(token_writer_begin(&writer, f->path, &info, &error));
  assert_false(token_writer_add(&writer, wrong, 2, true, &error));
  assert_int_equal(error.code, EXIT_INTERNAL);
  assert_false(token_writer_add(&writer, wrong, 1, false, &error)); /* there is no loss mask */
  token_writer_abort(&writer);
  TokenFile file = open_tokens(f);
  assert_int_equal(file.info.tokens, TOKENS);
  token_file_close(&file);
}

static void overwrite(const Fixture *f, long at, const void *bytes, size_t size) {
  FILE *stream = fopen(f->path, "r+b");
  assert_non_null(stream);
  assert_int_equal(fseek(stream, at, SEEK_SET), 0);
  assert_int_equal(fwrite(bytes, 1, size, stream), size);
  assert_int_equal(fclose(stream), 0);
}

static void refused(const Fixture *f) {
  TokenFile file;
  Error error = {0};
  assert_false(token_file_open(&file, f->path, &error));
  assert_int_equal(error.code, EXIT_CHECKPOINT);
  assert_non_null(strstr(error.text, f->path));
}

static void test_damaged(void **state) {
  Fixture *f = *state;
  Error error = {0};
  refused(f);                        /* missing */
  for (int i = 0; i < HEADER; i++) { /* every byte of the header counts */
    uint8_t byte;
    write_tokens(f, 300, false);
    FILE *stream = fopen(f->path, "rb");
    assert_non_null(stream);
    assert_int_equal(fseek(stream, i, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, stream), 1);
    fclose(stream);
    byte ^= 0x10;
    overwrite(f, i, &byte, 1);
    refused(f);
  }
  write_tokens(f, 300, false);
  const uint16_t large = 300;
  overwrite(f, HEADER + 2 * 1000, &large, sizeof large);
  TokenFile file = open_tokens(f);
  assert_true(token_file_read(&file, 0, 1000, f->got, &error));
  assert_false(token_file_read(&file, 0, 1001, f->got, &error));
  assert_int_equal(error.code, EXIT_CHECKPOINT);
  assert_non_null(strstr(error.text, "token 1000 is 300"));
  error = (Error){0};
  token_file_close(&file);
  write_tokens(f, 300, false);
  file = open_tokens(f);
  assert_true(token_file_verify(&file, (Progress){0}, &error));
  token_file_close(&file);
  const uint16_t other = 7; /* a token like others, but not the one that was written */
  overwrite(f, HEADER + 2 * (TOKENS - 1), &other, sizeof other);
  file = open_tokens(f);
  Error damaged = {0};
  assert_false(token_file_verify(&file, (Progress){0}, &damaged));
  assert_int_equal(damaged.code, EXIT_CHECKPOINT);
  token_file_close(&file);
  const off_t sizes[] = {HEADER + 2 * TOKENS - 1, HEADER + 2 * TOKENS - 2, HEADER, HEADER - 1, 0};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    assert_int_equal(truncate(f->path, sizes[i]), 0);
    refused(f);
  }
}

/* Groups 0 and 2 to 4 have three tokens each. */
static void test_groups(void **state) {
  Fixture *f = *state;
  const TokenFileInfo info = {.vocab = 5};
  const int32_t ids[] = {1, 2, 3};
  const int64_t ends[] = {3, 3, 6, 9, 12, 12, 12}, wrong[] = {-1, 7, 13, INT64_MIN, INT64_MAX};
  TokenWriter writer;
  Error error = {0}, damaged = {0};
  assert_true(token_writer_begin(&writer, f->path, &info, &error));
  for (int group = 0; group <= 4; group++) {
    token_writer_begin_group(&writer, group);
    if (group != 1) assert_true(token_writer_add(&writer, ids, 3, true, &error));
  }
  assert_true(token_writer_commit(&writer, 4, 12, &error));
  TokenFile file = open_tokens(f);
  assert_int_equal(file.info.tokens, 12);
  for (int group = 0; group < 7; group++) {
    const TokenRange range = token_file_group(&file, group);
    assert_true(range.file == &file && range.begin == (group ? ends[group - 1] : 0) && range.end == ends[group]);
  }
  assert_true(token_file_verify(&file, (Progress){0}, &error));
  token_file_close(&file);
  const int64_t other = 4;
  overwrite(f, HEADER + 2 * 12, &other, sizeof other);
  refused(f); /* group 1 would begin after group 2 */
  const int64_t second = 5;
  overwrite(f, HEADER + 2 * 12 + 8, &second, sizeof second);
  file = open_tokens(f);
  assert_false(token_file_verify(&file, (Progress){0}, &damaged));
  assert_int_equal(damaged.code, EXIT_CHECKPOINT);
  token_file_close(&file);
  for (int i = 0; i < 5; i++) {
    overwrite(f, HEADER + 2 * 12 + 8, &wrong[i], sizeof *wrong);
    refused(f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_empty, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_abort, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_damaged, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_groups, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("token file", tests, NULL, NULL);
}
