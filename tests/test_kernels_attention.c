/* Rotary positions and attention (kernels.h). As tests/test_kernels.c; shapes without goldens are in
 * tests/test_kernels_attention_shapes.c. */
#include "tests/backends.h"
#include "tests/formulas.h"

#include <math.h>
#include <string.h>

/* ---- rope ---- */

/* `sign` -1 rotates back. */
static Rope rope_of(Fixture *f, int positions, int dim, double base, double sign, const Array *ids) {
  double *table = host_values(f, (size_t)positions * (size_t)dim);
  for (int t = 0; t < positions; t++) {
    for (int i = 0; i < dim / 2; i++) {
      double angle = t * pow(base, -2.0 * i / dim);
      table[t * dim + 2 * i] = cos(angle);
      table[t * dim + 2 * i + 1] = sign * sin(angle);
    }
  }
  return (Rope){.table = array_floats(f, table, (size_t)positions * (size_t)dim).data,
                .positions = ids ? ids->data : NULL};
}

static void rope_case(Fixture *f, const Golden *g, int index) {
  OPS(f);
  const int32_t *dims = golden_ints(f, g, index, "dims");
  int batch = dims[0], length = dims[1], heads = dims[2], dim = dims[3];
  if (!has_head_size(f, dim)) return;
  double *x = golden_values(f, g, index, "x", NULL);
  /* a packed row has further heads, which must not change */
  Layout layout = {batch, length, heads, dim, length * (heads + 2) * dim + fitting_width(f, 7), (heads + 2) * dim, dim};
  Array ids = array_ints(f, golden_ints(f, g, index, "positions"), (size_t)(batch * length));
  Array a = array_new(f, KIND_COMPUTE, layout, x);
  Rope forward = rope_of(f, 300, dim, dims[4], 1, &ids), back = rope_of(f, 300, dim, dims[4], -1, &ids);
  ops->rope(c, array_view(f, &a, 0), batch, length, heads, dim, &forward);
  expect_close(f, "rope", array_read(f, &a), golden_values(f, g, index, "out", NULL), a.count, 1e-6);
  ops->rope(c, array_view(f, &a, 0), batch, length, heads, dim, &back);
  expect_close(f, "rope and back", array_read(f, &a), x, a.count, 1e-6);
  Array natural = array_new(f, KIND_COMPUTE, layout, x);
  forward.positions = NULL;
  ops->rope(c, array_view(f, &natural, 0), batch, length, heads, dim, &forward);
  expect_close(f, "rope at 0..T-1", array_read(f, &natural), golden_values(f, g, index, "out_natural", NULL), a.count,
               1e-6);
}

static void test_rope(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "rope");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) rope_case(f, g, index);
  assert_int_equal(index, 3);
}

/* Further numbers of a head pass through; a head of a packed row, between others. */
static void partial_case(Fixture *f, int batch, int length, int heads, int dim, int dims) {
  OPS(f);
  if (!has_head_size(f, dim)) return;
  const size_t count = (size_t)(batch * length * heads * dim);
  const Layout layout = {batch, length, heads, dim, length * (heads + 2) * dim, (heads + 2) * dim, dim};
  double *x = random_values(f, 1, count), *want = sum_of(f, x, host_values(f, count), count);
  int32_t *ids = host_memory(f, (size_t)(batch * length) * sizeof *ids);
  for (int n = 0; n < batch * length; n++) {
    ids[n] = 7 * n % 300;
    rotate_heads(want + n * heads * dim, heads, dim, dims, ids[n]);
  }
  const Array places = array_ints(f, ids, (size_t)(batch * length)), a = array_new(f, KIND_COMPUTE, layout, x);
  Rope rope = rope_of(f, 300, dims, 10000, 1, &places);
  rope.dims = dims;
  ops->rope(c, array_view(f, &a, 0), batch, length, heads, dim, &rope);
  expect_close(f, "rope of a part", array_read(f, &a), want, count, 1e-6);
}

static void test_rope_partial(void **state) {
  Fixture *f = *state;
  static const int sizes[][2] = {{8, 4}, {80, 20}, {64, 16}, {96, 24}, {128, 64}, {120, 116}};
  for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
    partial_case(f, 2, 5, 3, sizes[i][0], sizes[i][1]);
    partial_case(f, 1, 1, 1, sizes[i][0], sizes[i][1]);
  }
  if (has_head_size(f, 6)) partial_case(f, 1, 3, 2, 6, 2);
}

