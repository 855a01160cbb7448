/* A context apart from operations: memory, uploads of any size, captured graphs, reports, tuning. On every backend. */
#include "tests/backends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static void test_memory(void **state) {
  Fixture *f = *state;
  OPS(f);
  ContextInfo before, during, after;
  unsigned char host[1000], copied[1000], zeros[1000] = {0};
  ops->info(c, &before);
  unsigned char *a = ops->alloc(c, "first", sizeof host), *b = ops->alloc(c, "second", sizeof host);
  assert_non_null(a);
  assert_non_null(b);
  assert_int_equal((uintptr_t)a % 256, 0);
  assert_int_equal((uintptr_t)b % 256, 0);
  ops->info(c, &during);
  assert_true(during.bytes >= before.bytes + 2 * sizeof host);
  assert_true(during.peak_bytes >= during.bytes);
  ops->download(c, copied, b, sizeof copied);
  assert_memory_equal(copied, zeros, sizeof zeros);
  for (size_t i = 0; i < sizeof host; i++) host[i] = (unsigned char)(i * 7);
  ops->upload(c, a, host, sizeof host);
  memset(host, 0, sizeof host); /* the upload has its own copy by now */
  ops->copy(c, b, a, sizeof host);
  ops->download(c, copied, b, sizeof copied);
  for (size_t i = 0; i < sizeof host; i++) assert_int_equal(copied[i], (unsigned char)(i * 7));
  ops->release(c, a);
  ops->release(c, b);
  ops->release(c, NULL);
  ops->info(c, &after);
  assert_int_equal(after.bytes, before.bytes);
  assert_true(after.peak_bytes >= during.bytes);
  assert_true(strlen(after.device) > 0);
  ops->close(NULL);
}

static void test_out_of_memory(void **state) {
  Fixture *f = *state;
  OPS(f);
  Error error = {0};
  StepReport reports[1];
  const double one = 1;
  Array in = array_compute(f, &one, 1), out = array_compute(f, &one, 1);
  f->expect_error = true;
  assert_null(ops->alloc(c, "the enormous tensor", (size_t)1 << 60));
  ops->alloc(c, "a later one", (size_t)1 << 59); /* the first error stays */
  ops->activation(c, out.data, in.data, &(MlpShape){.gated = true}, 0, 0, NULL);
  assert_int_equal(ops->poll(c, reports, 1, true, &error), -1);
  assert_int_equal(error.code, EXIT_MEMORY);
  assert_non_null(strstr(error.text, "the enormous tensor"));
  error = (Error){0};
  assert_int_equal(ops->poll(c, reports, 1, true, &error), -1); /* sticky */
}

/* Unsupported rows are an error that names the operation; nothing is written. */
static void refused(Fixture *f, int ffn, int shift) {
  Fixture own = {.backend = f->backend, .dtype = f->dtype, .test = f->test, .expect_error = true};
  const ContextOptions options = {.dtype = f->dtype};
  Error error = {0};
  StepReport report;
  double *values = random_values(f, 1, 64);
  if (!f->backend->open(&own.context, &options, &error)) fail_msg("%s", error.text);
  Array in = array_compute(&own, values, 64), out = array_compute(&own, values, 64);
  const MlpShape mlp = {ACTIVATION_SILU, true, ffn};
  f->backend->activation(own.context, array_at(&own, &out, shift), in.data, &mlp, 1, 1, NULL);
  assert_int_equal(f->backend->poll(own.context, &report, 1, true, &error), -1);
  assert_int_equal(error.code, EXIT_INTERNAL);
  assert_non_null(strstr(error.text, "activation"));
  fixture_free(&own);
}

static void test_alignment(void **state) {
  Fixture *f = *state;
  if (fitting_width(f, 1) == 1) return; /* all rows are supported */
  refused(f, 12, 0);
  refused(f, 8, 1);
}

/* ---- uploads ---- */

static unsigned char pattern(size_t i, unsigned seed) { return (unsigned char)((i * 2654435761u + seed) >> 13); }

static void upload_pattern(Fixture *f, unsigned char *device, size_t bytes, unsigned seed) {
  unsigned char *host = malloc(bytes);
  assert_non_null(host);
  for (size_t i = 0; i < bytes; i++) host[i] = pattern(i, seed);
  f->backend->upload(f->context, device, host, bytes);
  memset(host, 0xEE, bytes); /* it has been copied */
  free(host);
}

static void expect_pattern(Fixture *f, const unsigned char *device, size_t bytes, unsigned seed) {
  unsigned char *host = malloc(bytes);
  assert_non_null(host);
  f->backend->download(f->context, host, device, bytes);
  for (size_t i = 0; i < bytes; i++)
    if (host[i] != pattern(i, seed)) fail_msg("byte %zu of %zu is %d, not %d", i, bytes, host[i], pattern(i, seed));
  free(host);
}

