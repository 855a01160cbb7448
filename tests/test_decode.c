/* The rows of kernels.h that decode one token, and the sampler, on every backend.
 *
 * Decoding: against plain loops in double; and row i of a batch bit for bit the single run of its sequence, whatever
 * the rows beside it, its slot and the number of threads. Sampling: every token against the exact distribution (sorted,
 * in double) and the documented random number, chi-square of many draws, and a table of the cases that samplers are
 * known to get wrong. */
#include "kernels/philox.h"
#include "tests/backends.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a context of our own: the number of threads is part of what is tested ---- */

typedef struct Machine {
  Fixture *fixture; /* owns host memory */
  const Backend *ops;
  Context *context;
} Machine;

static Machine machine_open(Fixture *f, int threads) {
  Machine m = {.fixture = f, .ops = f->backend};
  Error error = {0};
  ContextOptions options = {.dtype = f->dtype, .threads = threads};
  if (!f->backend->open(&m.context, &options, &error)) fail_msg("%s", error.text);
  return m;
}

static void machine_close(Machine *m) {
  StepState report;
  Error error = {0};
  m->ops->poll(m->context, &report, 1, true, &error);
  if (error.code != EXIT_DONE) fail_msg("the context holds an error: %s", error.text);
  m->ops->close(m->context);
}

static size_t bytes_of(const Machine *m, Kind kind) {
  return kind == KIND_COMPUTE ? dtype_bytes(m->fixture->dtype) : 4;
}

/* Host values in the form of the device; NULL: 0xFF bytes, which are NaN in every float type. */
static void *put(Machine *m, Kind kind, const double *values, size_t count) {
  size_t width = bytes_of(m, kind);
  unsigned char *host = host_memory(m->fixture, count * width);
  memset(host, 0xFF, count * width);
  for (size_t i = 0; values && i < count; i++) {
    float single = (float)values[i];
    int32_t integer = kind == KIND_I32 ? (int32_t)values[i] : 0;
    uint32_t bits;
    memcpy(&bits, &single, 4);
    uint16_t high = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    memcpy(host + i * width, kind == KIND_I32 ? (void *)&integer : width == 4 ? (void *)&single : (void *)&high, width);
  }
  void *device = m->ops->alloc(m->context, "test", count * width);
  assert_non_null(device);
  m->ops->upload(m->context, device, host, count * width);
  return device;
}

static void *put_ints(Machine *m, const int32_t *values, size_t count) {
  double *wide = host_values(m->fixture, count);
  for (size_t i = 0; i < count; i++) wide[i] = values[i];
  return put(m, KIND_I32, wide, count);
}

static double *get(Machine *m, Kind kind, const void *device, size_t count) {
  size_t width = bytes_of(m, kind);
  unsigned char *host = host_memory(m->fixture, count * width);
  double *values = host_values(m->fixture, count);
  m->ops->download(m->context, host, device, count * width);
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = 0;
    memcpy(&bits, host + i * width, width);
    if (width == 2) bits <<= 16;
    float single;
    memcpy(&single, &bits, 4);
    values[i] = kind == KIND_I32 ? (double)(int32_t)bits : (double)single;
  }
  return values;
}

/* Kernels that are run thread by thread on a CPU take their time: every check, on fewer numbers. */
static bool emulated(const Fixture *f) { return strcmp(f->backend->name, "cpu") != 0; }

/* ---- decoding ---- */

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

/* Sequence i of a test is the same numbers wherever it stands. */
enum { SEQUENCES = 5 };
static const int positions_of[SEQUENCES] = {0, 3, 63, 64, 130};
static const float EPSILON = 1e-5f;

typedef enum Part { PART_TABLE, PART_QKV, PART_OUTPUT, PART_GATE_UP, PART_DOWN, PART_GAIN, PARTS } Part;

static int query_width(const Shape *s) { return s->heads * s->head_dim; }
static int key_width(const Shape *s) { return s->kv_heads * s->head_dim; }

