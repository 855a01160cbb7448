/* The rows of kernels.h that decode one token, with every norm, bias, activation and kind of position: against the
 * formulas in double; and row i of a batch bit for bit the single run of its sequence. As tests/test_decode.c. */
#include "tests/formulas.h"
#include "tests/machine.h"

#include <math.h>
#include <string.h>

/* Sequence i of a test has the same numbers in every slot. */
enum { SEQUENCES = 5, CAPACITY = 140, MOST_ROWS = 33, POSITIONS = 134 };
static const int positions_of[SEQUENCES] = {0, 3, 63, 64, 130};

static int token_of(int id, int vocab) { return (7 * id + 5) % vocab; }

typedef enum NormUse { NO_NORM, USE_RMS, USE_LAYER, NORM_USES } NormUse;

/* An operation and its operands: host values that all runs share. */
typedef struct Part Part;
struct Part {
  const char *name;
  double *(*run)(Machine *m, const Part *k, const int *ids, int rows); /* [rows][width] */
  int inputs, outputs, width;
  NormUse norm;
  bool bias, rope, head_norm;
  int dims; /* rotated numbers of a head */
  MlpShape mlp;
  HeadShape heads;
  const double *w, *b, *weight, *shift; /* [outputs][inputs] [outputs] [inputs] [inputs] */
  const double *x, *wide;               /* [SEQUENCES][inputs]; [SEQUENCES][outputs], that results are added to */
  const double *keys, *values;          /* [SEQUENCES][CAPACITY][kv_heads][head_dim] */
  const double *head_weight;            /* [2][head_dim] */
  const double *taps, *state;           /* [width of y][CONVOLUTION_TAPS]; [SEQUENCES][CONVOLUTION_TAPS][width of y] */
  const int *counts;
};

static const double EPSILON = 1e-5;

static void fill_part(Fixture *f, Part *k) {
  const size_t inputs = (size_t)k->inputs, outputs = (size_t)k->outputs;
  k->w = random_values(f, 1, inputs * outputs);
  k->b = random_values(f, 2, outputs);
  k->weight = random_values(f, 3, inputs);
  k->shift = random_values(f, 4, inputs);
  k->x = random_values(f, 5, SEQUENCES * inputs);
  k->wide = random_values(f, 6, SEQUENCES * outputs);
}

/* ---- on the device ---- */

typedef struct Operands {
  Parameters params;
  Linear layer;
  Norm norm;
  const Norm *used; /* NULL: none */
  Sequences sequences;
} Operands;

static Sequences sequences_new(Machine *m, const int *ids, int rows, int vocab) {
  int32_t tokens[MOST_ROWS * CAPACITY], lengths[MOST_ROWS], positions[MOST_ROWS], zeros[MOST_ROWS] = {0};
  memset(tokens, 0, sizeof tokens);
  for (int r = 0; r < rows; r++) {
    positions[r] = positions_of[ids[r]];
    lengths[r] = positions[r] + 1;
    tokens[r * CAPACITY + positions[r]] = token_of(ids[r], vocab);
  }
  return (Sequences){.rows = rows,
                     .capacity = CAPACITY,
                     .tokens = machine_put_ints(m, tokens, (size_t)(rows * CAPACITY)),
                     .lengths = machine_put_ints(m, lengths, (size_t)rows),
                     .positions = machine_put_ints(m, positions, (size_t)rows),
                     .streams = machine_put_ints(m, zeros, (size_t)rows),
                     .status = machine_put_ints(m, zeros, (size_t)rows),
                     .drawn = machine_put(m, KIND_I32, NULL, 2 * (size_t)rows)};
}

static void operands_new(Machine *m, const Part *k, const int *ids, int rows, Operands *o) {
  const ParameterSpec specs[] = {norm_spec(k->inputs, k->weight), matrix_spec(k->outputs, k->inputs, 0, k->w),
                                 norm_spec(k->inputs, k->shift), bias_spec(k->outputs, k->b)};
  o->params = machine_parameters(m, specs, 4);
  const ParameterGroup *g = o->params.groups;
  o->layer = layer_of(g[1].matrix);
  if (k->bias) o->layer.bias = g[3].matrix;
  const float *weight = o->params.master + g[0].matrix.offset, *shift = o->params.master + g[2].matrix.offset;
  o->norm = k->norm == USE_LAYER ? layer_norm_of(weight, shift, (float)EPSILON) : rms_norm_of(weight, (float)EPSILON);
  o->used = k->norm == NO_NORM ? NULL : &o->norm;
  o->sequences = sequences_new(m, ids, rows, k->outputs);
}

