/* report/metrics: the lines of metrics.jsonl, written and read back, what a resumed run cuts off, and files that cannot
 * be written. */
#include "report/metrics.h"
#include "tests/cli_helpers.h"
#include "base/file.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const MetricsLine of_steps = {.kind = METRICS_STEPS,
                                     .step = 10,
                                     .tokens = 7680,
                                     .loss = 1.0 / 3,
                                     .lr = 0.001,
                                     .grad_norm = NAN,
                                     .tokens_per_s = 1e300,
                                     .seconds = -1.25e-300};
static const MetricsLine of_evaluation = {.kind = METRICS_EVALUATION,
                                          .step = INT64_MAX,
                                          .tokens = INT64_MAX,
                                          .val_loss = INFINITY,
                                          .bits_per_byte = 2.5,
                                          .exact = NAN,
                                          .accuracy = NAN,
                                          .chance = NAN,
                                          .xz_bits_per_byte = NAN,
                                          .seconds = 5,
                                          .val_text = 0x1F,
                                          .best = true};
static const MetricsLine of_kept = {.kind = METRICS_KEPT,
                                    .step = 7,
                                    .tokens = 70,
                                    .val_loss = 1.5,
                                    .bits_per_byte = 2.5,
                                    .exact = 0.5,
                                    .accuracy = 0.75,
                                    .chance = 0.25,
                                    .xz_bits_per_byte = 4.5,
                                    .seconds = 6,
                                    .val_text = UINT64_MAX,
                                    .all = true};

static void metrics_lines(void **state) {
  Scratch *f = *state;
  Metrics metrics;
  MetricsLine answers = of_evaluation;
  answers.exact = 0.25;
  answers.xz_bits_per_byte = 3.5;
  answers.all = true;
  answers.best = false;
  const MetricsLine diagnosis = {
      .kind = METRICS_DIAGNOSIS, .step = 3, .tokens = 4, .diagnosis = "v", .text = "\"t\" \n"};
  assert_true(metrics_open(&metrics, f->path, -1, &f->error));
  assert_true(metrics_append(&metrics, &of_steps, &f->error));
  assert_string_equal(get_text(f->path), /* on disk before the file is closed */
                      "{\"step\":10,\"tokens\":7680,\"loss\":0.3333333333333333,\"lr\":0.001,\"grad_norm\":null,"
                      "\"tokens_per_s\":1e+300,\"seconds\":-1.25e-300}\n");
  assert_true(metrics_append(&metrics, &of_evaluation, &f->error) && metrics_append(&metrics, &answers, &f->error) &&
              metrics_append(&metrics, &diagnosis, &f->error) && metrics_append(&metrics, &of_kept, &f->error));
  metrics_close(&metrics);
  assert_string_equal(
      strchr(get_text(f->path), '\n') + 1,
      "{\"step\":9223372036854775807,\"tokens\":9223372036854775807,\"val_loss\":null,"
      "\"bits_per_byte\":2.5,\"seconds\":5,\"over\":\"beginning\",\"val_text\":\"000000000000001f\",\"best\":true}\n"
      "{\"step\":9223372036854775807,\"tokens\":9223372036854775807,\"val_loss\":null,"
      "\"bits_per_byte\":2.5,\"exact\":0.25,\"xz_bits_per_byte\":3.5,\"seconds\":5,\"over\":\"all\",\"val_text\":"
      "\"000000000000001f\",\"best\":false}\n"
      "{\"step\":3,\"tokens\":4,\"verdict\":\"v\",\"text\":\"\\\"t\\\" \\n\"}\n"
      "{\"step\":7,\"tokens\":70,\"val_loss\":1.5,\"bits_per_byte\":2.5,\"exact\":0.5,\"accuracy\":0.75,"
      "\"chance\":0.25,\"xz_bits_per_byte\":4.5,\"seconds\":6,"
      "\"over\":\"all\",\"val_text\":\"ffffffffffffffff\",\"kept\":true}\n");
}

static void metrics_are_read_back(void **state) {
  Scratch *f = *state;
  Metrics metrics;
  MetricsLine lines[3];
  assert_true(metrics_open(&metrics, f->path, -1, &f->error));
  assert_true(metrics_append(&metrics, &of_steps, &f->error) && metrics_append(&metrics, &of_evaluation, &f->error) &&
              metrics_append(&metrics, &of_kept, &f->error));
  metrics_close(&metrics);
  const char *text = get_text(f->path);
  for (int i = 0; i < 3; i++, text = strchr(text, '\n') + 1)
    assert_true(metrics_parse(text, strcspn(text, "\n"), &lines[i]));
  assert_string_equal(text, "");
  const MetricsLine *steps = &lines[0], *evaluation = &lines[1], *kept = &lines[2];
  assert_true(steps->kind == METRICS_STEPS && steps->step == 10 && steps->tokens == 7680 && steps->loss == 1.0 / 3);
  assert_true(steps->lr == 0.001 && isnan(steps->grad_norm) && steps->tokens_per_s == 1e300);
  assert_true(steps->seconds == of_steps.seconds && isnan(steps->val_loss));
  assert_true(evaluation->kind == METRICS_EVALUATION && evaluation->step == INT64_MAX && isnan(evaluation->val_loss));
  assert_true(evaluation->bits_per_byte == 2.5 && isnan(evaluation->exact) && evaluation->best && !evaluation->all);
  assert_true(evaluation->val_text == 0x1F);
  assert_true(kept->kind == METRICS_KEPT && kept->step == 7 && kept->val_loss == 1.5 && kept->exact == 0.5);
  assert_true(isnan(evaluation->accuracy) && kept->accuracy == 0.75 && kept->chance == 0.25);
  assert_true(kept->all && !kept->best && kept->val_text == UINT64_MAX);
}