static ParameterSpec part_of(Fixture *f, const Shape *s, Part part) {
  int rows[PARTS] = {s->vocab, query_width(s) + 2 * key_width(s), s->dim, 2 * s->ffn, s->dim, 1};
  int cols[PARTS] = {s->dim, s->dim, query_width(s), s->dim, s->ffn, s->dim};
  return (ParameterSpec){.rows = rows[part],
                         .cols = cols[part],
                         .pad_rows = part == PART_TABLE ? s->pad_rows : 0,
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

/* -- the reference -- */

static double *product(Fixture *f, const ParameterSpec *w, const double *x) {
  double *y = host_values(f, (size_t)w->rows);
  for (int m = 0; m < w->rows; m++)
    for (int k = 0; k < w->cols; k++) y[m] += w->values[(size_t)m * (size_t)w->cols + (size_t)k] * x[k];
  return y;
}

static double *normal(Fixture *f, const double *x, const double *weight, int dim) {
  double *y = host_values(f, (size_t)dim), squares = 0;
  for (int i = 0; i < dim; i++) squares += x[i] * x[i];
  for (int i = 0; i < dim; i++) y[i] = weight[i] * x[i] / sqrt(squares / dim + (double)EPSILON);
  return y;
}

static double angle_of(int position, int i, int head_dim) { return position * pow(10000.0, -2.0 * i / head_dim); }

static void rotate(double *x, int heads, int head_dim, int position) {
  for (int h = 0; h < heads; h++)
    for (int i = 0; i < head_dim / 2; i++) {
      double *a = x + h * head_dim + i, *b = a + head_dim / 2, a0 = *a, b0 = *b,
             angle = angle_of(position, i, head_dim);
      *a = a0 * cos(angle) - b0 * sin(angle);
      *b = b0 * cos(angle) + a0 * sin(angle);
    }
}

static double *attended(Fixture *f, const Shape *s, const double *query, const double *keys, const double *values,
                        int count) {
  double *out = host_values(f, (size_t)query_width(s)), *p = host_values(f, (size_t)count);
  int d = s->head_dim;
  for (int h = 0; h < s->heads; h++) {
    int group = h * s->kv_heads / s->heads * d;
    double max = -INFINITY, total = 0;
    for (int j = 0; j < count; j++) {
      p[j] = 0;
      for (int i = 0; i < d; i++) p[j] += query[h * d + i] * keys[j * key_width(s) + group + i];
      p[j] *= 0.25;
      max = fmax(max, p[j]);
    }
    for (int j = 0; j < count; j++) total += p[j] = exp(p[j] - max);
    for (int j = 0; j < count; j++)
      for (int i = 0; i < d; i++) out[h * d + i] += p[j] / total * values[j * key_width(s) + group + i];
  }
  return out;
}

static double *plus(Fixture *f, const double *a, const double *b, int count) {
  double *sum = host_values(f, (size_t)count);
  for (int i = 0; i < count; i++) sum[i] = a[i] + b[i];
  return sum;
}

static Results reference(Fixture *f, const Shape *s, const Sequence *q) {
  ParameterSpec w[PARTS];
  for (int i = 0; i < PARTS; i++) w[i] = part_of(f, s, (Part)i);
  size_t cache = (size_t)s->capacity * (size_t)key_width(s);
  double *x = normal(f, q->x, w[PART_GAIN].values, s->dim), *qkv = product(f, &w[PART_QKV], x);
  double *gate_up = product(f, &w[PART_GATE_UP], x), *hidden = host_values(f, (size_t)s->ffn);
  rotate(qkv, s->heads + s->kv_heads, s->head_dim, q->position);
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
  r.residual_output = plus(f, q->x, product(f, &w[PART_OUTPUT], q->attended), s->dim);
  r.residual_down = plus(f, q->x, product(f, &w[PART_DOWN], q->hidden), s->dim);
  r.logits = product(f, &w[PART_TABLE], x);
  return r;
}

/* -- the device -- */

typedef struct Layer {
  Parameters params;
  const float *weight, *rope_table;
  ParameterGroup groups[PARTS];
} Layer;

static void layer_new(Machine *m, const Shape *s, Layer *layer) {
  Parameters p = {.groups = layer->groups, .group_count = PARTS};
  ParameterSpec w[PARTS];
  for (int i = 0; i < PARTS; i++) {
    w[i] = part_of(m->fixture, s, (Part)i);
    Matrix matrix = {.offset = p.count, .rows = w[i].rows + w[i].pad_rows, .cols = w[i].cols};
    layer->groups[i] = (ParameterGroup){.matrix = matrix, .decay = i != PART_GAIN, .gemm = i != PART_GAIN};
    size_t count = (size_t)matrix.rows * (size_t)matrix.cols;
    p.count += (count + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
  }
  double *flat = host_values(m->fixture, p.count);
  for (int i = 0; i < PARTS; i++)
    memcpy(flat + layer->groups[i].matrix.offset, w[i].values, (size_t)w[i].rows * (size_t)w[i].cols * sizeof(double));
  p.master = put(m, KIND_F32, flat, p.count);
  m->ops->refresh_parameters(m->context, &p);
  layer->params = p;
  layer->weight = p.master + layer->groups[PART_GAIN].matrix.offset;
  double *table = host_values(m->fixture, (size_t)(s->capacity * s->head_dim));
  for (int t = 0; t < s->capacity; t++)
    for (int i = 0; i < s->head_dim / 2; i++) {
      table[t * s->head_dim + 2 * i] = cos(angle_of(t, i, s->head_dim));
      table[t * s->head_dim + 2 * i + 1] = sin(angle_of(t, i, s->head_dim));
    }
  layer->rope_table = put(m, KIND_F32, table, (size_t)(s->capacity * s->head_dim));
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
                     .tokens = put_ints(m, tokens, (size_t)(rows * capacity)),
                     .lengths = put_ints(m, lengths, (size_t)rows),
                     .positions = put_ints(m, positions, (size_t)rows),
                     .streams = put_ints(m, zeros, (size_t)rows),
                     .status = put_ints(m, zeros, (size_t)rows),
                     .drawn = put_ints(m, zeros, (size_t)rows)};
}

static void *put_rows(Machine *m, const double *values, int rows, int width) {
  return put(m, KIND_COMPUTE, values, (size_t)rows * (size_t)width);
}

static double *get_rows(Machine *m, const void *device, int rows, int width) {
  return get(m, KIND_COMPUTE, device, (size_t)rows * (size_t)width);
}

/* All operations on `rows` sequences; every result is [rows][...]. */
static Results decode(Machine *m, const Shape *s, const Sequence *q, int rows) {
  Fixture *f = m->fixture;
  Layer layer = {0};
  layer_new(m, s, &layer);
  const ParameterGroup *w = layer.groups;
  Sequences seq = sequences_new(m, q, rows, s->capacity);
  int cache_width = s->capacity * key_width(s);
  KvCache cache = {.k = put_rows(m, GATHER(f, q, rows, keys, cache_width), rows, cache_width),
                   .v = put_rows(m, GATHER(f, q, rows, values, cache_width), rows, cache_width),
                   .capacity = s->capacity,
                   .kv_heads = s->kv_heads,
                   .head_dim = s->head_dim};
  const double *x_values = GATHER(f, q, rows, x, s->dim);
  void *x = put_rows(m, x_values, rows, s->dim),
       *query_in = put_rows(m, GATHER(f, q, rows, query, query_width(s)), rows, query_width(s));
  void *in = put_rows(m, GATHER(f, q, rows, attended, query_width(s)), rows, query_width(s));
  void *down_in = put_rows(m, GATHER(f, q, rows, hidden, s->ffn), rows, s->ffn);
  void *embedded = put_rows(m, NULL, rows, s->dim), *query = put_rows(m, NULL, rows, query_width(s));
  void *attention = put_rows(m, NULL, rows, query_width(s)), *hidden = put_rows(m, NULL, rows, s->ffn);
  void *residual = put_rows(m, x_values, rows, s->dim), *down = put_rows(m, x_values, rows, s->dim);
  float *logits = put(m, KIND_F32, NULL, (size_t)(rows * s->vocab));
  Rope rope = {.table = layer.rope_table};
  m->ops->decode_embedding(m->context, embedded, &layer.params, w[PART_TABLE].matrix, &seq);
  m->ops->decode_qkv(m->context, query, &cache, x, layer.weight, EPSILON, &layer.params, w[PART_QKV].matrix, &rope,
                     &seq);
  m->ops->decode_attention(m->context, attention, query_in, &cache, s->heads, 0.25f, &seq);
  m->ops->decode_residual(m->context, residual, in, &layer.params, w[PART_OUTPUT].matrix, &seq);
  m->ops->decode_mlp(m->context, hidden, x, layer.weight, EPSILON, &layer.params, w[PART_GATE_UP].matrix, &seq);
  m->ops->decode_residual(m->context, down, down_in, &layer.params, w[PART_DOWN].matrix, &seq);
  m->ops->decode_logits(m->context, logits, x, layer.weight, EPSILON, &layer.params, w[PART_TABLE].matrix, s->vocab,
                        rows);
  return (Results){.embedding = get_rows(m, embedded, rows, s->dim),
                   .query = get_rows(m, query, rows, query_width(s)),
                   .keys = get_rows(m, cache.k, rows, cache_width),
                   .values = get_rows(m, cache.v, rows, cache_width),
                   .attention = get_rows(m, attention, rows, query_width(s)),
                   .residual_output = get_rows(m, residual, rows, s->dim),
                   .hidden = get_rows(m, hidden, rows, s->ffn),
                   .residual_down = get_rows(m, down, rows, s->dim),
                   .logits = get(m, KIND_F32, logits, (size_t)(rows * s->vocab))};
}

/* -- the tests -- */

static void test_decode_reference(void **state) {
  Fixture *f = *state;
  for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++)
    for (int i = 0; i < SEQUENCES; i++) {
      const Shape *s = &shapes[shape];
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

/* Row `row` of `got` is the single run `want`. */
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

/* Batches of sequences that begin with each of them in turn, on 1 to 3 threads: every sequence meets every slot. */
static void test_decode_rows_are_single_runs(void **state) {
  Fixture *f = *state;
  static const int sizes[] = {1, 2, 3, 4, 5, 9};
  for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
    const Shape *s = &shapes[shape];
    Results single[SEQUENCES];
    Sequence all[SEQUENCES], batch[9];
    for (int i = 0; i < SEQUENCES; i++) {
      Machine m = machine_open(f, 1);
      all[i] = sequence_of(f, s, i);
      single[i] = decode(&m, s, &all[i], 1);
      machine_close(&m);
    }
    for (int threads = 1; threads <= (emulated(f) ? 1 : 3); threads++)
      for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
        for (int first = 0, rows = sizes[size]; first < (threads == 2 ? SEQUENCES : 1); first++) {
          Machine m = machine_open(f, threads);
          for (int r = 0; r < rows; r++) batch[r] = all[(first + r) % SEQUENCES];
          Results got = decode(&m, s, batch, rows);
          for (int r = 0; r < rows; r++) expect_same_row(s, &got, r, &single[(first + r) % SEQUENCES]);
          machine_close(&m);
        }
  }
}

/* Heads of all sizes over long contexts, in which every key counts. */
static void test_decode_attention_sizes(void **state) {
  Fixture *f = *state;
  static const int sizes[] = {2, 6, 8, 20, 36, 48, 64, 96, 128, 200, 256}, counts[] = {1, 37, 300, 700};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t j = 0; j < sizeof counts / sizeof *counts; j++) {
      Shape s = {.heads = 2, .kv_heads = 1, .head_dim = sizes[i], .capacity = 700};
      int width = query_width(&s), cache_width = s.capacity * key_width(&s), position = counts[j] - 1;
      double *keys = random_values(f, 1, (size_t)cache_width), *values = random_values(f, 2, (size_t)cache_width);
      double *query = random_values(f, 3, (size_t)width);
      Machine m = machine_open(f, 0);
      for (int k = 0; k < cache_width; k++) keys[k] = k / key_width(&s) < counts[j] ? keys[k] / 8 : (double)NAN;
      for (int k = 0; k < cache_width; k++) values[k] = k / key_width(&s) < counts[j] ? values[k] + 1 : (double)NAN;
      KvCache cache = {put_rows(&m, keys, 1, cache_width), put_rows(&m, values, 1, cache_width), s.capacity, 1,
                       sizes[i]};
      Sequences seq = {.rows = 1, .capacity = 1, .positions = put_ints(&m, &position, 1)};
      void *q = put_rows(&m, query, 1, width), *out = put_rows(&m, NULL, 1, width);
      m.ops->decode_attention(m.context, out, q, &cache, s.heads, 0.25f, &seq);
      expect_close(f, "attention", get_rows(&m, out, 1, width), attended(f, &s, query, keys, values, counts[j]),
                   (size_t)width, TOLERANCE_F32);
      machine_close(&m);
    }
}

/* A row whose position is behind the cache must not write into it, nor disturb the row beside it. */
static void test_decode_full_cache(void **state) {
  Fixture *f = *state;
  const Shape *s = &shapes[0];
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
  enum { SLOTS = 3, CAPACITY = 9, GROUPS = 2, DIM = 6, HEADS = 4, LENGTH = 5, SLOT = 1, POSITION = 3 };
  enum { WIDTH = (HEADS + 2 * GROUPS) * DIM, ROW = GROUPS * DIM, CACHE = SLOTS * CAPACITY * ROW };
  Machine m = machine_open(f, 0);
  double *before = random_values(f, 1, CACHE), *packed = random_values(f, 2, LENGTH * WIDTH);
  double *want_k = host_values(f, CACHE), *want_v = host_values(f, CACHE);
  memcpy(want_k, before, CACHE * sizeof(double));
  memcpy(want_v, before, CACHE * sizeof(double));
  for (int t = 0; t < LENGTH; t++)
    for (int i = 0; i < ROW; i++) {
      want_k[(SLOT * CAPACITY + POSITION + t) * ROW + i] = packed[t * WIDTH + HEADS * DIM + i];
      want_v[(SLOT * CAPACITY + POSITION + t) * ROW + i] = packed[t * WIDTH + (HEADS + GROUPS) * DIM + i];
    }
  KvCache cache = {put_rows(&m, before, 1, CACHE), put_rows(&m, before, 1, CACHE), CAPACITY, GROUPS, DIM};
  char *qkv = put_rows(&m, packed, LENGTH, WIDTH);
  size_t width = dtype_bytes(f->dtype);
  View k = {.data = qkv + HEADS * DIM * width, .batch = LENGTH * WIDTH, .row = WIDTH, .head = DIM}, v = k;
  v.data = qkv + (HEADS + GROUPS) * DIM * width;
  m.ops->cache_store(m.context, &cache, SLOT, POSITION, k, v, LENGTH);
  expect_same("keys", get_rows(&m, cache.k, 1, CACHE), want_k, CACHE);
  expect_same("values", get_rows(&m, cache.v, 1, CACHE), want_v, CACHE);
  machine_close(&m);
}

/* A model that has diverged shows it in the logits. */
static void test_decode_nan_reaches_the_logits(void **state) {
  Fixture *f = *state;
  const Shape *s = &shapes[1];
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

/* ---- sampling ---- */

static const Sampling PLAIN = {.repeat_penalty = 1, .top_p = 1, .temperature = 1, .seed = 42};

/* The exact distribution, the slow way: p [V]; all zero when the logits are not usable. */
typedef struct Ranked {
  double logit, p;
  int id;
} Ranked;

static int by_falling_logit(const void *a, const void *b) {
  const Ranked *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static double *penalized(Fixture *f, const double *logits, int vocab, const int32_t *tokens, int length,
                         const Sampling *o) {
  double *z = host_values(f, (size_t)vocab);
  memcpy(z, logits, (size_t)vocab * sizeof *z);
  for (int id = 0; id < vocab; id++) {
    bool seen = false;
    for (int i = length - 1; i >= 0 && i >= length - o->repeat_last_n; i--) seen = seen || tokens[i] == id;
    if (seen) z[id] = z[id] > 0 ? z[id] / (double)o->repeat_penalty : z[id] * (double)o->repeat_penalty;
  }
  return z;
}

static double *exact_distribution(Fixture *f, const double *logits, int vocab, const int32_t *tokens, int length,
                                  const Sampling *o) {
  const double *z = penalized(f, logits, vocab, tokens, length, o);
  Ranked *r = host_memory(f, (size_t)vocab * sizeof *r);
  for (int i = 0; i < vocab; i++) r[i] = (Ranked){.logit = (double)(float)z[i], .id = i};
  qsort(r, (size_t)vocab, sizeof *r, by_falling_logit);
  int kept = o->top_k > 0 && o->top_k < vocab ? o->top_k : vocab;
  double total = 0, sum = 0, *p = host_values(f, (size_t)vocab);
  for (int i = 0; i < kept; i++) total += exp(r[i].logit - r[0].logit);
  int nucleus = 0;
  while (nucleus < kept && (nucleus == 0 || o->top_p >= 1 || sum < (double)o->top_p * (1 - 1e-6)))
    sum += exp(r[nucleus++].logit - r[0].logit) / total;
  kept = nucleus;
  while (kept > 1 && o->min_p > 0 && exp(r[kept - 1].logit - r[0].logit) < (double)o->min_p * (1 - 1e-6)) kept--;
  if (o->temperature <= 0) kept = 1;
  total = 0;
  for (int i = 0; i < kept; i++)
    total += r[i].p = kept == 1 ? 1 : exp((r[i].logit - r[0].logit) / (double)o->temperature);
  for (int i = 0; i < kept; i++) p[r[i].id] = r[i].p / total;
  return p;
}

/* What a row has after one call. */
typedef struct Drawn {
  int32_t token, length, position, status; /* token -1: none was appended */
} Drawn;

typedef struct Prompt {
  const int32_t *tokens;
  int length;
} Prompt;

/* Draws once for each of `rows` samples with numbers first_stream onwards, all after the same prompt. logits: [V] for
 * all of them, or [rows][V]. */
static Drawn *draw_rows(Machine *m, const double *logits, bool same, int rows, int vocab, Prompt prompt,
                        int first_stream, const Sampling *sampling) {
  Fixture *f = m->fixture;
  int capacity = prompt.length + 1;
  size_t n = (size_t)rows, all = n * (size_t)vocab;
  double *copies = host_values(f, all), *tokens = host_values(f, n * (size_t)capacity), *lengths = host_values(f, n);
  double *positions = host_values(f, n), *streams = host_values(f, n), *status = host_values(f, n);
  for (size_t i = 0; i < all; i++) copies[i] = logits[same ? i % (size_t)vocab : i];
  for (int r = 0; r < rows; r++) {
    for (int t = 0; t < capacity; t++) tokens[r * capacity + t] = t < prompt.length ? prompt.tokens[t] : -1;
    lengths[r] = prompt.length;
    positions[r] = prompt.length - 1;
    streams[r] = first_stream + r;
  }
  Sequences s = {.rows = rows,
                 .capacity = capacity,
                 .tokens = put(m, KIND_I32, tokens, n * (size_t)capacity),
                 .lengths = put(m, KIND_I32, lengths, n),
                 .positions = put(m, KIND_I32, positions, n),
                 .streams = put(m, KIND_I32, streams, n),
                 .status = put(m, KIND_I32, status, n),
                 .drawn = put(m, KIND_I32, status, n)};
  float *device = put(m, KIND_F32, copies, all);
  m->ops->sample(m->context, &s, device, vocab, sampling);
  const double *got[] = {get(m, KIND_I32, s.tokens, n * (size_t)capacity), get(m, KIND_I32, s.lengths, n),
                         get(m, KIND_I32, s.positions, n), get(m, KIND_I32, s.status, n), get(m, KIND_I32, s.drawn, n)};
  void *owned[] = {s.tokens, s.lengths, s.positions, s.streams, s.status, s.drawn, device};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) m->ops->release(m->context, owned[i]);
  Drawn *drawn = host_memory(f, n * sizeof *drawn);
  for (int r = 0; r < rows; r++) assert_true(got[4][r] == got[0][r * capacity + prompt.length]); /* -1: none */
  for (int r = 0; r < rows; r++)
    drawn[r] = (Drawn){(int32_t)got[0][r * capacity + prompt.length], (int32_t)got[1][r], (int32_t)got[2][r],
                       (int32_t)got[3][r]};
  return drawn;
}

/* The documented uniform number falls on the token drawn, up to the rounding of the cumulative sums. */
static void expect_drawn(const double *p, int vocab, Drawn drawn, int length, int stream, const Sampling *sampling) {
  assert_int_equal(drawn.status, SEQUENCE_OK);
  assert_int_equal(drawn.length, length + 1);
  assert_int_equal(drawn.position, length);
  assert_in_range(drawn.token, 0, vocab - 1);
  double u = (double)philox_uniform(philox(sampling->seed, 0, SITE_SAMPLE, (uint32_t)length, (uint32_t)stream).word[0]),
         below = 0;
  for (int i = 0; i < drawn.token; i++) below += p[i];
  if (!(p[drawn.token] > 0)) fail_msg("token %d has probability 0", (int)drawn.token);
  if (u < below - 1e-5 || u > below + p[drawn.token] + 1e-5)
    fail_msg("sample %d: u = %.7f lies outside [%.7f, %.7f) of token %d", stream, u, below, below + p[drawn.token],
             (int)drawn.token);
}

/* Pearson's statistic of `rows` draws, in standard deviations above its mean (chi-square with n tokens - 1 degrees). */
static double excess_chi_square(const double *p, int vocab, const Drawn *drawn, int rows) {
  double sum = 0, degrees = -1;
  for (int id = 0; id < vocab; id++) {
    int seen = 0;
    for (int r = 0; r < rows; r++) seen += drawn[r].token == id;
    if (p[id] <= 0) continue;
    sum += (seen - rows * p[id]) * (seen - rows * p[id]) / (rows * p[id]);
    degrees += 1;
  }
  return degrees < 1 ? 0 : (sum - degrees) / sqrt(2 * degrees);
}

static void test_sample_distribution(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 16, PROMPT = 6 };
  const int rows = emulated(f) ? 150 : 20000;
  static const int32_t prompt[PROMPT] = {3, 9, 9, 1, 12, 3};
  static const Sampling cases[] = {{1, 0, 0, 1, 0, 1, 1},
                                   {1, 0, 0, 1, 0, 0.5f, 2},
                                   {1, 0, 0, 1, 0, 2, 3},
                                   {1, 0, 5, 1, 0, 1, 4},
                                   {1, 0, 0, 0.7f, 0, 1, 5},
                                   {1, 0, 0, 1, 0.1f, 1, 6},
                                   {1.3f, 4, 0, 1, 0, 1, 7},
                                   {0.7f, 64, 0, 1, 0, 1, 8},
                                   {1, 0, 8, 0.9f, 0, 0.8f, 9},
                                   {1, 0, 8, 0.95f, 0.05f, 1.2f, 10},
                                   {1.1f, 64, 6, 0.8f, 0.2f, 3, 11},
                                   {1.5f, 2, 12, 0.99f, 0.01f, 0.7f, UINT64_MAX}};
  double logits[VOCAB];
  for (int i = 0; i < VOCAB; i++) logits[i] = (double)(float)(1.5 * sin(1.7 * i + 0.3) + 0.01 * i);
  Machine m = machine_open(f, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double *p = exact_distribution(f, logits, VOCAB, prompt, PROMPT, &cases[i]);
    Drawn *drawn = draw_rows(&m, logits, true, rows, VOCAB, (Prompt){prompt, PROMPT}, 0, &cases[i]);
    for (int r = 0; r < rows; r++) expect_drawn(p, VOCAB, drawn[r], PROMPT, r, &cases[i]);
    double excess = excess_chi_square(p, VOCAB, drawn, rows);
    if (!(excess < 4)) fail_msg("case %zu: chi-square is %.1f standard deviations above its mean", i, excess);
  }
  machine_close(&m);
}

/* A vocabulary of many blocks, with many equal logits; cuts of every size. */
static void test_sample_large_vocabulary(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 5003 };
  const int rows = emulated(f) ? 1 : 12;
  static const int ks[] = {0, 1, 2, 5, 40, 78, 79, 80, 1000, VOCAB - 1, VOCAB, VOCAB + 7};
  static const float ps[] = {0.001f, 0.3f, 0.95f, 0.9999f, 1};
  static const float temperatures[] = {0, 1e-8f, 0.8f};
  double *logits = random_values(f, 77, VOCAB);
  Machine m = machine_open(f, 0);
  for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
    for (size_t i = 0; i < sizeof ps / sizeof *ps; i++)
      for (size_t t = 0; t < 3; t++) {
        Sampling o = {
            .repeat_penalty = 1, .top_k = ks[k], .top_p = ps[i], .temperature = temperatures[t], .seed = 7 * k + i};
        double *p = exact_distribution(f, logits, VOCAB, NULL, 0, &o);
        Drawn *drawn = draw_rows(&m, logits, true, rows, VOCAB, (Prompt){NULL, 0}, 100, &o);
        for (int r = 0; r < rows; r++) expect_drawn(p, VOCAB, drawn[r], 0, 100 + r, &o);
      }
  machine_close(&m);
}

