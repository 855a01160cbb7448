/* text/dataset/windows and text/dataset/packing: what is trained on, against the tokens of the file. */
#include "tests/window_helpers.h"
#include "text/dataset/packing.h"

#include <math.h>

/* Several documents of 1..longest tokens, and one that does not end. */
static void write_documents(Fixture *f, int count, int longest) {
  f->tokens = 0;
  for (int i = 0; i < count; i++) {
    const int tokens = 1 + draw(f, longest), prompt = draw(f, 2) * draw(f, tokens + 1);
    add_document(f, prompt, tokens);
  }
  f->ids[f->tokens] = 1 + (int32_t)f->tokens;
  f->in_loss[f->tokens++] = true;
  write_file(f);
}

typedef struct Buffers {
  int32_t tokens[ROOM], targets[ROOM], positions[ROOM];
} Buffers;

/* ---- windows of the stream ---- */

/* Checks that the windows of an epoch follow each other without gaps, each once. Writes their order to `order` [count],
 * and returns the offset of the first. */
static int64_t check_epoch(const TokenRange *range, uint64_t seed, int64_t epoch, int ctx, int count, int64_t *order) {
  bool *seen = calloc((size_t)count, sizeof *seen);
  int64_t first = INT64_MAX;
  assert_non_null(seen);
  for (int i = 0; i < count; i++) {
    const int64_t begin = windows_draw_begin(range, seed, epoch * count + i, ctx);
    if (begin < first) first = begin;
  }
  assert_true(first >= range->begin && first < range->begin + ctx);
  assert_true(first + (int64_t)count * ctx + 1 <= range->end);
  for (int i = 0; i < count; i++) {
    const int64_t offset = windows_draw_begin(range, seed, epoch * count + i, ctx) - first;
    order[i] = offset / ctx;
    assert_true(offset % ctx == 0 && order[i] < count && !seen[order[i]]);
    seen[order[i]] = true;
  }
  free(seen);
  return first - range->begin;
}

enum { WINDOWS = 1665 };

static void test_epochs(void **state) {
  (void)state;
  const struct {
    int ctx, size, count;
  } cases[] = {{32, 40, 1}, {32, 33, 1}, {32, 64, 1},    {32, 95, 1},       {32, 96, 2},
               {1, 2, 1},   {1, 9, 8},   {16, 1000, 61}, {3, 5000, WINDOWS}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const TokenRange range = {NULL, 20, 20 + cases[i].size};
    const int most = cases[i].size - cases[i].count * cases[i].ctx;
    const int offsets = most < cases[i].ctx ? most : cases[i].ctx;
    int64_t order[WINDOWS];
    int seen[32] = {0};
    for (int64_t epoch = 0; epoch < 500; epoch++)
      seen[check_epoch(&range, 1337, epoch, cases[i].ctx, cases[i].count, order)]++;
    for (int at = 0; at < 32; at++) assert_true(at < offsets ? seen[at] > 0 : seen[at] == 0);
  }
}

static void test_order_of_each_epoch_and_seed(void **state) {
  (void)state;
  const TokenRange range = {NULL, 0, 5000};
  int64_t base[WINDOWS], other[WINDOWS];
  check_epoch(&range, 1, 0, 3, WINDOWS, base);
  check_epoch(&range, 1, 1, 3, WINDOWS, other);
  assert_memory_not_equal(base, other, sizeof base);
  check_epoch(&range, 2, 0, 3, WINDOWS, other);
  assert_memory_not_equal(base, other, sizeof base);
}

/* The windows at the beginning of an epoch come from all of the text, and neighbors in time are no neighbors in it. */
static void test_order_is_random(void **state) {
  (void)state;
  const int64_t sizes[] = {100000, ((int64_t)1 << 32) + 12345, (int64_t)1 << 40, ((int64_t)1 << 61) + 99999999};
  for (int i = 0; i < 4; i++) {
    const TokenRange range = {NULL, 0, sizes[i]};
    int quarters[4] = {0};
    int64_t last = 0;
    for (int64_t number = 0; number < 400; number++) {
      const int64_t begin = windows_draw_begin(&range, 11, number, 16);
      assert_true(begin >= 0 && begin + 17 <= sizes[i] && llabs(begin - last) != 16);
      quarters[begin / (sizes[i] / 4 + 1)]++;
      last = begin;
    }
    for (int k = 0; k < 4; k++) assert_true(quarters[k] > 60 && quarters[k] < 140); /* 100 +- 9 */
  }
}

