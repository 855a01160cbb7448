/* text/dataset/pairs: windows of sources and targets, against a slow construction from the tokens of the file. */
#include "tests/pair_helpers.h"

/* ---- the slow construction ---- */

typedef struct Known {
  int64_t begin;
  int source, target; /* tokens of the source; of the target and the end */
} Known;

/* The whole documents of a range; *partial those that it cuts. */
static int known_pairs(const Fixture *f, const TokenRange *range, Known *out, int *partial) {
  int count = 0;
  *partial = 0;
  for (int64_t begin = 0; begin < f->tokens;) {
    Known pair = {.begin = begin};
    int64_t at = begin;
    for (; f->ids[at] != END; at++) *(f->in_loss[at] ? &pair.target : &pair.source) += 1;
    pair.target++; /* the end */
    const int64_t stop = at + 1;
    if (begin >= range->begin && stop <= range->end) out[count++] = pair;
    else *partial += begin < range->end && stop > range->begin && range->end > range->begin;
    begin = stop;
  }
  return count;
}

/* The place of a pair in both rows of `want`, from where they are filled up to. */
static void lay(const Fixture *f, const Known *pair, Rows *want, int *source, int *target) {
  const int s0 = *source, s1 = s0 + pair->source + 1;
  for (int i = 0; i < pair->target; i++, ++*target) {
    const int64_t token = pair->begin + pair->source + i;
    const int32_t values[] = {i == 0 ? END : f->ids[token - 1], f->ids[token], i};
    for (int a = 0; a < 3; a++) want->array[a][*target] = values[a];
    want->array[7][*target] = s0;
    want->array[8][*target] = s1;
  }
  for (; *source < s1; ++*source) {
    const int i = *source - s0;
    const int32_t values[] = {i < pair->source ? f->ids[pair->begin + i] : END, i, s0, s1};
    for (int a = 0; a < 4; a++) want->array[3 + a][*source] = values[a];
  }
}

static void pad(Rows *want, int source, int target, int ctx) {
  for (; source < ctx; source++) {
    const int32_t values[] = {END, 0, source, source + 1};
    for (int a = 0; a < 4; a++) want->array[3 + a][source] = values[a];
  }
  for (; target < ctx; target++) {
    const int32_t values[] = {END, IGNORE_INDEX, 0};
    for (int a = 0; a < 3; a++) want->array[a][target] = values[a];
    want->array[7][target] = want->array[8][target] = 0;
  }
}

static const Known *known_at(const Known *known, int count, int64_t begin) {
  for (int i = 0; i < count; i++)
    if (known[i].begin == begin) return &known[i];
  fail_msg("a window holds token %lld, where no whole pair begins", (long long)begin);
  return NULL;
}

static void expect_counts(const Pairs *p, const Known *known, int count, int partial) {
  int64_t left_out = 0, empty = 0, used[2] = {0}, longest = 0, first = 0;
  for (int i = 0; i < count; i++) {
    const int sides[] = {known[i].source + 1, known[i].target}, longer = sides[0] > sides[1] ? sides[0] : sides[1];
    empty += known[i].source == 0;
    if (longer > longest) longest = longer;
    if (longer > p->ctx && left_out++ == 0) first = i + 1;
    for (int side = 0; side < 2 && longer <= p->ctx; side++) used[side] += sides[side];
  }
  assert_int_equal(p->pairs, count);
  assert_int_equal(p->partial, partial);
  assert_int_equal(p->left_out, left_out);
  assert_int_equal(p->empty_sources, empty);
  assert_int_equal(p->used_source, used[0]);
  assert_int_equal(p->used_target, used[1]);
  assert_int_equal(p->first_left_out.number, first);
  assert_int_equal(p->longest.source > p->longest.target ? p->longest.source : p->longest.target, longest);
}

/* Every whole pair that fits stands in one window once, with all that belongs to it. */
static void expect_pairs(const Fixture *f, const TokenRange *range, int ctx) {
  static Known known[ROOM];
  static Rows got, want;
  static int seen[ROOM];
  Error error = {0};
  int partial, fitting = 0;
  const int count = known_pairs(f, range, known, &partial);
  for (int i = 0; i < count; i++) fitting += known[i].source < ctx && known[i].target <= ctx;
  if (count && !fitting) {
    expect_refused(range, ctx, EXIT_INPUT, "fits into a context of");
    return;
  }
  Pairs p = make(range, ctx);
  expect_counts(&p, known, count, partial);
  memset(seen, 0, sizeof seen);
  for (int64_t window = 0; window < p.table.windows; window++) {
    int source = 0, target = 0;
    assert_true(p.table.firsts[window] < p.table.firsts[window + 1]);
    for (int64_t i = p.table.firsts[window]; i < p.table.firsts[window + 1]; i++) {
      const Known *pair = known_at(known, count, p.table.spans[i]);
      lay(f, pair, &want, &source, &target);
      seen[pair - known]++;
    }
    assert_true(source <= ctx && target <= ctx);
    pad(&want, source, target, ctx);
    const Window out = window_of(&got, ctx);
    assert_true(pairs_read(&p, window, &out, &error));
    expect_equal(&got, &want, ctx);
  }
  for (int i = 0; i < count; i++) assert_int_equal(seen[i], known[i].source < ctx && known[i].target <= ctx);
  pairs_free(&p);
}