/* Vocabularies of one token and of many, logits all equal and all different, a long look back. */
static void test_sample_vocabulary_sizes(void **state) {
  Fixture *f = *state;
  enum { LOOKBACK = 3000, ROWS = 3 };
  static const int sizes[] = {1, 2, 33, 1000, 2048, 2049, 50304, 140000};
  static const Sampling cases[] = {{1, 0, 0, 1, 0, 0.8f, 1},
                                   {1, 0, 40, 1, 0, 0.8f, 2},
                                   {1, 0, 0, 0.9f, 0, 1, 3},
                                   {1.3f, 4096, 50, 0.95f, 0.01f, 0.7f, 4},
                                   {1.3f, 4096, 3000, 0.9f, 0, 1, 5}};
  Machine m = machine_open(f, 0);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int flat = 0; flat < 2; flat++)
      for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int vocab = sizes[i];
        if (flat && vocab > 50304) continue;
        double *logits = flat ? host_values(f, (size_t)vocab) : random_values(f, 9, (size_t)vocab);
        int32_t *prompt = host_memory(f, LOOKBACK * sizeof *prompt);
        for (int t = 0; t < LOOKBACK; t++) prompt[t] = (int32_t)((t * 7919LL) % vocab);
        double *p = exact_distribution(f, logits, vocab, prompt, LOOKBACK, &cases[k]);
        Drawn *drawn = draw_rows(&m, logits, true, ROWS, vocab, (Prompt){prompt, LOOKBACK}, 5, &cases[k]);
        for (int r = 0; r < ROWS; r++) expect_drawn(p, vocab, drawn[r], LOOKBACK, 5 + r, &cases[k]);
      }
  machine_close(&m);
}