enum { FACT_DIM = 8 };

/* One head of dim FACT_DIM, rotated to the last of `position` + 1 positions. */
static double *rotated(Fixture *f, const double *x, int position) {
  OPS(f);
  const int length = position + 1;
  double *rows = host_values(f, (size_t)(length * FACT_DIM));
  for (int i = 0; i < length * FACT_DIM; i++) rows[i] = x[i % FACT_DIM];
  Array a = array_new(f, KIND_COMPUTE, (Layout){1, length, 1, FACT_DIM, length * FACT_DIM, FACT_DIM, FACT_DIM}, rows);
  Rope rope = rope_of(f, length, FACT_DIM, 10000, 1, NULL);
  ops->rope(c, array_view(f, &a, 0), 1, length, 1, FACT_DIM, &rope);
  return array_read(f, &a) + position * FACT_DIM;
}

/* The score of two positions depends only on their distance: 3 and 1 give that of 23 and 21. */
static void test_rope_is_relative(void **state) {
  Fixture *f = *state;
  const double q[FACT_DIM] = {0.5, -1, 0.25, 2, -0.75, 1, 1.5, -0.5},
               k[FACT_DIM] = {1, 0.5, -2, 0.25, 0.75, -1, 0.5, 2};
  double near = 0, far = 0, other = 0;
  const double *q3 = rotated(f, q, 3), *k1 = rotated(f, k, 1), *q23 = rotated(f, q, 23), *k21 = rotated(f, k, 21);
  for (int i = 0; i < FACT_DIM; i++) near += q3[i] * k1[i], far += q23[i] * k21[i], other += q23[i] * k1[i];
  const double tolerance = f->dtype == DTYPE_F32 ? 1e-5 : 0.05;
  if (fabs(near - far) > tolerance || fabs(near - other) < 0.1) fail_msg("%g, %g and %g", near, far, other);
}

/* Weights for neighboring pairs (2i, 2i + 1) give the same results with rows in the order 0 2 4 .. 1 3 5 .. */
static void test_rope_interleaved(void **state) {
  Fixture *f = *state;
  enum { POSITION = 5, HALF = FACT_DIM / 2 };
  const double x[FACT_DIM] = {0.5, -1, 0.25, 2, -0.75, 1, 1.5, -0.5};
  double *want = host_values(f, FACT_DIM), ordered[FACT_DIM];
  for (int i = 0; i < HALF; i++) {
    const double angle = (double)POSITION * pow(10000, -2.0 * i / (double)FACT_DIM), u = x[2 * i], v = x[2 * i + 1];
    want[i] = u * cos(angle) - v * sin(angle);
    want[HALF + i] = u * sin(angle) + v * cos(angle);
    ordered[i] = u, ordered[HALF + i] = v;
  }
  expect_close(f, "interleaved", rotated(f, ordered, POSITION), want, FACT_DIM, 1e-6);
}

/* ---- attention ---- */

typedef enum Placement { PLACE_PLAIN, PLACE_HEAD_MAJOR, PLACE_PACKED, PLACEMENTS } Placement;

typedef struct AttentionCase {
  Attention a;
  const Golden *golden;
  int index;
  Rope rope;
  bool rotated;
} AttentionCase;

/* [batch][rows][heads][width], every stride larger than necessary. */
static Layout layout_gaps(int batch, int rows, int heads, int width, bool head_major) {
  int64_t head = head_major ? (int64_t)rows * (width + 8) + 16 : width,
          row = head_major ? width + 8 : (int64_t)heads * width + 16;
  return (Layout){batch, rows, heads, width, head_major ? head * heads + 24 : row * rows + 24, row, head};
}

static double *attention_values(Fixture *f, const AttentionCase *t, const char *name) {
  return golden_values(f, t->golden, t->index, name, NULL);
}