static void test_every_pair_once(void **state) {
  Fixture *f = *state;
  for (int round = 0; round < 300; round++) {
    const int longest = 1 + draw(f, 40);
    f->tokens = 0;
    for (int i = 1 + draw(f, 100); i > 0; i--) add_pair(f, draw(f, longest), draw(f, longest));
    write_file(f);
    const int64_t begin = round % 3 ? draw(f, (int)f->tokens) : 0;
    const int64_t end = round % 3 == 1 ? f->tokens : begin + draw(f, (int)(f->tokens - begin + 1));
    expect_pairs(f, &(TokenRange){&f->file, begin, end}, 1 + draw(f, 64));
  }
}

/* More pairs than a block of tokens holds, and longer than one. */
static void test_long_pairs(void **state) {
  Fixture *f = *state;
  for (int length = 60; length < 70; length++) {
    f->tokens = 0;
    for (int i = 0; i < 5; i++) add_pair(f, length, 130 - length), add_pair(f, 2 * length, 0), add_pair(f, 0, length);
    write_file(f);
    expect_pairs(f, &(TokenRange){&f->file, 0, f->tokens}, 256);
  }
}

/* ---- one pair ---- */

static void test_one_pair(void **state) {
  Fixture *f = *state;
  static Rows got;
  Error error = {0};
  put_pair(f, 2, 3); /* 1 2 | 3 4 5 0 */
  write_file(f);
  const TokenRange all = whole(f);
  Pairs p = make(&all, 5);
  const Window out = window_of(&got, 5);
  assert_int_equal(p.table.windows, 1);
  assert_true(pairs_read(&p, 0, &out, &error));
  const int32_t want[ARRAYS][5] = {{0, 3, 4, 5, 0}, {3, 4, 5, 0, IGNORE_INDEX},
                                   {0, 1, 2, 3, 0}, {1, 2, 0, 0, 0},
                                   {0, 1, 2, 0, 0}, {0, 0, 0, 3, 4},
                                   {3, 3, 3, 4, 5}, {0, 0, 0, 0, 0},
                                   {3, 3, 3, 3, 0}};
  for (int i = 0; i < ARRAYS; i++) assert_memory_equal(got.array[i], want[i], sizeof want[i]);
  pairs_free(&p);
}

/* Nothing to read, nothing to say: an end token on either side. */
static void test_empty_texts(void **state) {
  Fixture *f = *state;
  f->tokens = 0;
  add_pair(f, 0, 0);
  add_pair(f, 0, 2);
  add_pair(f, 2, 0);
  write_file(f);
  const TokenRange all = whole(f);
  expect_pairs(f, &all, 3);
  Pairs p = make(&all, 8);
  assert_int_equal(p.empty_sources, 2);
  assert_int_equal(p.table.windows, 1);
  assert_int_equal(p.used_source, 5);
  assert_int_equal(p.used_target, 5);
  pairs_free(&p);
  put_pair(f, 0, 0);
  write_file(f);
  const TokenRange nothing = whole(f);
  expect_pairs(f, &nothing, 1);
}