/* ---- what samplers get wrong ---- */

typedef struct Case {
  const char *name;
  int vocab;
  double logits[10];
  Sampling sampling;
  unsigned expected; /* bit per token that must come out, and no other; 0: SEQUENCE_NONFINITE */
  int32_t prompt[4];
  int prompt_length;
} Case;

#define HALF (-0.69314718055994531)
static const Case cases_of_old[] = {
    {"top-k, ties at the cut: the lower ids", 4, {1, 2, 2, 2}, {1, 0, 2, 1, 0, 1, 1}, 0x6, {0}, 0},
    {"top-k, ties, largest last", 4, {2, 2, 2, 3}, {1, 0, 2, 1, 0, 1, 1}, 0x9, {0}, 0},
    {"top-k 1, equal zeros of both signs", 2, {-0.0, 0.0}, {1, 0, 1, 1, 0, 1, 1}, 0x1, {0}, 0},
    {"top-k 0 is off", 4, {0, 0.5, 0, 0.5}, {1, 0, 0, 1, 0, 1, 1}, 0xF, {0}, 0},
    {"top-k -1 is off", 4, {0, 0.5, 0, 0.5}, {1, 0, -1, 1, 0, 1, 1}, 0xF, {0}, 0},
    {"top-k above the vocabulary", 4, {0, 0.5, 0, 0.5}, {1, 0, 1000, 1, 0, 1, 1}, 0xF, {0}, 0},
    {"top-k equal to the vocabulary", 4, {0, 0.5, 0, 0.5}, {1, 0, 4, 1, 0, 1, 1}, 0xF, {0}, 0},
    {"top-k counts no masked token", 4, {-INFINITY, 1, -INFINITY, 1}, {1, 0, 3, 1, 0, 1, 1}, 0xA, {0}, 0},
    {"top-p 1 is off, not greedy", 4, {0, 0, 0, -2}, {1, 0, 0, 1, 0, 1, 1}, 0xF, {0}, 0},
    {"top-p above 1 is off", 4, {0, 0, 0, -2}, {1, 0, 0, 7, 0, 1, 1}, 0xF, {0}, 0},
    {"top-p just below 1", 4, {0, 0, 0, 0}, {1, 0, 0, 0.99999994f, 0, 1, 1}, 0xF, {0}, 0},
    {"top-p 0 keeps one", 4, {0, 1, 1, 0}, {1, 0, 0, 0, 0, 1, 1}, 0x2, {0}, 0},
    {"top-p tiny keeps one", 4, {0, 1, 1, 0}, {1, 0, 0, 1e-30f, 0, 1, 1}, 0x2, {0}, 0},
    {"sum exactly top-p: no extra token", 4, {0, 0, 0, 0}, {1, 0, 0, 0.5f, 0, 1, 1}, 0x3, {0}, 0},
    {"sum exactly top-p, three of four", 4, {0, 0, 0, 0}, {1, 0, 0, 0.75f, 0, 1, 1}, 0x7, {0}, 0},
    {"sum exactly top-p up to its rounding", 10, {0}, {1, 0, 0, 0.3f, 0, 1, 1}, 0x7, {0}, 0},
    {"sum exactly top-p, unequal", 4, {HALF, 2 * HALF, 3 * HALF, 3 * HALF}, {1, 0, 0, 0.75f, 0, 1, 1}, 0x3, {0}, 0},
    {"top-p just reached needs one more", 4, {0, 0, 0, 0}, {1, 0, 0, 0.51f, 0, 1, 1}, 0x7, {0}, 0},
    {"top-p after top-k is renormalised",
     4,
     {4 * HALF, 4.4 * HALF, 5 * HALF, 6 * HALF},
     {1, 0, 2, 0.55f, 0, 1, 1},
     0x1,
     {0},
     0},
    {"temperature changes no filter", 3, {HALF, 1.7 * HALF, 2.3 * HALF}, {1, 0, 0, 0.6f, 0, 100, 1}, 0x3, {0}, 0},
    {"min-p at its bound", 3, {0, HALF, 2 * HALF}, {1, 0, 0, 1, 0.5f, 1, 1}, 0x3, {0}, 0},
    {"min-p 1 keeps the largest", 3, {0, -1, 0}, {1, 0, 0, 1, 1, 1, 1}, 0x5, {0}, 0},
    {"min-p above 1 keeps the largest", 3, {0, -1, 0}, {1, 0, 0, 1, 3, 1, 1}, 0x5, {0}, 0},
    {"min-p 0 is off", 3, {0, -3, 0}, {1, 0, 0, 1, 0, 1, 1}, 0x7, {0}, 0},
    {"temperature 0 is the largest", 4, {1, 2, 3, 2}, {1, 0, 0, 1, 0, 0, 1}, 0x4, {0}, 0},
    {"temperature 0, ties: the lowest id", 4, {1, 3, 3, 2}, {1, 0, 0, 1, 0, 0, 1}, 0x2, {0}, 0},
    {"temperature 0, all negative", 3, {-5, -4, -6}, {1, 0, 0, 1, 0, 0, 1}, 0x2, {0}, 0},
    {"temperature 0, masked token 0", 3, {-INFINITY, -4, -6}, {1, 0, 0, 1, 0, 0, 1}, 0x2, {0}, 0},
    {"temperature 1e-8", 3, {1, 3, 2.9999}, {1, 0, 0, 1, 0, 1e-8f, 1}, 0x2, {0}, 0},
    {"temperature 1e-8, ties are both drawn", 3, {1, 3, 3}, {1, 0, 0, 1, 0, 1e-8f, 1}, 0x6, {0}, 0},
    {"temperature 1e-8, masked token", 3, {-INFINITY, 3, 3}, {1, 0, 0, 1, 0, 1e-8f, 1}, 0x6, {0}, 0},
    {"temperature below all normal numbers", 3, {1, 3, 2}, {1, 0, 0, 1, 0, 1e-44f, 1}, 0x2, {0}, 0},
    {"huge logits", 3, {1e30, -1e30, 1e30}, {1, 0, 0, 1, 0, 1, 1}, 0x5, {0}, 0},
    {"extreme logits", 3, {-3.4e38, 3.4e38, 3.4e38}, {1, 0, 2, 0.9f, 0.1f, 1, 1}, 0x6, {0}, 0},
    {"masked tokens are not drawn", 3, {0, -INFINITY, 0}, {1, 0, 0, 1, 0, 1, 1}, 0x5, {0}, 0},
    {"weight 0 is not drawn, not even as token 0", 3, {-200, 0, 0}, {1, 0, 0, 1, 0, 1, 1}, 0x6, {0}, 0},
    {"weight 0 at the end is not drawn", 3, {0, 0, -200}, {1, 0, 0, 1, 0, 1, 1}, 0x3, {0}, 0},
    {"no underflow before the temperature", 2, {0, -150}, {1, 0, 0, 1, 0, 100, 1}, 0x3, {0}, 0},
    {"one token", 1, {-7}, {1, 0, 1, 0.5f, 0.5f, 1, 1}, 0x1, {0}, 0},
    {"one token, masked", 1, {-INFINITY}, {1, 0, 0, 1, 0, 1, 1}, 0, {0}, 0},
    {"NaN first", 3, {NAN, 1, 2}, {1, 0, 0, 1, 0, 1, 1}, 0, {0}, 0},
    {"NaN last", 3, {1, 2, NAN}, {1, 0, 0, 1, 0, 1, 1}, 0, {0}, 0},
    {"NaN, greedy", 3, {1, NAN, 2}, {1, 0, 0, 1, 0, 0, 1}, 0, {0}, 0},
    {"NaN that top-k would drop", 10, {9, 8, 7, 6, 5, 4, 3, 2, 1, NAN}, {1, 0, 1, 1, 0, 1, 1}, 0, {0}, 0},
    {"+inf", 3, {1, INFINITY, 2}, {1, 0, 0, 1, 0, 1, 1}, 0, {0}, 0},
    {"+inf, greedy", 3, {1, INFINITY, 2}, {1, 0, 0, 1, 0, 0, 1}, 0, {0}, 0},
    {"all masked", 3, {-INFINITY, -INFINITY, -INFINITY}, {1, 0, 0, 1, 0, 1, 1}, 0, {0}, 0},
    {"all masked, greedy", 3, {-INFINITY, -INFINITY, -INFINITY}, {1, 0, 0, 1, 0, 0, 1}, 0, {0}, 0},
    {"a penalized token counts once", 2, {2, 1.5}, {1.2f, 64, 0, 1, 0, 0, 1}, 0x1, {0, 0, 0}, 3},
    {"a penalty divides positive logits", 2, {2, 1.5}, {1.5f, 64, 0, 1, 0, 0, 1}, 0x2, {0}, 1},
    {"a penalty multiplies negative logits", 2, {-1, -1.5}, {2, 64, 0, 1, 0, 0, 1}, 0x2, {0}, 1},
    {"a penalty sees the last n only", 3, {2, 1.5, 0}, {9, 2, 0, 1, 0, 0, 1}, 0x1, {0, 1, 2}, 3},
    {"a penalty sees n tokens", 3, {2, 1.5, 0}, {9, 3, 0, 1, 0, 0, 1}, 0x2, {0, 2, 2}, 3},
    {"repeat_last_n 0 is off", 2, {2, 1.5}, {9, 0, 0, 1, 0, 0, 1}, 0x1, {0}, 1},
    {"repeat_last_n -1 is off", 2, {2, 1.5}, {9, -1, 0, 1, 0, 0, 1}, 0x1, {0}, 1},
    {"a penalized masked token stays masked", 2, {-INFINITY, -9}, {2, 64, 0, 1, 0, 1, 1}, 0x2, {0}, 1},
    {"a token outside the vocabulary is not penalized", 2, {2, 1.5}, {9, 64, 0, 1, 0, 0, 1}, 0x1, {7, -1}, 2},
};