/* q, k, v (or their gradients) of one row side by side: [N][H + 2G][D]. */
static double *pack(Fixture *f, const Attention *a, const double *q, const double *k, const double *v) {
  size_t rows = (size_t)(a->batch * a->queries), dim = (size_t)a->head_dim, qw = (size_t)a->heads * dim,
         kw = (size_t)a->kv_heads * dim;
  double *all = host_values(f, rows * (qw + 2 * kw));
  for (size_t n = 0; n < rows; n++) {
    double *row = all + n * (qw + 2 * kw);
    memcpy(row, q + n * qw, qw * sizeof *q);
    memcpy(row + qw, k + n * kw, kw * sizeof *k);
    memcpy(row + qw + kw, v + n * kw, kw * sizeof *v);
  }
  return all;
}

/* lse of one key is a score itself: fp32 sums of D products. */
static void check_forward(Fixture *f, const AttentionCase *t, const Array *out, const Array *lse) {
  expect_close(f, "attention", array_read(f, out), attention_values(f, t, "out"), out->count, TOLERANCE_F32);
  expect_close_floor(f, "lse", array_read(f, lse), attention_values(f, t, "lse"), lse->count, TOLERANCE_F32, 0.1);
}

/* With one visible key dq and dk are a difference of equal numbers: measured against numbers of size 0.1. */
static void check_gradient(Fixture *f, const AttentionCase *t, const char *name, const double *got, size_t count) {
  expect_close_floor(f, name, got, attention_values(f, t, name), count, TOLERANCE_F32, 0.1);
}

/* The map uses lse of the forward: a row must add up to 1. */
static void check_map(Fixture *f, const AttentionCase *t, View q, View k, const Array *lse) {
  OPS(f);
  const Attention *a = &t->a;
  size_t rows = (size_t)(a->batch * a->heads * a->queries), keys = (size_t)a->keys;
  Array map = array_floats(f, NULL, rows * keys);
  ops->attention_map(c, a, map.data, q, k, lse->data);
  const double *got = array_read(f, &map), *of_lse = array_read(f, lse);
  for (size_t row = 0; row < rows; row++) {
    double sum = 0;
    for (size_t j = 0; j < keys; j++) sum += got[row * keys + j];
    assert_true(fabs(sum - (of_lse[row] == -INFINITY ? 0 : 1)) < 1e-5);
  }
}

static void attention_separate(Fixture *f, const AttentionCase *t, bool head_major) {
  OPS(f);
  const Attention *a = &t->a;
  Layout queries = layout_gaps(a->batch, a->queries, a->heads, a->head_dim, head_major);
  Layout keys = layout_gaps(a->batch, a->keys, a->kv_heads, a->head_dim, head_major);
  Array q = array_new(f, KIND_COMPUTE, queries, attention_values(f, t, "q"));
  Array k = array_new(f, KIND_COMPUTE, keys, attention_values(f, t, "k"));
  Array v = array_new(f, KIND_COMPUTE, keys, attention_values(f, t, "v"));
  Array dout = array_new(f, KIND_COMPUTE, queries, attention_values(f, t, "dout"));
  Array out = array_new(f, KIND_COMPUTE, queries, NULL), dq = array_new(f, KIND_COMPUTE, queries, NULL);
  Array dk = array_new(f, KIND_COMPUTE, keys, NULL), dv = array_new(f, KIND_COMPUTE, keys, NULL);
  Array lse = array_floats(f, NULL, (size_t)(a->batch * a->heads * a->queries));
  ops->attention(c, a, array_view(f, &out, 0), array_view(f, &q, 0), array_view(f, &k, 0), array_view(f, &v, 0),
                 lse.data);
  check_forward(f, t, &out, &lse);
  check_map(f, t, array_view(f, &q, 0), array_view(f, &k, 0), &lse);
  ops->attention_backward(c, a, array_view(f, &dq, 0), array_view(f, &dk, 0), array_view(f, &dv, 0),
                          array_view(f, &dout, 0), array_view(f, &q, 0), array_view(f, &k, 0), array_view(f, &v, 0),
                          array_view(f, &out, 0), lse.data, t->rotated ? &t->rope : NULL);
  check_gradient(f, t, "dq", array_read(f, &dq), dq.count);
  check_gradient(f, t, "dk", array_read(f, &dk), dk.count);
  check_gradient(f, t, "dv", array_read(f, &dv), dv.count);
  const double *with_lse = array_read(f, &out);
  ops->attention(c, a, array_view(f, &out, 0), array_view(f, &q, 0), array_view(f, &k, 0), array_view(f, &v, 0), NULL);
  expect_same("attention that need not keep lse", array_read(f, &out), with_lse, out.count);
}

