#include "tests/model_helpers.h"
#include "model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static Setup setup_from(Fixture *f, const char *golden, bool tie) {
  Setup s = {.golden = golden_open(f, golden), .start = golden_open(f, "model")};
  const int32_t *d = golden_ints(f, s.golden, -1, "dims");
  const double *a = golden_values(f, s.golden, -1, "adamw", NULL);
  s.config = (ModelConfig){.vocab = d[0],
                           .ctx = d[1],
                           .layers = d[2],
                           .heads = d[3],
                           .kv_heads = d[4],
                           .dim = d[5],
                           .head_dim = d[6],
                           .ffn = d[7],
                           .tie = tie,
                           .rope_base = 10000,
                           .norm_eps = 1e-5f,
                           .gated = true};
  s.steps = d[10];
  s.train = (TrainConfig){
      .batch = d[8], .micro_batches = d[11], .clip = (float)a[4], .label_smoothing = (float)a[5], .seed = 5};
  s.train.adamw = (AdamW){.beta1 = (float)a[0], .beta2 = (float)a[1], .eps = (float)a[2], .weight_decay = (float)a[3]};
  s.train.schedule =
      (Schedule){.kind = SCHEDULE_COSINE, .lr = 0.02f, .min_lr_fraction = 0.1f, .warmup = 3, .steps = s.steps};
  s.tokens = golden_ints(f, s.start, -1, "tokens");
  s.targets = golden_ints(f, s.start, -1, "targets");
  assert_int_equal(d[9], s.config.ctx);
  return s;
}

Setup setup_read(Fixture *f, bool tie) { return setup_from(f, tie ? "model_tied" : "model", tie); }

Setup setup_read_muon(Fixture *f) {
  Setup s = setup_from(f, "model_muon", false);
  const double *muon = golden_values(f, s.golden, -1, "muon", NULL);
  s.train.optimizer = OPTIMIZER_MUON;
  s.train.muon = (Muon){.lr_factor = (float)muon[0], .momentum = (float)muon[1], .weight_decay = (float)muon[2]};
  return s;
}

double *named_values(Fixture *f, const Golden *g, const char *kind, const ParameterTensor *tensor) {
  char name[128];
  size_t count;
  snprintf(name, sizeof name, "%s.%s", kind, tensor->name);
  double *values = golden_values(f, g, -1, name, &count);
  assert_int_equal(count, (size_t)tensor->rows * (size_t)tensor->cols);
  return values;
}

size_t tensor_count(const ParameterTensor *t) { return (size_t)t->rows * (size_t)t->cols; }

double *widen(Fixture *f, const float *values, size_t count) {
  double *wide = host_values(f, count);
  for (size_t i = 0; i < count; i++) wide[i] = (double)values[i];
  return wide;
}

float *arena_new(Fixture *f, const Model *m) { return host_memory(f, model_table(m)->arena * sizeof(float)); }

void need(bool done, const Error *error) {
  if (!done) fail_msg("%s", error->text);
}

float *arena_read(Fixture *f, Model *m, ArenaKind which) {
  float *arena = arena_new(f, m);
  Error error = {0};
  need(model_download(m, which, arena, &error), &error);
  return arena;
}

Model *model_start(Fixture *f, const Setup *s) {
  Model *m = NULL;
  Error error = {0};
  need(model_open(&m, f->backend, f->context, &s->config, &error), &error);
  need(model_train_begin(m, &s->train, &error), &error);
  const ParameterTable *table = model_table(m);
  float *arena = arena_new(f, m);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    const double *values = named_values(f, s->start, "weights", t);
    for (size_t j = 0; j < tensor_count(t); j++) arena[t->offset + j] = (float)values[j];
  }
  model_upload(m, ARENA_MASTER, arena);
  return m;
}

double whole_model(const Fixture *f, double tolerance) { return f->dtype == DTYPE_BF16 ? 4e-2 : tolerance; }

double gradients(Fixture *f, Model *m, const TokenBatch *batch, float **out) {
  double loss = (double)NAN;
  Error error = {0};
  need(model_gradients(m, batch, &loss, &error), &error);
  *out = arena_read(f, m, ARENA_GRADIENT);
  return loss;
}

void expect_tensors(Fixture *f, const Model *m, const float *arena, const Golden *g, const char *kind,
                    double tolerance) {
  const ParameterTable *table = model_table(m);
  float *rest = arena_new(f, m);
  memcpy(rest, arena, table->arena * sizeof *rest);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    expect_close(f, t->name, widen(f, arena + t->offset, tensor_count(t)), named_values(f, g, kind, t), tensor_count(t),
                 whole_model(f, tolerance));
    memset(rest + t->offset, 0, tensor_count(t) * sizeof *rest);
  }
  for (size_t i = 0; i < table->arena; i++)
    if (rest[i] != 0) fail_msg("element %zu of the arena belongs to no tensor and is %g", i, (double)rest[i]);
}

