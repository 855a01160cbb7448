/* Training steps of the whole model: ten of them against float64 PyTorch, resuming, halting, schedules. */
#include "tests/model_helpers.h"
#include "model/parameters.h"
#include "base/system.h"

#include <math.h>

/* ---- steps ---- */

static StepReport one_report(Model *m) {
  StepReport report;
  Error error = {0};
  int taken = model_reports(m, &report, 1, true, &error);
  if (taken != 1) fail_msg("%d reports: %s", taken, error.text);
  return report;
}

/* Two micro-batches a step, clipping that bites in some steps and not in others, decay, warm-up and cosine. */
static void ten_steps_case(Fixture *f, Setup s) {
  Model *m = model_start(f, &s);
  const double *losses = golden_values(f, s.golden, -1, "losses", NULL),
               *norms = golden_values(f, s.golden, -1, "grad_norms", NULL);
  const double *rates = golden_values(f, s.golden, -1, "lr", NULL);
  int step_tokens = s.train.micro_batches * s.train.batch * s.config.ctx, clipped = 0;
  int64_t first = 0, last = 0, start = clock_nanoseconds();
  for (int t = 0; t < s.steps; t++) {
    model_train_step(m, &(TokenBatch){.tokens = s.tokens + t * step_tokens, .targets = s.targets + t * step_tokens});
    const StepReport timed = one_report(m);
    const StepState report = timed.state;
    assert_true(last <= timed.began && timed.began < timed.ended);
    if (t == 0) first = timed.began;
    last = timed.ended;
    double loss = (double)report.loss, norm = (double)report.grad_norm, rate = (double)report.lr;
    expect_close(f, "loss", &loss, &losses[t], 1, whole_model(f, 1e-5));
    expect_close(f, "grad_norm", &norm, &norms[t], 1, whole_model(f, 1e-4));
    expect_close_floor(f, "lr", &rate, &rates[t], 1, 1e-6, 0);
    assert_int_equal(report.step, t + 1);
    assert_int_equal(report.halted, 0);
    clipped += norm > (double)s.train.clip;
  }
  const double on_device = (double)(last - first), elapsed = (double)(clock_nanoseconds() - start);
  if (on_device < elapsed / 100 || on_device > elapsed * 1.001 + 1e6) fail_msg("%g ns of %g", on_device, elapsed);
  assert_true(clipped > 0 && clipped < s.steps);
  expect_tensors(f, m, arena_read(f, m, ARENA_MASTER), s.golden, "final", 1e-4);
  model_close(m);
}

static void test_ten_steps(void **state) {
  Fixture *f = *state;
  ten_steps_case(f, setup_read(f, false));
  ten_steps_case(f, setup_read(f, true));
  ten_steps_case(f, setup_read_muon(f));
}

/* Steps after `from`, from what is in the arenas or from the beginning. `changed`, unless NULL, is the schedule from
 * the middle of them on. */
static float *train_changed(Fixture *f, Setup s, int from, int steps, const float *arenas[3], const Schedule *changed) {
  s.train.dropout = (DropoutRates){0.1f, 0.1f, 0.1f, 0};
  Model *m = model_start(f, &s);
  int step_tokens = s.train.micro_batches * s.train.batch * s.config.ctx;
  float *out = host_memory(f, 3 * model_table(m)->arena * sizeof *out);
  for (int i = 0; i < 3 && arenas; i++)
    model_upload(m, (ArenaKind[]){ARENA_MASTER, ARENA_MOMENT1, ARENA_MOMENT2}[i], arenas[i]);
  Error error = {0};
  model_set_step(m, from);
  for (int t = from; t < from + steps; t++) {
    if (changed && t == from + steps / 2) need(model_set_schedule(m, changed, &error), &error);
    model_train_step(m, &(TokenBatch){.tokens = s.tokens + t * step_tokens, .targets = s.targets + t * step_tokens});
    assert_int_equal(one_report(m).state.step, t + 1);
  }
  need(model_download(m, ARENA_MASTER, out, &error), &error);
  need(model_download(m, ARENA_MOMENT1, out + model_table(m)->arena, &error), &error);
  need(model_download(m, ARENA_MOMENT2, out + 2 * model_table(m)->arena, &error), &error);
  model_close(m);
  return out;
}

static float *train_some(Fixture *f, Setup s, int from, int steps, const float *arenas[3]) {
  return train_changed(f, s, from, steps, arenas, NULL);
}

/* The same bits a second time, and when training goes on in a new model from masters, moments and the step number. */
static void resume_case(Fixture *f, Setup s) {
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, &s.config, &error), &error);
  size_t arena = table.arena, bytes = 3 * arena * sizeof(float);
  parameter_table_free(&table);
  float *whole = train_some(f, s, 0, 6, NULL), *again = train_some(f, s, 0, 6, NULL),
        *half = train_some(f, s, 0, 2, NULL);
  assert_memory_equal(again, whole, bytes);
  assert_memory_not_equal(half, whole, bytes);
  float *resumed = train_some(f, s, 2, 4, (const float *[]){half, half + arena, half + 2 * arena});
  assert_memory_equal(resumed, whole, bytes);
}