/* As in the model: one buffer for q, k and v, one for their gradients. */
static void attention_packed(Fixture *f, const AttentionCase *t) {
  OPS(f);
  const Attention *a = &t->a;
  int heads = a->heads + 2 * a->kv_heads, h = a->heads, g = a->kv_heads;
  Layout rows = {
      a->batch,   a->queries, heads, a->head_dim, (int64_t)a->queries * heads * a->head_dim, heads * a->head_dim,
      a->head_dim};
  Layout plain = {a->batch,        a->queries, h, a->head_dim, (int64_t)a->queries * h * a->head_dim,
                  h * a->head_dim, a->head_dim};
  const double *packed =
      pack(f, a, attention_values(f, t, "q"), attention_values(f, t, "k"), attention_values(f, t, "v"));
  Array qkv = array_new(f, KIND_COMPUTE, rows, packed), dqkv = array_new(f, KIND_COMPUTE, rows, NULL);
  Array out = array_new(f, KIND_COMPUTE, plain, NULL),
        dout = array_new(f, KIND_COMPUTE, plain, attention_values(f, t, "dout"));
  Array lse = array_floats(f, NULL, (size_t)(a->batch * a->heads * a->queries));
  View q = array_view(f, &qkv, 0), k = array_view(f, &qkv, h), v = array_view(f, &qkv, h + g);
  ops->attention(c, a, array_view(f, &out, 0), q, k, v, lse.data);
  check_forward(f, t, &out, &lse);
  ops->attention_backward(c, a, array_view(f, &dqkv, 0), array_view(f, &dqkv, h), array_view(f, &dqkv, h + g),
                          array_view(f, &dout, 0), q, k, v, array_view(f, &out, 0), lse.data,
                          t->rotated ? &t->rope : NULL);
  const double *want =
      pack(f, a, attention_values(f, t, "dq"), attention_values(f, t, "dk"), attention_values(f, t, "dv"));
  expect_close_floor(f, "packed dq, dk, dv", array_read(f, &dqkv), want, dqkv.count, TOLERANCE_F32, 0.1);
}

/* The goldens' causal mask with an offset for each sequence, as the ends of key ranges. */
static void offset_as_ranges(Fixture *f, const Golden *g, int index, Attention *a) {
  const int32_t *offset = golden_ints(f, g, index, "q_offset");
  const int32_t *ends = golden_has(g, index, "key_end") ? golden_ints(f, g, index, "key_end") : NULL;
  int32_t *end = host_memory(f, (size_t)(a->batch * a->queries) * sizeof *end);
  for (int i = 0; i < a->batch * a->queries; i++) {
    int past = i % a->queries + offset[i / a->queries] + 1;
    end[i] = ends && ends[i] < past ? ends[i] : past;
  }
  a->causal = false;
  a->key_end = array_ints(f, end, (size_t)(a->batch * a->queries)).data;
}

static void attention_case(Fixture *f, const Golden *g, int index) {
  const int32_t *dims = golden_ints(f, g, index, "dims");
  if (!has_head_size(f, dims[5])) return;
  AttentionCase t = {.golden = g, .index = index, .rotated = dims[7] != 0};
  t.a = (Attention){.batch = dims[0],
                    .heads = dims[1],
                    .kv_heads = dims[2],
                    .queries = dims[3],
                    .keys = dims[4],
                    .head_dim = dims[5],
                    .causal = dims[6] != 0,
                    .scale = (float)golden_value(f, g, index, "scale")};
  size_t rows = (size_t)(t.a.batch * t.a.queries);
  if (golden_has(g, index, "key_begin")) {
    t.a.key_begin = array_ints(f, golden_ints(f, g, index, "key_begin"), rows).data;
    t.a.key_end = array_ints(f, golden_ints(f, g, index, "key_end"), rows).data;
  }
  if (golden_has(g, index, "q_offset")) offset_as_ranges(f, g, index, &t.a);
  if (t.rotated) {
    Array ids = array_ints(f, golden_ints(f, g, index, "positions"), rows);
    t.rope = rope_of(f, 200, t.a.head_dim, dims[7], 1, &ids);
  }
  attention_separate(f, &t, false);
  attention_separate(f, &t, true);
  if (t.a.queries == t.a.keys) attention_packed(f, &t);
}

