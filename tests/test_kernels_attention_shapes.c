/* Attention of all shapes against its formulas in double. As tests/test_kernels.c. */
#include "kernels/philox.h"
#include "tests/backends.h"

#include <math.h>
#include <stdio.h>

/* The documented map of 16-bit lanes, evaluated directly. */
static bool attention_kept(const Dropout *d, int64_t step, int sequence, int queries, int keys, int h, int i, int j) {
  uint32_t block = ((uint32_t)h * (uint32_t)queries + (uint32_t)i) * (uint32_t)((keys + 31) / 32) + (uint32_t)(j / 32);
  PhiloxWords r = philox(d->seed, block * 4 + (uint32_t)(j % 8) / 2, d->site, (uint32_t)step, (uint32_t)sequence);
  int lane = 2 * ((j % 32) / 8) + j % 2;
  return (double)(r.word[lane / 2] >> (lane % 2 ? 16 : 0) & 0xFFFF) >= round((double)d->p * 0x1p16);
}

/* Attention by its formulas, in double; arrays [B][T][heads][D] without gaps. Pointers in Attention are the device's,
 * these are the host's. */
typedef struct PlainAttention {
  Attention a;
  const int32_t *key_begin, *key_end;
  const double *table; /* of Rope, or NULL: dq and dk are not rotated back */
  double *q, *k, *v, *dout;
  double *out, *lse, *map, *dq, *dk, *dv;
} PlainAttention;

static bool plain_sees(const PlainAttention *m, int b, int i, int j) {
  if (m->a.causal && j > i) return false;
  int at = b * m->a.queries + i;
  return !m->key_begin || (m->key_begin[at] <= j && j < m->key_end[at]);
}

enum { PLAIN_KEYS = 320 };

