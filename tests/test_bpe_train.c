/* text/tokenizer/bpe_train: by hand and against counting everything anew for each merge. */
#include "tests/bpe_helpers.h"
#include "text/tokenizer/bpe_merges.h"

static void expect_merges(const char *text, int32_t vocab_size, size_t count, const int32_t expected[][2]) {
  PipelineText one = document(text);
  Trained trained = train_documents(&one, 1, vocab_size, 1);
  assert_int_equal(trained.count, count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(trained.merges[i].left, expected[i][0]);
    assert_int_equal(trained.merges[i].right, expected[i][1]);
    assert_int_equal(trained.merges[i].id, 256 + i);
  }
  free(trained.merges);
}

/* ---- training by hand ---- */

static void a_tiny_text(void **state) {
  (void)state;
  /* Pieces abab, " abab": (a, b) 4 times, then (ab, ab) 2 times, and (" ", abab) once, which is not enough. */
  expect_merges("abab abab", 1000, 2, (const int32_t[][2]){{'a', 'b'}, {256, 256}});
  /* aaa aaa: (a, a) stands 4 times though only 2 are merged; then (aa, a) twice. */
  expect_merges("aaa1aaa", 1000, 2, (const int32_t[][2]){{'a', 'a'}, {256, 'a'}});
  expect_merges("", 1000, 0, NULL);
  expect_merges("a", 1000, 0, NULL);
  expect_merges("ab", 1000, 0, NULL);
}

static void ties_go_to_the_lowest_pair(void **state) {
  (void)state;
  expect_merges("zy1ac1ab1zy1ac1ab", 1000, 3, (const int32_t[][2]){{'a', 'b'}, {'a', 'c'}, {'z', 'y'}});
  expect_merges("\xFF\xFE.1.\xFF\xFE", 1000, 1, (const int32_t[][2]){{0xFF, 0xFE}});
  /* A new token (256) comes after all bytes: (b, c) before (256, d). */
  expect_merges("aad1aad1aae1bc1bc", 259, 2, (const int32_t[][2]){{'a', 'a'}, {'b', 'c'}});
}

static void the_vocabulary_is_an_upper_bound(void **state) {
  (void)state;
  const int32_t expected[][2] = {{'a', 'b'}, {256, 256}};
  expect_merges("abab abab", 257, 0, NULL);
  expect_merges("abab abab", 0, 0, NULL);
  expect_merges("abab abab", 258, 1, expected);
  expect_merges("abab abab", 259, 2, expected);
  expect_merges("abab abab", INT32_MAX, 2, expected);
}

static void nothing_is_merged_across_documents(void **state) {
  (void)state;
  const PipelineText documents[] = {document("a"), document("b"), document("a"), document("b"), document("")};
  Trained trained = train_documents(documents, 5, 1000, 2);
  assert_int_equal(trained.count, 0);
  free(trained.merges);
}

static void tokens_have_a_longest_length(void **state) {
  (void)state;
  size_t size = 5000;
  uint8_t *text = malloc(size);
  assert_non_null(text);
  memset(text, 'a', size);
  Bpe *bpe = trained_on(text, size, 1000);
  size_t longest = 0;
  for (int32_t id = 0; id < bpe->tokens.size; id++) {
    size_t length;
    bpe_decode(bpe, id, &length);
    longest = length > longest ? length : longest;
  }
  assert_int_equal(longest, BPE_TOKEN_BYTES);
  bpe_free(bpe);
  free(text);
}

static void counts_have_64_bits(void **state) {
  (void)state;
  Error error = {0};
  PieceCounts counts = {0};
  Trained trained;
  assert_true(piece_counts_add(&counts, (const uint8_t *)"ab", 2, UINT64_C(1) << 40));
  assert_true(piece_counts_add(&counts, (const uint8_t *)"cd", 2, UINT64_C(1) << 40));
  assert_true(piece_counts_add(&counts, (const uint8_t *)"cd", 2, 1));
  assert_int_equal(counts.size, 2);
  assert_true(bpe_merges_find(&counts, 2, (Progress){0}, &trained.merges, &trained.count, &error));
  assert_int_equal(trained.count, 2);
  assert_int_equal(trained.merges[0].left, 'c');
  free(trained.merges);
}