static void attention_cases(Fixture *f, const char *golden, int count) {
  const Golden *g = golden_open(f, golden);
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) attention_case(f, g, index);
  assert_int_equal(index, count);
}

static void test_attention(void **state) { attention_cases(*state, "attention", 17); }

/* ---- finite differences ---- */

enum { FD_T = 5, FD_H = 2, FD_D = 8, FD_QKV = FD_T * (FD_H + 2) * FD_D, FD_OUT = FD_T * FD_H * FD_D };

/* With rope, causal masking and dropout, as in the model. fixed: lse, rope table, rotated qkv. */
static Attention derivative_attention(const Dropout *dropout) {
  return (Attention){.batch = 1,
                     .heads = FD_H,
                     .kv_heads = 1,
                     .head_dim = FD_D,
                     .queries = FD_T,
                     .keys = FD_T,
                     .scale = 0.5f,
                     .causal = true,
                     .dropout = dropout};
}

/* dims: rotated numbers of a head. */
static void forward_rotated(Fixture *f, Forward *t, int dims) {
  OPS(f);
  Attention a = derivative_attention(t->dropout);
  Rope rope = {.table = t->fixed[1].data, .dims = dims};
  View q = array_view(f, &t->fixed[2], 0), k = array_view(f, &t->fixed[2], FD_H),
       v = array_view(f, &t->fixed[2], FD_H + 1);
  ops->copy(c, t->fixed[2].data, t->in.data, FD_QKV * dtype_bytes(f->dtype));
  ops->rope(c, q, 1, FD_T, FD_H + 1, FD_D, &rope); /* queries and keys are neighbors */
  ops->attention(c, &a, array_view(f, &t->out, 0), q, k, v, t->fixed[0].data);
}

static void forward_attention(Fixture *f, Forward *t) { forward_rotated(f, t, FD_D); }
static void forward_partial(Fixture *f, Forward *t) { forward_rotated(f, t, FD_D / 2); }

static void derivatives_case(Fixture *f, void (*forward)(Fixture *f, Forward *t), int dims) {
  OPS(f);
  Dropout dropout = dropout_at(f, 0.3f, 0, 0);
  double *x = random_values(f, 1, FD_QKV), *up = random_values(f, 2, FD_OUT);
  Layout packed = {1, FD_T, FD_H + 2, FD_D, 0, (FD_H + 2) * FD_D, FD_D},
         plain = {1, FD_T, FD_H, FD_D, 0, FD_H * FD_D, FD_D};
  Rope rope = rope_of(f, FD_T, dims, 100, 1, NULL);
  rope.dims = dims;
  Forward t = {.run = forward,
               .in = array_new(f, KIND_COMPUTE, packed, x),
               .out = array_new(f, KIND_COMPUTE, plain, NULL),
               .upstream = up,
               .dropout = &dropout,
               .fixed = {array_floats(f, NULL, FD_H * FD_T), {0}, array_new(f, KIND_COMPUTE, packed, x)}};
  t.fixed[1].data = (void *)(uintptr_t)rope.table;
  Array dout = array_new(f, KIND_COMPUTE, plain, up), d = array_new(f, KIND_COMPUTE, packed, NULL);
  Attention a = derivative_attention(&dropout);
  forward(f, &t);
  ops->attention_backward(c, &a, array_view(f, &d, 0), array_view(f, &d, FD_H), array_view(f, &d, FD_H + 1),
                          array_view(f, &dout, 0), array_view(f, &t.fixed[2], 0), array_view(f, &t.fixed[2], FD_H),
                          array_view(f, &t.fixed[2], FD_H + 1), array_view(f, &t.out, 0), t.fixed[0].data, &rope);
  expect_derivative(f, &t, x, array_read(f, &d));
}

static void test_derivatives_attention(void **state) {
  derivatives_case(*state, forward_attention, FD_D);
  derivatives_case(*state, forward_partial, FD_D / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_rope_partial),
      cmocka_unit_test(test_rope_is_relative),
      cmocka_unit_test(test_rope_interleaved),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_derivatives_attention),
  };
  return run_on_backends("kernels: attention", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
