/* Rotary positions and attention (kernels.h), and dropout where several operations meet. As tests/test_kernels.c. */
#include "kernels/philox.h"
#include "tests/backends.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rope ---- */

/* `sign` -1 rotates back. */
static Rope rope_table(Fixture *f, int positions, int dim, double base, double sign, const Array *ids) {
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
  /* heads of a packed row with other heads behind them, which stay as they are */
  Layout layout = {batch, length, heads, dim, length * (heads + 2) * dim + 7, (heads + 2) * dim, dim};
  Array ids = array_ints(f, golden_ints(f, g, index, "positions"), (size_t)(batch * length));
  Array a = array_new(f, KIND_COMPUTE, layout, x);
  Rope forward = rope_table(f, 300, dim, dims[4], 1, &ids), back = rope_table(f, 300, dim, dims[4], -1, &ids);
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

/* ---- attention ---- */

typedef enum Placement { PLACE_PLAIN, PLACE_HEAD_MAJOR, PLACE_PACKED, PLACEMENTS } Placement;

typedef struct AttentionCase {
  Attention a;
  const Golden *golden;
  int index;
  Rope rope;
  bool rotated;
} AttentionCase;

/* [batch][rows][heads][width], every stride larger than it must be. */
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

/* As the model has it: one buffer for q, k and v, one for their gradients. */
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
  if (golden_has(g, index, "q_offset"))
    t.a.q_offset = array_ints(f, golden_ints(f, g, index, "q_offset"), (size_t)t.a.batch).data;
  if (golden_has(g, index, "key_begin")) {
    t.a.key_begin = array_ints(f, golden_ints(f, g, index, "key_begin"), rows).data;
    t.a.key_end = array_ints(f, golden_ints(f, g, index, "key_end"), rows).data;
  }
  if (t.rotated) {
    Array ids = array_ints(f, golden_ints(f, g, index, "positions"), rows);
    t.rope = rope_table(f, 200, t.a.head_dim, dims[7], 1, &ids);
  }
  attention_separate(f, &t, false);
  attention_separate(f, &t, true);
  if (t.a.queries == t.a.keys) attention_packed(f, &t);
}

static void test_attention(void **state) {
  Fixture *f = *state;
  const Golden *g = golden_open(f, "attention");
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) attention_case(f, g, index);
  assert_int_equal(index, 15);
}

/* The documented map of 16-bit lanes, evaluated directly. */
static bool attention_kept(const Dropout *d, int64_t step, int sequence, int queries, int keys, int h, int i, int j) {
  uint32_t block = ((uint32_t)h * (uint32_t)queries + (uint32_t)i) * (uint32_t)((keys + 31) / 32) + (uint32_t)(j / 32);
  PhiloxWords r = philox(d->seed, block * 4 + (uint32_t)(j % 8) / 2, d->site, (uint32_t)step, (uint32_t)sequence);
  int lane = 2 * ((j % 32) / 8) + j % 2;
  return (double)(r.word[lane / 2] >> (lane % 2 ? 16 : 0) & 0xFFFF) >= round((double)d->p * 0x1p16);
}

/* Attention evaluated from its formulas, in double; arrays [B][T][heads][D] without gaps. The Attention's own pointers
 * are the device's, these are the host's. */
typedef struct PlainAttention {
  Attention a;
  const int32_t *q_offset, *key_begin, *key_end;
  const double *table; /* of Rope, or NULL: dq and dk are not rotated back */
  double *q, *k, *v, *dout;
  double *out, *lse, *dq, *dk, *dv;
} PlainAttention;

static bool plain_sees(const PlainAttention *m, int b, int i, int j) {
  if (m->a.causal && j > (m->q_offset ? m->q_offset[b] : 0) + i) return false;
  int at = b * m->a.queries + i;
  return !m->key_begin || (m->key_begin[at] <= j && j < m->key_end[at]);
}

enum { PLAIN_KEYS = 320 };