static void check_case(Machine *m, const Case *c) {
  const int rows = emulated(m->fixture) ? 30 : 300;
  Prompt prompt = {c->prompt, c->prompt_length};
  Drawn *drawn = draw_rows(m, c->logits, true, rows, c->vocab, prompt, 0, &c->sampling);
  unsigned seen = 0;
  for (int r = 0; r < rows; r++) {
    bool appended = drawn[r].length == prompt.length + 1;
    if (c->expected == 0 ? drawn[r].status != SEQUENCE_NONFINITE || appended || drawn[r].token != -1 ||
                               drawn[r].position != prompt.length - 1
                         : drawn[r].status != SEQUENCE_OK || !appended || drawn[r].position != prompt.length)
      fail_msg("%s: status %d, length %d, position %d", c->name, (int)drawn[r].status, (int)drawn[r].length,
               (int)drawn[r].position);
    if (drawn[r].token >= 0) seen |= 1u << drawn[r].token;
  }
  if (seen != c->expected) fail_msg("%s: tokens 0x%x came out, not 0x%x", c->name, seen, c->expected);
}

static void test_sample_known_bugs(void **state) {
  Fixture *f = *state;
  Machine m = machine_open(f, 0);
  for (size_t i = 0; i < sizeof cases_of_old / sizeof *cases_of_old; i++) check_case(&m, &cases_of_old[i]);
  machine_close(&m);
}