/* Uploads the batch's rows of `values` [SEQUENCES][width]; NULL: filled with NaN. */
static void *put_rows(Machine *m, const double *values, const int *ids, int rows, int width) {
  if (!values) return machine_put_rows(m, NULL, rows, width);
  double *all = host_values(m->fixture, (size_t)(rows * width));
  for (int r = 0; r < rows; r++) memcpy(all + r * width, values + ids[r] * width, (size_t)width * sizeof *all);
  return machine_put_rows(m, all, rows, width);
}

static double *run_linear(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  void *x = put_rows(m, k->x, ids, rows, k->inputs), *out = put_rows(m, NULL, ids, rows, k->width);
  m->ops->decode_linear(m->context, out, x, o.used, &o.params, o.layer, &o.sequences);
  return machine_get_rows(m, out, rows, k->width);
}

static double *run_residual(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  void *in = put_rows(m, k->x, ids, rows, k->inputs), *x = put_rows(m, k->wide, ids, rows, k->width);
  m->ops->decode_residual(m->context, x, in, &o.params, o.layer, &o.sequences);
  return machine_get_rows(m, x, rows, k->width);
}

/* width: the vocabulary, without the further rows of W. */
static double *run_logits(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  void *x = put_rows(m, k->x, ids, rows, k->inputs);
  float *logits = machine_put(m, KIND_F32, NULL, (size_t)(rows * k->width));
  m->ops->decode_logits(m->context, logits, x, o.used, &o.params, o.layer, k->width, rows);
  return machine_get(m, KIND_F32, logits, (size_t)(rows * k->width));
}

static double *run_mlp(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  void *x = put_rows(m, k->x, ids, rows, k->inputs), *h = put_rows(m, NULL, ids, rows, k->width);
  m->ops->decode_mlp(m->context, h, x, o.used, &o.params, o.layer, &k->mlp, &o.sequences);
  return machine_get_rows(m, h, rows, k->width);
}

static double *run_norm(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  void *x = put_rows(m, k->x, ids, rows, k->inputs), *y = put_rows(m, NULL, ids, rows, k->inputs);
  m->ops->decode_norm(m->context, y, x, &o.norm, rows, k->inputs);
  m->ops->decode_norm(m->context, x, x, &o.norm, rows, k->inputs);
  double *separate = machine_get_rows(m, y, rows, k->inputs);
  expect_same("a norm in place", machine_get_rows(m, x, rows, k->inputs), separate, (size_t)(rows * k->inputs));
  return separate;
}

/* The table is W, the position embedding the keys. */
static double *run_embedding(Machine *m, const Part *k, const int *ids, int rows) {
  const ParameterSpec specs[] = {matrix_spec(k->outputs, k->inputs, 0, k->w),
                                 matrix_spec(POSITIONS, k->inputs, 0, k->keys)};
  const int32_t wrong[MOST_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1, 1}; /* these positions are not read */
  const Parameters p = machine_parameters(m, specs, 2);
  const Embedding e = {p.groups[0].matrix, p.groups[1].matrix, machine_put_ints(m, wrong, MOST_ROWS)};
  const Sequences s = sequences_new(m, ids, rows, k->outputs);
  void *x = put_rows(m, NULL, ids, rows, k->inputs);
  m->ops->decode_embedding(m->context, x, &p, &e, &s);
  return machine_get_rows(m, x, rows, k->inputs);
}