/* Query i of head h: its row of out, lse and dq, its part of dk and dv. */
static void plain_query(PlainAttention *m, int b, int h, int i) {
  const Attention *a = &m->a;
  int dim = a->head_dim, g = h * a->kv_heads / a->heads;
  size_t at_q = ((size_t)(b * a->queries + i) * (size_t)a->heads + (size_t)h) * (size_t)dim;
  double p[PLAIN_KEYS] = {0}, kept[PLAIN_KEYS] = {0}, dp[PLAIN_KEYS] = {0}, max = -INFINITY, sum = 0, delta = 0;
  for (int j = 0; j < a->keys; j++) {
    size_t at_k = ((size_t)(b * a->keys + j) * (size_t)a->kv_heads + (size_t)g) * (size_t)dim;
    p[j] = plain_sees(m, b, i, j) ? 0 : -INFINITY;
    if (p[j] < 0) continue;
    for (int d = 0; d < dim; d++) p[j] += m->q[at_q + (size_t)d] * m->k[at_k + (size_t)d] * (double)a->scale;
    if (p[j] > max) max = p[j];
    kept[j] = 1;
    if (a->dropout) {
      bool keep = attention_kept(a->dropout, 7, 5 + b, a->queries, a->keys, h, i, j);
      kept[j] = keep ? 1 / (1 - (double)a->dropout->p) : 0;
    }
    for (int d = 0; d < dim; d++) dp[j] += kept[j] * m->dout[at_q + (size_t)d] * m->v[at_k + (size_t)d];
  }
  for (int j = 0; j < a->keys; j++) sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - max);
  m->lse[(b * a->heads + h) * a->queries + i] = sum > 0 ? max + log(sum) : -INFINITY;
  if (!(sum > 0)) return;
  for (int j = 0; j < a->keys; j++) p[j] /= sum, delta += p[j] * dp[j]; /* not from the output */
  for (int j = 0; j < a->keys; j++) {
    size_t at_k = ((size_t)(b * a->keys + j) * (size_t)a->kv_heads + (size_t)g) * (size_t)dim;
    double ds = (double)a->scale * p[j] * (dp[j] - delta);
    for (size_t d = 0; d < (size_t)dim; d++) {
      m->out[at_q + d] += p[j] * kept[j] * m->v[at_k + d];
      m->dv[at_k + d] += p[j] * kept[j] * m->dout[at_q + d];
      m->dq[at_q + d] += ds * m->k[at_k + d];
      m->dk[at_k + d] += ds * m->q[at_q + d];
    }
  }
}

/* x [B][T][heads][D], rotated by minus the angles of positions 0 .. T-1. */
static void plain_rotate_back(double *x, const double *table, int batch, int length, int heads, int dim) {
  for (int row = 0; row < batch * length * heads; row++, x += dim) {
    const double *angles = table + row / heads % length * dim;
    for (int i = 0; i < dim / 2; i++) {
      double first = x[i], second = x[i + dim / 2], cosine = angles[2 * i], sine = angles[2 * i + 1];
      x[i] = first * cosine + second * sine;
      x[i + dim / 2] = second * cosine - first * sine;
    }
  }
}

static void plain_attention(Fixture *f, PlainAttention *m) {
  const Attention *a = &m->a;
  size_t q_count = (size_t)(a->batch * a->queries * a->heads * a->head_dim);
  size_t k_count = (size_t)(a->batch * a->keys * a->kv_heads * a->head_dim);
  assert_true(a->keys <= PLAIN_KEYS);
  m->q = random_values(f, 1, q_count), m->k = random_values(f, 2, k_count), m->v = random_values(f, 3, k_count);
  m->dout = random_values(f, 4, q_count);
  m->out = host_values(f, q_count), m->dq = host_values(f, q_count);
  m->dk = host_values(f, k_count), m->dv = host_values(f, k_count);
  m->lse = host_values(f, (size_t)(a->batch * a->heads * a->queries));
  for (int b = 0; b < a->batch; b++)
    for (int h = 0; h < a->heads; h++)
      for (int i = 0; i < a->queries; i++) plain_query(m, b, h, i);
  if (!m->table) return;
  plain_rotate_back(m->dq, m->table, a->batch, a->queries, a->heads, a->head_dim);
  plain_rotate_back(m->dk, m->table, a->batch, a->keys, a->kv_heads, a->head_dim);
}

/* `gap` elements more than needed between rows. */
static Layout plain_layout(const Attention *a, int rows, int heads, int gap) {
  int row = heads * a->head_dim + gap;
  return (Layout){a->batch, rows, heads, a->head_dim, (int64_t)rows * row, row, a->head_dim};
}

