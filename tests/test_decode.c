/* The rows of kernels.h that decode one token, on every backend, as LLaMA uses them (test_decode_parts.c: the others):
 * against plain loops in double; and row i of a batch bit for bit the single run of its sequence, whatever the rows
 * beside it, its slot and the number of threads. */
#include "tests/formulas.h"
#include "tests/machine.h"

#include <math.h>
#include <string.h>

/* One layer and a head, small enough for loops in double. */
typedef struct Shape {
  int dim, heads, kv_heads, head_dim, ffn, vocab, pad_rows, capacity;
} Shape;

/* Everything that is not a multiple of anything; one large enough for several threads; odd numbers; and products that
 * are longer than what a GPU's warp asks for at once. */
static const Shape shapes[] = {
    {.dim = 36, .heads = 3, .kv_heads = 1, .head_dim = 10, .ffn = 22, .vocab = 29, .pad_rows = 3, .capacity = 140},
    {.dim = 128, .heads = 4, .kv_heads = 2, .head_dim = 32, .ffn = 172, .vocab = 301, .pad_rows = 19, .capacity = 200},
    {.dim = 33, .heads = 2, .kv_heads = 2, .head_dim = 6, .ffn = 21, .vocab = 1, .pad_rows = 0, .capacity = 140},
    {.dim = 1064, .heads = 1, .kv_heads = 1, .head_dim = 8, .ffn = 9, .vocab = 3, .pad_rows = 5, .capacity = 140},
    {.dim = 8, .heads = 2, .kv_heads = 1, .head_dim = 8, .ffn = 2056, .vocab = 2, .pad_rows = 0, .capacity = 140}};

static Shape fitting_shape(const Fixture *f, size_t i) {
  Shape s = shapes[i];
  s.dim = fitting_width(f, s.dim), s.head_dim = fitting_width(f, s.head_dim), s.ffn = fitting_width(f, s.ffn);
  return s;
}

/* Sequence i of a test is the same numbers wherever it stands. */
enum { SEQUENCES = 5 };
static const int positions_of[SEQUENCES] = {0, 3, 63, 64, 130};
static const float EPSILON = 1e-5f;

typedef enum Part { PART_TABLE, PART_QKV, PART_OUTPUT, PART_GATE_UP, PART_DOWN, PART_NORM, PARTS } Part;

static int query_width(const Shape *s) { return s->heads * s->head_dim; }
static int key_width(const Shape *s) { return s->kv_heads * s->head_dim; }

static ParameterSpec part_of(Fixture *f, const Shape *s, Part part) {
  int rows[PARTS] = {s->vocab, query_width(s) + 2 * key_width(s), s->dim, 2 * s->ffn, s->dim, 1};
  int cols[PARTS] = {s->dim, s->dim, query_width(s), s->dim, s->ffn, s->dim};
  return (ParameterSpec){.rows = rows[part],
                         .cols = cols[part],
                         .pad_rows = part == PART_TABLE ? s->pad_rows : 0,
                         .decay = part != PART_NORM,
                         .gemm = part != PART_NORM,
                         .values = random_values(f, 100 + (uint32_t)part, (size_t)rows[part] * (size_t)cols[part])};
}

/* What one sequence brings: activations, its cache, its last token. */
typedef struct Sequence {
  double *x, *query, *attended, *hidden, *keys, *values; /* [C] [H*D] [H*D] [F] [capacity][G*D] */
  int position, token;
} Sequence;

static Sequence sequence_of(Fixture *f, const Shape *s, int i) {
  uint32_t seed = 1000 + 10 * (uint32_t)i;
  size_t cache = (size_t)s->capacity * (size_t)key_width(s);
  double *keys = random_values(f, seed + 4, cache);
  for (int k = 0; k < key_width(s); k++)
    keys[2 * key_width(s) + k] *= 256; /* one score far above or below all others */
  return (Sequence){.x = random_values(f, seed, (size_t)s->dim),
                    .query = random_values(f, seed + 1, (size_t)query_width(s)),
                    .attended = random_values(f, seed + 2, (size_t)query_width(s)),
                    .hidden = random_values(f, seed + 3, (size_t)s->ffn),
                    .keys = keys,
                    .values = random_values(f, seed + 5, cache),
                    .position = positions_of[i],
                    .token = (7 * i + 5) % s->vocab};
}

