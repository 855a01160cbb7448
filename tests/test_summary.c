/* report/summary: constructed runs get their sentences, with the numbers that were put in. */
#include "report/result.h"
#include "report/summary.h"
#include "tests/cli_helpers.h"

#include <math.h>
#include <string.h>

static const SummaryFacts facts = {
    .dir = "my.run", .state = "done", .steps = 1000, .chance = 5.55, .lr = 0.003, .muon_lr = NAN};

/* A loss at a fraction of the run. */
typedef double Curve(double done);

static double falls(double x) { return 1.5 + 1.2 * exp(-4 * x); }
static double is_flat(double x) { return x < 0.401 ? falls(x) : 1.75; }
static double guesses(double x) { return 5.54 + 0.001 * x; }

static void add(History *h, MetricsLine line) {
  Error error = {0};
  assert_true(history_add(h, &line, &error));
}

/* 20 evaluations over the beginning of the validation text, at two bits per byte for a nat, in so many steps. */
static History run_of(Curve train, Curve validation, int steps) {
  History h = {0};
  double best = INFINITY;
  for (int i = 1; i <= 20; i++) {
    const double done = i / 20.0;
    for (int k = 4; k >= 0; k--)
      add(&h, (MetricsLine){.step = (int64_t)((done - k / 100.0) * steps), .loss = train(done - k / 100.0)});
    const double loss = validation(done);
    add(&h, (MetricsLine){.kind = METRICS_EVALUATION,
                          .step = i * steps / 20,
                          .val_loss = loss,
                          .bits_per_byte = 2 * loss,
                          .exact = NAN,
                          .xz_bits_per_byte = NAN,
                          .best = loss < best});
    best = fmin(best, loss);
  }
  return h;
}

/* The last evaluation is made over all of the text, too. */
static void add_final(History *h, double loss, double bits, double exact, double xz) {
  add(h, (MetricsLine){.kind = METRICS_EVALUATION,
                       .step = h->evaluations[h->evaluation_count - 1].step,
                       .val_loss = loss,
                       .bits_per_byte = bits,
                       .exact = exact,
                       .xz_bits_per_byte = xz,
                       .all = true});
}

static void add_diagnosis(History *h, const char *name) {
  MetricsLine line = {.kind = METRICS_DIAGNOSIS, .step = h->evaluations[h->evaluation_count - 1].step};
  snprintf(line.diagnosis, sizeof line.diagnosis, "%s", name);
  add(h, line);
}

static void expect(History *h, const SummaryFacts *f, const char *text) {
  assert_string_equal(summary_of(h, f).text, text);
  history_free(h);
}

/* ---- runs that have ended ---- */

static void good(void **state) {
  (void)state;
  History h = run_of(falls, falls, 1000);
  add_final(&h, 1.52, 2.6, NAN, 2.69);
  expect(&h, &facts,
         "Predicts unseen text (all of the validation text) at 2.60 bits per byte, a little better than the compressor "
         "xz -9 (2.69). The validation loss was lowest at step 1000 of 1000. Let it write: ./generate my.run -n 500. "
         "For a better one: more steps (--steps), more text, or a larger model (--dim, --layers).");
  SummaryFacts f = facts;
  f.chats = true;
  h = run_of(falls, falls, 1000);
  assert_non_null(strstr(summary_of(&h, &f).text, " Talk to it: ./generate my.run -i. For a better one:"));
  history_free(&h);
}

/* A diagnosis makes its own suggestion, unless it is only about a sample. */
static void diagnosed(void **state) {
  (void)state;
  History h = run_of(falls, falls, 1000);
  add_diagnosis(&h, "copying");
  assert_non_null(strstr(summary_of(&h, &facts).text, "Let it write"));
  add_final(&h, 1.52, 2.6, NAN, 1.3);
  add_diagnosis(&h, "still learning");
  expect(&h, &facts,
         "Predicts unseen text (all of the validation text) at 2.60 bits per byte, worse than the compressor xz -9 "
         "(1.30).");
}

static void best_early(void **state) {
  (void)state;
  History h = run_of(falls, is_flat, 1000);
  expect(&h, &facts,
         "Predicts unseen text (the beginning of the validation text) at 3.48 bits per byte. The validation loss was "
         "lowest at step 400 of 1000. Let it write: ./generate my.run -n 500. For a better one: more text, or a larger "
         "model (--dim, --layers); more steps would not help.");
}

