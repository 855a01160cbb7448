/* text/dataset/pairs: files that are damaged or hostile, and what stops the work. */
#include "tests/pair_helpers.h"

static bool stop_it(void *context, int64_t tokens, Error *error) {
  *(int64_t *)context = tokens;
  error->code = EXIT_SIGNALS;
  return false;
}

static void test_stopped(void **state) {
  Fixture *f = *state;
  Pairs pairs;
  Error error = {0};
  int64_t told = 0;
  put_pair(f, 3, 3);
  write_file(f);
  const TokenRange all = whole(f);
  assert_false(pairs_make(&pairs, &all, 8, (PairTokens){END, 0, END}, (Progress){stop_it, &told}, &error));
  assert_int_equal(error.code, EXIT_SIGNALS);
  assert_int_equal(told, f->tokens);
}

/* Files whose checksums are right and whose documents are none of ours. */
static void test_hostile_files(void **state) {
  Fixture *f = *state;
  put_pair(f, 3, 100);
  f->in_loss[50] = false; /* behind the target's beginning */
  write_file(f);
  expect_refused(&(TokenRange){&f->file, 0, f->tokens}, 128, EXIT_CHECKPOINT, "token 50 is not a pair");
  put_pair(f, 70, 0);
  f->in_loss[70] = false; /* no target, not even the end */
  write_file(f);
  expect_refused(&(TokenRange){&f->file, 0, f->tokens}, 128, EXIT_CHECKPOINT, "token 0 is not a pair");
  put_pair(f, 3, 3);
  f->ids[f->tokens - 1] = 77; /* no end at all */
  write_file(f);
  Pairs p = make(&(TokenRange){&f->file, 0, f->tokens}, 16);
  assert_int_equal(p.partial, 1);
  assert_int_equal(p.table.windows, 0);
  pairs_free(&p);
}

/* Few different tokens and a mask that is mostly one of sources: refused, or windows that keep inside of their rows. */
static void test_random_files(void **state) {
  Fixture *f = *state;
  static Rows got;
  enum { CTX = 16 };
  int made = 0, refused = 0;
  for (int round = 0; round < 1000; round++) {
    Pairs p;
    Error error = {0};
    const int skew = 2 + draw(f, 200);
    f->tokens = 1 + draw(f, 100);
    for (int64_t i = 0; i < f->tokens; i++) {
      f->ids[i] = draw(f, 5);
      const bool first = i == 0 || f->ids[i - 1] == END;
      f->in_loss[i] = f->ids[i] == END || draw(f, skew) == 0 ? draw(f, skew) > 0 : !first && f->in_loss[i - 1];
    }
    write_file(f);
    const TokenRange all = whole(f);
    if (!pairs_make(&p, &all, CTX, (PairTokens){END, 0, END}, (Progress){0}, &error)) {
      assert_true(error.code == EXIT_CHECKPOINT || error.code == EXIT_INPUT);
      refused++;
      continue;
    }
    for (int64_t window = 0; window < p.table.windows; window++) {
      const Window out = window_of(&got, CTX);
      assert_true(pairs_read(&p, window, &out, &error));
      for (int a = 0; a < ARRAYS; a++) assert_int_equal(got.array[a][CTX], CANARY);
      for (int i = 0; i < CTX; i++) {
        assert_true(0 <= out.source_begin[i] && out.source_begin[i] <= i && i < out.source_end[i]);
        assert_true(out.source_end[i] <= CTX && out.source_positions[i] == i - out.source_begin[i]);
        assert_true(0 <= out.cross_begin[i] && out.cross_begin[i] <= out.cross_end[i] && out.cross_end[i] <= CTX);
        assert_true((out.targets[i] == IGNORE_INDEX) == (out.cross_begin[i] == out.cross_end[i]));
      }
    }
    made++;
    pairs_free(&p);
  }
  assert_true(made > 100 && refused > 100);
}

static void test_a_file_without_a_loss_mask(void **state) {
  Fixture *f = *state;
  Error error = {0};
  TokenWriter writer;
  const int32_t ids[] = {5, END};
  assert_true(token_writer_begin(&writer, f->path, &(TokenFileInfo){.vocab = VOCAB}, &error));
  assert_true(token_writer_add(&writer, ids, 2, true, &error) && token_writer_commit(&writer, 1, 1, &error));
  assert_true(token_file_open(&f->file, f->path, &error));
  expect_refused(&(TokenRange){&f->file, 0, 2}, 8, EXIT_INPUT, "--prompt-field");
}

/* From then on `count` tokens from `token` on are other ones. */
static void overwrite(const Fixture *f, int64_t token, int count, uint32_t word) {
  FILE *stream = fopen(f->path, "r+b");
  assert_non_null(stream);
  assert_int_equal(fseek(stream, (long)(80 + 4 * token), SEEK_SET), 0);
  for (int i = 0; i < count; i++) assert_int_equal(fwrite(&word, sizeof word, 1, stream), 1);
  assert_int_equal(fclose(stream), 0);
}

/* A file that changes while it is mapped: rows never grow beyond their ends. */
static void test_files_that_change(void **state) {
  Fixture *f = *state;
  static Rows got;
  enum { CTX = 10 };
  const uint32_t masked = 900 | 1u << 31;
  const struct {
    int64_t token;
    int count;
    uint32_t word;
  } changes[] = {{4, 1, VOCAB},    /* no such token */
                 {15, 1, 900},     /* the second pair does not end */
                 {8, 3, 900},      /* a target that is longer than its row */
                 {11, 4, masked},  /* so is a source */
                 {11, 3, masked},  /* which its end token does not fit behind */
                 {12, 1, masked}}; /* a source behind a target */
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    Error error = {0};
    f->tokens = 0;
    for (int k = 0; k < 2; k++) add_pair(f, 3, 4); /* 8 tokens: 4 places and 5 */
    write_file(f);
    Pairs p = make(&(TokenRange){&f->file, 0, f->tokens}, CTX);
    assert_int_equal(p.table.windows, 1);
    overwrite(f, changes[i].token, changes[i].count, changes[i].word);
    const Window out = window_of(&got, CTX);
    if (pairs_read(&p, 0, &out, &error)) fail_msg("change %zu is not noticed", i);
    assert_int_equal(error.code, EXIT_CHECKPOINT);
    for (int a = 0; a < ARRAYS; a++) assert_int_equal(got.array[a][CTX], CANARY);
    pairs_free(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_stopped, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_hostile_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_random_files, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_file_without_a_loss_mask, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_files_that_change, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("errors of pairs", tests, NULL, NULL);
}
