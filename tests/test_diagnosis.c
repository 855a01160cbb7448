/* report/diagnosis: constructed runs get exactly their diagnosis, healthy ones none. */
#include "report/diagnosis.h"
#include "tests/cli_helpers.h"

#include <math.h>
#include <string.h>

static const DiagnosisFacts facts = {.steps = 1000,
                                     .warmup = 50,
                                     .chance = 5.55,
                                     .train_bytes = 1e6,
                                     .train_tokens = 1e6,
                                     .lr = 3e-2,
                                     .muon_lr = NAN,
                                     .usual_lr = 1e-3,
                                     .usual_muon_lr = 1e-2};

/* The losses at a fraction of the run. */
typedef double Curve(double done);

/* A run of 20 evaluations and five logged lines between them, judged as ./train does. The names of its diagnoses, with
 * the evaluation of each. */
static const char *diagnoses_of(Curve train, Curve validation, const DiagnosisFacts *f, History *h) {
  static char names[200];
  Error error = {0};
  MetricsLine diagnosis;
  names[0] = '\0';
  for (int i = 1; i <= 20; i++) {
    for (int k = 4; k >= 0; k--) {
      const double done = (i - k / 5.0) / 20;
      assert_true(history_add(h, &(MetricsLine){.step = (int64_t)(done * 1000), .loss = train(done)}, &error));
    }
    const MetricsLine evaluation = {
        .kind = METRICS_EVALUATION, .step = 50 * i, .tokens = 5000 * i, .val_loss = validation(i / 20.0)};
    assert_true(history_add(h, &evaluation, &error));
    const bool last = i == 20;
    if (diagnosis_at_evaluation(h, f, &diagnosis) || (last && diagnosis_at_end(h, f, &diagnosis))) {
      assert_true(diagnosis.kind == METRICS_DIAGNOSIS && diagnosis.step == evaluation.step);
      assert_true(diagnosis.tokens == evaluation.tokens);
      assert_true(strncmp(diagnosis.text, diagnosis.diagnosis, strlen(diagnosis.diagnosis)) == 0);
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s at %d\n", diagnosis.diagnosis, i);
      assert_true(history_add(h, &diagnosis, &error));
    }
  }
  return names;
}

static void expect(Curve train, Curve validation, const DiagnosisFacts *f, const char *names, const char *words) {
  History h = {0};
  assert_string_equal(diagnoses_of(train, validation, f, &h), names);
  if (words && !strstr(h.diagnoses[0].text, words)) fail_msg("%s\nis without %s", h.diagnoses[0].text, words);
  history_free(&h);
}

/* ---- curves ---- */

static double learns(double x) { return 1.5 + 1.2 * exp(-12 * x); }
static double levels_off(double x) { return 1.6 + 1.2 * exp(-12 * x); }
/* Evaluations differ by chance, and the last ones are a little worse than the best. */
static double noisy(double x) { return levels_off(x) * (1 + 0.004 * sin(97 * x)); }
static double bottoms_out(double x) { return levels_off(x) + (x > 0.5 ? 0.008 * (x - 0.5) : 0); }
static double overfits(double x) { return levels_off(x) + (x > 0.4 ? x - 0.4 : 0); }
static double memorizes(double x) { return 1.5 * exp(-3 * x); }
static double explodes(double x) { return x < 0.35 ? learns(x) : 10.4; }
static double fails(double x) { return 10.4 + x; }
static double starts_high(double x) { return 12 - 4 * x; }
static double is_not_finite(double x) { return x < 0.35 ? learns(x) : (double)NAN; }
static double jumps(double x) { return x < 0.55 ? learns(x) : 2.4; }
static double never_learns(double x) { return 5.57 + 0.02 * sin(50 * x); }
static double guesses_at_first(double x) { return x < 0.06 ? 6.5 : learns(x); }
/* From 2.2 to 1.2, still by 0.1 in the last third; with noise from step to step, as that of batches. */
static double memorizes_slowly(double x) { return 1.2 + exp(-3.2 * x); }
static double memorizes_noisily(double x) { return memorizes_slowly(x) * (1 + 0.02 * sin(997 * x)); }
static double hovers(double x) { return (1.8 + 1.2 * exp(-14 * x)) * (1 + 0.002 * sin(97 * x)); }
static double rises_slightly(double x) { return hovers(x) + (x > 0.5 ? 0.015 * (x - 0.5) : 0); }
/* Learning rates that decay lower both losses once more. */
static double decays(double x) { return learns(x) - 0.06 * x * x; }
static double decays_less(double x) { return 1.7 + 1.2 * exp(-12 * x) - 0.02 * x * x; }
static double noisy_but_level(double x) { return learns(x) * (1 + 0.03 * sin(997 * x)); }
static double improves_slowly(double x) { return 1.8 + 0.5 * exp(-5 * x); }
static double drops_out(double x) { return 0.8 + memorizes_slowly(x); } /* trained with so much dropout */
static double still_falls(double x) { return 3.5 - 1.8 * x; }
static double learns_all(double x) { return 2 * exp(-8 * x); } /* to 0.0007: less than the fall before says is left */