static void failed(void **state) {
  (void)state;
  SummaryFacts f = facts;
  f.state = "nonfinite";
  f.muon_lr = 0.03;
  History h = run_of(falls, falls, 500);
  expect(&h, &f,
         "Predicts unseen text (the beginning of the validation text) at 3.04 bits per byte. Training failed after "
         "step 500: the loss or the gradient was no finite number any more. Start again with a lower learning rate, "
         "such as --muon-lr 0.01 --lr 0.001.");
}

static void no_better_than_guessing(void **state) {
  (void)state;
  History h = run_of(guesses, guesses, 1000);
  expect(&h, &facts,
         "Predicts unseen text (the beginning of the validation text) no better than guessing: the loss is 5.54 nats "
         "per token, and guessing has 5.55. It has learned nothing yet: train it longer, and look with --dry-run "
         "--show 3 whether it reads what you meant.");
}

static void answers(void **state) {
  (void)state;
  History h = run_of(falls, falls, 1000);
  add_final(&h, 0.02, 0.1, 0.988, NAN);
  expect(&h, &facts,
         "Gives exactly the right answer to 98.8 % of the prompts of the validation text (all of it). The validation "
         "loss was lowest at step 1000 of 1000. Ask it: ./generate my.run -p TEXT --greedy. For a better one: more "
         "steps (--steps), more text, or a larger model (--dim, --layers).");
}

/* ---- others ---- */

static void not_ended(void **state) {
  (void)state;
  SummaryFacts f = facts;
  History h = run_of(falls, falls, 400);
  f.state = "running";
  assert_non_null(strstr(summary_of(&h, &f).text, "bits per byte. The run is at step 400 of 1000."));
  f.state = "killed";
  f.dir = "my first.run";
  assert_non_null(strstr(summary_of(&h, &f).text, " It was killed after step 400 of 1000; ./train --resume='my "
                                                  "first.run' goes on from the last state that was saved."));
  f.steps = (double)NAN;
  f.state = "signal";
  expect(&h, &f,
         "Predicts unseen text (the beginning of the validation text) at 3.04 bits per byte. It was stopped at step "
         "400; ./train --resume='my first.run' goes on.");
}

static void without_validation(void **state) {
  (void)state;
  SummaryFacts f = facts;
  History h = {0};
  f.state = "running";
  expect(&h, &f, "Nothing was measured yet. The run is at step 0 of 1000.");
  add(&h, (MetricsLine){.step = 1000, .loss = 1.25});
  assert_non_null(
      strstr(summary_of(&h, &f).text, "was not evaluated yet. The training loss at step 1000 is 1.25 nats"));
  f.state = "done";
  expect(&h, &f,
         "There was no validation text, so it is not known how well the model predicts text that it has not seen; "
         "--val-frac 0.1 keeps a tenth of the text for that. The training loss at step 1000 is 1.25 nats per token. "
         "Let it write: ./generate my.run -n 500. For a better one: more steps (--steps), more text, or a larger model "
         "(--dim, --layers).");
}

static void states_are_words(void **state) {
  (void)state;
  assert_string_equal(result_state_words("done", false), "done");
  assert_string_equal(result_state_words("minutes", false), "done (the time was up)");
  assert_string_equal(result_state_words("patience", false), "done (stopped early: --patience)");
  assert_string_equal(result_state_words("signal", false), "stopped (can be resumed)");
  assert_string_equal(result_state_words("nonfinite", false), "failed: loss not finite");
  assert_string_equal(result_state_words("running", false), "running");
  assert_string_equal(result_state_words("signal", true), "interrupted");
  assert_string_equal(result_state_words("killed", false), "killed");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(good),
                                     cmocka_unit_test(diagnosed),
                                     cmocka_unit_test(best_early),
                                     cmocka_unit_test(failed),
                                     cmocka_unit_test(no_better_than_guessing),
                                     cmocka_unit_test(answers),
                                     cmocka_unit_test(not_ended),
                                     cmocka_unit_test(without_validation),
                                     cmocka_unit_test(states_are_words)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
