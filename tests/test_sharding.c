/* Which of several processes updates what: everything once, in its own room. */
#include "model.h"
#include "model/parameters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ModelConfig decoder = {.vocab = 257,
                                    .source_vocab = 257,
                                    .ctx = 16,
                                    .layers = 3,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .dim = 40,
                                    .head_dim = 10,
                                    .ffn = 104,
                                    .gated = true,
                                    .tie = true,
                                    .rope_base = 1e4f,
                                    .norm_eps = 1e-5f};
static const ModelConfig encoder = {.vocab = 99,
                                    .source_vocab = 55,
                                    .ctx = 16,
                                    .layers = 2,
                                    .encoder_layers = 3,
                                    .heads = 2,
                                    .kv_heads = 2,
                                    .dim = 24,
                                    .head_dim = 12,
                                    .ffn = 96,
                                    .norm = NORM_LAYER,
                                    .norm_place = NORM_AFTER,
                                    .positions = POSITIONS_LEARNED,
                                    .activation = ACTIVATION_RELU,
                                    .bias = true,
                                    .qkv_bias = true,
                                    .head_bias = true,
                                    .norm_eps = 1e-5f};

/* Kernels, and norms of heads. */
static ModelConfig convolutions(void) {
  ModelConfig c = decoder;
  c.layers = 5, c.qk_norm = true, c.tie = false;
  strcpy(c.mixers, "CCA");
  return c;
}

/* Marks [at, at + count), which must not be marked. */
static void mark(unsigned char *marks, size_t size, size_t at, size_t count) {
  assert_true(at + count <= size);
  for (size_t i = at; i < at + count; i++) {
    assert_int_equal(marks[i], 0);
    marks[i] = 1;
  }
}

/* Owned elements and what updates them; moments do not overlap. */
static void expect_own(const ParameterTable *t, int rank) {
  unsigned char *updated = calloc(t->arena, 1), *m = calloc(t->m_kept + 1, 1), *v = calloc(t->v_kept + 1, 1);
  for (int i = 0; i < t->run_count; i++) {
    const AdamwRun *run = &t->runs[i];
    const ParameterGroup *group = &t->groups[run->group];
    assert_int_equal(group->rule, UPDATE_ADAMW);
    assert_true(run->first + run->count <= (size_t)group->matrix.rows * (size_t)group->matrix.cols);
    assert_true(run->first % TENSOR_ALIGNMENT == 0 && run->m_offset % TENSOR_ALIGNMENT == 0);
    mark(updated, t->arena, group->matrix.offset + run->first, run->count);
    mark(m, t->m_kept, run->m_offset, run->count);
    mark(v, t->v_kept, run->v_offset, run->count);
  }
  for (int i = 0; i < t->own_count; i++) {
    const size_t size = (size_t)t->own[i].rows * (size_t)t->own[i].cols;
    mark(updated, t->arena, t->own[i].offset, size);
    mark(m, t->m_kept, t->own[i].m_offset, size);
  }
  for (int i = 0; i < t->spans.count; i++) {
    const Span *s = &t->spans.items[i];
    for (size_t k = s->offset; k < s->offset + s->count; k++)
      updated[k] = (unsigned char)(updated[k] ^ (s->owner == rank));
  }
  for (int i = 0; i < t->count; i++) { /* of what is no pad: updated here and owned here, or neither */
    const ParameterTensor *tensor = &t->tensors[i];
    const size_t size = (size_t)tensor->rows * (size_t)tensor->cols;
    for (size_t k = 0; k < size; k++) assert_int_equal(updated[tensor->offset + k], 0);
  }
  free(updated);
  free(m);
  free(v);
}

static void expect_spans(const ParameterTable *t, int ranks) {
  unsigned char *marks = calloc(t->arena, 1), *second = calloc(t->v_arena + 1, 1);
  for (int i = 0; i < t->spans.count; i++) {
    assert_true(t->spans.items[i].owner >= 0 && t->spans.items[i].owner < ranks);
    mark(marks, t->arena, t->spans.items[i].offset, t->spans.items[i].count);
  }
  for (int i = 0; i < t->v_spans.count; i++)
    mark(second, t->v_arena, t->v_spans.items[i].offset, t->v_spans.items[i].count);
  for (int i = 0; i < t->count; i++) {
    const ParameterTensor *tensor = &t->tensors[i];
    const size_t size = (size_t)tensor->rows * (size_t)tensor->cols;
    for (size_t k = 0; k < size; k++) {
      assert_int_equal(marks[tensor->offset + k], 1);
      if (tensor->v_offset >= 0) assert_int_equal(second[(size_t)tensor->v_offset + k], 1);
    }
  }
  assert_int_equal(t->bucket_ends[t->bucket_count - 1], t->spans.count);
  free(marks);
  free(second);
}