/* q, and the cache at the position; the rest of the cache must not change. */
static double *run_qkv(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  const HeadShape *s = &k->heads;
  const int query = s->heads * s->head_dim, key = s->kv_heads * s->head_dim, cached = CAPACITY * key;
  const double *table = rope_table(m->fixture, CAPACITY, k->dims);
  const Rope rope = {machine_put(m, KIND_F32, table, (size_t)(CAPACITY * k->dims)), NULL, k->dims};
  KvCache cache = {machine_put_rows(m, NULL, rows, cached), machine_put_rows(m, NULL, rows, cached), CAPACITY,
                   s->kv_heads, s->head_dim};
  void *x = put_rows(m, k->x, ids, rows, k->inputs), *q = put_rows(m, NULL, ids, rows, query);
  HeadNorm norm = {NULL, (float)EPSILON, s->heads, s->kv_heads, s->head_dim};
  if (k->head_norm) norm.weight = machine_put(m, KIND_F32, k->head_weight, 2 * (size_t)s->head_dim);
  m->ops->decode_qkv(m->context, q, &cache, x, o.used, &o.params, o.layer, k->head_norm ? &norm : NULL,
                     k->rope ? &rope : NULL, &o.sequences);
  const double *queries = machine_get_rows(m, q, rows, query);
  double *all = host_values(m->fixture, (size_t)(rows * k->width));
  for (int r = 0; r < rows; r++) memcpy(all + r * k->width, queries + r * query, (size_t)query * sizeof *all);
  for (int part = 0; part < 2; part++) {
    const double *stored = machine_get_rows(m, part ? cache.v : cache.k, rows, cached);
    for (int i = 0; i < rows * cached; i++) { /* [rows][kv_heads][CAPACITY][head_dim] */
      const int r = i / cached, row = i % cached / s->head_dim, at = row / CAPACITY * s->head_dim + i % s->head_dim;
      if (row % CAPACITY == positions_of[ids[r]]) all[r * k->width + query + part * key + at] = stored[i];
      else assert_true(isnan(stored[i]));
    }
  }
  return all;
}

/* y, and z of the position in the state; the rest of the state, and what lies behind it in a slot, must not change. */
static double *run_convolution(Machine *m, const Part *k, const int *ids, int rows) {
  Operands o;
  operands_new(m, k, ids, rows, &o);
  const int dim = k->width / 2, kept = CONVOLUTION_TAPS * dim, slot = kept + fitting_width(m->fixture, 5);
  double *states = host_values(m->fixture, (size_t)(rows * slot)),
         *all = host_values(m->fixture, (size_t)(rows * k->width));
  for (int i = 0; i < rows * slot; i++) states[i] = i % slot < kept ? k->state[ids[i / slot] * kept + i % slot] : NAN;
  const ConvolutionState state = {machine_put_rows(m, states, rows, slot), slot};
  const Convolution v = {machine_put(m, KIND_F32, k->taps, CONVOLUTION_TAPS * (size_t)dim), dim, NULL};
  void *x = put_rows(m, k->x, ids, rows, k->inputs), *y = put_rows(m, NULL, ids, rows, dim);
  m->ops->decode_convolution(m->context, y, &state, x, o.used, &o.params, o.layer, &v, &o.sequences);
  const double *got = machine_get_rows(m, y, rows, dim), *after = machine_get_rows(m, state.z, rows, slot);
  for (int r = 0; r < rows; r++) {
    const int now = r * slot + positions_of[ids[r]] % CONVOLUTION_TAPS * dim;
    memcpy(all + r * k->width, got + r * dim, (size_t)dim * sizeof *all);
    memcpy(all + r * k->width + dim, after + now, (size_t)dim * sizeof *all);
    memcpy(states + now, after + now, (size_t)dim * sizeof *all);
  }
  expect_same("the rest of the state", after, states, (size_t)(rows * slot));
  return all;
}