static void check_plain(Fixture *f, PlainAttention *m, const Rope *rope, int gap, const char *name) {
  OPS(f);
  const Attention *a = &m->a;
  Layout queries = plain_layout(a, a->queries, a->heads, gap), keys = plain_layout(a, a->keys, a->kv_heads, gap);
  Array q = array_new(f, KIND_COMPUTE, queries, m->q), k = array_new(f, KIND_COMPUTE, keys, m->k);
  Array v = array_new(f, KIND_COMPUTE, keys, m->v), dout = array_new(f, KIND_COMPUTE, queries, m->dout);
  Array out = array_new(f, KIND_COMPUTE, queries, NULL), dq = array_new(f, KIND_COMPUTE, queries, NULL);
  Array dk = array_new(f, KIND_COMPUTE, keys, NULL), dv = array_new(f, KIND_COMPUTE, keys, NULL);
  Array lse = array_floats(f, NULL, (size_t)(a->batch * a->heads * a->queries));
  View qv = array_view(f, &q, 0), kv = array_view(f, &k, 0), vv = array_view(f, &v, 0), ov = array_view(f, &out, 0);
  ops->attention(c, a, ov, qv, kv, vv, lse.data);
  print_message("  %s\n", name);
  expect_close(f, "out", array_read(f, &out), m->out, out.count, TOLERANCE_F32);
  expect_close_floor(f, "lse", array_read(f, &lse), m->lse, lse.count, TOLERANCE_F32, 0.1);
  for (int run = 0; run < 2; run++) { /* twice the same bits */
    double *before[3] = {array_read(f, &dq), array_read(f, &dk), array_read(f, &dv)};
    ops->attention_backward(c, a, array_view(f, &dq, 0), array_view(f, &dk, 0), array_view(f, &dv, 0),
                            array_view(f, &dout, 0), qv, kv, vv, ov, lse.data, rope);
    if (!run) continue;
    expect_same("dq again", array_read(f, &dq), before[0], dq.count);
    expect_same("dk again", array_read(f, &dk), before[1], dk.count);
    expect_same("dv again", array_read(f, &dv), before[2], dv.count);
  }
  expect_close_floor(f, "dq", array_read(f, &dq), m->dq, dq.count, TOLERANCE_F32, 0.1);
  expect_close_floor(f, "dk", array_read(f, &dk), m->dk, dk.count, TOLERANCE_F32, 0.1);
  expect_close_floor(f, "dv", array_read(f, &dv), m->dv, dv.count, TOLERANCE_F32, 0.1);
}

/* Sizes at the borders of tiles of 16 to 128 rows; every head size that a GPU kernel is compiled for, and ones that it
 * pads. */
typedef struct Shape {
  const char *name;
  int batch, heads, kv_heads, queries, keys, dim;
  double scale;
  bool causal, ranges, rotated;
  int offset; /* of the queries, 7 more in each further sequence; 0: none given */
  int gap;    /* 3: rows that are not aligned to 16 bytes */
  float dropout;
} Shape;

static const Shape SHAPES[] = {
    {"grouped, dropout", 2, 2, 1, 299, 299, 8, 0.5, .causal = true, .dropout = 0.25f},
    {"not aligned", 1, 2, 1, 65, 65, 24, 0.3, .causal = true, .rotated = true, .gap = 3},
    {"one query tile and a row", 1, 1, 1, 129, 129, 40, 0.2, .causal = true, .rotated = true},
    {"queries at the end", 2, 2, 2, 64, 200, 48, 0.2, .causal = true, .offset = 130},
    {"queries before the keys", 1, 2, 1, 130, 65, 64, 0.125, .causal = true, .offset = -66},
    {"not causal", 1, 1, 1, 200, 63, 80, 0.1, .rotated = true},
    {"ranges", 2, 2, 1, 63, 129, 96, 0.1, .ranges = true},
    {"ranges, dropout", 1, 3, 1, 129, 200, 64, 0.125, .causal = true, .ranges = true, .offset = 50, .dropout = 0.1f},
    {"wide, dropout", 1, 2, 1, 130, 130, 128, 0.0884, .causal = true, .rotated = true, .dropout = 0.5f},
    {"one query", 2, 2, 1, 1, 65, 64, 0.125, .causal = true, .offset = 57},
    {"negative scale", 1, 1, 1, 33, 65, 32, -0.4, .ranges = true, .gap = 8},
    {"scale 0", 1, 1, 1, 17, 17, 16, 0.0, .causal = true},
    {"large scores", 1, 1, 1, 80, 80, 112, 3.0, .causal = true},
};