static void test_same_bits_and_resume(void **state) {
  Fixture *f = *state;
  resume_case(f, setup_read(f, false));
  resume_case(f, setup_read_muon(f));
}

/* A length that changes after three steps, and the same known from the beginning. */
static void test_changed_length(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false), known = s;
  ParameterTable table;
  Error error = {0};
  need(parameter_table_make(&table, &s.config, &error), &error);
  const size_t bytes = 3 * table.arena * sizeof(float);
  parameter_table_free(&table);
  s.train.schedule.warmup = known.train.schedule.warmup = 1;
  known.train.schedule.steps = 7; /* instead of 10 */
  known.train.schedule.plans = (SchedulePlans){1, {{3, s.steps}}};
  float *as_changed = train_changed(f, s, 0, 6, NULL, &known.train.schedule),
        *as_known = train_some(f, known, 0, 6, NULL);
  assert_memory_equal(as_changed, as_known, bytes);
  assert_memory_not_equal(as_known, train_some(f, s, 0, 6, NULL), bytes);
}

/* A weight that is not a number: reported, sticky, and no master moves. */
static void test_halts(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, false);
  Model *m = model_start(f, &s);
  size_t bytes = model_table(m)->arena * sizeof(float);
  float *weights = arena_read(f, m, ARENA_MASTER);
  float *poisoned = arena_read(f, m, ARENA_MASTER);
  poisoned[model_table(m)->decoder.sublayers[3].out.weight.offset] = NAN;
  model_upload(m, ARENA_MASTER, poisoned);
  model_train_step(m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets});
  StepState report = one_report(m).state;
  assert_true(report.halted != 0);
  assert_int_equal(report.step, 0);
  assert_memory_equal(arena_read(f, m, ARENA_MASTER), poisoned, bytes);
  model_upload(m, ARENA_MASTER, weights); /* healthy again, but nobody has read the report and started over */
  model_train_step(m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets});
  report = one_report(m).state;
  assert_true(report.halted != 0);
  assert_int_equal(report.step, 0);
  assert_memory_equal(arena_read(f, m, ARENA_MASTER), weights, bytes);
  model_close(m);
}

/* No target at all: loss 0, no gradient, and only the decay moves anything. */
static void test_no_targets(void **state) {
  Fixture *f = *state;
  Setup s = setup_read(f, true);
  Model *m = model_start(f, &s);
  for (int i = 0; i < s.train.micro_batches * s.train.batch * s.config.ctx; i++) s.targets[i] = IGNORE_INDEX;
  float *grad;
  assert_true(gradients(f, m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets}, &grad) == 0);
  for (size_t i = 0; i < model_table(m)->arena; i++) assert_true(grad[i] == 0);
  model_train_step(m, &(TokenBatch){.tokens = s.tokens, .targets = s.targets});
  StepState report = one_report(m).state;
  assert_int_equal(report.halted, 0);
  assert_true(report.loss == 0 && report.grad_norm == 0);
  assert_int_equal(report.step, 1);
  model_close(m);
}

/* ---- schedules ---- */

static void test_schedules(void **state) {
  (void)state;
  Schedule s = {.kind = SCHEDULE_COSINE, .lr = 0.5f, .min_lr_fraction = 0.1f, .warmup = 4, .steps = 20};
  const ScheduleKind falling[] = {SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD};
  for (int i = 0; i < 3; i++) {
    s.kind = falling[i];
    assert_true(schedule_lr(&s, 1) == 0.125f);
    assert_true(schedule_lr(&s, 4) == 0.5f);
    assert_true(schedule_lr(&s, 20) == 0.5f * 0.1f);
    assert_true(schedule_lr(&s, 1000) == 0.5f * 0.1f);
    for (int64_t t = 5; t <= 20; t++) assert_true(schedule_lr(&s, t) <= schedule_lr(&s, t - 1));
  }
  s.kind = SCHEDULE_COSINE; /* half way: half way between lr and its end */
  assert_true(fabsf(schedule_lr(&s, 12) - 0.275f) < 1e-6f);
  s.kind = SCHEDULE_LINEAR; /* a quarter of the way */
  assert_true(fabsf(schedule_lr(&s, 8) - 0.3875f) < 1e-6f);
  s.kind = SCHEDULE_WSD;
  assert_true(schedule_lr(&s, 16) == 0.5f && schedule_lr(&s, 17) < 0.5f);
  s.kind = SCHEDULE_CONSTANT;
  assert_true(schedule_lr(&s, 2) == 0.25f && schedule_lr(&s, 20) == 0.5f && schedule_lr(&s, 1000) == 0.5f);
  s.warmup = 0;
  assert_true(schedule_lr(&s, 1) == 0.5f);
}

/* What is left of a schedule is pressed or stretched to what is left of the run: what a run without changes does at the
 * same share of the way. */
