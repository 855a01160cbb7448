/* text/dataset/pairs: sources with a vocabulary of their own make the windows that they make without, but for the
 * tokens' numbers. */
#include "tests/window_helpers.h"
#include "text/dataset/pairs.h"

enum { FIRST = ROOM + 1, SOURCE_END = 3, CTX = 24, ARRAYS = 9, SOURCE_TOKENS = 3 };

typedef struct Rows {
  int32_t array[ARRAYS][CTX];
} Rows;

static Window window_of(Rows *rows) {
  int32_t(*a)[CTX] = rows->array;
  return (Window){a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]};
}

static const PairTokens shared = {.end = END, .source_end = END};
static const PairTokens separate = {.end = END, .source_first = FIRST, .source_end = SOURCE_END};

static Pairs make(const Fixture *f, PairTokens tokens) {
  Pairs pairs;
  Error error = {0};
  const TokenRange all = {&f->file, 0, f->tokens};
  if (!pairs_make(&pairs, &all, CTX, tokens, (Progress){0}, &error)) fail_msg("%s", error.text);
  return pairs;
}

static void draw_pairs(Fixture *f, int count) {
  f->tokens = 0;
  for (int i = 0; i < count; i++) {
    const int source = draw(f, 20);
    add_document(f, source, source + 1 + draw(f, 20));
  }
}

/* Stores the tokens of sources above those of targets. */
static void separate_sources(Fixture *f) {
  for (int64_t i = 0; i < f->tokens; i++)
    if (!f->in_loss[i]) f->ids[i] += FIRST;
}

static void test_the_same_windows(void **state) {
  Fixture *f = *state, *other;
  assert_int_equal(set_up((void **)&other), 0);
  draw_pairs(f, 200);
  write_file(f);
  memcpy(other->ids, f->ids, sizeof f->ids);
  memcpy(other->in_loss, f->in_loss, sizeof f->in_loss);
  other->tokens = f->tokens;
  separate_sources(other);
  write_file(other);
  Pairs p = make(f, shared), q = make(other, separate);
  assert_true(p.table.windows > 20 && p.table.windows == q.table.windows);
  assert_true(p.used_source == q.used_source && p.used_target == q.used_target && p.pairs == q.pairs);
  for (int64_t i = 0; i <= p.table.windows; i++) { /* the last: padding alone */
    Rows want = {0}, got = {0};
    Error error = {0};
    assert_true(pairs_read(&p, i, &(Window[]){window_of(&want)}[0], &error));
    assert_true(pairs_read(&q, i, &(Window[]){window_of(&got)}[0], &error));
    for (int at = 0; at < CTX; at++)
      if (want.array[SOURCE_TOKENS][at] == END) want.array[SOURCE_TOKENS][at] = SOURCE_END;
    for (int a = 0; a < ARRAYS; a++) assert_memory_equal(got.array[a], want.array[a], sizeof want.array[a]);
  }
  pairs_free(&p);
  pairs_free(&q);
  tear_down((void **)&other);
}

/* Tokens on the wrong side of the border: a model would read beyond its table. */
static void test_wrong_sides(void **state) {
  Fixture *f = *state;
  const struct {
    int at;
    int32_t id;
    bool fits;
  } changes[] = {{0, FIRST, true},     {0, VOCAB - 1, true}, {0, FIRST - 1, false}, {2, END, false},
                 {3, FIRST - 1, true}, {3, FIRST, false},    {6, VOCAB - 1, false}, {1, 1, false}};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    Error error = {0};
    Rows got = {0};
    f->tokens = 0;
    add_document(f, 3, 8); /* 3 of a source, 4 of a target, the end */
    separate_sources(f);
    f->ids[changes[i].at] = changes[i].id;
    f->in_loss[changes[i].at] = changes[i].at >= 3;
    write_file(f);
    Pairs p;
    const TokenRange all = {&f->file, 0, f->tokens};
    const bool fits = pairs_make(&p, &all, CTX, separate, (Progress){0}, &error) &&
                      pairs_read(&p, 0, &(Window[]){window_of(&got)}[0], &error);
    if (fits != changes[i].fits) fail_msg("change %zu: %s", i, error.text);
    if (!fits) assert_int_equal(error.code, EXIT_CHECKPOINT);
    if (fits && changes[i].at == 0) assert_int_equal(got.array[SOURCE_TOKENS][0], changes[i].id - FIRST);
    pairs_free(&p);
  }
}

static void test_tokens_of_tokenizers(void **state) {
  (void)state;
  const BpeMerge merges[] = {{'a', 'b', 256}};
  Tokenizer *byte = tokenizer_byte(), *bpe;
  Error error = {0};
  assert_true(tokenizer_from_merges(&bpe, merges, 1, &error));
  const PairTokens one = pair_tokens(bpe, NULL), two = pair_tokens(bpe, byte);
  assert_true(one.end == 257 && one.source_first == 0 && one.source_end == 257);
  assert_true(two.end == 257 && two.source_first == 258 && two.source_end == 256);
  tokenizer_free(byte);
  tokenizer_free(bpe);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_the_same_windows, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_wrong_sides, set_up, tear_down),
      cmocka_unit_test(test_tokens_of_tokenizers),
  };
  return cmocka_run_group_tests_name("pair_vocabularies", tests, NULL, NULL);
}