static void attention_shape(Fixture *f, const Shape *s) {
  PlainAttention m = {.a = {.batch = s->batch,
                            .heads = s->heads,
                            .kv_heads = s->kv_heads,
                            .head_dim = s->dim,
                            .queries = s->queries,
                            .keys = s->keys,
                            .scale = (float)s->scale,
                            .causal = s->causal}};
  if (!has_head_size(f, s->dim)) return;
  Dropout dropout = dropout_at(f, s->dropout, 6, 5);
  if (s->dropout > 0) m.a.dropout = &dropout;
  if (s->offset) {
    int32_t *offset = host_memory(f, (size_t)s->batch * sizeof *offset);
    for (int b = 0; b < s->batch; b++) offset[b] = s->offset + 7 * b;
    m.q_offset = offset;
    m.a.q_offset = array_ints(f, offset, (size_t)s->batch).data;
  }
  if (s->ranges) { /* wide and narrow ones, some of them empty or reaching beyond the keys */
    size_t rows = (size_t)(s->batch * s->queries);
    int32_t *begin = host_memory(f, rows * sizeof *begin), *end = host_memory(f, rows * sizeof *end);
    for (int i = 0; i < (int)rows; i++) {
      begin[i] = i % 11 == 5 ? -3 : i * 5 % s->keys * 2 / 3;
      end[i] = i % 13 == 7 ? begin[i] - i % 2 : i % 3 ? begin[i] + i % 50 + 1 : s->keys + i % 4;
    }
    m.key_begin = begin, m.key_end = end;
    m.a.key_begin = array_ints(f, begin, rows).data, m.a.key_end = array_ints(f, end, rows).data;
  }
  Rope rope = {0};
  if (s->rotated) {
    int positions = s->queries > s->keys ? s->queries : s->keys;
    double *table = host_values(f, (size_t)(positions * s->dim));
    for (int i = 0; i < positions * s->dim / 2; i++) {
      double angle = i / (s->dim / 2) * pow(100, -2.0 * (i % (s->dim / 2)) / s->dim);
      table[2 * i] = cos(angle), table[2 * i + 1] = sin(angle);
    }
    m.table = table;
    rope.table = array_floats(f, table, (size_t)(positions * s->dim)).data;
  }
  plain_attention(f, &m);
  check_plain(f, &m, s->rotated ? &rope : NULL, s->gap, s->name);
}

static void test_attention_shapes(void **state) {
  for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) attention_shape(*state, &SHAPES[i]);
}

/* ---- dropout of every operation: p = 0 is none, micro-batches are numbered through ---- */

typedef struct DropoutRun {
  double *embedded, *x_out, *attended;
} DropoutRun;

enum { SPLIT_B = 4, SPLIT_T = 6, SPLIT_C = 8, SPLIT_N = SPLIT_B * SPLIT_T * SPLIT_C };

/* The forward operations that drop, over sequences first..first+batch of the step; each is one head of SPLIT_C numbers.
 */
static void run_dropout(Fixture *f, DropoutRun *run, const double *x, int first, int batch, const Dropout *dropout) {
  OPS(f);
  size_t from = (size_t)(first * SPLIT_T * SPLIT_C), n = (size_t)(batch * SPLIT_T * SPLIT_C);
  double *ones = host_values(f, SPLIT_C);
  for (int i = 0; i < SPLIT_C; i++) ones[i] = 1;
  ParameterSpec spec = matrix_spec(SPLIT_B * SPLIT_T, SPLIT_C, 0, x);
  Parameters p = parameters_new(f, &spec, 1);
  int32_t *tokens = host_memory(f, (size_t)(batch * SPLIT_T) * sizeof *tokens);
  for (int i = 0; i < batch * SPLIT_T; i++) tokens[i] = first * SPLIT_T + i;
  Array ids = array_ints(f, tokens, (size_t)(batch * SPLIT_T)), in = array_compute(f, x + from, n),
        weight = array_floats(f, ones, SPLIT_C);
  Array embedded = array_compute(f, NULL, n), x_out = array_compute(f, NULL, n), y = array_compute(f, NULL, n);
  Array rstd = array_floats(f, NULL, (size_t)(batch * SPLIT_T));
  Layout layout = {batch, SPLIT_T, 1, SPLIT_C, SPLIT_T * SPLIT_C, SPLIT_C, SPLIT_C};
  Array q = array_new(f, KIND_COMPUTE, layout, x + from), out = array_new(f, KIND_COMPUTE, layout, NULL);
  Attention a = {.batch = batch,
                 .heads = 1,
                 .kv_heads = 1,
                 .head_dim = SPLIT_C,
                 .queries = SPLIT_T,
                 .keys = SPLIT_T,
                 .scale = 0.35f,
                 .dropout = dropout};
  View view = array_view(f, &q, 0);
  ops->embedding(c, embedded.data, &p, p.groups[0].matrix, ids.data, batch, SPLIT_T, dropout);
  ops->residual_norm(c, x_out.data, y.data, rstd.data, in.data, in.data, weight.data, 1e-5f, batch, SPLIT_T, SPLIT_C,
                     dropout);
  ops->attention(c, &a, array_view(f, &out, 0), view, view, view, NULL);
  memcpy(run->embedded + from, array_read(f, &embedded), n * sizeof(double));
  memcpy(run->x_out + from, array_read(f, &x_out), n * sizeof(double));
  memcpy(run->attended + from, array_read(f, &out), n * sizeof(double));
}