static void test_changed_schedules(void **state) {
  (void)state;
  const ScheduleKind kinds[] = {SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD, SCHEDULE_CONSTANT};
  for (int i = 0; i < 4; i++) {
    const Schedule whole = {.kind = kinds[i], .lr = 0.5f, .min_lr_fraction = 0.1f, .warmup = 10, .steps = 100};
    Schedule half = whole, twice = whole, both = whole;
    half.plans = (SchedulePlans){1, {{20, 100}}};
    half.steps = 60; /* 80 steps are 40 now */
    twice.plans = (SchedulePlans){1, {{6, 100}}};
    twice.steps = 194; /* in the warm-up; 94 steps are 188 */
    both.plans = (SchedulePlans){2, {{20, 100}, {40, 60}}};
    both.steps = 80; /* and its last 20 are 40 again */
    for (int64_t t = 1; t <= 20; t++) assert_true(schedule_lr(&half, t) == schedule_lr(&whole, t));
    for (int64_t t = 20; t <= 60; t++) assert_true(schedule_lr(&half, t) == schedule_lr(&whole, 20 + 2 * (t - 20)));
    for (int64_t t = 6; t <= 194; t += 2) assert_true(schedule_lr(&twice, t) == schedule_lr(&whole, 6 + (t - 6) / 2));
    for (int64_t t = 1; t <= 40; t++) assert_true(schedule_lr(&both, t) == schedule_lr(&half, t));
    for (int64_t t = 40; t <= 80; t += 2) assert_true(schedule_lr(&both, t) == schedule_lr(&half, 40 + (t - 40) / 2));
    assert_true(schedule_lr(&both, 80) == schedule_lr(&whole, 100) &&
                schedule_lr(&both, 90) == schedule_lr(&whole, 100));
  }
  const SchedulePlans plans = {2, {{20, 100}, {40, 60}}};
  assert_int_equal(schedule_steps(&plans, 80, 19), 100);
  assert_int_equal(schedule_steps(&plans, 80, 20), 60);
  assert_int_equal(schedule_steps(&plans, 80, 39), 60);
  assert_int_equal(schedule_steps(&plans, 80, 40), 80);
}

/* On a GPU: everything that is allocated by the end of a training step, the backend's own blocks too, is in the plan. */
static void memory_case(Fixture *f, int dim, OptimizerKind optimizer) {
  enum { VOCAB = 64, CTX = 16, BATCH = 2, SLACK = 256 << 10 /* tokens, rates, lists, states */ };
  const ModelConfig config = {.vocab = VOCAB,
                              .ctx = CTX,
                              .layers = 2,
                              .heads = 2,
                              .kv_heads = 2,
                              .dim = dim,
                              .head_dim = dim / 2,
                              .ffn = 3 * dim,
                              .rope_base = 1e4f,
                              .norm_eps = 1e-5f,
                              .gated = true};
  const TrainConfig train = {.batch = BATCH,
                             .micro_batches = 1,
                             .optimizer = optimizer,
                             .clip = 1,
                             .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 1e-3f, .steps = 9},
                             .adamw = {0.9f, 0.99f, 1e-8f, 0},
                             .muon = {1, 0.9f, 0}};
  const int32_t tokens[BATCH * CTX] = {1, 2, 3};
  Model *m = NULL;
  Error error = {0};
  Context *own = NULL;
  ContextInfo before, after;
  need(f->backend->open(&own, &(ContextOptions){.dtype = f->dtype}, &error), &error);
  f->backend->info(own, &before);
  const MemoryPlan plan = model_memory(&config, &train, &before);
  need(model_open(&m, f->backend, own, &config, &error) && model_train_begin(m, &train, &error), &error);
  for (int t = 0; t < 2; t++) model_train_step(m, &(TokenBatch){.tokens = tokens, .targets = tokens});
  one_report(m);
  model_close(m);
  f->backend->info(own, &after);
  f->backend->close(own);
  const double used = (double)(after.peak_bytes - before.bytes), planned = (double)plan.total;
  if (used > planned + SLACK || planned > used + SLACK)
    fail_msg("dim %d, optimizer %d: %.0f bytes were planned, %.0f used", dim, (int)optimizer, planned, used);
}

static void test_memory_plan(void **state) {
  Fixture *f = *state;
  ContextInfo info;
  f->backend->info(f->context, &info);
  if (!info.accelerator) return;
  memory_case(f, 32, OPTIMIZER_ADAMW);
  memory_case(f, 192, OPTIMIZER_MUON);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schedules),
      cmocka_unit_test(test_changed_schedules),
      cmocka_unit_test(test_changed_length),
      cmocka_unit_test(test_ten_steps),
      cmocka_unit_test(test_same_bits_and_resume),
      cmocka_unit_test(test_halts),
      cmocka_unit_test(test_no_targets),
      cmocka_unit_test(test_memory_plan),
  };
  return run_on_backends("model: training", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
