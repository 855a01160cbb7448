/* base/threads: every piece once, whatever the numbers and whoever is late. */
#include "base/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { PIECES = 5000, MOST_THREADS = 9 };

typedef struct Marks {
  atomic_int seen[PIECES];
  atomic_int running[MOST_THREADS]; /* calls with that thread number, now */
  atomic_int largest, wrong;
  int threads, count;
  bool sleepy; /* the first thread to come is held up */
  atomic_bool slept;
} Marks;

static void mark(const void *job, int begin, int end, int thread) {
  Marks *m = (Marks *)job;
  if (begin >= end || begin < 0 || end > m->count || thread < 0 || thread >= m->threads) atomic_store(&m->wrong, 1);
  if (atomic_fetch_add(&m->running[thread], 1) != 0) atomic_store(&m->wrong, 2);
  if (m->sleepy && thread > 0 && !atomic_exchange(&m->slept, true)) nanosleep(&(struct timespec){0, 20000000}, NULL);
  for (int i = begin; i < end; i++) atomic_fetch_add(&m->seen[i], 1);
  int largest = atomic_load(&m->largest);
  while (end - begin > largest && !atomic_compare_exchange_weak(&m->largest, &largest, end - begin)) {
  }
  atomic_fetch_sub(&m->running[thread], 1);
}

static void expect_all(Pool *pool, Marks *m, int threads, int count, int least, int most, bool sleepy) {
  memset(m, 0, sizeof *m);
  m->threads = threads;
  m->count = count;
  m->sleepy = sleepy;
  pool_run(pool, count, least, most, mark, m);
  assert_int_equal(atomic_load(&m->wrong), 0);
  for (int i = 0; i < PIECES; i++) assert_int_equal(atomic_load(&m->seen[i]), i < count);
  if (count > least) assert_true(atomic_load(&m->largest) <= (most > least ? most : least));
}

static void test_every_piece_once(void **state) {
  (void)state;
  Marks *m = malloc(sizeof *m);
  assert_non_null(m);
  for (int threads = 1; threads <= MOST_THREADS; threads += 2) { /* more than there are processors, too */
    Pool *pool;
    Error error = {0};
    assert_true(pool_open(&pool, threads, &error));
    const int counts[] = {0, 1, 2, 3, 7, 64, 1000, PIECES};
    for (int round = 0; round < 20; round++)
      for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        expect_all(pool, m, threads, counts[i], 1 + round % 3, 1 << (round % 8), false);
    expect_all(pool, m, threads, PIECES, 1, 16, true);
    nanosleep(&(struct timespec){0, 5000000}, NULL); /* all asleep */
    expect_all(pool, m, threads, 100, 1, 4, false);
    pool_close(pool);
  }
  free(m);
}

typedef struct Step {
  const int64_t *from;
  int64_t *to;
} Step;

/* The sum of 1 .. n by halving: each job reads what the threads wrote in the one before. */
static void add_halves(const void *job, int begin, int end, int thread) {
  (void)thread;
  const Step *s = job;
  for (int i = begin; i < end; i++) s->to[i] = s->from[2 * i] + s->from[2 * i + 1];
}

static void test_results_are_seen(void **state) {
  (void)state;
  enum { NUMBERS = 4096, ROUNDS = 500 };
  Pool *pool;
  Error error = {0};
  assert_true(pool_open(&pool, 4, &error));
  int64_t *arrays = malloc(2 * NUMBERS * sizeof *arrays);
  assert_non_null(arrays);
  for (int round = 0; round < ROUNDS; round++) {
    int64_t *from = arrays, *to = arrays + NUMBERS;
    for (int i = 0; i < NUMBERS; i++) from[i] = i + 1 + round;
    for (int count = NUMBERS / 2; count > 0; count /= 2) {
      pool_run(pool, count, 1, 64, add_halves, &(Step){from, to});
      int64_t *swap = from;
      from = to;
      to = swap;
    }
    assert_int_equal(from[0], (int64_t)NUMBERS * (NUMBERS + 1) / 2 + (int64_t)NUMBERS * round);
  }
  pool_close(pool);
  free(arrays);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_piece_once), cmocka_unit_test(test_results_are_seen)};
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