static void test_sample_greedy(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 777, ROWS = 40 };
  double *logits = random_values(f, 5, VOCAB * ROWS);
  Sampling greedy = PLAIN;
  greedy.temperature = 0;
  Machine m = machine_open(f, 0);
  Drawn *drawn = draw_rows(&m, logits, false, ROWS, VOCAB, (Prompt){NULL, 0}, 0, &greedy);
  for (int r = 0; r < ROWS; r++) {
    int best = 0;
    for (int i = 1; i < VOCAB; i++)
      if (logits[r * VOCAB + i] > logits[r * VOCAB + best]) best = i;
    assert_int_equal(drawn[r].token, best);
  }
  machine_close(&m);
}

/* Rows of one call are what single calls draw, on any number of threads; a row that is not finite troubles no other. */
static void test_sample_rows_are_single_runs(void **state) {
  Fixture *f = *state;
  enum { VOCAB = 1000, ROWS = 5, BAD = 2 };
  static const int32_t tokens[] = {5, 6, 5, 900};
  Prompt prompt = {tokens, 4};
  Sampling o = {
      .repeat_penalty = 1.1f, .repeat_last_n = 64, .top_p = 0.95f, .min_p = 0.01f, .temperature = 0.9f, .seed = 3};
  double *logits = random_values(f, 6, VOCAB * ROWS);
  logits[BAD * VOCAB + 999] = NAN;
  Machine one = machine_open(f, 1);
  for (int threads = 1; threads <= (emulated(f) ? 1 : 3); threads++)
    for (int k = 0; k <= 40; k += 40) {
      o.top_k = k;
      Machine m = machine_open(f, threads);
      Drawn *batch = draw_rows(&m, logits, false, ROWS, VOCAB, prompt, 20, &o);
      for (int r = 0; r < ROWS; r++) {
        Drawn *single = draw_rows(&one, logits + r * VOCAB, true, 1, VOCAB, prompt, 20 + r, &o);
        assert_memory_equal(&batch[r], single, sizeof *single);
        assert_int_equal(batch[r].status, r == BAD ? SEQUENCE_NONFINITE : SEQUENCE_OK);
      }
      machine_close(&m);
    }
  machine_close(&one);
}