static double loss_at(Fixture *f, Model *m, const TokenBatch *batch, const float *weights) {
  float *ignored;
  model_upload(m, ARENA_MASTER, weights);
  return gradients(f, m, batch, &ignored);
}

void expect_slopes(Fixture *f, Model *m, const TokenBatch *batch, const float *grad) {
  const double h = 0.005;
  const ParameterTable *table = model_table(m);
  float *weights = arena_read(f, m, ARENA_MASTER), *moved = arena_new(f, m);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    double norm = 0, sides[2] = {0};
    for (size_t j = 0; j < tensor_count(t); j++) norm += (double)grad[t->offset + j] * (double)grad[t->offset + j];
    norm = sqrt(norm);
    for (int side = 0; side < 2 && norm > 1e-6; side++) { /* of keys' biases it is 0 */
      memcpy(moved, weights, table->arena * sizeof *moved);
      for (size_t j = t->offset; j < t->offset + tensor_count(t); j++)
        moved[j] += (float)((side ? h : -h) * (double)grad[j] / norm);
      sides[side] = loss_at(f, m, batch, moved);
    }
    double slope = (sides[1] - sides[0]) / (2 * h);
    if (!(fabs(slope - norm) < 2e-3 * norm + 1e-4))
      fail_msg("%s: the loss rises by %g, the gradient says %g", t->name, slope, norm);
  }
}

/* Of a table that AdamW updates: second moments lie as everything else. */
static void expect_adamw(const ParameterTable *table) {
  assert_int_equal(table->muon_count, 0);
  assert_int_equal(table->v_arena, table->arena);
  for (int i = 0; i < table->count; i++) assert_int_equal(table->tensors[i].v_offset, table->tensors[i].offset);
  for (int i = 0; i < table->group_count; i++) assert_int_equal(table->groups[i].rule, UPDATE_ADAMW);
}

/* Groups of Muon hold its matrices and no more; those of AdamW have second moments, one after the other, in which
 * tensors lie as in the group. */
static void expect_muon_groups(const ParameterTable *table) {
  size_t room = 0;
  int matrix = 0, tensor = 0;
  for (int i = 0; i < table->group_count; i++) {
    const ParameterGroup *group = &table->groups[i];
    size_t end = group->matrix.offset;
    const size_t count = (size_t)group->matrix.rows * (size_t)group->matrix.cols;
    for (; matrix < table->muon_count && table->matrices[matrix].group == i; matrix++) {
      assert_int_equal(table->matrices[matrix].offset, end);
      assert_int_equal(table->matrices[matrix].cols, group->matrix.cols);
      end += (size_t)table->matrices[matrix].rows * (size_t)table->matrices[matrix].cols;
    }
    if (end > group->matrix.offset) {
      assert_int_equal(group->rule, UPDATE_MUON);
      assert_int_equal(end, group->matrix.offset + count);
      for (; tensor < table->count && table->tensors[tensor].offset < end; tensor++)
        assert_int_equal(table->tensors[tensor].v_offset, -1);
      continue;
    }
    assert_int_equal(group->rule, UPDATE_ADAMW);
    for (; tensor < table->count && table->tensors[tensor].offset < end + count; tensor++)
      assert_int_equal(table->tensors[tensor].v_offset, room + table->tensors[tensor].offset - end);
    room += (count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
  }
  assert_int_equal(matrix, table->muon_count);
  assert_int_equal(tensor, table->count);
  assert_int_equal(table->v_arena, room);
}

void expect_optimizers(ParameterTable *table, const ModelConfig *c) {
  const int part = 4, mlp = c->gated ? 3 : 2; /* matrices: queries, keys, values, output */
  int matrix = 0;
  expect_adamw(table);
  parameter_table_set_optimizer(table, OPTIMIZER_MUON);
  assert_int_equal(table->muon_count,
                   c->layers * (part + (c->encoder_layers ? part : 0) + mlp) + c->encoder_layers * (part + mlp));
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    const bool found = matrix < table->muon_count && table->matrices[matrix].offset == t->offset;
    if (found != (strstr(t->name, ".layers.") && strstr(t->name, "_proj.weight"))) fail_msg("the rule of %s", t->name);
    if (!found) continue;
    assert_int_equal(table->matrices[matrix].rows, t->rows);
    assert_int_equal(table->matrices[matrix].cols, t->cols);
    matrix++;
  }
  assert_int_equal(matrix, table->muon_count);
  expect_muon_groups(table);
  parameter_table_set_optimizer(table, OPTIMIZER_ADAMW);
  expect_adamw(table);
}
