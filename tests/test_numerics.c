/* What several backends stand on, against known answers: Philox, and the exponential of the CPU. */
#include "kernels/cpu/simd.h"
#include "kernels/philox.h"
#include "tests/backends.h"

#include <math.h>

static void expect_words(PhiloxWords got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t want[4] = {a, b, c, d};
  assert_memory_equal(got.word, want, sizeof want);
}

/* Known answers of Random123's kat_vectors. */
static void test_philox_known_answers(void **state) {
  (void)state;
  uint32_t ones = 0xFFFFFFFFu;
  expect_words(philox(0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox(UINT64_MAX, ones, ones, ones, ones), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(philox(0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344), 0xd16cfe09, 0x94fdcceb,
               0x5001e420, 0x24126ea1);
  assert_true(philox_uniform(0) > 0.0f);
  assert_true(philox_uniform(ones) < 1.0f);
}

/* What softmax and SiLU of the CPU stand on: 2 ulp, and the ends of its range. */
static void test_exponential(void **state) {
  (void)state;
  for (double x = -87.25; x < 88; x += 0.0137) {
    double single = (double)(float)x, error = (double)exp_f32((float)x) / exp(single) - 1;
    if (!(fabs(error) < 2.4e-7)) fail_msg("exp(%g) is off by %g", single, error);
  }
  assert_true(exp_f32(0.0f) == 1.0f);
  assert_true(exp_f32(-100.0f) == 0.0f && exp_f32(-INFINITY) == 0.0f);
  assert_true(isnan(exp_f32(NAN)));
  assert_true(sigmoid_f32(-200.0f) == 0.0f && sigmoid_f32(200.0f) == 1.0f && sigmoid_f32(0.0f) == 0.5f);
  assert_true(sigmoid_f32(-INFINITY) == 0.0f && sigmoid_f32(INFINITY) == 1.0f && isnan(sigmoid_f32(NAN)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox_known_answers),
      cmocka_unit_test(test_exponential),
  };
  return cmocka_run_group_tests_name("numerics", tests, NULL, NULL);
}