/* The results of all operations for one sequence. reference() leaves out `attention`. */
typedef struct Results {
  double *embedding, *query, *keys, *values, *attention, *residual_output, *hidden, *residual_down, *logits;
} Results;

/* ---- the reference ---- */

static double *product(Fixture *f, const ParameterSpec *w, const double *x) {
  return linear_rows(f, w->values, NULL, x, 1, w->rows, w->cols);
}

static double *attended(Fixture *f, const Shape *s, const double *query, const double *keys, const double *values,
                        int count) {
  const HeadShape heads = {s->heads, s->kv_heads, s->head_dim};
  return attention_row(f, &heads, 0.25, query, keys, values, count);
}

static Results reference(Fixture *f, const Shape *s, const Sequence *q) {
  ParameterSpec w[PARTS];
  for (int i = 0; i < PARTS; i++) w[i] = part_of(f, s, (Part)i);
  size_t cache = (size_t)s->capacity * (size_t)key_width(s);
  const NormValues norm = {NORM_RMS, w[PART_NORM].values, NULL, (double)EPSILON};
  double *x = host_values(f, (size_t)s->dim);
  normalize_row(&norm, x, q->x, (size_t)s->dim);
  double *qkv = product(f, &w[PART_QKV], x);
  double *gate_up = product(f, &w[PART_GATE_UP], x), *hidden = host_values(f, (size_t)s->ffn);
  rotate_heads(qkv, s->heads + s->kv_heads, s->head_dim, s->head_dim, q->position);
  for (int i = 0; i < s->ffn; i++) hidden[i] = gate_up[i] / (1 + exp(-gate_up[i])) * gate_up[s->ffn + i];
  Results r = {.query = qkv, .hidden = hidden, .keys = host_values(f, cache), .values = host_values(f, cache)};
  memcpy(r.keys, q->keys, cache * sizeof(double));
  memcpy(r.values, q->values, cache * sizeof(double));
  for (int i = 0; i < key_width(s); i++) {
    r.keys[q->position * key_width(s) + i] = qkv[query_width(s) + i];
    r.values[q->position * key_width(s) + i] = qkv[query_width(s) + key_width(s) + i];
  }
  r.embedding = host_values(f, (size_t)s->dim);
  memcpy(r.embedding, w[PART_TABLE].values + (size_t)q->token * (size_t)s->dim, (size_t)s->dim * sizeof(double));
  r.residual_output = sum_of(f, q->x, product(f, &w[PART_OUTPUT], q->attended), (size_t)s->dim);
  r.residual_down = sum_of(f, q->x, product(f, &w[PART_DOWN], q->hidden), (size_t)s->dim);
  r.logits = product(f, &w[PART_TABLE], x);
  return r;
}

/* ---- the device ---- */

typedef struct Layer {
  Parameters params;
  Norm norm;
  const float *rope_table;
} Layer;

static void layer_new(Machine *m, const Shape *s, Layer *layer) {
  ParameterSpec w[PARTS];
  for (int i = 0; i < PARTS; i++) w[i] = part_of(m->fixture, s, (Part)i);
  const Parameters p = machine_parameters(m, w, PARTS);
  layer->params = p;
  layer->norm = rms_norm_of(p.master + p.groups[PART_NORM].matrix.offset, EPSILON);
  const double *table = rope_table(m->fixture, s->capacity, s->head_dim);
  layer->rope_table = machine_put(m, KIND_F32, table, (size_t)(s->capacity * s->head_dim));
}

