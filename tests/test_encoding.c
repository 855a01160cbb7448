/* dataset/encoding.h: whatever way documents come, their tokens are those of each encoded by itself. */
#include "dataset/encoding.h"

#include "kernels/philox.h"

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

typedef struct Fixture {
  char dir[64], text[96], lines[96], tokens[96];
  Tokenizer *tokenizer;
  int64_t bytes; /* told last */
  int calls;     /* of stop_later */
} Fixture;

static int set_up(void **state) {
  const BpeMerge merges[] = {{'a', 'b', 256}, {' ', 256, 257}, {256, 256, 258}, {'\n', '\n', 259}};
  Fixture *f = calloc(1, sizeof *f);
  Error error = {0};
  assert_non_null(f);
  snprintf(f->dir, sizeof f->dir, "/tmp/inkling-encoding-XXXXXX");
  assert_non_null(mkdtemp(f->dir));
  snprintf(f->text, sizeof f->text, "%s/a.txt", f->dir);
  snprintf(f->lines, sizeof f->lines, "%s/b.jsonl", f->dir);
  snprintf(f->tokens, sizeof f->tokens, "%s/tokens.bin", f->dir);
  assert_true(tokenizer_from_merges(&f->tokenizer, merges, 4, &error));
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  Fixture *f = *state;
  unlink(f->text);
  unlink(f->lines);
  unlink(f->tokens);
  assert_int_equal(rmdir(f->dir), 0);
  tokenizer_free(f->tokenizer);
  free(f);
  return 0;
}

static void put(const char *path, const void *bytes, size_t size) {
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(bytes, 1, size, stream), size);
  assert_int_equal(fclose(stream), 0);
}

static Corpus *open_corpus(const char *path, const CorpusOptions *options) {
  Corpus *corpus;
  Error error = {0};
  if (!corpus_open(&corpus, &path, 1, options, &error)) fail_msg("%s", error.text);
  return corpus;
}

static const EncodingOptions two_threads = {.threads = 2};

static TokenFile encoded(const Fixture *f, Corpus *corpus) {
  TokenFile file;
  Error error = {0};
  if (!encoding_write(f->tokens, corpus, f->tokenizer, &two_threads, &error)) fail_msg("%s", error.text);
  if (!token_file_open(&file, f->tokens, &error)) fail_msg("%s", error.text);
  assert_true(file.info.fingerprint == encoding_fingerprint(corpus, f->tokenizer));
  assert_int_equal(file.info.vocab, tokenizer_vocab(f->tokenizer));
  return file;
}

/* The file's tokens are `want`, and masked where `masks` (may be NULL) says so. */
static void expect_tokens(const TokenFile *file, const BpeIds *want, const bool *masks) {
  Error error = {0};
  int32_t *ids = malloc((want->count + 1) * sizeof *ids);
  assert_non_null(ids);
  assert_int_equal(file->info.tokens, want->count);
  assert_true(token_file_read(file, 0, (int64_t)want->count, ids, &error));
  assert_memory_equal(ids, want->ids, want->count * sizeof *ids);
  assert_true(token_file_read_targets(file, 0, (int64_t)want->count, -1, ids, &error));
  for (size_t i = 0; i < want->count; i++) assert_int_equal(ids[i], masks && masks[i] ? -1 : want->ids[i]);
  free(ids);
}

static void add(const Fixture *f, BpeIds *ids, const char *text, size_t size, bool end) {
  Error error = {0};
  const int32_t id = tokenizer_end(f->tokenizer);
  assert_true(tokenizer_encode(f->tokenizer, (const uint8_t *)text, size, ids, &error));
  if (end) assert_true(bpe_ids_sink(ids, &id, 1, &error));
}

/* Many small documents, one larger than a batch has room for, one larger than a slice. */
static void test_documents(void **state) {
  Fixture *f = *state;
  enum { SMALL = 3000, SIZES = 5 };
  const size_t sizes[SIZES] = {5 << 20, 3, 40 << 20, 1, 16 << 20};
  size_t room = (size_t)SMALL * 120 + (66 << 20), size = 0;
  char *text = malloc(room);
  BpeIds want = {0};
  assert_non_null(text);
  for (int i = 0; i < SMALL + SIZES; i++) {
    const size_t count = i % 600 < 599 ? philox(1, (uint32_t)i, 0, 0, 0).word[0] % 90 + 1 : sizes[i / 600];
    char *at = text + size;
    for (size_t k = 0; k < count; k++)
      at[k] = "ab ab\nab,abab \xC3\xA9"[philox(2, (uint32_t)(k / 4), (uint32_t)i, 0, 0).word[k % 4] % 16];
    at[count] = '\n'; /* the line end before the mark belongs to the document */
    add(f, &want, at, count + 1, true);
    size += count + 1 + (size_t)sprintf(at + count + 1, "<|endoftext|>\n");
  }
  put(f->text, text, size);
  Corpus *corpus = open_corpus(f->text, NULL);
  TokenFile file = encoded(f, corpus);
  assert_int_equal(file.info.documents, SMALL + SIZES);
  assert_int_equal(file.info.bytes, size);
  assert_false(file.info.masked);
  expect_tokens(&file, &want, NULL);
  token_file_close(&file);
  corpus_close(corpus);
  free(want.ids);
  free(text);
}