static void test_draws_depend_on_everything(void **state) {
  (void)state;
  const TokenRange range = {NULL, 0, (int64_t)1 << 40};
  const int64_t epoch = (((int64_t)1 << 40) - 16) / 16, base = windows_draw_begin(&range, 1, 1, 16);
  assert_int_equal(base, windows_draw_begin(&range, 1, 1, 16));
  assert_int_not_equal(base, windows_draw_begin(&range, 2, 1, 16));
  assert_int_not_equal(base, windows_draw_begin(&range, 1, 2, 16));
  assert_int_not_equal(base, windows_draw_begin(&range, 1, 1 + epoch, 16));
  assert_int_not_equal(base, windows_draw_begin(&range, 1 + ((uint64_t)1 << 32), 1, 16));
}

static void test_drawn_window(void **state) {
  Fixture *f = *state;
  Buffers b;
  Error error = {0};
  write_documents(f, 40, 30);
  const Windows windows = {.range = {&f->file, 3, f->tokens - 2}, .ctx = 24};
  for (int64_t number = 0; number < 50; number++) {
    const Window out = {.tokens = b.tokens, .targets = b.targets};
    int64_t begin = windows_draw_begin(&windows.range, 5, number, 24);
    windows_prefetch(&windows, 5, number);
    assert_true(windows_draw(&windows, 5, number, &out, &error));
    assert_memory_equal(b.tokens, f->ids + begin, 24 * sizeof *b.tokens);
    for (int i = 0; i < 24; i++) assert_int_equal(b.targets[i], target_of(f, begin + 1 + i));
  }
}

/* All windows of a range in order: every token but the first is a target once, after the token before it. */
static void expect_stream(const Fixture *f, TokenRange range, int ctx, int stride) {
  Buffers b;
  Error error = {0};
  const Windows windows = {.range = range, .ctx = ctx};
  int64_t next = range.begin + 1;
  const int64_t count = windows_count(&windows, stride);
  for (int64_t window = 0; window < count + 2; window++) {
    const Window out = {.tokens = b.tokens, .targets = b.targets};
    assert_true(windows_read(&windows, stride, window, &out, &error));
    const int64_t begin = range.begin + window * stride;
    bool any = false;
    for (int i = 0; i < ctx; i++) {
      const int64_t target = begin + i + 1;
      const bool inside = window < count && target < range.end, counted = inside && target == next;
      assert_int_equal(b.tokens[i], inside ? f->ids[target - 1] : 0);
      assert_int_equal(b.targets[i], counted ? target_of(f, target) : IGNORE_INDEX);
      next += counted;
      any = any || counted;
    }
    assert_true(any == (window < count));
  }
  assert_int_equal(next, range.end > range.begin ? range.end : range.begin + 1);
}

static void test_stream_in_order(void **state) {
  Fixture *f = *state;
  write_documents(f, 30, 20);
  for (int round = 0; round < 300; round++) {
    int64_t begin = draw(f, 40), end = begin + draw(f, (int)(f->tokens - begin + 1));
    int ctx = 1 + draw(f, 40);
    expect_stream(f, (TokenRange){&f->file, begin, end}, ctx, 1 + draw(f, ctx));
  }
}

/* ---- packed documents ---- */

/* What a packing has to be, told token by token from its tables. */
static void expect_packing(const Fixture *f, const TokenRange *range, int ctx, int32_t first) {
  Packing p;
  Buffers b;
  Error error = {0};
  int seen[ROOM] = {0};
  assert_true(packing_make(&p, range, ctx, (PackTokens){first, END}, (Progress){0}, &error));
  assert_int_equal(p.used + p.left_out, range->end - range->begin);
  assert_true(p.table.windows * ctx >= p.used);
  for (int64_t window = 0; window < p.table.windows; window++) {
    const Window out = {.tokens = b.tokens, .targets = b.targets, .positions = b.positions};
    assert_true(packing_read(&p, window, &out, &error));
    int place = 0;
    assert_true(p.table.firsts[window] < p.table.firsts[window + 1]);
    for (int64_t i = p.table.firsts[window]; i < p.table.firsts[window + 1]; i++) {
      const int64_t begin = p.table.spans[i];
      const bool whole = begin == range->begin || f->ids[begin - 1] == END;
      int length = 0;
      for (bool ended = false; !ended; length++, place++) {
        const int64_t token = begin + length;
        assert_true(place < ctx && token < range->end);
        const int32_t before = token > 0 ? f->ids[token - 1] : END;
        assert_int_equal(b.tokens[place], before == END ? first : before);
        assert_int_equal(b.targets[place], target_of(f, token));
        assert_int_equal(b.positions[place], length);
        seen[token]++;
        ended = f->ids[token] == END || token + 1 == range->end || length + 1 == ctx;
      }
      /* Only what is left of a document that fills windows begins inside one. */
      if (!whole) {
        int64_t start = begin;
        while (start > range->begin && f->ids[start - 1] != END) start--;
        assert_int_equal((begin - start) % ctx, 0);
      }
    }
    for (; place < ctx; place++) {
      assert_int_equal(b.targets[place], IGNORE_INDEX);
      assert_int_equal(b.positions[place], 0);
      assert_int_equal(b.tokens[place], END);
    }
  }
  /* What no window has is left out of the loss. */
  for (int64_t i = 0; i < f->tokens; i++)
    if (seen[i] != (i >= range->begin && i < range->end)) assert_true(seen[i] == 0 && !f->in_loss[i] && p.left_out > 0);
  packing_free(&p);
}