/* The sequences' arrays one after the other. */
static double *gathered(Fixture *f, const Sequence *q, int rows, size_t member, size_t count) {
  double *all = host_values(f, (size_t)rows * count);
  for (int r = 0; r < rows; r++) {
    double *one;
    memcpy(&one, (const char *)&q[r] + member, sizeof one);
    memcpy(all + (size_t)r * count, one, count * sizeof(double));
  }
  return all;
}

#define GATHER(f, q, rows, member, count) gathered(f, q, rows, offsetof(Sequence, member), (size_t)(count))

static Sequences sequences_new(Machine *m, const Sequence *q, int rows, int capacity) {
  int32_t *tokens = host_memory(m->fixture, (size_t)(rows * capacity) * 4),
          *lengths = host_memory(m->fixture, (size_t)rows * 4);
  int32_t *positions = host_memory(m->fixture, (size_t)rows * 4), *zeros = host_memory(m->fixture, (size_t)rows * 4);
  for (int r = 0; r < rows; r++) {
    positions[r] = q[r].position;
    lengths[r] = q[r].position < capacity ? q[r].position + 1 : capacity;
    tokens[r * capacity + lengths[r] - 1] = q[r].token;
  }
  return (Sequences){.rows = rows,
                     .capacity = capacity,
                     .tokens = machine_put_ints(m, tokens, (size_t)(rows * capacity)),
                     .lengths = machine_put_ints(m, lengths, (size_t)rows),
                     .positions = machine_put_ints(m, positions, (size_t)rows),
                     .streams = machine_put_ints(m, zeros, (size_t)rows),
                     .status = machine_put_ints(m, zeros, (size_t)rows),
                     .drawn = machine_put(m, KIND_I32, NULL, 2 * (size_t)rows)};
}

/* All operations on `rows` sequences; every result is [rows][...]. */
static Results decode(Machine *m, const Shape *s, const Sequence *q, int rows) {
  Fixture *f = m->fixture;
  Layer layer = {0};
  layer_new(m, s, &layer);
  const ParameterGroup *w = layer.params.groups;
  Sequences seq = sequences_new(m, q, rows, s->capacity);
  int cache_width = s->capacity * key_width(s);
  double *keys = swapped(f, GATHER(f, q, rows, keys, cache_width), rows, s->capacity, s->kv_heads, s->head_dim);
  double *values = swapped(f, GATHER(f, q, rows, values, cache_width), rows, s->capacity, s->kv_heads, s->head_dim);
  KvCache cache = {.k = machine_put_rows(m, keys, rows, cache_width),
                   .v = machine_put_rows(m, values, rows, cache_width),
                   .capacity = s->capacity,
                   .kv_heads = s->kv_heads,
                   .head_dim = s->head_dim};
  const double *x_values = GATHER(f, q, rows, x, s->dim);
  void *x = machine_put_rows(m, x_values, rows, s->dim),
       *query_in = machine_put_rows(m, GATHER(f, q, rows, query, query_width(s)), rows, query_width(s));
  void *in = machine_put_rows(m, GATHER(f, q, rows, attended, query_width(s)), rows, query_width(s));
  void *down_in = machine_put_rows(m, GATHER(f, q, rows, hidden, s->ffn), rows, s->ffn);
  void *embedded = machine_put_rows(m, NULL, rows, s->dim), *query = machine_put_rows(m, NULL, rows, query_width(s));
  void *attention = machine_put_rows(m, NULL, rows, query_width(s)), *hidden = machine_put_rows(m, NULL, rows, s->ffn);
  void *residual = machine_put_rows(m, x_values, rows, s->dim), *down = machine_put_rows(m, x_values, rows, s->dim);
  float *logits = machine_put(m, KIND_F32, NULL, (size_t)(rows * s->vocab));
  Rope rope = {.table = layer.rope_table};
  const size_t output = w[PART_OUTPUT].matrix.offset;
  const Upcoming next = {&layer.params, output, layer.params.count - output};
  const Embedding e = table_of(w[PART_TABLE].matrix);
  const MlpShape mlp = {ACTIVATION_SILU, true, s->ffn};
  const Norm *norm = &layer.norm;
  m->ops->decode_embedding(m->context, embedded, &layer.params, &e, &seq);
  m->ops->decode_qkv(m->context, query, &cache, x, norm, &layer.params, layer_of(w[PART_QKV].matrix), NULL, &rope,
                     &seq);
  m->ops->decode_attention(m->context, attention, query_in, &cache, s->heads, 0.25f, NULL, &next, &seq);
  m->ops->decode_residual(m->context, residual, in, &layer.params, layer_of(w[PART_OUTPUT].matrix), &seq);
  m->ops->decode_mlp(m->context, hidden, x, norm, &layer.params, layer_of(w[PART_GATE_UP].matrix), &mlp, &seq);
  m->ops->decode_residual(m->context, down, down_in, &layer.params, layer_of(w[PART_DOWN].matrix), &seq);
  m->ops->decode_logits(m->context, logits, x, norm, &layer.params, layer_of(w[PART_TABLE].matrix), s->vocab, rows);
  keys = machine_get_rows(m, cache.k, rows, cache_width);
  values = machine_get_rows(m, cache.v, rows, cache_width);
  return (Results){.embedding = machine_get_rows(m, embedded, rows, s->dim),
                   .query = machine_get_rows(m, query, rows, query_width(s)),
                   .keys = swapped(f, keys, rows, s->kv_heads, s->capacity, s->head_dim),
                   .values = swapped(f, values, rows, s->kv_heads, s->capacity, s->head_dim),
                   .attention = machine_get_rows(m, attention, rows, query_width(s)),
                   .residual_output = machine_get_rows(m, residual, rows, s->dim),
                   .hidden = machine_get_rows(m, hidden, rows, s->ffn),
                   .residual_down = machine_get_rows(m, down, rows, s->dim),
                   .logits = machine_get(m, KIND_F32, logits, (size_t)(rows * s->vocab))};
}

