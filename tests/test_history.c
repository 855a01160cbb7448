/* report/history: neighbors are put together, nothing is lost of evaluations and diagnoses, damaged files are read. */
#include "report/history.h"
#include "tests/cli_helpers.h"

#include <math.h>
#include <string.h>

static MetricsLine steps_line(int64_t step, double loss) {
  return (MetricsLine){.kind = METRICS_STEPS,
                       .step = step,
                       .tokens = 10 * step,
                       .seconds = 0.5 * (double)step,
                       .loss = loss,
                       .lr = 1e-3 * (double)step,
                       .grad_norm = loss,
                       .tokens_per_s = 100};
}

static void add(History *h, MetricsLine line) {
  Error error = {0};
  assert_true(history_add(h, &line, &error));
}

static void few_lines_stay_as_they_are(void **state) {
  (void)state;
  History h = {0};
  for (int i = 1; i <= HISTORY_POINTS; i++) add(&h, steps_line(i, i));
  assert_int_equal(h.count, HISTORY_POINTS);
  assert_int_equal(h.lines_a_point, 1);
  assert_true(h.points[6].step == 7 && h.points[6].tokens == 70 && h.points[6].lines == 1);
  assert_true(h.points[6].loss == 7 && h.points[6].least == 7 && h.points[6].most == 7);
  history_free(&h);
  assert_null(h.points);
}

/* Of a million lines every point holds as many neighbors, their mean, least and most. */
static void many_lines_are_put_together(void **state) {
  (void)state;
  enum { LINES = 1000000 };
  History h = {0};
  for (int i = 1; i <= LINES; i++) add(&h, steps_line(i, i % 2 ? i : -i));
  assert_true(h.count > HISTORY_POINTS / 2 && h.count <= HISTORY_POINTS);
  assert_int_equal(h.lines_a_point, 2048);
  int64_t lines = 0, before = 0;
  for (int i = 0; i < h.count; i++) {
    const HistoryPoint *p = &h.points[i];
    assert_true(p->lines == p->step - before && (p->lines == h.lines_a_point || i == h.count - 1));
    double sum = 0;
    for (int64_t k = before + 1; k <= p->step; k++) sum += k % 2 ? (double)k : -(double)k;
    assert_true(fabs(p->loss - sum / (double)p->lines) < 1e-6);
    assert_true(p->most == (double)(p->step % 2 ? p->step : p->step - 1));
    assert_true(p->least == -(double)(p->step % 2 ? p->step - 1 : p->step));
    assert_true(p->grad_norm == p->most && p->lr == 1e-3 * (double)p->step && p->seconds == 0.5 * (double)p->step);
    assert_true(fabs(p->tokens_per_s - 100) < 1e-9);
    lines += p->lines;
    before = p->step;
  }
  assert_int_equal(lines, LINES);
  history_free(&h);
}

/* A loss that is not finite does not spoil those beside it, and is not hidden either. */
static void losses_that_are_not_finite(void **state) {
  (void)state;
  History h = {0};
  for (int i = 1; i <= 2 * HISTORY_POINTS; i++) add(&h, steps_line(i, i == 3 ? (double)NAN : 2));
  assert_true(h.points[1].lines == 2 && h.points[1].step == 4);
  assert_true(h.points[1].loss == 2 && h.points[1].least == 2 && isinf(h.points[1].most));
  assert_true(h.points[0].most == 2);
  history_free(&h);
}

static MetricsLine evaluation_line(int64_t step, double loss, bool all, bool best) {
  return (MetricsLine){.kind = METRICS_EVALUATION, .step = step, .val_loss = loss, .all = all, .best = best};
}

static void evaluations_and_diagnoses(void **state) {
  (void)state;
  History h = {0};
  const double losses[] = {3, 2, 1.5, 1.7};
  assert_null(history_best(&h));
  assert_null(history_last(&h));
  assert_null(history_kept(&h));
  for (int i = 0; i < 4; i++) add(&h, evaluation_line(10 * (i + 1), losses[i], false, false));
  assert_true(history_last(&h)->val_loss == 1.7);
  add(&h, evaluation_line(40, 1, true, false));
  add(&h, evaluation_line(40, 1, true, false)); /* again */
  add(&h, (MetricsLine){.kind = METRICS_DIAGNOSIS, .step = 40, .diagnosis = "copying", .text = "it does"});
  assert_int_equal(h.evaluation_count, 4);
  assert_int_equal(h.damaged, 1);
  assert_int_equal(history_best(&h)->step, 30); /* the others are over another part */
  assert_true(history_last(&h)->val_loss == 1);
  assert_true(history_has_diagnosis(&h, "copying") && !history_has_diagnosis(&h, "copy"));
  assert_string_equal(h.diagnoses[0].text, "it does");
  history_free(&h);
}