/* Computes query i of head h: its rows of out, lse, the map and dq, and its terms of dk and dv. */
static void plain_query(PlainAttention *m, int b, int h, int i) {
  const Attention *a = &m->a;
  int dim = a->head_dim, g = h * a->kv_heads / a->heads;
  size_t at_q = ((size_t)(b * a->queries + i) * (size_t)a->heads + (size_t)h) * (size_t)dim;
  size_t row = (size_t)((b * a->heads + h) * a->queries + i);
  double p[PLAIN_KEYS] = {0}, kept[PLAIN_KEYS] = {0}, dp[PLAIN_KEYS] = {0}, max = -INFINITY, sum = 0, delta = 0;
  for (int j = 0; j < a->keys; j++) {
    size_t at_k = ((size_t)(b * a->keys + j) * (size_t)a->kv_heads + (size_t)g) * (size_t)dim;
    p[j] = plain_sees(m, b, i, j) ? 0 : -INFINITY;
    if (p[j] == -INFINITY) continue;
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
  m->lse[row] = sum > 0 ? max + log(sum) : -INFINITY;
  if (!(sum > 0)) return;
  for (int j = 0; j < a->keys; j++) p[j] /= sum, delta += p[j] * dp[j]; /* not from the output */
  for (int j = 0; j < a->keys; j++) {
    size_t at_k = ((size_t)(b * a->keys + j) * (size_t)a->kv_heads + (size_t)g) * (size_t)dim;
    double ds = (double)a->scale * p[j] * (dp[j] - delta);
    m->map[row * (size_t)a->keys + (size_t)j] = p[j];
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
  m->map = host_values(f, (size_t)(a->batch * a->heads * a->queries * a->keys));
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

/* The results of a backend. */
enum { RESULTS = 6 };
typedef struct Results {
  double *value[RESULTS];
  size_t count[RESULTS];
} Results;

/* floor: of expect_close_floor(). With one visible key lse is a score itself, dq and dk a difference of equal
 * numbers. */
static const struct {
  const char *name;
  double floor;
} RESULT[RESULTS] = {{"out", 1e-3}, {"lse", 0.1}, {"map", 1e-3}, {"dq", 0.1}, {"dk", 0.1}, {"dv", 0.1}};

static Results attention_results(Fixture *f, const PlainAttention *m, const Rope *rope, int gap) {
  OPS(f);
  const Attention *a = &m->a;
  Layout queries = plain_layout(a, a->queries, a->heads, gap), keys = plain_layout(a, a->keys, a->kv_heads, gap);
  size_t rows = (size_t)(a->batch * a->heads * a->queries);
  Array q = array_new(f, KIND_COMPUTE, queries, m->q), k = array_new(f, KIND_COMPUTE, keys, m->k);
  Array v = array_new(f, KIND_COMPUTE, keys, m->v), dout = array_new(f, KIND_COMPUTE, queries, m->dout);
  Array out = array_new(f, KIND_COMPUTE, queries, NULL), dq = array_new(f, KIND_COMPUTE, queries, NULL);
  Array dk = array_new(f, KIND_COMPUTE, keys, NULL), dv = array_new(f, KIND_COMPUTE, keys, NULL);
  Array lse = array_floats(f, NULL, rows), map = array_floats(f, NULL, rows * (size_t)a->keys);
  View qv = array_view(f, &q, 0), kv = array_view(f, &k, 0), vv = array_view(f, &v, 0), ov = array_view(f, &out, 0);
  ops->attention(c, a, ov, qv, kv, vv, lse.data);
  ops->attention_map(c, a, map.data, qv, kv, lse.data);
  ops->attention_backward(c, a, array_view(f, &dq, 0), array_view(f, &dk, 0), array_view(f, &dv, 0),
                          array_view(f, &dout, 0), qv, kv, vv, ov, lse.data, rope);
  const Array *arrays[RESULTS] = {&out, &lse, &map, &dq, &dk, &dv};
  Results results;
  for (int i = 0; i < RESULTS; i++) results.value[i] = array_read(f, arrays[i]), results.count[i] = arrays[i]->count;
  return results;
}

static void expect_same_results(const char *what, const Results *got, const Results *want) {
  char name[64];
  for (int i = 0; i < RESULTS; i++) {
    snprintf(name, sizeof name, "%s of %s", RESULT[i].name, what);
    expect_same(name, got->value[i], want->value[i], want->count[i]);
  }
}

static void check_plain(Fixture *f, const PlainAttention *m, const Rope *rope, int gap, const char *name) {
  print_message("  %s\n", name);
  Results got = attention_results(f, m, rope, gap), again = attention_results(f, m, rope, gap);
  const double *want[RESULTS] = {m->out, m->lse, m->map, m->dq, m->dk, m->dv};
  for (int i = 0; i < RESULTS; i++)
    expect_close_floor(f, RESULT[i].name, got.value[i], want[i], got.count[i], TOLERANCE_F32, RESULT[i].floor);
  expect_same_results("the same once more", &again, &got);
}

/* Sizes at the borders of tiles of 16 to 128 rows; every head size that a GPU kernel is compiled for, and padded
 * ones. */
typedef struct Shape {
  const char *name;
  int batch, heads, kv_heads, queries, keys, dim;
  double scale;
  bool causal, ranges, pairs, rotated;
  int offset; /* query i attends to keys up to i + offset, 7 more in each further sequence; 0: no offset */
  int gap;    /* between rows; 3: they are not aligned to 16 bytes, where that is possible */
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
    {"ranges, a gap", 1, 1, 1, 33, 65, 32, 0.4, .ranges = true, .gap = 8},
    {"scores near 0", 1, 1, 1, 17, 17, 16, 1e-6, .causal = true},
    {"large scores", 1, 1, 1, 80, 80, 112, 3.0, .causal = true},
    {"packed pairs", 2, 2, 1, 140, 220, 64, 0.125, .pairs = true},
    {"packed pairs, dropout", 1, 1, 1, 140, 220, 24, 0.2, .pairs = true, .dropout = 0.2f},
};

/* Wide and narrow ranges, some of them empty or reaching beyond the keys; an offset ends them. */
static void fill_ranges(const Shape *s, int32_t *begin, int32_t *end) {
  for (int i = 0; i < s->batch * s->queries; i++) {
    begin[i] = !s->ranges || i % 11 == 5 ? -3 : i * 5 % s->keys * 2 / 3;
    end[i] = !s->ranges ? s->keys : i % 13 == 7 ? begin[i] - i % 2 : i % 3 ? begin[i] + i % 50 + 1 : s->keys + i % 4;
    int last = i % s->queries + s->offset + 7 * (i / s->queries);
    if (s->offset && end[i] > last + 1) end[i] = last + 1;
  }
}

/* Queries of three texts attend to the keys of their own sources, which are shorter or longer; then follow queries
 * without keys, and keys without queries. Each further sequence begins with another text. */
static void fill_pairs(const Shape *s, int32_t *begin, int32_t *end) {
  static const int keys[3] = {70, 1, 130}, queries[3] = {40, 90, 3};
  for (int b = 0; b < s->batch; b++) {
    int i = b * s->queries, key = 0;
    for (int n = b; n < b + 3; n++) {
      for (int last = i + queries[n % 3]; i < last; i++) begin[i] = key, end[i] = key + keys[n % 3];
      key += keys[n % 3];
    }
  }
}

static void set_ranges(Fixture *f, PlainAttention *m, const Shape *s) {
  size_t rows = (size_t)(s->batch * s->queries);
  int32_t *begin = host_memory(f, rows * sizeof *begin), *end = host_memory(f, rows * sizeof *end);
  if (s->pairs) fill_pairs(s, begin, end);
  else fill_ranges(s, begin, end);
  if (s->offset) m->a.causal = false;
  m->key_begin = begin, m->key_end = end;
  m->a.key_begin = array_ints(f, begin, rows).data, m->a.key_end = array_ints(f, end, rows).data;
}

static Attention shape_attention(const Shape *s) {
  return (Attention){.batch = s->batch,
                     .heads = s->heads,
                     .kv_heads = s->kv_heads,
                     .head_dim = s->dim,
                     .queries = s->queries,
                     .keys = s->keys,
                     .scale = (float)s->scale,
                     .causal = s->causal};
}

static void attention_shape(Fixture *f, const Shape *s) {
  PlainAttention m = {.a = shape_attention(s)};
  if (!has_head_size(f, s->dim)) return;
  Dropout dropout = dropout_at(f, s->dropout, 6, 5);
  if (s->dropout > 0) m.a.dropout = &dropout;
  if (s->ranges || s->pairs || s->offset) set_ranges(f, &m, s);
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
  check_plain(f, &m, s->rotated ? &rope : NULL, fitting_width(f, s->gap), s->name);
}

static void test_attention_shapes(void **state) {
  for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) attention_shape(*state, &SHAPES[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention_shapes),
  };
  return run_on_backends("kernels: shapes of attention", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