/* ---- the tests ---- */

static void test_decode_reference(void **state) {
  Fixture *f = *state;
  for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
    for (int i = 0; i < SEQUENCES; i++) {
      const Shape fitting = fitting_shape(f, shape), *s = &fitting;
      Sequence q = sequence_of(f, s, i);
      size_t cache = (size_t)(s->capacity * key_width(s));
      Machine m = machine_open(f, 0);
      Results got = decode(&m, s, &q, 1), want = reference(f, s, &q);
      /* of the keys and values as they are stored: scores of some tens turn bf16's rounding of a key into percents */
      want.attention = attended(f, s, q.query, got.keys, got.values, q.position + 1);
      expect_same("embedding", got.embedding, want.embedding, (size_t)s->dim);
      expect_close(f, "query", got.query, want.query, (size_t)query_width(s), TOLERANCE_F32);
      expect_close(f, "keys", got.keys, want.keys, cache, TOLERANCE_F32);
      expect_close(f, "values", got.values, want.values, cache, TOLERANCE_F32);
      expect_close(f, "attention", got.attention, want.attention, (size_t)query_width(s), TOLERANCE_F32);
      expect_close(f, "attention output", got.residual_output, want.residual_output, (size_t)s->dim, TOLERANCE_F32);
      expect_close(f, "hidden", got.hidden, want.hidden, (size_t)s->ffn, TOLERANCE_F32);
      expect_close(f, "MLP output", got.residual_down, want.residual_down, (size_t)s->dim, TOLERANCE_F32);
      expect_close(f, "logits", got.logits, want.logits, (size_t)s->vocab, TOLERANCE_F32);
      machine_close(&m);
    }
}