/* Prompts are masked, responses and what ends them are not; either may be empty. */
static void test_masks(void **state) {
  Fixture *f = *state;
  const char *const pairs[][2] = {{"ab ab", "abab"}, {"", "ab"}, {"ab\\n\\nab", "a"}, {" ab", ""}};
  const char *const texts[][2] = {{"ab ab", "abab"}, {"", "ab"}, {"ab\n\nab", "a"}, {" ab", ""}};
  char lines[1024] = "";
  bool masks[256];
  BpeIds want = {0};
  for (int i = 0; i < 4; i++) {
    sprintf(lines + strlen(lines), "{\"q\": \"%s\", \"a\": \"%s\"}\n", pairs[i][0], pairs[i][1]);
    for (int part = 0; part < 2; part++) {
      const size_t from = want.count;
      add(f, &want, texts[i][part], strlen(texts[i][part]), part == 1);
      for (size_t k = from; k < want.count; k++) masks[k] = part == 0;
    }
  }
  put(f->lines, lines, strlen(lines));
  Corpus *corpus = open_corpus(f->lines, &(CorpusOptions){.prompt_field = "q", .response_field = "a"});
  TokenFile file = encoded(f, corpus);
  assert_true(file.info.masked);
  assert_int_equal(file.info.documents, 4);
  expect_tokens(&file, &want, masks);
  token_file_close(&file);
  corpus_close(corpus);
  free(want.ids);
}

/* The vocabulary is the one of all documents, large and small; --vocab-size is an upper bound. */
static void test_training(void **state) {
  Fixture *f = *state;
  const size_t size = 36 << 20;
  char *text = malloc(size + 64);
  Error error = {0};
  Tokenizer *all, *few;
  assert_non_null(text);
  for (size_t i = 0; i < size; i++)
    text[i] = "xyz wv"[i % 24 < 6 ? i % 6 : philox(3, (uint32_t)(i % 4096), 0, 0, 0).word[0] % 6];
  memcpy(text + size, "\n<|endoftext|>\nqq qq qq\n", 24);
  put(f->text, text, size + 24);
  Corpus *corpus = open_corpus(f->text, NULL);
  assert_true(encoding_train(&all, corpus, 300, &two_threads, &error));
  assert_true(encoding_train(&few, corpus, 258, &(EncodingOptions){.threads = 1}, &error));
  assert_int_equal(tokenizer_vocab(all), 300);
  assert_int_equal(tokenizer_vocab(few), 258);
  assert_int_equal(tokenizer_bpe(few)->merges[0].left, tokenizer_bpe(all)->merges[0].left);
  assert_int_equal(tokenizer_bpe(few)->merges[0].right, tokenizer_bpe(all)->merges[0].right);
  corpus_close(corpus);
  put(f->text, "qq", 2); /* no pair occurs twice */
  corpus = open_corpus(f->text, NULL);
  tokenizer_free(few);
  assert_true(encoding_train(&few, corpus, 1000, &two_threads, &error));
  assert_int_equal(tokenizer_vocab(few), 257);
  corpus_close(corpus);
  tokenizer_free(all);
  tokenizer_free(few);
  free(text);
}

static bool stop_later(void *context, int64_t bytes, int64_t merges, Error *error) {
  Fixture *f = context;
  (void)merges;
  f->bytes = bytes;
  if (++f->calls < 3) return true;
  error->code = EXIT_SIGINT; /* cmocka has taken the name of fail() */
  return false;
}

static void test_stopping(void **state) {
  Fixture *f = *state;
  const size_t size = 50 << 20;
  char *text = calloc(size, 1);
  Error error = {0};
  assert_non_null(text);
  for (size_t i = 0; i < size; i += 1 << 20) memcpy(text + i, "\n<|endoftext|>\n", 15);
  put(f->text, text, size);
  free(text);
  Corpus *corpus = open_corpus(f->text, NULL);
  const EncodingOptions options = {.threads = 2, .progress = stop_later, .context = f};
  assert_false(encoding_write(f->tokens, corpus, f->tokenizer, &options, &error));
  assert_int_equal(error.code, EXIT_SIGINT);
  assert_int_equal(f->calls, 3);
  assert_int_equal(access(f->tokens, F_OK), -1); /* nothing half is left */
  corpus_close(corpus);
}

/* One document that is worked on in slices is heard of, and stopped, inside. */
static void test_stopping_inside(void **state) {
  Fixture *f = *state;
  const size_t size = 150 << 20;
  char *text = malloc(size);
  Error error = {0}, training = {0};
  Tokenizer *tokenizer;
  assert_non_null(text);
  for (size_t i = 0; i < size; i++) text[i] = "a line of text\n"[i % 15];
  put(f->text, text, size);
  free(text);
  Corpus *corpus = open_corpus(f->text, NULL);
  const EncodingOptions options = {.threads = 2, .progress = stop_later, .context = f};
  assert_false(encoding_write(f->tokens, corpus, f->tokenizer, &options, &error));
  assert_int_equal(error.code, EXIT_SIGINT);
  assert_int_equal(f->calls, 3);
  assert_true(f->bytes > (90 << 20) && f->bytes < (100 << 20));
  f->calls = 0;
  assert_false(encoding_train(&tokenizer, corpus, 300, &options, &training));
  assert_int_equal(training.code, EXIT_SIGINT);
  assert_true(f->bytes > (90 << 20) && f->bytes < (100 << 20));
  corpus_close(corpus);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_documents, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_masks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_training, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_stopping, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_stopping_inside, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("encoding", tests, NULL, NULL);
}