static void test_packing(void **state) {
  Fixture *f = *state;
  for (int round = 0; round < 200; round++) {
    write_documents(f, 1 + draw(f, 60), 1 + draw(f, 60));
    int64_t begin = round % 2 ? 0 : draw(f, (int)f->tokens), end = begin + draw(f, (int)(f->tokens - begin + 1));
    expect_packing(f, &(TokenRange){&f->file, begin, end}, 1 + draw(f, 64), round % 3 ? END : VOCAB - 1);
  }
}

/* A document of 50 tokens of which only the last is in the loss, in windows of 8: six of seven are left out. */
static void test_prompts_alone_are_left_out(void **state) {
  Fixture *f = *state;
  Packing p;
  Error error = {0};
  f->tokens = 0;
  add_document(f, 49, 50);
  add_document(f, 0, 3);
  write_file(f);
  const TokenRange all = {&f->file, 0, f->tokens}, prompt = {&f->file, 0, 40};
  assert_true(packing_make(&p, &all, 8, (PackTokens){END, END}, (Progress){0}, &error));
  assert_int_equal(p.table.windows, 1);
  assert_int_equal(p.left_out, 48);
  assert_int_equal(p.used, 5);
  assert_int_equal(p.documents, 2);
  assert_int_equal(p.cut, 1);
  packing_free(&p);
  assert_true(packing_make(&p, &prompt, 8, (PackTokens){END, END}, (Progress){0}, &error));
  assert_int_equal(p.table.windows, 0);
  packing_free(&p);
}

/* Documents of 5, 2, 7 and 20 tokens in windows of 8 are packed in this order, as far as they fit. */
static void test_packing_in_order(void **state) {
  Fixture *f = *state;
  Packing p;
  Error error = {0};
  const int sizes[] = {5, 2, 7, 20};
  const int64_t spans[] = {0, 5, 7, 14, 22, 30}, firsts[] = {0, 2, 3, 4, 5, 6};
  f->tokens = 0;
  for (int i = 0; i < 4; i++) add_document(f, 0, sizes[i]);
  write_file(f);
  const TokenRange all = {&f->file, 0, f->tokens};
  assert_true(packing_make_in_order(&p, &all, 8, (PackTokens){END, END}, (Progress){0}, &error));
  assert_int_equal(p.table.windows, 5);
  assert_memory_equal(p.table.spans, spans, sizeof spans);
  assert_memory_equal(p.table.firsts, firsts, sizeof firsts);
  packing_free(&p);
}

/* More documents than windows that are open at a time, and little padding all the same. */
static void test_packing_is_tight(void **state) {
  Fixture *f = *state;
  Packing p;
  Error error = {0};
  f->tokens = 0;
  while (f->tokens < 4056) add_document(f, 0, 2 + draw(f, 30));
  write_file(f);
  const TokenRange all = {&f->file, 0, f->tokens};
  assert_true(packing_make(&p, &all, 32, (PackTokens){END, END}, (Progress){0}, &error));
  assert_true((double)p.used > 0.9 * 32 * (double)p.table.windows);
  packing_free(&p);
}