/* The best on the beginning of the text is not the best on all of it: the last line says which model is kept. */
static void the_kept_model(void **state) {
  (void)state;
  History h = {0};
  add(&h, evaluation_line(10, 2, false, true));
  add(&h, evaluation_line(20, 1.5, false, true));
  add(&h, evaluation_line(30, 1.7, false, false));
  assert_true(history_kept(&h)->step == 20 && !history_kept(&h)->all);
  add(&h, evaluation_line(30, 1.8, true, false));
  assert_int_equal(history_kept(&h)->step, 20); /* an old file ends here */
  add(&h, (MetricsLine){.kind = METRICS_KEPT, .step = 30, .val_loss = 1.8, .all = true, .xz_bits_per_byte = 2.5});
  assert_true(h.xz_bits_per_byte == 2.5);
  assert_true(history_kept(&h)->step == 30 && history_kept(&h)->all && history_kept(&h)->val_loss == 1.8);
  assert_true(h.damaged == 0 && h.evaluation_count == 3);
  add(&h, evaluation_line(40, 1.4, false, true)); /* a longer run */
  assert_true(history_kept(&h)->step == 40 && !history_kept(&h)->all);
  add(&h, evaluation_line(40, 1.6, true, false));
  assert_true(history_kept(&h)->all && history_kept(&h)->val_loss == 1.6); /* it is the same model */
  history_free(&h);
}

/* Of a run that was resumed with another text to validate on; and of old files, in which no line says what is best. */
static void the_best_is_of_the_model_that_is_kept(void **state) {
  (void)state;
  History h = {0};
  const struct {
    double loss;
    bool best;
  } evaluations[] = {{3, true}, {2, true}, {2.5, false}, {4, true}, {3.5, true}, {3.6, false}};
  const int best[] = {0, 1, 1, 3, 4, 4};
  for (int i = 0; i < 6; i++) {
    add(&h, (MetricsLine){
                .kind = METRICS_EVALUATION, .step = i, .val_loss = evaluations[i].loss, .best = evaluations[i].best});
    assert_int_equal(history_best(&h)->step, best[i]);
  }
  add(&h, (MetricsLine){.kind = METRICS_EVALUATION, .step = 6, .val_loss = NAN, .best = true});
  assert_int_equal(history_best(&h)->step, 4);
  history_free(&h);
}

/* A point is the mean of its lines; what a run says of its loss is that of the last one. */
static void the_last_loss(void **state) {
  (void)state;
  History h = {0};
  for (int i = 1; i <= 4 * HISTORY_POINTS; i++) add(&h, steps_line(i, i));
  assert_true(h.last_loss == 4 * HISTORY_POINTS && h.points[h.count - 1].loss < h.last_loss);
  add(&h, steps_line(1, 77)); /* goes back */
  assert_true(h.last_loss == 4 * HISTORY_POINTS && h.damaged == 1);
  history_free(&h);
}

static void a_file(void **state) {
  Scratch *f = *state;
  History h = {0};
  put_text(f->path,
           "{\"step\":1,\"tokens\":10,\"loss\":5,\"lr\":0.1,\"grad_norm\":1,\"tokens_per_s\":7,\"seconds\":2}\n"
           "{\"step\":2,\"tokens\":20,\"val_loss\":4.5,\"bits_per_byte\":6,\"seconds\":3}\n" /* of an old version */
           "not JSON\n"
           "{\"step\":1,\"tokens\":10,\"loss\":5}\n" /* goes back */
           "{\"loss\":3,\"step\":4}\n"
           "{\"step\":4,\"verdict\":\"v\",\"text\":\"a \\u001b[31m b\"}\n"
           "{\"step\":9,\"lo");
  assert_true(history_read(&h, f->path, &f->error));
  assert_int_equal(h.count, 2);
  assert_true(h.points[0].tokens_per_s == 7 && h.points[1].loss == 3 && isnan(h.points[1].lr));
  assert_int_equal(h.evaluation_count, 1);
  assert_true(h.evaluations[0].bits_per_byte == 6 && isnan(h.evaluations[0].exact) && !h.evaluations[0].all);
  assert_int_equal(h.diagnosis_count, 1);
  assert_string_equal(h.diagnoses[0].text, "a ?[31m b");
  assert_int_equal(h.damaged, 2);
  history_free(&h);
  assert_false(history_read(&h, "/nonexistent/metrics.jsonl", &f->error));
  assert_int_equal(f->error.code, EXIT_INPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(few_lines_stay_as_they_are),
                                     cmocka_unit_test(many_lines_are_put_together),
                                     cmocka_unit_test(losses_that_are_not_finite),
                                     cmocka_unit_test(evaluations_and_diagnoses),
                                     cmocka_unit_test(the_kept_model),
                                     cmocka_unit_test(the_best_is_of_the_model_that_is_kept),
                                     cmocka_unit_test(the_last_loss),
                                     WITH_SCRATCH(a_file)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