static DropoutRun dropout_run_new(Fixture *f) {
  return (DropoutRun){host_values(f, SPLIT_N), host_values(f, SPLIT_N), host_values(f, SPLIT_N)};
}

static void expect_same_run(const DropoutRun *got, const DropoutRun *want) {
  expect_same("embedding", got->embedded, want->embedded, SPLIT_N);
  expect_same("residual", got->x_out, want->x_out, SPLIT_N);
  expect_same("attention", got->attended, want->attended, SPLIT_N);
}

static void test_dropout_micro_batches(void **state) {
  Fixture *f = *state;
  OPS(f);
  const double *x = random_values(f, 1, SPLIT_N);
  DropoutRun whole = dropout_run_new(f), split = dropout_run_new(f), none = dropout_run_new(f),
             zero = dropout_run_new(f);
  Dropout dropout = dropout_at(f, 0.5f, 0, 0);
  run_dropout(f, &whole, x, 0, SPLIT_B, &dropout);
  run_dropout(f, &split, x, 0, 1, &dropout);
  ops->next_micro_batch(c, (StepState *)(uintptr_t)dropout.state, 1);
  run_dropout(f, &split, x, 1, SPLIT_B - 1, &dropout);
  expect_same_run(&split, &whole);
  dropout.p = 0;
  run_dropout(f, &zero, x, 0, SPLIT_B, &dropout);
  run_dropout(f, &none, x, 0, SPLIT_B, NULL);
  expect_same_run(&zero, &none);
}

/* ---- finite differences ---- */

enum { FD_T = 5, FD_H = 2, FD_D = 8, FD_QKV = FD_T * (FD_H + 2) * FD_D, FD_OUT = FD_T * FD_H * FD_D };

/* With rope, causal masking and dropout: everything that the model composes. fixed: lse, rope table, rotated qkv. */
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

static void forward_attention(Fixture *f, Forward *t) {
  OPS(f);
  Attention a = derivative_attention(t->dropout);
  Rope rope = {.table = t->fixed[1].data};
  View q = array_view(f, &t->fixed[2], 0), k = array_view(f, &t->fixed[2], FD_H),
       v = array_view(f, &t->fixed[2], FD_H + 1);
  ops->copy(c, t->fixed[2].data, t->in.data, FD_QKV * dtype_bytes(f->dtype));
  ops->rope(c, q, 1, FD_T, FD_H + 1, FD_D, &rope); /* queries and keys are neighbors */
  ops->attention(c, &a, array_view(f, &t->out, 0), q, k, v, t->fixed[0].data);
}

static void test_derivatives_attention(void **state) {
  Fixture *f = *state;
  OPS(f);
  Dropout dropout = dropout_at(f, 0.3f, 0, 0);
  double *x = random_values(f, 1, FD_QKV), *up = random_values(f, 2, FD_OUT);
  Layout packed = {1, FD_T, FD_H + 2, FD_D, 0, (FD_H + 2) * FD_D, FD_D},
         plain = {1, FD_T, FD_H, FD_D, 0, FD_H * FD_D, FD_D};
  Rope rope = rope_table(f, FD_T, FD_D, 100, 1, NULL);
  Forward t = {.run = forward_attention,
               .in = array_new(f, KIND_COMPUTE, packed, x),
               .out = array_new(f, KIND_COMPUTE, plain, NULL),
               .upstream = up,
               .dropout = &dropout,
               .fixed = {array_floats(f, NULL, FD_H * FD_T), {0}, array_new(f, KIND_COMPUTE, packed, x)}};
  t.fixed[1].data = (void *)(uintptr_t)rope.table;
  Array dout = array_new(f, KIND_COMPUTE, plain, up), d = array_new(f, KIND_COMPUTE, packed, NULL);
  Attention a = derivative_attention(&dropout);
  forward_attention(f, &t);
  ops->attention_backward(c, &a, array_view(f, &d, 0), array_view(f, &d, FD_H), array_view(f, &d, FD_H + 1),
                          array_view(f, &dout, 0), array_view(f, &t.fixed[2], 0), array_view(f, &t.fixed[2], FD_H),
                          array_view(f, &t.fixed[2], FD_H + 1), array_view(f, &t.out, 0), t.fixed[0].data, &rope);
  expect_derivative(f, &t, x, array_read(f, &d));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_attention_shapes),
      cmocka_unit_test(test_dropout_micro_batches),
      cmocka_unit_test(test_derivatives_attention),
  };
  return run_on_backends("kernels: attention", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