static void healthy_runs(void **state) {
  (void)state;
  expect(learns, levels_off, &facts, "", NULL);
  expect(learns, learns, &facts, "", NULL);
  expect(learns, noisy, &facts, "", NULL);
  expect(memorizes, bottoms_out, &facts, "", NULL);
  expect(never_learns, never_learns, &facts, "", NULL); /* random bytes: no rate is to blame */
  expect(guesses_at_first, guesses_at_first, &facts, "", NULL);
  expect(starts_high, starts_high, &facts, "", NULL); /* worse than guessing, but it learns */
  expect(jumps, levels_off, &facts, "", NULL); /* the text is harder there */
}

static void diverging_runs(void **state) {
  (void)state;
  DiagnosisFacts muon = facts;
  muon.muon_lr = 0.01;
  expect(explodes, explodes, &facts, "diverging at 7\n", "of 10.400 is worse than guessing (5.550)");
  expect(explodes, explodes, &facts, "diverging at 7\n", "try --lr 0.001");
  expect(fails, fails, &facts, "diverging at 2\n", "is worse than guessing");
  expect(explodes, explodes, &muon, "diverging at 7\n", "try --muon-lr 0.003 --lr 0.001");
  expect(is_not_finite, is_not_finite, &facts, "diverging at 7\n", NULL);
  expect(jumps, jumps, &facts, "diverging at 12\n", "rose from 1.503 at step 500 to 2.400");
}

static void overfitting_runs(void **state) {
  (void)state;
  DiagnosisFacts small = facts, patient = facts, most = facts, muon = facts;
  most.dropout = 0.5;
  muon.muon_lr = 0.01;
  small.train_bytes = 20000;
  small.train_tokens = 10000;
  patient.early_stopping = true;
  patient.dropout = 0.1;
  expect(memorizes, overfits, &facts, "overfitting at 11\n",
         "best at step 400 (1.610, which is kept) and is 1.752 now");
  expect(memorizes, overfits, &facts, "overfitting at 11\n", "--dropout 0.1 would help, and --patience 3");
  expect(memorizes, overfits, &patient, "overfitting at 11\n", "--dropout 0.2 would help");
  expect(memorizes, overfits, &most, "overfitting at 11\n", "falls; more text would help");
  expect(memorizes, overfits, &muon, "overfitting at 11\n", "falls; more text would help");
  expect(memorizes, overfits, &small, "little text at 11\n", "after 4.0 passes over 19.5 KiB");
}