static void test_packed_windows(void **state) {
  Fixture *f = *state;
  Packing p;
  Buffers drawn, read;
  Error error = {0};
  write_documents(f, 60, 20);
  const TokenRange all = {&f->file, 0, f->tokens};
  assert_true(packing_make(&p, &all, 32, (PackTokens){END, END}, (Progress){0}, &error));
  const Windows windows = {.range = all, .ctx = 32, .packing = &p};
  const Window a = {.tokens = drawn.tokens, .targets = drawn.targets, .positions = drawn.positions},
               b = {.tokens = read.tokens, .targets = read.targets, .positions = read.positions};
  assert_int_equal(windows_count(&windows, 32), p.table.windows);
  int *seen = calloc((size_t)p.table.windows, sizeof *seen);
  assert_non_null(seen);
  for (int64_t number = 0; number < 3 * p.table.windows; number++) {
    windows_prefetch(&windows, 3, number);
    assert_true(windows_draw(&windows, 3, number, &a, &error));
    int64_t found = -1;
    for (int64_t i = 0; found < 0 && i < p.table.windows; i++) {
      assert_true(windows_read(&windows, 32, i, &b, &error));
      if (memcmp(drawn.targets, read.targets, 32 * sizeof *read.targets) == 0) found = i;
    }
    assert_true(found >= 0);
    assert_memory_equal(drawn.tokens, read.tokens, 32 * sizeof *read.tokens);
    assert_memory_equal(drawn.positions, read.positions, 32 * sizeof *read.positions);
    seen[found]++;
  }
  for (int64_t i = 0; i < p.table.windows; i++) assert_int_equal(seen[i], 3); /* once an epoch */
  assert_true(windows_read(&windows, 32, p.table.windows, &b, &error));       /* beyond the end: no targets */
  for (int i = 0; i < 32; i++) assert_true(read.targets[i] == IGNORE_INDEX && read.positions[i] == 0);
  free(seen);
  packing_free(&p);
}

/* Of the first n windows, the text with the first share has floor(n * share), and the next one likewise of the rest;
 * each text's windows are taken in order. */
static void test_mixture(void **state) {
  (void)state;
  const Mixture none = {0}, mixture = {.count = 3, .shares = {300000, 1, 150000}};
  const double shares[] = {0.549999, 0.3, 0.000001, 0.15};
  const int64_t starts[] = {0, 12345, ((int64_t)1 << 61) + 7};
  int64_t index;
  assert_int_equal(mixture_rest(&none), MIXTURE_WHOLE);
  assert_int_equal(mixture_rest(&mixture), 549999);
  for (int k = 0; k < 3; k++) {
    int64_t taken[4] = {0}, first[4];
    for (int64_t i = 0; i < 2000000; i++) {
      assert_int_equal(mixture_text(&none, starts[k] + i, &index), 0);
      assert_int_equal(index, starts[k] + i);
      const int text = mixture_text(&mixture, starts[k] + i, &index);
      if (!taken[text]) first[text] = index;
      assert_int_equal(index, first[text] + taken[text]++);
      const double all = (double)(starts[k] + i + 1);
      if (k < 2 && text == 1) assert_int_equal(index + 1, (int64_t)floor(all * 0.3 + 1e-6));
      for (int t = 0; k < 2 && t < 4; t++)
        assert_true(fabs((double)(taken[t] ? first[t] + taken[t] : 0) - all * shares[t]) < 3 || !taken[t]);
    }
    for (int t = 0; t < 4; t++) assert_true(fabs((double)taken[t] - 2e6 * shares[t]) < 3);
  }
}

static bool stop_it(void *context, int64_t tokens, Error *error) {
  *(int64_t *)context = tokens;
  error->code = EXIT_SIGNALS;
  return false;
}

static void test_errors(void **state) {
  Fixture *f = *state;
  Packing p;
  Buffers b;
  Error stopped = {0}, damaged = {0}, drawn = {0};
  write_documents(f, 20, 20);
  const TokenRange all = {&f->file, 0, f->tokens};
  int64_t told = 0;
  assert_false(packing_make(&p, &all, 8, (PackTokens){END, END}, (Progress){stop_it, &told}, &stopped));
  assert_int_equal(stopped.code, EXIT_SIGNALS);
  assert_int_equal(told, f->tokens);
  const uint32_t bad = VOCAB;
  FILE *stream = fopen(f->path, "r+b");
  assert_non_null(stream);
  assert_int_equal(fseek(stream, 80 + 4 * 10, SEEK_SET), 0);
  assert_int_equal(fwrite(&bad, sizeof bad, 1, stream), 1);
  assert_int_equal(fclose(stream), 0);
  assert_false(packing_make(&p, &all, 8, (PackTokens){END, END}, (Progress){0}, &damaged));
  assert_int_equal(damaged.code, EXIT_CHECKPOINT);
  const Windows windows = {.range = {&f->file, 10, 12}, .ctx = 1};
  const Window out = {.tokens = b.tokens, .targets = b.targets};
  assert_false(windows_draw(&windows, 1, 1, &out, &drawn));
  assert_int_equal(drawn.code, EXIT_CHECKPOINT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_epochs),
      cmocka_unit_test(test_order_of_each_epoch_and_seed),
      cmocka_unit_test(test_order_is_random),
      cmocka_unit_test(test_draws_depend_on_everything),
      cmocka_unit_test(test_mixture),
      cmocka_unit_test_setup_teardown(test_drawn_window, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_stream_in_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_packing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_prompts_alone_are_left_out, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_packing_in_order, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_packing_is_tight, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_packed_windows, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_errors, set_up, tear_down),
  };
  return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