/* The tokens are a ring: beyond its capacity the oldest are overwritten, and penalties look back across its end. */
static void test_sample_ring(void **state) {
  Fixture *f = *state;
  enum { CAPACITY = 3, VOCAB = 4, CALLS = 5 };
  Machine m = machine_open(f, 0);
  const int32_t tokens[] = {1, 1, 1, 0, 0, 0, -5}, lengths[] = {3, 2}, positions[] = {2, 1}, streams[] = {0, 1};
  const int32_t status[] = {SEQUENCE_OK, SEQUENCE_OK};
  Sequences s = {.rows = 2,
                 .capacity = CAPACITY,
                 .tokens = put_ints(&m, tokens, 7),
                 .lengths = put_ints(&m, lengths, 2),
                 .positions = put_ints(&m, positions, 2),
                 .streams = put_ints(&m, streams, 2),
                 .status = put_ints(&m, status, 2),
                 .drawn = put_ints(&m, status, 2)};
  const double logits[2 * VOCAB] = {0, 0, 8, 9, 0, 0, 8, 9};
  Sampling alternating = PLAIN; /* the token before is halved, so the two best take turns: 3, 2, 3, 2, 3 */
  alternating.temperature = 0;
  alternating.repeat_penalty = 2;
  alternating.repeat_last_n = 1;
  for (int call = 0; call < CALLS; call++)
    m.ops->sample(m.context, &s, put(&m, KIND_F32, logits, 2 * VOCAB), VOCAB, &alternating);
  /* row 0 writes to 0 1 2 0 1, row 1 to 2 0 1 2 0 */
  const double want_tokens[] = {2, 3, 3, 3, 3, 2, -5}, want_lengths[] = {8, 7}, want_positions[] = {7, 6};
  expect_same("tokens", get(&m, KIND_I32, s.tokens, 7), want_tokens, 7);
  expect_same("lengths", get(&m, KIND_I32, s.lengths, 2), want_lengths, 2);
  expect_same("positions", get(&m, KIND_I32, s.positions, 2), want_positions, 2);
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
      cmocka_unit_test(test_sample_distribution),
      cmocka_unit_test(test_sample_large_vocabulary),
      cmocka_unit_test(test_sample_vocabulary_sizes),
      cmocka_unit_test(test_sample_known_bugs),
      cmocka_unit_test(test_sample_greedy),
      cmocka_unit_test(test_sample_rows_are_single_runs),
      cmocka_unit_test(test_sample_ring),
  };
  return run_on_backends("decode", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