static double *run_attention(Machine *m, const Part *k, const int *ids, int rows) {
  const HeadShape *s = &k->heads;
  const int query = s->heads * s->head_dim, cached = CAPACITY * s->kv_heads * s->head_dim;
  int32_t counts[MOST_ROWS];
  for (int r = 0; r < rows; r++) counts[r] = k->counts ? k->counts[ids[r]] : 0;
  const int32_t *device_counts = k->counts ? machine_put_ints(m, counts, (size_t)rows) : NULL;
  const KvCache cache = {put_rows(m, k->keys, ids, rows, cached), put_rows(m, k->values, ids, rows, cached), CAPACITY,
                         s->kv_heads, s->head_dim};
  void *q = put_rows(m, k->x, ids, rows, query), *out = put_rows(m, NULL, ids, rows, query);
  const Sequences sequences = sequences_new(m, ids, rows, 1);
  m->ops->decode_attention(m->context, out, q, &cache, s->heads, 0.25f, device_counts, NULL, &sequences);
  return machine_get_rows(m, out, rows, query);
}

/* ---- checks of every operation ---- */

/* Results equal the formula's; a row alone has the bits of the row in a batch, in any slot, with 1 to 3 threads. */
static void expect_part(Fixture *f, const Part *k, const double *want) {
  const int sizes[] = {2, 5, fixture_is_cuda(f) ? MOST_ROWS : 9}; /* a GPU multiplies 16 and 32 at once */
  const size_t width = (size_t)k->width;
  const double *single[SEQUENCES];
  for (int threads = 1; threads <= (fixture_is_cuda(f) ? 1 : 3); threads++) {
    Machine m = machine_open(f, threads);
    for (int i = 0; threads == 1 && i < SEQUENCES; i++) {
      single[i] = k->run(&m, k, &i, 1);
      expect_close(f, k->name, single[i], want + (size_t)i * width, width, TOLERANCE_F32);
    }
    for (int size = fixture_is_cuda(f); size < 3; size++) {
      int ids[MOST_ROWS];
      for (int r = 0; r < sizes[size]; r++) ids[r] = (threads + size + r) % SEQUENCES;
      const double *got = k->run(&m, k, ids, sizes[size]);
      for (int r = 0; r < sizes[size]; r++) expect_same(k->name, got + (size_t)r * width, single[ids[r]], width);
    }
    machine_close(&m);
  }
}

/* n of all sequences; with NORM_LAYER as stored. */
static double *normalized(Fixture *f, const Part *k) {
  const size_t inputs = (size_t)k->inputs;
  const NormValues norm = {k->norm == USE_LAYER ? NORM_LAYER : NORM_RMS, k->weight, k->shift, EPSILON};
  double *n = sum_of(f, k->x, host_values(f, SEQUENCES * inputs), SEQUENCES * inputs);
  for (size_t at = 0; k->norm != NO_NORM && at < SEQUENCES * inputs; at += inputs)
    normalize_row(&norm, n + at, n + at, inputs);
  for (size_t i = 0; k->norm == USE_LAYER && i < SEQUENCES * inputs; i++) {
    float room;
    value_store(f->dtype, KIND_COMPUTE, &room, n[i]);
    n[i] = value_fetch(f->dtype, KIND_COMPUTE, &room);
  }
  return n;
}

/* W n + b of all sequences. */
static double *products(Fixture *f, const Part *k) {
  return linear_rows(f, k->w, k->bias ? k->b : NULL, normalized(f, k), SEQUENCES, k->outputs, k->inputs);
}

/* ---- the tests ---- */

static void linear_part(Fixture *f, int outputs, int inputs, NormUse norm, bool bias) {
  const size_t count = SEQUENCES * (size_t)outputs;
  Part k = {.name = "decode_linear",
            .run = run_linear,
            .inputs = inputs,
            .outputs = outputs,
            .width = outputs,
            .norm = norm,
            .bias = bias};
  fill_part(f, &k);
  const double *want = products(f, &k);
  expect_part(f, &k, want);
  if (norm == NO_NORM) {
    k.name = "decode_residual", k.run = run_residual;
    expect_part(f, &k, sum_of(f, k.wide, want, count));
  }
  k.name = "decode_logits", k.run = run_logits, k.width = outputs > 5 ? outputs - 5 : outputs;
  double *logits = host_values(f, count);
  for (int i = 0; i < SEQUENCES * k.width; i++) logits[i] = want[i / k.width * outputs + i % k.width];
  expect_part(f, &k, logits);
}