static void expect_shares(const ModelConfig *config, OptimizerKind optimizer, int ranks) {
  ParameterTable first = {0}, table = {0};
  size_t kept = 0, most = 0;
  for (int rank = 0; rank < ranks; rank++) {
    ParameterTable *t = rank ? &table : &first;
    assert_true(parameter_table_make(t, config, NULL));
    parameter_table_set_optimizer(t, optimizer);
    assert_true(parameter_table_partition(t, &(Sharding){rank, ranks, true}, NULL));
    assert_int_equal(t->bucket_count, config->layers + config->encoder_layers + 1);
    expect_spans(t, ranks);
    expect_own(t, rank);
    assert_int_equal(t->spans.count, first.spans.count);
    for (int i = 0; i < t->spans.count; i++) {
      const Span *a = &t->spans.items[i], *b = &first.spans.items[i];
      assert_true(a->offset == b->offset && a->count == b->count && a->owner == b->owner && a->own == b->own);
    }
    kept += t->m_kept + t->v_kept;
    most = t->m_kept + t->v_kept > most ? t->m_kept + t->v_kept : most;
    if (rank) parameter_table_free(t);
  }
  /* all of it once, and nobody much more than his part: of Muon a matrix, of each bucket a block */
  size_t matrix = 0;
  for (int i = 0; i < first.muon_count; i++) {
    const size_t size = (size_t)first.matrices[i].rows * (size_t)first.matrices[i].cols;
    matrix = size > matrix ? size : matrix;
  }
  const size_t slack = (size_t)first.spans.count * TENSOR_ALIGNMENT * 2;
  assert_true(kept <= first.arena + first.v_arena + slack);
  assert_true(most <= (first.arena + first.v_arena) / (size_t)ranks + matrix * 2 + slack);
  parameter_table_free(&first);
}

static void test_shares(void **state) {
  (void)state;
  const ModelConfig mixed = convolutions();
  for (int ranks = 2; ranks <= 9; ranks++) {
    expect_shares(&decoder, OPTIMIZER_ADAMW, ranks);
    expect_shares(&decoder, OPTIMIZER_MUON, ranks);
    expect_shares(&mixed, OPTIMIZER_ADAMW, ranks);
    expect_shares(&mixed, OPTIMIZER_MUON, ranks);
    expect_shares(&encoder, OPTIMIZER_ADAMW, ranks);
    expect_shares(&encoder, OPTIMIZER_MUON, ranks);
  }
}

/* More processes than blocks or matrices: some have little to do, or nothing. */
static void test_more_than_there_is(void **state) {
  (void)state;
  const ModelConfig mixed = convolutions();
  expect_shares(&encoder, OPTIMIZER_MUON, 200);
  expect_shares(&decoder, OPTIMIZER_ADAMW, 1000);
  expect_shares(&mixed, OPTIMIZER_MUON, 300);
}

static void test_whole(void **state) {
  const Sharding whole[] = {{0, 1, true}, {1, 2, false}};
  (void)state;
  for (int i = 0; i < 2; i++) {
    ParameterTable t;
    assert_true(parameter_table_make(&t, &encoder, NULL));
    parameter_table_set_optimizer(&t, OPTIMIZER_MUON);
    assert_true(parameter_table_partition(&t, &whole[i], NULL));
    assert_int_equal(t.m_kept, t.arena);
    assert_int_equal(t.v_kept, t.v_arena);
    assert_int_equal(t.own_count, t.muon_count);
    assert_int_equal(t.spans.count > 0, whole[i].ranks > 1);
    parameter_table_free(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares), cmocka_unit_test(test_more_than_there_is),
                                     cmocka_unit_test(test_whole)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