/* Exactly as long as the context on one side, and one place longer. */
static void test_pairs_as_long_as_the_context(void **state) {
  Fixture *f = *state;
  const struct {
    int source, target, fits;
  } cases[] = {{7, 7, 1}, {7, 0, 1}, {0, 7, 1}, {8, 0, 0}, {0, 8, 0}, {8, 8, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    f->tokens = 0;
    add_pair(f, 1, 1);
    add_pair(f, cases[i].source, cases[i].target);
    write_file(f);
    const TokenRange all = whole(f);
    expect_pairs(f, &all, 8);
    Pairs p = make(&all, 8);
    assert_int_equal(p.left_out, !cases[i].fits);
    assert_int_equal(p.first_left_out.number, cases[i].fits ? 0 : 2);
    if (!cases[i].fits) {
      assert_int_equal(p.first_left_out.source, cases[i].source + 1);
      assert_int_equal(p.first_left_out.target, cases[i].target + 1);
    }
    pairs_free(&p);
  }
  expect_refused(&(TokenRange){&f->file, 0, f->tokens}, 1, EXIT_INPUT,
                 "none of the 2 pairs fits into a context of 1 tokens: the shortest takes 2, the longest 9");
}

/* A range that cuts pairs has neither half of them: half a source would have the wrong answer. */
static void test_cut_pairs(void **state) {
  Fixture *f = *state;
  f->tokens = 0;
  for (int i = 0; i < 3; i++) add_pair(f, 3, 2); /* of 6 tokens each */
  write_file(f);
  for (int64_t begin = 0; begin <= 18; begin++)
    for (int64_t end = begin; end <= 18; end++) {
      Pairs p = make(&(TokenRange){&f->file, begin, end}, 8);
      const int64_t first = (begin + 5) / 6, last = end / 6;
      assert_int_equal(p.pairs, last > first ? last - first : 0);
      assert_int_equal(p.table.windows, (p.pairs + 1) / 2);
      pairs_free(&p);
    }
}

/* ---- through dataset/windows ---- */

static void test_drawn_windows(void **state) {
  Fixture *f = *state;
  static Rows drawn, read;
  enum { CTX = 16 };
  Error error = {0};
  f->tokens = 0;
  for (int i = 0; i < 60; i++) add_pair(f, draw(f, 8), 1 + draw(f, 8));
  write_file(f);
  const TokenRange all = whole(f);
  Pairs p = make(&all, CTX);
  const Windows windows = {.range = all, .ctx = CTX, .pairs = &p};
  assert_int_equal(windows_count(&windows, CTX), p.table.windows);
  int *seen = calloc((size_t)p.table.windows, sizeof *seen);
  assert_non_null(seen);
  for (int64_t number = 0; number < 3 * p.table.windows; number++) {
    const Window a = window_of(&drawn, CTX), b = window_of(&read, CTX);
    int64_t index = 0;
    windows_prefetch(&windows, 3, number);
    assert_true(windows_draw(&windows, 3, number, &a, &error));
    for (; index < p.table.windows; index++) {
      assert_true(windows_read(&windows, CTX, index, &b, &error));
      if (memcmp(drawn.array[1], read.array[1], CTX * sizeof(int32_t)) == 0) break;
    }
    assert_true(index < p.table.windows);
    expect_equal(&drawn, &read, CTX);
    seen[index]++;
  }
  for (int64_t i = 0; i < p.table.windows; i++) assert_int_equal(seen[i], 3); /* once an epoch */
  pad(&drawn, 0, 0, CTX);
  for (int far = 0; far < 2; far++) { /* beyond the end: padding */
    const Window b = window_of(&read, CTX);
    assert_true(windows_read(&windows, CTX, far ? INT64_MAX / CTX : p.table.windows, &b, &error));
    expect_equal(&read, &drawn, CTX);
  }
  free(seen);
  pairs_free(&p);
}

/* A file made twice, and a table made twice. */
static void test_the_same_again(void **state) {
  Fixture *f = *state;
  f->tokens = 0;
  for (int i = 0; i < 300; i++) add_pair(f, draw(f, 20), draw(f, 20));
  write_file(f);
  const TokenRange all = whole(f);
  Pairs a = make(&all, 32), b = make(&all, 32);
  assert_int_equal(a.table.windows, b.table.windows);
  const int64_t spans = a.table.firsts[a.table.windows];
  assert_int_equal(spans, 300);
  assert_memory_equal(a.table.firsts, b.table.firsts, (size_t)(a.table.windows + 1) * sizeof *a.table.firsts);
  assert_memory_equal(a.table.spans, b.table.spans, (size_t)spans * sizeof *a.table.spans);
  pairs_free(&a);
  pairs_free(&b);
}

/* Strings of 1..8 and their answers of the same length; sources and targets of lengths that have nothing in common. */
static void test_little_padding(void **state) {
  Fixture *f = *state;
  for (int kind = 0; kind < 2; kind++) {
    f->tokens = 0;
    while (f->tokens < ROOM - 20) {
      const int length = 1 + draw(f, 8);
      add_pair(f, length, kind ? 1 + draw(f, 8) : length);
    }
    write_file(f);
    const TokenRange all = whole(f);
    Pairs p = make(&all, 256);
    const double places = 256.0 * (double)p.table.windows;
    assert_true((double)p.used_source > 0.9 * places && (double)p.used_target > 0.9 * places);
    pairs_free(&p);
  }
}

static void test_lengths(void **state) {
  Fixture *f = *state;
  Error error = {0};
  DocumentLengths lengths;
  f->tokens = 0;
  add_pair(f, 0, 0); /* 1 */
  add_pair(f, 1, 0); /* 2 */
  add_pair(f, 2, 3); /* 4 */
  add_pair(f, 7, 2); /* 8 */
  add_pair(f, 2, 8); /* 9 */
  write_file(f);
  const TokenRange all = whole(f);
  assert_true(pairs_measure(&all, END, &lengths, (Progress){0}, &error));
  assert_int_equal(lengths.documents, 5);
  for (int k = 0; k < 64; k++) assert_int_equal(lengths.counts[k], k <= 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_every_pair_once, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_long_pairs, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_one_pair, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_empty_texts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_pairs_as_long_as_the_context, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cut_pairs, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_drawn_windows, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_the_same_again, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_little_padding, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_lengths, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("pairs", tests, NULL, NULL);
}