/* More than any staging buffer holds, in one upload and in many. */
static void test_uploads(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { LARGE = (21 << 20) + 13, SMALL = 70001, COUNT = 300 };
  unsigned char *large = ops->alloc(c, "large", LARGE), *small = ops->alloc(c, "small", (size_t)SMALL * COUNT);
  upload_pattern(f, large, LARGE, 1);
  for (unsigned i = 0; i < COUNT; i++) upload_pattern(f, small + (size_t)SMALL * i, SMALL, i);
  expect_pattern(f, large, LARGE, 1);
  for (unsigned i = 0; i < COUNT; i++) expect_pattern(f, small + (size_t)SMALL * i, SMALL, i);
  ops->upload(c, large, "", 0);
  ops->download(c, NULL, large, 0);
  ops->release(c, large);
  ops->release(c, small);
}

/* ---- captured graphs ---- */

enum { N = 24, K = 16, M = 40 };

typedef struct Work {
  const Backend *ops;
  const Parameters *params;
  Array x, y, grad_y;
  StepState *state;
  int rows;
} Work;

/* Counts the step, to detect a replay that does nothing. */
static void work_step(Context *c, void *argument) {
  const Work *w = argument;
  Linear layer = layer_of(w->params->groups[0].matrix);
  w->ops->linear(c, w->y.data, w->x.data, w->params, layer, w->rows);
  w->ops->linear_backward_weight(c, w->params, layer, w->grad_y.data, w->x.data, w->rows, true);
  w->ops->next_micro_batch(c, w->state, 1);
  w->ops->report(c, w->state);
}

static Work work_new(Fixture *f, Parameters *params) {
  ParameterSpec spec = matrix_spec(M, K, 0, random_values(f, 1, (size_t)M * K));
  StepState zero = {0};
  *params = parameters_new(f, &spec, 1);
  return (Work){.ops = f->backend,
                .params = params,
                .x = array_compute(f, random_values(f, 2, (size_t)N * K), (size_t)N * K),
                .y = array_compute(f, NULL, (size_t)N * M),
                .grad_y = array_compute(f, random_values(f, 3, (size_t)N * M), (size_t)N * M),
                .state = state_new(f, &zero),
                .rows = N};
}

/* The first run, the captured run and replays give the same results, with new uploads between them. */
static void test_captured_graphs(void **state) {
  Fixture *f = *state;
  OPS(f);
  Parameters params;
  Work work = work_new(f, &params);
  CapturedGraph *slot = NULL, *other = NULL;
  Error error = {0};
  StepReport reports[REPORT_RING];
  double *expected = NULL, *doubled = random_values(f, 2, (size_t)N * K);
  for (int i = 0; i < 4; i++) {
    if (i == 2) ops->tune(c, NULL, false); /* it is captured once more */
    ops->submit(c, &slot, work_step, &work);
    double *y = array_read(f, &work.y);
    if (i == 0) expected = y;
    else expect_same("a replayed product", y, expected, (size_t)N * M);
    array_write(f, &work.y, host_values(f, (size_t)N * M));
  }
  double *grad = parameters_read(f, &params, ARENA_OF_GRAD, 0);
  ops->submit(c, &other, work_step, &work); /* a second slot has its own graph */
  for (size_t i = 0; i < (size_t)N * K; i++) doubled[i] *= 2;
  array_write(f, &work.x, doubled);
  ops->submit(c, &other, work_step, &work);
  double *y = array_read(f, &work.y);
  assert_non_null(expected);
  for (size_t i = 0; i < (size_t)N * M; i++) expected[i] *= 2;
  expect_close(f, "the product of what was uploaded since", y, expected, (size_t)N * M, 1e-6);
  double *more = parameters_read(f, &params, ARENA_OF_GRAD, 0);
  for (size_t i = 0; i < (size_t)M * K; i++) grad[i] *= 7.0 / 4; /* 4 runs, then 1 and one of twice the size */
  expect_close(f, "gradients added up by replays", more, grad, (size_t)M * K, 1e-5);
  ops->drop(c, &slot);
  ops->drop(c, &slot); /* nothing there */
  ops->drop(c, &other);
  assert_null(slot);
  assert_int_equal(ops->poll(c, reports, REPORT_RING, true, &error), 6);
  assert_int_equal(reports[5].state.sequence, 6);
}

/* ---- reports ---- */

typedef struct ReportStep {
  const Backend *ops;
  StepState *state;
} ReportStep;

static void report_step(Context *c, void *argument) {
  const ReportStep *step = argument;
  step->ops->next_micro_batch(c, step->state, 1);
  step->ops->report(c, step->state);
}

static void test_reports(void **state) {
  Fixture *f = *state;
  OPS(f);
  StepState host = {.step = 77};
  StepReport reports[8];
  Error error = {0};
  ReportStep step = {.ops = ops, .state = state_new(f, &host)};
  CapturedGraph *slot = NULL;
  for (int i = 0; i < 5; i++) ops->submit(c, &slot, report_step, &step); /* may be captured once and replayed */
  ops->drop(c, &slot);
  assert_null(slot);
  int taken = 0;
  for (int got; (got = ops->poll(c, reports + taken, 2, true, &error)) > 0; taken += got) {
    assert_true(got <= 2);
    assert_true(taken + got <= 5);
  }
  assert_int_equal(taken, 5);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(reports[i].state.step, 77);
    assert_int_equal(reports[i].state.sequence, i + 1);
  }
}

