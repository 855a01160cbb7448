/* What processes say to each other, by the sockets of those that ./train starts itself (base/collective/local.c). */
#include "base/collective/collective.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail

enum { RANKS = 4, LONG = 300000 };

/* Every process checks for itself; the status of the whole group is that of its worst. */
static bool fails(const char *what, int rank) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  return false;
}
#define REQUIRE(condition)                                                                                             \
  if (!(condition)) return fails(#condition, c->rank)

static bool try_words(Collective *c) {
  Error error = {0};
  int32_t word = c->rank == 0 ? 42 : -1, all[RANKS];
  collective_broadcast(c, &word, sizeof word);
  REQUIRE(word == 42);
  collective_all_gather(c, &c->rank, all, sizeof c->rank);
  for (int i = 0; i < RANKS; i++) REQUIRE(all[i] == i);
  double sums[] = {c->rank + 0.5, 1e300, -c->rank};
  collective_sum(c, sums, 3);
  REQUIRE(sums[0] == 8 && sums[1] == 4e300 && sums[2] == -6);
  REQUIRE(collective_same(c, 7) == RANKS && collective_same(c, c->rank == 2) == (c->rank == 2 ? 1 : RANKS - 1));
  char *text = c->rank == 0 ? strdup("a text") : NULL;
  size_t size = c->rank == 0 ? 6 : 0;
  REQUIRE(collective_broadcast_text(c, &text, &size, &error) && size == 6 && memcmp(text, "a text", 6) == 0);
  free(text);
  return true;
}

static bool try_errors(Collective *c) {
  Error error = {0};
  int signal = c->rank == 1 ? 15 : 0;
  REQUIRE(collective_agree(c, &signal, &error) && signal == 15);
  if (c->rank >= 2) fail(&error, (ExitCode)(EXIT_INPUT + c->rank), "no %d", c->rank);
  REQUIRE(!collective_agree(c, NULL, &error) && error.code == EXIT_INPUT + 2);
  REQUIRE(strncmp(error.text, "rank 2 on ", 10) == 0 && strstr(error.text, ": no 2"));
  error = (Error){0};
  REQUIRE(!collective_agree(c, NULL, &error) && error.code == EXIT_INPUT + 2); /* nobody is asked again */
  c->agreed = false;
  error = (Error){0};
  fail(&error, EXIT_USAGE, "all of us");
  REQUIRE(!collective_agree(c, NULL, &error) && strcmp(error.text, "all of us") == 0);
  c->agreed = false;
  error = (Error){0};
  REQUIRE(collective_agree(c, NULL, &error));
  return true;
}

/* A number of its own for every place and rank, so that the order of additions shows. */
static float number(size_t place, int rank) {
  return (float)(place % 1000) + 1e-3f * (float)rank + 1e4f * (float)(rank == 1);
}

static bool try_spans(Collective *c) {
  const Span spans[] = {{5, 1000, 2, 0},
                        {1005, LONG - 2000, 0, 0},
                        {LONG - 900, 7, 2, 1024},
                        {LONG - 800, 300, 3, 0},
                        {LONG - 400, 64, 1, 0}};
  enum { SPANS = sizeof spans / sizeof *spans };
  Error error = {0};
  float *numbers = malloc(LONG * sizeof *numbers), *own = calloc(LONG, sizeof *own),
        *whole = calloc(LONG, sizeof *whole);
  for (size_t i = 0; i < LONG; i++) numbers[i] = number(i, c->rank);
  for (int part = 0; part < SPANS; part += 3) /* the second finishes the first */
    REQUIRE(collective_reduce(c, numbers, spans + part, part + 3 < SPANS ? 3 : SPANS - part, &error));
  collective_reduce_end(c);
  for (const Span *s = spans; s < spans + SPANS; s++)
    for (size_t i = s->offset; i < s->offset + s->count; i++) {
      float sum = number(i, 0);
      for (int rank = 1; rank < RANKS; rank++) sum += number(i, rank);
      REQUIRE(numbers[i] == (s->owner == c->rank ? sum : number(i, c->rank)));
      if (s->owner == c->rank) own[s->own + i - s->offset] = -numbers[i];
    }
  REQUIRE(numbers[0] == number(0, c->rank) && numbers[LONG - 1] == number(LONG - 1, c->rank));
  collective_gather_spans(c, whole, own, spans, SPANS);
  collective_all_gather_spans(c, numbers, spans, SPANS);
  for (const Span *s = spans; s < spans + SPANS; s++)
    for (size_t i = s->offset; i < s->offset + s->count; i++)
      REQUIRE(numbers[i] == number(i, 0) + number(i, 1) + number(i, 2) + number(i, 3) &&
              whole[i] == (c->rank == 0 ? -numbers[i] : 0));
  memset(own, 0, LONG * sizeof *own);
  collective_scatter_spans(c, own, whole, spans, SPANS);
  for (const Span *s = spans; s < spans + SPANS; s++)
    for (size_t i = 0; s->owner == c->rank && i < s->count; i++) REQUIRE(own[s->own + i] == -numbers[s->offset + i]);
  free(numbers);
  free(own);
  free(whole);
  return true;
}

/* Starts RANKS processes in one of its own, which has one thread; its exit status. */
static int status_of(bool (*what)(Collective *c), bool dies) {
  const pid_t child = fork();
  int status = 0;
  if (child == 0) {
    Error error = {0};
    Collective *c = NULL;
    signal(SIGPIPE, SIG_IGN); /* as ./train does */
    if (!collective_start(RANKS, &error) || !collective_open(&c, &error) || c->size != RANKS) _exit(99);
    if (dies && c->rank == 3) _exit(EXIT_BUSY);
    const bool ok = what(c);
    collective_abort(c, ok ? EXIT_DONE : EXIT_INTERNAL);
    collective_close(c);
    _exit(ok ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void test_words(void **state) {
  (void)state;
  assert_int_equal(status_of(try_words, false), 0);
}

static void test_errors(void **state) {
  (void)state;
  assert_int_equal(status_of(try_errors, false), 0);
}

static void test_spans(void **state) {
  (void)state;
  assert_int_equal(status_of(try_spans, false), 0);
}

/* One leaves with an error of its own: all end with its status. */
static void test_one_dies(void **state) {
  (void)state;
  assert_int_equal(status_of(try_words, true), EXIT_BUSY);
}

/* What a rank does whose GPU waits for that of a dead rank. */
static bool wait_without_messages(Collective *c) {
  for (int i = 0; i < 5000; i++) {
    if (c->rank == 0) collective_check_children();
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  return false;
}

static void test_one_dies_silently(void **state) {
  (void)state;
  assert_int_equal(status_of(wait_without_messages, true), EXIT_BUSY);
}

static void test_alone(void **state) {
  Error error = {0};
  Collective *c = NULL;
  double sum = 3;
  int signal = 2;
  (void)state;
  assert_true(collective_open(&c, &error));
  assert_true(c->rank == 0 && c->size == 1 && c->node_size == 1 && !c->engine);
  collective_sum(c, &sum, 1);
  assert_true(sum == 3);
  assert_true(collective_agree(c, &signal, &error) && signal == 2);
  fail(&error, EXIT_INPUT, "no text");
  assert_false(collective_agree(c, NULL, &error));
  assert_string_equal(error.text, "no text");
  collective_abort(c, EXIT_INPUT);
  collective_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone),    cmocka_unit_test(test_words),
                                     cmocka_unit_test(test_errors),   cmocka_unit_test(test_spans),
                                     cmocka_unit_test(test_one_dies), cmocka_unit_test(test_one_dies_silently)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