/* Lines that are nearly as metrics_append() writes them, and what else JSON lines may hold. */
static void lines_of_others(void **state) {
  (void)state;
  MetricsLine line;
  const struct {
    const char *text;
    bool ok;
    double loss;
  } cases[] = {
      {"{\"step\":1,\"tokens\":2,\"loss\":3,\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7}", true, 3},
      {"{ \"loss\": -3.5e-1, \"step\": 1 }", true, -0.35},
      {"{\"step\":1,\"tokens\":2,\"loss\":null,\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7}", true, NAN},
      {"{\"step\":1,\"tokens\":2,\"loss\":\"3\",\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7}", true, NAN},
      {"{\"step\":1,\"tokens\":2,\"loss\":,\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7}", false, 0},
      {"{\"step\":1,\"tokens\":2,\"loss\":3-4,\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7}", false, 0},
      {"{\"step\":1,\"tokens\":2,\"loss\":3,\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7}}", false, 0},
      {"{\"step\":1,\"tokens\":2,\"loss\":3,\"lr\":4,\"grad_norm\":5,\"tokens_per_s\":6,\"seconds\":7", false, 0},
      {"{\"step\":1,\"x\":[1,{\"loss\":4}],\"loss\":2}", true, 2},
      {"{\"step\":-1,\"loss\":2}", false, 0},
      {"{\"step\":1.5,\"loss\":2}", false, 0},
      {"{\"step\":99999999999999999999,\"loss\":2}", false, 0},
      {"{\"loss\":2}", false, 0},
      {"[1]", false, 0},
      {"", false, 0},
      {"{\"step\":1,\"text\":\"\xff\"}", false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (metrics_parse(cases[i].text, strlen(cases[i].text), &line) != cases[i].ok) fail_msg("%s", cases[i].text);
    if (!cases[i].ok) continue;
    if (line.step != 1 || (isnan(cases[i].loss) ? !isnan(line.loss) : line.loss != cases[i].loss))
      fail_msg("%s: step %lld, loss %g", cases[i].text, (long long)line.step, line.loss);
  }
}

static void metrics_are_cut(void **state) {
  Scratch *f = *state;
  Metrics metrics;
  const MetricsLine line = {.kind = METRICS_DIAGNOSIS, .step = 3, .tokens = 4};
  const char *added = "{\"step\":3,\"tokens\":4,\"verdict\":\"\",\"text\":\"\"}\n";
  const struct {
    const char *text, *kept;
    int64_t bytes;
  } cases[] = {{"one\ntwo\nthree", "one\ntwo\n", 8},
               {"one\ntwo\nthree", "one\ntwo\n", INT64_MAX}, /* a torn line */
               {"one\ntwo\nthree", "one\n", 7},
               {"one\ntwo\n", "", 0},
               {"one", "", 3},
               {"", "", 9}};
  char expected[100];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put_text(f->path, cases[i].text);
    assert_true(metrics_open(&metrics, f->path, cases[i].bytes, &f->error));
    assert_true(metrics_append(&metrics, &line, &f->error));
    metrics_close(&metrics);
    snprintf(expected, sizeof expected, "%s%s", cases[i].kept, added);
    assert_string_equal(get_text(f->path), expected);
  }
  assert_true(metrics_open(&metrics, f->path, -1, &f->error)); /* a new run: nothing stays */
  metrics_close(&metrics);
  assert_string_equal(get_text(f->path), "");
  unlink(f->path);
  assert_true(metrics_open(&metrics, f->path, 5, &f->error)); /* none at all */
  metrics_close(&metrics);
  assert_string_equal(get_text(f->path), "");
}

/* The end of a line far before the cut is found as well. */
static void a_long_line_is_cut(void **state) {
  Scratch *f = *state;
  static char text[TEXT_BYTES - 1];
  memset(text, 'x', sizeof text - 1);
  text[10] = '\n';
  put_text(f->path, text);
  assert_true(file_cut(f->path, TEXT_BYTES / 2, &f->error));
  assert_int_equal(file_size(f->path), 11);
}

static void metrics_failures(void **state) {
  Scratch *f = *state;
  Metrics metrics;
  assert_false(metrics_open(&metrics, "/nonexistent/metrics.jsonl", -1, &f->error));
  assert_int_equal(f->error.code, EXIT_OUTPUT);
  metrics_close(&metrics);
  Error full = {0}, directory = {0};
  assert_false(metrics_open(&metrics, "/tmp", 3, &directory));
  assert_int_equal(directory.code, EXIT_OUTPUT);
  metrics_close(&metrics);
  if (access("/dev/full", W_OK) != 0) skip();
  assert_true(metrics_open(&metrics, "/dev/full", -1, &full));
  assert_false(metrics_append(&metrics, &of_steps, &full));
  assert_int_equal(full.code, EXIT_OUTPUT);
  assert_non_null(strstr(full.text, "/dev/full: No space"));
  metrics_close(&metrics);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_SCRATCH(metrics_lines),   WITH_SCRATCH(metrics_are_read_back), cmocka_unit_test(lines_of_others),
      WITH_SCRATCH(metrics_are_cut), WITH_SCRATCH(a_long_line_is_cut),    WITH_SCRATCH(metrics_failures),
  };
  return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
