/* report/scaling_law: laws are found again from points that they made, and points that carry none are noticed. */
#include "report/scaling_law.h"

#include "kernels/philox.h"
#include "tests/cli_helpers.h"

#include <math.h>

#define assert_near(value, expected, within) assert_true(fabs((value) - (expected)) <= (within))

enum { SIZES = 6, LENGTHS = 6 };
static const double truth[LAW_TERMS] = {1.7, 400, 0.34, 410, 0.28};

/* A grid of 100 thousand to 30 million parameters and 1 million to 1 billion tokens. */
static int make_points(LawPoint *points, double noise) {
  int count = 0;
  for (int i = 0; i < SIZES; i++)
    for (int k = 0; k < LENGTHS; k++) {
      const double n = 1e5 * pow(300, i / (SIZES - 1.0)), d = 1e6 * pow(1000, k / (LENGTHS - 1.0));
      const double uniform = philox_uniform(philox(5, (uint32_t)count, 0, 0, 0).word[0]) - 0.5;
      const double loss =
          truth[LAW_E] + truth[LAW_A] / pow(n, truth[LAW_EXPONENT_A]) + truth[LAW_B] / pow(d, truth[LAW_EXPONENT_B]);
      points[count++] = (LawPoint){n, d, loss * (1 + noise * uniform)};
    }
  return count;
}

static LawFit fit_of(const LawPoint *points, int count, LawProblem expected) {
  Error error = {0};
  LawFit fit;
  LawProblem problem;
  if (!law_fit(&fit, points, count, &problem, &error)) fail_msg("%s", error.text);
  assert_int_equal(problem, expected);
  return fit;
}

static void exact_points(void **state) {
  LawPoint points[SIZES * LENGTHS];
  const LawFit fit = fit_of(points, make_points(points, 0), LAW_FITS);
  for (int t = 0; t < LAW_TERMS; t++) assert_near(fit.terms[t] / truth[t], 1, 0.01);
  assert_true(fit.error < 1e-5);
  (void)state;
}

/* With an error of 1 %, each interval contains the truth, and the exponents are determined. */
static void noisy_points(void **state) {
  LawPoint points[SIZES * LENGTHS];
  const int count = make_points(points, 0.01 * sqrt(12));
  const LawFit fit = fit_of(points, count, LAW_FITS);
  for (int t = 0; t < LAW_TERMS; t++) {
    assert_true(fit.low[t] <= truth[t] && truth[t] <= fit.high[t]);
    assert_true(fit.low[t] < fit.terms[t] && fit.terms[t] < fit.high[t]);
  }
  assert_true(fit.error > 0.005 && fit.error < 0.015);
  assert_true(law_is_determined(&fit, LAW_EXPONENT_A) && law_is_determined(&fit, LAW_EXPONENT_B));
  const LawFit again = fit_of(points, count, LAW_FITS);
  assert_memory_equal(again.low, fit.low, sizeof fit.low);
  points[7].loss *= 1.2;
  assert_int_equal(fit_of(points, count, LAW_FITS).worst, 7);
  (void)state;
}

static void one_size(void **state) {
  LawPoint points[SIZES * LENGTHS];
  make_points(points, 0);
  const LawFit fit = fit_of(points, LENGTHS, LAW_FITS);
  assert_true(!fit.of_params && fit.of_tokens && isnan(fit.terms[LAW_A]));
  assert_near(fit.terms[LAW_E], truth[LAW_E] + truth[LAW_A] / pow(1e5, truth[LAW_EXPONENT_A]), 0.01);
  assert_near(fit.terms[LAW_EXPONENT_B], truth[LAW_EXPONENT_B], 0.01);
  (void)state;
}

static void points_without_a_law(void **state) {
  LawPoint points[SIZES * LENGTHS];
  const int count = make_points(points, 0);
  fit_of(points, 4, LAW_FEW_POINTS);
  for (int i = 0; i < count; i++) points[i].params = 1e5 + i, points[i].tokens = i % 2 ? 1e6 : 1e9; /* two lengths */
  fit_of(points, count, LAW_NOTHING_VARIES);
  /* Noise alone: no exponent is determined. */
  make_points(points, 0);
  for (int i = 0; i < count; i++) points[i].loss = 3 + 0.1 * philox_uniform(philox(6, (uint32_t)i, 0, 0, 0).word[0]);
  const LawFit fit = fit_of(points, count, LAW_FITS);
  assert_false(law_is_determined(&fit, LAW_EXPONENT_A));
  assert_false(law_is_determined(&fit, LAW_EXPONENT_B));
  (void)state;
}

static void best_use(void **state) {
  LawPoint points[SIZES * LENGTHS];
  const LawFit fit = fit_of(points, make_points(points, 0), LAW_FITS);
  double params, tokens;
  law_optimum(&fit, 1e17, &params, &tokens);
  assert_near(6 * params * tokens / 1e17, 1, 1e-9);
  const double best = law_loss(&fit, params, tokens);
  for (double factor = 0.5; factor < 2.1; factor *= 4)
    assert_true(best < law_loss(&fit, params * factor, tokens / factor));
  (void)state;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exact_points), cmocka_unit_test(noisy_points),
                                     cmocka_unit_test(one_size), cmocka_unit_test(points_without_a_law),
                                     cmocka_unit_test(best_use)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