/* A reader that falls behind loses the oldest. */
static void test_reports_overflow(void **state) {
  Fixture *f = *state;
  OPS(f);
  Parameters params;
  Work work = work_new(f, &params);
  CapturedGraph *slot = NULL;
  Error error = {0};
  StepReport reports[REPORT_RING + 1];
  work.rows = 1;
  for (int i = 0; i < REPORT_RING + 5; i++) ops->submit(c, &slot, work_step, &work);
  assert_int_equal(ops->poll(c, reports, REPORT_RING + 1, true, &error), REPORT_RING);
  for (int i = 0; i < REPORT_RING; i++) assert_int_equal(reports[i].state.sequence, i + 6);
  assert_int_equal(ops->poll(c, reports, 1, true, &error), 0);
  ops->drop(c, &slot);
}

/* ---- tuning ---- */

/* `text` with `choice` as the last number of every line but the first; malloc. */
static char *with_choices(const char *text, const char *choice) {
  char *out = calloc(2 * strlen(text) + 1, 1), *to = out;
  assert_non_null(out);
  for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
    const char *at = end;
    while (line > text && at > line && at[-1] != ' ') at--;
    to += sprintf(to, "%.*s%s\n", (int)(at - line), line, line > text ? choice : "");
  }
  return out;
}

/* Runs products in a separate context, y [N][M] and after it an accumulated gradient [M][K], and returns the choices
 * that were used. */
enum { PRODUCTS = N * M + M * K };
static char *tuned_products(Fixture *f, const char *choices, bool measure, double *products) {
  Error error = {0};
  Fixture own = {.backend = f->backend, .dtype = f->dtype};
  Parameters params;
  assert_true(f->backend->open(&own.context, &(ContextOptions){.dtype = f->dtype}, &error));
  own.backend->tune(own.context, choices, measure);
  Work work = work_new(&own, &params);
  work_step(own.context, &work);
  memcpy(products, array_read(&own, &work.y), (size_t)N * M * sizeof *products);
  memcpy(products + N * M, parameters_read(&own, &params, ARENA_OF_GRAD, 0), (size_t)M * K * sizeof *products);
  char *text = own.backend->tuning(own.context);
  fixture_free(&own);
  return text;
}

/* Uses `choices`, which is freed, and expects `want` of the choices that were used, with their last numbers as X. */
static void expect_choices(Fixture *f, const char *name, char *choices, bool measure, const char *want,
                           const double *plain) {
  double *products = host_values(f, PRODUCTS);
  char *used = tuned_products(f, choices, measure, products), *shown = with_choices(used, "X");
  expect_close(f, name, products, plain, PRODUCTS, 1e-6);
  if (strcmp(shown, want) != 0) fail_msg("%s: the choices are\n%snot\n%s", name, shown, want);
  free(choices);
  free(used);
  free(shown);
}

/* Choices are kept as text, and a context that receives them makes the same choices again. */
static void test_tuning(void **state) {
  Fixture *f = *state;
  double *plain = host_values(f, PRODUCTS), *tuned = host_values(f, PRODUCTS);
  char *none = tuned_products(f, NULL, false, plain), *text = tuned_products(f, NULL, true, tuned);
  expect_close(f, "tuned products", tuned, plain, PRODUCTS, 1e-6);
  assert_int_equal(!text, !none);
  if (!text) return; /* a backend without choices */
  char *all = with_choices(text, "X"), *again = tuned_products(f, text, false, tuned);
  assert_string_equal(again, text);
  assert_ptr_equal(strchr(none, '\n'), none + strlen(none) - 1); /* the first line alone */
  assert_true(strlen(all) > strlen(none));
  expect_choices(f, "choices of another device", strdup("cublaslt of another world\n1 2 3\n"), true, all, plain);
  expect_choices(f, "the same, nothing is measured", strdup("cublaslt of another world\n1 2 3\n"), false, none, plain);
  expect_choices(f, "choices that do not exist", with_choices(text, "15"), true, all, plain);
  expect_choices(f, "the same, nothing is measured", with_choices(text, "15"), false, none, plain);
  expect_choices(f, "huge choices", with_choices(text, "99999999999999999999"), false, none, plain);
  expect_choices(f, "negative choices", with_choices(text, "-1"), false, none, plain);
  expect_choices(f, "choices that are no numbers", with_choices(text, "x"), true, all, plain);
  expect_choices(f, "lines that are too long", with_choices(text, "0 0"), false, none, plain);
  expect_choices(f, "lines that are too short", with_choices(text, ""), false, none, plain);
  text[strlen(text) / 2] = '\0';
  expect_choices(f, "half of the text", text, true, all, plain);
  free(none);
  free(all);
  free(again);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),           cmocka_unit_test(test_out_of_memory),   cmocka_unit_test(test_alignment),
      cmocka_unit_test(test_uploads),          cmocka_unit_test(test_captured_graphs), cmocka_unit_test(test_reports),
      cmocka_unit_test(test_reports_overflow), cmocka_unit_test(test_tuning),
  };
  return run_on_backends("context", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
