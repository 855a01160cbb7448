/* What a series of timings says. */
#include "base/array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_of_many(void **state) {
  (void)state;
  double values[20];
  for (int i = 0; i < 20; i++) values[i] = (double)((i * 7) % 20); /* 0..19 in another order */
  const Quantiles q = quantiles_of(values, 20);
  assert_float_equal(q.p10, 2, 0);
  assert_float_equal(q.median, 10, 0);
  assert_float_equal(q.p90, 17, 0);
  assert_float_equal(q.mean, 9.5, 1e-12);
}

static void test_one_slow_step_moves_the_mean_alone(void **state) {
  (void)state;
  double values[11] = {1, 1, 1, 1, 1, 1000, 1, 1, 1, 1, 1};
  const Quantiles q = quantiles_of(values, 11);
  assert_float_equal(q.p10, 1, 0);
  assert_float_equal(q.median, 1, 0);
  assert_float_equal(q.p90, 1, 0);
  assert_float_equal(q.mean, 1010.0 / 11, 1e-9);
}

static void test_of_one(void **state) {
  (void)state;
  double value = 3;
  const Quantiles q = quantiles_of(&value, 1);
  assert_float_equal(q.p10, 3, 0);
  assert_float_equal(q.median, 3, 0);
  assert_float_equal(q.p90, 3, 0);
  assert_float_equal(q.mean, 3, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_of_many),
                                     cmocka_unit_test(test_one_slow_step_moves_the_mean_alone),
                                     cmocka_unit_test(test_of_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