static void test_decode_products(void **state) {
  Fixture *f = *state;
  static const int shapes[][2] = {{1, 8}, {5, 33}, {136, 128}, {32, 1064}, {264, 72}};
  for (int i = 0; i < 5; i++)
    for (NormUse norm = NO_NORM; norm < NORM_USES; norm++)
      for (int bias = 0; bias < 2; bias++)
        linear_part(f, fitting_width(f, shapes[i][0]), fitting_width(f, shapes[i][1]), norm, bias != 0);
}

static void mlp_part(Fixture *f, int ffn, int inputs, int shape, NormUse norm) {
  const MlpShape mlp = mlp_shape(shape, ffn);
  Part k = {.name = "decode_mlp",
            .run = run_mlp,
            .inputs = inputs,
            .outputs = mlp.gated ? 2 * ffn : ffn,
            .width = ffn,
            .norm = norm,
            .bias = norm != USE_RMS,
            .mlp = mlp};
  fill_part(f, &k);
  expect_part(f, &k, activation_rows(f, &mlp, products(f, &k), SEQUENCES));
}

static void test_decode_mlp(void **state) {
  Fixture *f = *state;
  static const int shapes[][2] = {{1, 8}, {21, 33}, {176, 128}, {9, 1064}};
  for (int i = 0; i < 4; i++)
    for (int shape = 0; shape < MLP_SHAPES; shape++)
      mlp_part(f, fitting_width(f, shapes[i][0]), fitting_width(f, shapes[i][1]), shape,
               (NormUse)((i + shape) % NORM_USES));
  for (int shape = 0; shape < MLP_SHAPES; shape++)
    for (NormUse norm = NO_NORM; norm < NORM_USES; norm++) mlp_part(f, 40, 24, shape, norm);
}

static void norm_part(Fixture *f, int dim, NormUse norm) {
  Part k = {.name = "decode_norm", .run = run_norm, .inputs = dim, .outputs = 1, .width = dim, .norm = norm};
  fill_part(f, &k);
  expect_part(f, &k, normalized(f, &k));
}

static void test_decode_norm(void **state) {
  static const int dims[] = {1, 8, 33, 128, 257, 1024, 1064, 4100, 8200};
  for (int i = 0; i < 9; i++) {
    norm_part(*state, fitting_width(*state, dims[i]), USE_RMS);
    norm_part(*state, fitting_width(*state, dims[i]), USE_LAYER);
  }
}

/* The variance is computed from differences from the mean, also in the norm within products. */
static void test_decode_far_from_zero(void **state) {
  Fixture *f = *state;
  Part k = {.inputs = 264, .outputs = 8, .norm = USE_LAYER, .bias = true};
  if (f->dtype == DTYPE_BF16) return; /* its numbers are too far apart there */
  fill_part(f, &k);
  double *x = random_values(f, 7, SEQUENCES * (size_t)k.inputs);
  for (int i = 0; i < SEQUENCES * k.inputs; i++) x[i] += i / k.inputs % 2 ? 1000 : -1000;
  k.x = x;
  for (int i = 0; i < SEQUENCES; i++) {
    Machine m = machine_open(f, 1);
    k.width = k.inputs;
    expect_close(f, "decode_norm", run_norm(&m, &k, &i, 1), normalized(f, &k) + i * k.width, (size_t)k.width, 1e-3);
    k.width = k.outputs;
    expect_close(f, "decode_linear", run_linear(&m, &k, &i, 1), products(f, &k) + i * k.width, (size_t)k.width, 1e-3);
    machine_close(&m);
  }
}