/* Judged at the end: the validation loss does not fall in the last third, and the training loss does. */
static void overfitting_without_a_rise(void **state) {
  (void)state;
  DiagnosisFacts repeats = facts, small = facts;
  repeats.train_tokens = 20000; /* five passes */
  small.train_tokens = 20000;
  small.train_bytes = 20000;
  const char *words = "since step 667 the validation loss has stayed at 1.";
  expect(memorizes_slowly, hovers, &repeats, "overfitting at 20\n", "has stayed at 1.799, while");
  expect(memorizes_noisily, hovers, &repeats, "overfitting at 20\n", words);
  expect(memorizes_noisily, rises_slightly, &repeats, "overfitting at 20\n", words);
  expect(memorizes_slowly, hovers, &repeats, "overfitting at 20\n", "the training loss fell from 1.311 to 1.235");
  expect(memorizes_slowly, hovers, &repeats, "overfitting at 20\n",
         "more text or --dropout 0.1 would help, and more steps");
  expect(memorizes_slowly, hovers, &small, "little text at 20\n", "after 5.0 passes over 19.5 KiB since step 667");

  expect(memorizes_slowly, hovers, &facts, "", NULL); /* text that was seen once cannot be learned by heart */
  expect(learns, hovers, &repeats, "", NULL);
  expect(noisy_but_level, hovers, &repeats, "", NULL);
  expect(decays, decays, &repeats, "", NULL);
  expect(decays, decays_less, &repeats, "", NULL);
  expect(memorizes_slowly, improves_slowly, &repeats, "", NULL);
  expect(drops_out, hovers, &repeats, "", NULL);
  expect(never_learns, never_learns, &repeats, "", NULL);
}

static void severity(void **state) {
  (void)state;
  assert_true(diagnosis_is_warning(DIAGNOSIS_DIVERGING) && diagnosis_is_warning(DIAGNOSIS_OVERFITTING));
  assert_true(diagnosis_is_warning(DIAGNOSIS_LITTLE_TEXT) && !diagnosis_is_warning(DIAGNOSIS_STILL_LEARNING));
  assert_false(diagnosis_is_warning(DIAGNOSIS_COPYING) || diagnosis_is_warning("of a newer version"));
}

static void runs_that_were_too_short(void **state) {
  (void)state;
  expect(still_falls, still_falls, &facts, "still learning at 20\n", "by about 0.1");
  expect(learns_all, learns_all, &facts, "", NULL);
  expect(still_falls, still_falls, &facts, "still learning at 20\n", "--steps 2000");
  DiagnosisFacts stopped = facts;
  stopped.steps = 2000; /* it ended before its schedule: there is nothing to tell */
  expect(still_falls, still_falls, &stopped, "", NULL);
}

static void chance(void **state) {
  (void)state;
  History h = {0};
  assert_false(diagnosis_worse_than_chance(&h, &facts)); /* nothing is known */
  diagnoses_of(fails, fails, &facts, &h);
  assert_true(diagnosis_worse_than_chance(&h, &facts));
  history_free(&h);
  diagnoses_of(explodes, explodes, &facts, &h); /* a good model was kept before */
  assert_false(diagnosis_worse_than_chance(&h, &facts));
  history_free(&h);
  diagnoses_of(learns, learns, &facts, &h);
  assert_false(diagnosis_worse_than_chance(&h, &facts));
  history_free(&h);
}

/* Common phrases are as long in text that the model has not seen; a few words are nothing. */
static void copying(void **state) {
  (void)state;
  MetricsLine line;
  assert_false(diagnosis_of_sample(9, 90, 59, 0, &line));
  assert_false(diagnosis_of_sample(9, 90, 120, 40, &line));
  assert_false(diagnosis_of_sample(9, 90, 20, 19, &line));
  assert_true(diagnosis_of_sample(9, 90, 121, 40, &line));
  assert_true(line.kind == METRICS_DIAGNOSIS && line.step == 9 && line.tokens == 90);
  assert_string_equal(line.diagnosis, DIAGNOSIS_COPYING);
  assert_non_null(strstr(line.text, "121 bytes in a row"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(copying),
                                     cmocka_unit_test(healthy_runs),
                                     cmocka_unit_test(diverging_runs),
                                     cmocka_unit_test(overfitting_runs),
                                     cmocka_unit_test(overfitting_without_a_rise),
                                     cmocka_unit_test(severity),
                                     cmocka_unit_test(runs_that_were_too_short),
                                     cmocka_unit_test(chance)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