/* ---- training against counting everything anew for each merge ---- */

enum { NAIVE_IDS = 256 + 80 };

typedef struct Naive {
  int32_t *ids; /* of all pieces; -1 between pieces */
  size_t count;
  uint32_t *pairs; /* [NAIVE_IDS * NAIVE_IDS] */
} Naive;

static Naive naive_start(const CharClasses *classes, const uint8_t *text, size_t size) {
  Naive out = {malloc((2 * size + 1) * sizeof *out.ids), 0, malloc(sizeof(uint32_t) * NAIVE_IDS * NAIVE_IDS)};
  assert_true(out.ids && out.pairs);
  for (size_t at = 0; at < size;) {
    size_t length = pretokenize_first(classes, text + at, size - at);
    for (size_t end = at + length; at < end; at++) out.ids[out.count++] = text[at];
    out.ids[out.count++] = -1;
  }
  return out;
}

static bool naive_best(const Naive *naive, BpeMerge *best) {
  uint32_t most = BPE_MIN_COUNT - 1;
  memset(naive->pairs, 0, sizeof(uint32_t) * NAIVE_IDS * NAIVE_IDS);
  for (size_t i = 0; i + 1 < naive->count; i++)
    if (naive->ids[i] >= 0 && naive->ids[i + 1] >= 0) naive->pairs[naive->ids[i] * NAIVE_IDS + naive->ids[i + 1]]++;
  for (int32_t i = 0; i < NAIVE_IDS * NAIVE_IDS; i++) {
    if (naive->pairs[i] <= most) continue;
    most = naive->pairs[i];
    *best = (BpeMerge){i / NAIVE_IDS, i % NAIVE_IDS, 0};
  }
  return most >= BPE_MIN_COUNT;
}

static void training_is_that_of_the_definition(void **state) {
  (void)state;
  Error error = {0};
  CharClasses *classes;
  Random random = {0};
  assert_true(char_classes_create(&classes, &error));
  for (int round = 0; round < 60; round++) {
    uint8_t text[700];
    size_t size = draw(&random, sizeof text), letters = 1 + draw(&random, 5);
    for (size_t i = 0; i < size; i++) text[i] = (uint8_t) "abcd \xFF"[draw(&random, (uint32_t)letters + (letters > 3))];
    Naive naive = naive_start(classes, text, size);
    Trained trained = train_bytes(text, size, NAIVE_IDS + 1);
    BpeMerge best;
    size_t count = 0;
    while (count < NAIVE_IDS - 256 && naive_best(&naive, &best)) {
      assert_true(count < trained.count);
      assert_int_equal(trained.merges[count].left, best.left);
      assert_int_equal(trained.merges[count].right, best.right);
      best.id = 256 + (int32_t)count++;
      naive_merge(naive.ids, &naive.count, &best);
    }
    assert_int_equal(trained.count, count);
    free(naive.ids);
    free(naive.pairs);
    free(trained.merges);
  }
  free(classes);
}

static int by_bytes(const void *a, const void *b) {
  const PipelineText *left = a, *right = b;
  size_t least = left->size < right->size ? left->size : right->size;
  int order = memcmp(left->text, right->text, least);
  return order != 0 ? order : (left->size > right->size) - (left->size < right->size);
}

static void no_two_tokens_are_the_same_bytes(void **state) {
  (void)state;
  Random random = {1u << 20};
  size_t size = 200000;
  uint8_t *text = malloc(size);
  PipelineText *tokens = malloc(5000 * sizeof *tokens);
  assert_true(text && tokens);
  fill_text(&random, text, size);
  Bpe *bpe = trained_on(text, size, 4000);
  assert_true(bpe->merge_count > 1000);
  for (int32_t id = 0; id < bpe->tokens.size; id++) tokens[id].text = bpe_decode(bpe, id, &tokens[id].size);
  qsort(tokens, (size_t)bpe->tokens.size, sizeof *tokens, by_bytes);
  for (int32_t i = 1; i < bpe->tokens.size; i++) assert_true(by_bytes(&tokens[i - 1], &tokens[i]) < 0);
  bpe_free(bpe);
  free(tokens);
  free(text);
}