/* kind: bits for a bias, positions, norms of heads, and positions in a part of the head. */
static void qkv_part(Fixture *f, const HeadShape *s, int inputs, NormUse norm, int kind) {
  Part k = {.name = "decode_qkv",
            .run = run_qkv,
            .inputs = inputs,
            .norm = norm,
            .bias = kind % 2 == 1,
            .rope = kind / 2 % 2 == 1,
            .head_norm = kind / 4 % 2 == 1,
            .dims = kind / 8 ? fitting_width(f, 4) / 2 + s->head_dim / 8 * 4 : s->head_dim,
            .heads = *s};
  const int dim = s->head_dim, used = s->heads + s->kv_heads;
  k.outputs = k.width = (used + s->kv_heads) * dim;
  fill_part(f, &k);
  k.head_weight = random_values(f, 7, 2 * (size_t)dim);
  double *want = products(f, &k);
  for (int i = 0; i < SEQUENCES; i++) {
    for (int h = 0; k.head_norm && h < used; h++) {
      const NormValues head = {NORM_RMS, k.head_weight + (h < s->heads ? 0 : dim), NULL, EPSILON};
      double *const at = want + i * k.width + h * dim;
      normalize_row(&head, at, at, (size_t)dim);
    }
    if (k.rope) rotate_heads(want + i * k.width, used, dim, k.dims, positions_of[i]);
  }
  expect_part(f, &k, want);
}

static void test_decode_qkv(void **state) {
  Fixture *f = *state;
  const HeadShape shapes[] = {{3, 1, fitting_width(f, 10)}, {4, 2, 32}, {2, 2, fitting_width(f, 6)}, {1, 1, 120}};
  const int inputs[] = {fitting_width(f, 36), 128, fitting_width(f, 33), 16}, kinds[] = {0, 1, 2, 3, 4, 7, 11, 14};
  for (int i = 0; i < 4; i++)
    for (NormUse norm = NO_NORM; norm < NORM_USES; norm++)
      for (int kind = 0; kind < 8; kind++) qkv_part(f, &shapes[i], inputs[i], norm, kinds[kind]);
}

/* ---- convolution ---- */

/* y of channel j at position t of a text bcx [T][3C]. */
static double convolved(const double *taps, const double *bcx, int dim, int j, int t) {
  double sum = 0;
  for (int i = 0; i < CONVOLUTION_TAPS; i++) {
    const int from = t - (CONVOLUTION_TAPS - 1) + i;
    if (from < 0) continue;
    sum += taps[CONVOLUTION_TAPS * j + i] * bcx[3 * from * dim + j] * bcx[(3 * from + 2) * dim + j];
  }
  return bcx[(3 * t + 1) * dim + j] * sum;
}

/* The state before position 0 is NaN, as after a sequence that diverged: it is not read. */
static void convolution_part(Fixture *f, int dim, int inputs, NormUse norm) {
  Part k = {.name = "decode_convolution", .run = run_convolution, .inputs = inputs, .outputs = 3 * dim, .norm = norm};
  k.width = 2 * dim;
  fill_part(f, &k);
  const double *bcx = products(f, &k);
  double *z = random_values(f, 8, (size_t)(SEQUENCES * CONVOLUTION_TAPS * dim)),
         *want = host_values(f, (size_t)(SEQUENCES * k.width));
  for (int j = 0; j < CONVOLUTION_TAPS * dim; j++) z[j] = NAN; /* of sequence 0, at position 0 */
  k.taps = random_values(f, 7, CONVOLUTION_TAPS * (size_t)dim), k.state = z;
  for (int i = 0; i < SEQUENCES * dim; i++) {
    const int id = i / dim, j = i % dim, t = positions_of[id];
    const double *kept = z + id * CONVOLUTION_TAPS * dim + j;
    const double *row = bcx + id * 3 * dim + j, *taps = k.taps + CONVOLUTION_TAPS * j;
    const double newest = row[0] * row[2 * dim];
    double sum = taps[2] * newest;
    if (t > 0)
      sum += taps[0] * kept[(t + 1) % CONVOLUTION_TAPS * dim] + taps[1] * kept[(t + 2) % CONVOLUTION_TAPS * dim];
    want[id * k.width + j] = row[dim] * sum;
    want[id * k.width + dim + j] = newest;
  }
  expect_part(f, &k, want);
}

static void test_decode_convolution(void **state) {
  Fixture *f = *state;
  static const int shapes[][2] = {{1, 8}, {5, 33}, {136, 128}, {8, 1064}, {264, 72}};
  for (int i = 0; i < 5; i++)
    for (NormUse norm = NO_NORM; norm < NORM_USES; norm++)
      convolution_part(f, fitting_width(f, shapes[i][0]), fitting_width(f, shapes[i][1]), norm);
}