/* Row `row` of `got` must equal the single run `want`. */
static void expect_same_row(const Shape *s, const Results *got, int row, const Results *want) {
  size_t r = (size_t)row, dim = (size_t)s->dim, ffn = (size_t)s->ffn, vocab = (size_t)s->vocab;
  size_t query = (size_t)query_width(s), cache = (size_t)(s->capacity * key_width(s));
  expect_same("embedding", got->embedding + r * dim, want->embedding, dim);
  expect_same("query", got->query + r * query, want->query, query);
  expect_same("keys", got->keys + r * cache, want->keys, cache);
  expect_same("values", got->values + r * cache, want->values, cache);
  expect_same("attention", got->attention + r * query, want->attention, query);
  expect_same("attention output", got->residual_output + r * dim, want->residual_output, dim);
  expect_same("hidden", got->hidden + r * ffn, want->hidden, ffn);
  expect_same("MLP output", got->residual_down + r * dim, want->residual_down, dim);
  expect_same("logits", got->logits + r * vocab, want->logits, vocab);
}

/* Batches that begin with each of the sequences in turn, with 1 to 3 threads: every sequence uses every slot. */
static void test_decode_rows_are_single_runs(void **state) {
  Fixture *f = *state;
  static const int by_backend[2][6] = {{1, 2, 3, 4, 5, 9},
                                       {1, 2, 3, 9, 17, 33}}; /* a GPU multiplies 16 and 32 at once */
  const int *const sizes = by_backend[fixture_is_cuda(f)];
  for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
    const Shape fitting = fitting_shape(f, shape), *s = &fitting;
    Results single[SEQUENCES];
    Sequence all[SEQUENCES], batch[33];
    for (int i = 0; i < SEQUENCES; i++) {
      Machine m = machine_open(f, 1);
      all[i] = sequence_of(f, s, i);
      single[i] = decode(&m, s, &all[i], 1);
      machine_close(&m);
    }
    for (int threads = 1; threads <= (fixture_is_cuda(f) ? 1 : 3); threads++)
      for (size_t size = 0; size < 6; size++)
        for (int first = 0, rows = sizes[size]; first < (threads == 2 ? SEQUENCES : 1); first++) {
          Machine m = machine_open(f, threads);
          for (int r = 0; r < rows; r++) batch[r] = all[(first + r) % SEQUENCES];
          Results got = decode(&m, s, batch, rows);
          for (int r = 0; r < rows; r++) expect_same_row(s, &got, r, &single[(first + r) % SEQUENCES]);
          machine_close(&m);
        }
  }
}

/* Heads of all sizes over long contexts, to which every key contributes. */
static void test_decode_attention_sizes(void **state) {
  Fixture *f = *state;
  static const int sizes[] = {2, 6, 8, 20, 36, 48, 64, 96, 128, 200, 256}, counts[] = {1, 37, 300, 700};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t j = 0; has_head_size(f, sizes[i]) && j < sizeof counts / sizeof *counts; j++) {
      Shape s = {.heads = 2, .kv_heads = 1, .head_dim = sizes[i], .capacity = 700};
      int width = query_width(&s), cache_width = s.capacity * key_width(&s), position = counts[j] - 1;
      double *keys = random_values(f, 1, (size_t)cache_width), *values = random_values(f, 2, (size_t)cache_width);
      double *query = random_values(f, 3, (size_t)width);
      Machine m = machine_open(f, 0);
      for (int k = 0; k < cache_width; k++) keys[k] = k / key_width(&s) < counts[j] ? keys[k] / 8 : (double)NAN;
      for (int k = 0; k < cache_width; k++) values[k] = k / key_width(&s) < counts[j] ? values[k] + 1 : (double)NAN;
      KvCache cache = {machine_put_rows(&m, keys, 1, cache_width), machine_put_rows(&m, values, 1, cache_width),
                       s.capacity, 1, sizes[i]};
      Sequences seq = {.rows = 1, .capacity = 1, .positions = machine_put_ints(&m, &position, 1)};
      void *q = machine_put_rows(&m, query, 1, width), *out = machine_put_rows(&m, NULL, 1, width);
      m.ops->decode_attention(m.context, out, q, &cache, s.heads, 0.25f, NULL, NULL, &seq);
      expect_close(f, "attention", machine_get_rows(&m, out, 1, width), attended(f, &s, query, keys, values, counts[j]),
                   (size_t)width, TOLERANCE_F32);
      machine_close(&m);
    }
}