/* ---- threads and documents ---- */

static void threads_change_no_merge(void **state) {
  (void)state;
  Large *large = large_create();
  Trained one = train_documents(large->documents, large->count, 1200, 1);
  assert_int_equal(one.count, 1200 - 257);
  for (int threads = 2; threads <= 7; threads += 5) {
    Trained many = train_documents(large->documents, large->count, 1200, threads);
    assert_int_equal(many.count, one.count);
    assert_memory_equal(many.merges, one.merges, one.count * sizeof *one.merges);
    free(many.merges);
  }
  free(one.merges);
  large_free(large);
}

static void the_order_of_documents_changes_nothing(void **state) {
  (void)state;
  Large *large = large_create();
  Trained forward = train_documents(large->documents + 2, SMALL_DOCUMENTS, 800, 2);
  for (size_t i = 2, j = large->count - 1; i < j; i++, j--) {
    PipelineText swapped = large->documents[i];
    large->documents[i] = large->documents[j];
    large->documents[j] = swapped;
  }
  Trained backward = train_documents(large->documents + 2, SMALL_DOCUMENTS, 800, 2);
  assert_int_equal(forward.count, backward.count);
  assert_memory_equal(forward.merges, backward.merges, forward.count * sizeof *forward.merges);
  free(forward.merges);
  free(backward.merges);
  large_free(large);
}

typedef struct Seen {
  int64_t merges, stop_at;
  int calls;
} Seen;

static bool see(void *context, int64_t merges, Error *error) {
  Seen *seen = context;
  assert_true(merges > seen->merges);
  seen->merges = merges;
  seen->calls++;
  if (!seen->stop_at || merges < seen->stop_at) return true;
  error->code = EXIT_SIGNALS; /* cmocka has taken the name of fail() */
  return false;
}

static void progress_is_reported(void **state) {
  (void)state;
  Error error = {0};
  Large *large = large_create();
  for (int stops = 0; stops < 2; stops++) {
    Seen seen = {.merges = -1, .stop_at = stops ? 1 : 0};
    BpeTrainer *trainer;
    BpeMerge *merges;
    size_t count;
    assert_true(bpe_trainer_create(&trainer, WORD_LEVEL_NONE, 1, &error));
    assert_true(bpe_trainer_add(trainer, large->documents, 1, &error));
    bool ok = bpe_trainer_finish(trainer, 257 + 600, (Progress){see, &seen}, &merges, &count, &error);
    assert_true(ok == !stops);
    if (stops) {
      assert_int_equal(error.code, EXIT_SIGNALS);
      assert_int_equal(seen.calls, 2); /* before the first merge, too */
      assert_null(merges);
    } else assert_int_equal(seen.merges, 512);
    bpe_trainer_free(trainer);
    free(merges);
  }
  large_free(large);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_tiny_text),
      cmocka_unit_test(ties_go_to_the_lowest_pair),
      cmocka_unit_test(the_vocabulary_is_an_upper_bound),
      cmocka_unit_test(nothing_is_merged_across_documents),
      cmocka_unit_test(tokens_have_a_longest_length),
      cmocka_unit_test(counts_have_64_bits),
      cmocka_unit_test(training_is_that_of_the_definition),
      cmocka_unit_test(no_two_tokens_are_the_same_bytes),
      cmocka_unit_test(threads_change_no_merge),
      cmocka_unit_test(the_order_of_documents_changes_nothing),
      cmocka_unit_test(progress_is_reported),
  };
  return cmocka_run_group_tests_name("bpe_train", tests, NULL, NULL);
}
