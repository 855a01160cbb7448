/* training/metrics: the lines of metrics.jsonl, what a resumed run cuts off, and files that cannot be written. */
#include "training/metrics.h"
#include "tests/cli_helpers.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void metrics_lines(void **state) {
  Scratch *f = *state;
  Metrics metrics;
  const double small = -1.2345678901234567e-300;
  const Metric train[] = {{"loss", 1.0 / 3}, {"lr", 0.001}, {"grad_norm", NAN}};
  const Metric all[] = {{"loss", small},      {"val_loss", small}, {"bits_per_byte", INFINITY}, {"lr", small},
                        {"grad_norm", small}, {"tokens_per_s", 5}, {"seconds", 1e300}};
  assert_true(metrics_open(&metrics, f->path, -1, &f->error));
  assert_true(metrics_append(&metrics, 10, 7680, train, 3, &f->error));
  assert_string_equal(get_text(f->path), "{\"step\":10,\"tokens\":7680,\"loss\":0.3333333333333333,\"lr\":0.001,"
                                         "\"grad_norm\":null}\n"); /* on disk before the file is closed */
  assert_true(metrics_append(&metrics, INT64_MAX, INT64_MAX, all, 7, &f->error));
  metrics_close(&metrics);
  char *second = strchr(get_text(f->path), '\n') + 1;
  json_t *object = json_loads(second, 0, NULL);
  assert_int_equal(json_object_size(object), 9);
  assert_true(json_integer_value(json_object_get(object, "tokens")) == INT64_MAX);
  assert_true(json_real_value(json_object_get(object, "loss")) == small);
  assert_true(json_is_null(json_object_get(object, "bits_per_byte")));
  json_decref(object);
}

static void metrics_are_cut(void **state) {
  Scratch *f = *state;
  Metrics metrics;
  put_text(
      f->path,
      "{\"step\":1}\n{\"step\":2,\"x\":[1,2]}\n{\"step\":2,\"val_loss\":3}\nnonsense\n[3]\n{}\n\n{\"step\":\"1\"}\n"
      "{\"step\":3}\n{\"step\":0}\n{\"step\":1,\"lo");
  assert_true(metrics_open(&metrics, f->path, 2, &f->error));
  assert_true(metrics_append(&metrics, 3, 4, NULL, 0, &f->error));
  metrics_close(&metrics);
  assert_string_equal(get_text(f->path),
                      "{\"step\":1}\n{\"step\":2,\"x\":[1,2]}\n{\"step\":2,\"val_loss\":3}\n{\"step\":0}\n"
                      "{\"step\":3,\"tokens\":4}\n");
  assert_true(metrics_open(&metrics, f->path, -1, &f->error)); /* a new run: nothing stays */
  metrics_close(&metrics);
  assert_string_equal(get_text(f->path), "");
  assert_true(metrics_open(&metrics, f->path, 5, &f->error)); /* an empty file */
  metrics_close(&metrics);
  unlink(f->path);
  assert_true(metrics_open(&metrics, f->path, 5, &f->error)); /* none at all */
  metrics_close(&metrics);
  assert_string_equal(get_text(f->path), "");
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
  assert_false(metrics_append(&metrics, 1, 0, NULL, 0, &full));
  assert_int_equal(full.code, EXIT_OUTPUT);
  assert_non_null(strstr(full.text, "/dev/full: No space"));
  metrics_close(&metrics);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_SCRATCH(metrics_lines),
      WITH_SCRATCH(metrics_are_cut),
      WITH_SCRATCH(metrics_failures),
  };
  return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