/* A row whose position is beyond the cache must not write to it or change the neighboring row. */
static void test_decode_full_cache(void **state) {
  Fixture *f = *state;
  const Shape fitting = fitting_shape(f, 0), *s = &fitting;
  Machine m = machine_open(f, 0);
  Sequence q[2] = {sequence_of(f, s, 1), sequence_of(f, s, 2)};
  Results single = decode(&m, s, &q[1], 1);
  q[0].position = s->capacity;
  Results got = decode(&m, s, q, 2);
  size_t cache = (size_t)(s->capacity * key_width(s));
  expect_same("keys of a full row", got.keys, q[0].keys, cache);
  expect_same("values of a full row", got.values, q[0].values, cache);
  expect_same("keys", got.keys + cache, single.keys, cache);
  expect_same("attention", got.attention + query_width(s), single.attention, (size_t)query_width(s));
  machine_close(&m);
}

static void test_cache_store(void **state) {
  Fixture *f = *state;
  enum { SLOTS = 3, CAPACITY = 9, GROUPS = 2, HEADS = 4, LENGTH = 5, SLOT = 1 };
  const int dim = fitting_width(f, 6), width = (HEADS + 2 * GROUPS) * dim, row = GROUPS * dim;
  const int count = SLOTS * CAPACITY * row;
  Machine m = machine_open(f, 0);
  double *before = random_values(f, 1, (size_t)count), *packed = random_values(f, 2, (size_t)(LENGTH * width));
  double *want_k = host_values(f, (size_t)count), *want_v = host_values(f, (size_t)count);
  memcpy(want_k, before, (size_t)count * sizeof(double));
  memcpy(want_v, before, (size_t)count * sizeof(double));
  for (int t = 0; t < LENGTH; t++)
    for (int i = 0; i < row; i++) {
      const int at = ((SLOT * GROUPS + i / dim) * CAPACITY + t) * dim + i % dim;
      want_k[at] = packed[t * width + HEADS * dim + i];
      want_v[at] = packed[t * width + (HEADS + GROUPS) * dim + i];
    }
  KvCache cache = {machine_put_rows(&m, before, 1, count), machine_put_rows(&m, before, 1, count), CAPACITY, GROUPS,
                   dim};
  char *qkv = machine_put_rows(&m, packed, LENGTH, width);
  View k = {.data = qkv + (size_t)(HEADS * dim) * dtype_bytes(f->dtype),
            .batch = LENGTH * width,
            .row = width,
            .head = dim},
       v = k;
  v.data = qkv + (size_t)((HEADS + GROUPS) * dim) * dtype_bytes(f->dtype);
  m.ops->cache_store(m.context, &cache, SLOT, k, v, LENGTH);
  expect_same("keys", machine_get_rows(&m, cache.k, 1, count), want_k, (size_t)count);
  expect_same("values", machine_get_rows(&m, cache.v, 1, count), want_v, (size_t)count);
  machine_close(&m);
}

/* A model that has diverged shows it in the logits. */
static void test_decode_nan_reaches_the_logits(void **state) {
  Fixture *f = *state;
  const Shape fitting = fitting_shape(f, 1), *s = &fitting;
  Machine m = machine_open(f, 0);
  Sequence q = sequence_of(f, s, 2);
  q.x[5] = NAN;
  q.query[0] = NAN;
  Results got = decode(&m, s, &q, 1);
  assert_true(isnan(got.logits[0]) && isnan(got.logits[s->vocab - 1]));
  assert_true(isnan(got.hidden[0]));
  assert_true(isnan(got.attention[0]));
  machine_close(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_reference),
      cmocka_unit_test(test_decode_rows_are_single_runs),
      cmocka_unit_test(test_decode_attention_sizes),
      cmocka_unit_test(test_decode_full_cache),
      cmocka_unit_test(test_cache_store),
      cmocka_unit_test(test_decode_nan_reaches_the_logits),
  };
  return run_on_backends("decode", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