/* Sequences after prompts of 0, 1, 2 and 5 tokens, token by token in one batch, equal the convolution of the text. Each
 * token is decoded twice, as a row's is when another row begins a text. */
static void test_decode_convolution_steps(void **state) {
  Fixture *f = *state;
  enum { ROWS = 4, STEPS = 6, LONGEST = 5 + STEPS, DIM = 40, INPUTS = 24, SLOT = CONVOLUTION_TAPS * DIM + 8 };
  static const int prompts[ROWS] = {0, 1, 2, 5}, ids[ROWS] = {0, 1, 2, 3};
  Part k = {.inputs = INPUTS, .outputs = 3 * DIM};
  fill_part(f, &k);
  const double *x = random_values(f, 5, (size_t)(ROWS * LONGEST * INPUTS)),
               *taps = random_values(f, 7, CONVOLUTION_TAPS * DIM),
               *bcx = linear_rows(f, k.w, NULL, x, ROWS * LONGEST, 3 * DIM, INPUTS);
  k.x = x;
  Machine m = machine_open(f, 1);
  Operands o;
  operands_new(&m, &k, ids, ROWS, &o);
  const ConvolutionState z = {machine_put_rows(&m, NULL, ROWS, SLOT), SLOT};
  const Convolution v = {machine_put(&m, KIND_F32, taps, CONVOLUTION_TAPS * DIM), DIM, NULL};
  for (int r = 1; r < ROWS; r++)
    m.ops->convolution_store(m.context, &z, r, machine_put_rows(&m, bcx + r * LONGEST * 3 * DIM, prompts[r], 3 * DIM),
                             DIM, prompts[r]);
  for (int twice = 0; twice < 2 * STEPS; twice++) {
    const int step = twice / 2;
    int32_t positions[ROWS];
    double *now = host_values(f, ROWS * INPUTS), *want = host_values(f, ROWS * DIM);
    for (int r = 0; r < ROWS; r++) {
      const int t = positions[r] = prompts[r] + step;
      memcpy(now + r * INPUTS, x + (r * LONGEST + t) * INPUTS, INPUTS * sizeof *now);
      for (int j = 0; j < DIM; j++) want[r * DIM + j] = convolved(taps, bcx + r * LONGEST * 3 * DIM, DIM, j, t);
    }
    m.ops->upload(m.context, o.sequences.positions, positions, sizeof positions);
    void *y = machine_put_rows(&m, NULL, ROWS, DIM), *in = machine_put_rows(&m, now, ROWS, INPUTS);
    m.ops->decode_convolution(m.context, y, &z, in, NULL, &o.params, o.layer, &v, &o.sequences);
    expect_close(f, "a step", machine_get_rows(&m, y, ROWS, DIM), want, ROWS * DIM, TOLERANCE_F32);
  }
  machine_close(&m);
}

/* Keys beyond a row's count are NaN: none may be read, whatever the row's position. */
static void test_decode_attention_counts(void **state) {
  Fixture *f = *state;
  static const int counts[] = {1, 3, 65, 130, CAPACITY};
  const int sizes[] = {fitting_width(f, 6), 32, 64};
  for (int i = 0; i < 3; i++) {
    Part k = {.name = "decode_attention", .run = run_attention, .heads = {4, 2, sizes[i]}, .counts = counts};
    const int row = 2 * sizes[i], query = 4 * sizes[i];
    const size_t cached = (size_t)(CAPACITY * row);
    double *keys = random_values(f, 1, SEQUENCES * cached), *values = random_values(f, 2, SEQUENCES * cached);
    double *want = host_values(f, (size_t)(SEQUENCES * query));
    k.x = random_values(f, 3, (size_t)(SEQUENCES * query)), k.width = query;
    for (int s = 0; s < SEQUENCES; s++) {
      for (size_t j = 0; j < cached; j++) keys[(size_t)s * cached + j] /= 8;
      for (size_t j = (size_t)(counts[s] * row); j < cached; j++)
        keys[(size_t)s * cached + j] = values[(size_t)s * cached + j] = NAN;
      memcpy(want + s * query,
             attention_row(f, &k.heads, 0.25, k.x + s * query, keys + (size_t)s * cached, values + (size_t)s * cached,
                           counts[s]),
             (size_t)query * sizeof *want);
    }
    k.keys = swapped(f, keys, SEQUENCES, CAPACITY, k.heads.kv_heads, sizes[i]);
    k.values = swapped(f, values, SEQUENCES, CAPACITY, k.heads.kv_heads, sizes[i]);
    expect_part(f, &k, want);
  }
}

/* Counts up to the position give the same bits as no counts. */
static void test_decode_attention_without_counts(void **state) {
  Fixture *f = *state;
  enum { QUERY = 128, CACHED = CAPACITY * 64 };
  int counts[SEQUENCES], ids[SEQUENCES];
  for (int i = 0; i < SEQUENCES; i++) counts[i] = positions_of[i] + 1, ids[i] = i;
  Part k = {.heads = {4, 2, 32}, .counts = counts};
  k.keys = random_values(f, 1, SEQUENCES * CACHED), k.values = random_values(f, 2, SEQUENCES * CACHED);
  k.x = random_values(f, 3, SEQUENCES * QUERY);
  Machine m = machine_open(f, 0);
  const double *counted = run_attention(&m, &k, ids, SEQUENCES);
  k.counts = NULL;
  expect_same("attention without counts", run_attention(&m, &k, ids, SEQUENCES), counted, SEQUENCES * QUERY);
  machine_close(&m);
}

static void test_decode_positions(void **state) {
  Fixture *f = *state;
  const int dims[] = {1, 37, 264}, vocab = 13;
  for (int i = 0; i < 3; i++) {
    const int dim = fitting_width(f, dims[i]);
    Part k = {.name = "decode_embedding", .run = run_embedding, .inputs = dim, .outputs = vocab, .width = dim};
    fill_part(f, &k);
    k.keys = random_values(f, 7, (size_t)(POSITIONS * dim));
    double *want = host_values(f, (size_t)(SEQUENCES * dim));
    for (int j = 0; j < SEQUENCES * dim; j++)
      want[j] = k.w[token_of(j / dim, vocab) * dim + j % dim] + k.keys[positions_of[j / dim] * dim + j % dim];
    expect_part(f, &k, want);
  }
}

/* NaN of a diverged model must be visible: one NaN of x reaches the whole row, and no other row. */
static void test_decode_nan(void **state) {
  Fixture *f = *state;
  static double *(*const runs[])(Machine *, const Part *, const int *, int) = {run_norm, run_linear, run_logits,
                                                                               run_mlp};
  const int ids[] = {1, 2, 3};
  for (int i = 0; i < 4; i++)
    for (int shape = 0; shape < MLP_SHAPES; shape++) {
      Part k = {.inputs = 40, .norm = shape % 3 ? USE_LAYER : USE_RMS, .bias = true};
      k.mlp = mlp_shape(shape, 24);
      k.outputs = k.mlp.gated ? 48 : 24;
      k.width = i == 0 ? k.inputs : i == 3 ? k.mlp.ffn : k.outputs;
      if (i < 3 && shape > 3) break; /* these have no activation */
      fill_part(f, &k);
      double *x = random_values(f, 5, SEQUENCES * 40);
      x[2 * 40 + 17] = NAN;
      k.x = x;
      Machine m = machine_open(f, 0);
      const double *got = runs[i](&m, &k, ids, 3);
      for (int j = 0; j < 3 * k.width; j++) assert_int_equal(isnan(got[j]) != 0, j / k.width == 1);
      machine_close(&m);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decode_products),
      cmocka_unit_test(test_decode_mlp),
      cmocka_unit_test(test_decode_norm),
      cmocka_unit_test(test_decode_far_from_zero),
      cmocka_unit_test(test_decode_qkv),
      cmocka_unit_test(test_decode_convolution),
      cmocka_unit_test(test_decode_convolution_steps),
      cmocka_unit_test(test_decode_attention_counts),
      cmocka_unit_test(test_decode_attention_without_counts),
      cmocka_unit_test(test_decode_positions),
      cmocka_unit_test(test_decode_nan),
  };
  return run_on_backends("decode: parts", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
