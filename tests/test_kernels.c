/* The operations of kernels.h: embedding (others: test_kernels_*.c; decoding and sampling: test_decode*.c and
 * test_sample.c). On every backend, against float64 PyTorch (tests/golden), against plain loops in double where a
 * golden would be large, and against finite differences. */
#include "tests/backends.h"

#include <math.h>
#include <string.h>

/* ---- embedding ---- */

typedef struct EmbeddingCase {
  const Golden *golden;
  int index, vocab, batch, length, learned; /* rows of the position embedding; 0: none */
  int width, dim;                           /* of the golden; of rows on this backend, 0 beyond the golden's width */
  const int32_t *tokens, *positions;
  Parameters params; /* an unrelated vector, the table, the position embedding */
  Embedding e;
} EmbeddingCase;

enum { TABLE_GROUP = 1, POSITIONS_GROUP = 2, PAD_ROWS = 3 };

static double *embedding_values(Fixture *f, const EmbeddingCase *k, const char *name, int rows) {
  return with_pads(f, golden_values(f, k->golden, k->index, name, NULL), rows, k->width, k->dim, 0);
}

static EmbeddingCase embedding_case_of(Fixture *f, const Golden *g, int index) {
  const int32_t *dims = golden_ints(f, g, index, "dims");
  EmbeddingCase k = {.golden = g,
                     .index = index,
                     .vocab = dims[0],
                     .batch = dims[2],
                     .length = dims[3],
                     .learned = golden_has(g, index, "position_embedding") ? dims[4] : 0,
                     .width = dims[1],
                     .dim = fitting_width(f, dims[1]),
                     .tokens = golden_ints(f, g, index, "tokens")};
  int32_t *natural = host_memory(f, (size_t)(k.batch * k.length) * sizeof *natural);
  for (int i = 0; i < k.batch * k.length; i++) natural[i] = i % k.length;
  const bool packed = golden_has(g, index, "positions");
  k.positions = packed ? golden_ints(f, g, index, "positions") : natural;
  ParameterSpec specs[] = {norm_spec(3, random_values(f, 1, 3)),
                           matrix_spec(k.vocab, k.dim, PAD_ROWS, embedding_values(f, &k, "table", k.vocab)),
                           {0}};
  if (k.learned)
    specs[POSITIONS_GROUP] = matrix_spec(k.learned, k.dim, 0, embedding_values(f, &k, "position_embedding", k.learned));
  k.params = parameters_new(f, specs, k.learned ? 3 : 2);
  k.e = table_of(k.params.groups[TABLE_GROUP].matrix);
  if (!k.learned) return k;
  k.e.position_embedding = k.params.groups[POSITIONS_GROUP].matrix;
  if (packed) k.e.positions = array_ints(f, k.positions, (size_t)(k.batch * k.length)).data;
  return k;
}

static void embedding_forward(Fixture *f, const EmbeddingCase *k) {
  OPS(f);
  const int rows = k->batch * k->length;
  const size_t n = (size_t)(rows * k->dim);
  Array ids = array_ints(f, k->tokens, (size_t)rows), out = array_compute(f, NULL, n);
  ops->embedding(c, out.data, &k->params, &k->e, ids.data, k->batch, k->length, NULL);
  expect_close(f, "embedding", array_read(f, &out), embedding_values(f, k, "out", rows), n, k->learned ? 1e-6 : 1e-7);
}

/* The gradient of one table: rows of ids that do not occur, and pads, become zero, or with accumulation stay. */
static void embedding_gradient(Fixture *f, const EmbeddingCase *k, int group, const int32_t *ids, int logical,
                               const char *name) {
  OPS(f);
  const int rows = k->batch * k->length;
  const Matrix table = k->params.groups[group].matrix;
  const size_t count = (size_t)(table.rows * table.cols), valid = (size_t)(logical * k->dim);
  Array dx = array_compute(f, embedding_values(f, k, "dx", rows), (size_t)(rows * k->dim)), offsets, order;
  token_order(f, ids, rows, logical, &offsets, &order);
  double *want = concatenate(f, embedding_values(f, k, name, logical), valid, host_values(f, count), count - valid);
  parameters_write(f, &k->params, ARENA_OF_GRAD, group, random_values(f, 2, count)); /* must be overwritten */
  ops->embedding_backward(c, &k->params, table, dx.data, offsets.data, order.data, logical, k->batch, k->length, NULL,
                          false);
  double *got = parameters_read(f, &k->params, ARENA_OF_GRAD, group);
  expect_close(f, name, got, want, count, TOLERANCE_F32);
  expect_same("pads of the gradient", got + valid, want + valid, count - valid);
  ops->embedding_backward(c, &k->params, table, dx.data, offsets.data, order.data, logical, k->batch, k->length, NULL,
                          true);
  got = parameters_read(f, &k->params, ARENA_OF_GRAD, group);
  expect_close(f, "accumulated gradient of a table", got, sum_of(f, want, want, count), count, TOLERANCE_F32);
  expect_same("the neighbor's gradient", parameters_read(f, &k->params, ARENA_OF_GRAD, 0), host_values(f, 3), 3);
}

static int embedding_cases(Fixture *f, const char *name) {
  const Golden *g = golden_open(f, name);
  int index = 0;
  for (; golden_has(g, index, "dims"); index++) {
    EmbeddingCase k = embedding_case_of(f, g, index);
    embedding_forward(f, &k);
    embedding_gradient(f, &k, TABLE_GROUP, k.tokens, k.vocab, "dtable");
    if (k.learned) embedding_gradient(f, &k, POSITIONS_GROUP, k.positions, k.learned, "dposition_embedding");
  }
  return index;
}

static void test_embedding(void **state) { assert_int_equal(embedding_cases(*state, "embedding"), 3); }

static void test_position_embedding(void **state) {
  assert_int_equal(embedding_cases(*state, "position_embedding"), 5);
}

/* Half of all positions hold one token, the others some of the rest: sums over one position, a few, and thousands,
 * which backends divide. Sums of thousands cancel, so errors are relative to their terms. */
static void frequent_token_case(Fixture *f, int dim, float p, bool accumulate) {
  OPS(f);
  enum { VOCAB = 150, PADS = 2, BATCH = 3, LENGTH = 1111, N = BATCH * LENGTH };
  size_t count = (size_t)(N * dim), table_count = (size_t)((VOCAB + PADS) * dim);
  int32_t *tokens = some_tokens(f, N, VOCAB / 2);
  for (int i = 0; i < N; i++) tokens[i] = i % 2 ? VOCAB / 4 : tokens[i] * 2 + 1;
  double *dx = random_values(f, 2, count), *before = random_values(f, 3, table_count),
         *want = host_values(f, table_count);
  ParameterSpec spec = matrix_spec(VOCAB, dim, PADS, host_values(f, table_count));
  Parameters params = parameters_new(f, &spec, 1);
  Dropout dropout = dropout_at(f, p, 4, 3);
  const double *mask = p > 0 ? dropout_mask(f, &dropout, 5, 3, BATCH, LENGTH, dim) : NULL;
  if (accumulate) memcpy(want, before, table_count * sizeof *want);
  for (int i = 0; i < N * dim; i++) want[tokens[i / dim] * dim + i % dim] += (mask ? mask[i] : 1) * dx[i];
  Array upstream = array_compute(f, dx, count), offsets, order;
  token_order(f, tokens, N, VOCAB, &offsets, &order);
  double *first = NULL;
  for (int run = 0; run < 2; run++) {
    parameters_write(f, &params, ARENA_OF_GRAD, 0, before);
    ops->embedding_backward(c, &params, params.groups[0].matrix, upstream.data, offsets.data, order.data, VOCAB, BATCH,
                            LENGTH, p > 0 ? &dropout : NULL, accumulate);
    double *got = parameters_read(f, &params, ARENA_OF_GRAD, 0);
    expect_close(f, "gradient of a frequent token", got, want, table_count, TOLERANCE_F32);
    for (int v = 0; v < VOCAB + PADS; v++)
      expect_close_floor(f, "gradient of one token", got + v * dim, want + v * dim, (size_t)dim, TOLERANCE_F32, 1);
    if (first) expect_same("the same gradient again", got, first, table_count);
    first = got;
  }
}

static void test_embedding_frequent_token(void **state) {
  const int dims[] = {1, 24, 37, 264};
  for (int i = 0; i < 4; i++) {
    frequent_token_case(*state, fitting_width(*state, dims[i]), 0, false);
    frequent_token_case(*state, fitting_width(*state, dims[i]), 0.3f, true);
  }
}

/* NaN in a table reaches its rows and no others. */
static void test_embedding_nan(void **state) {
  Fixture *f = *state;
  OPS(f);
  enum { DIM = 8 };
  const int32_t tokens[] = {1, 0, 1, 2};
  double *table = random_values(f, 1, 3 * DIM), *learned = random_values(f, 2, 4 * DIM);
  table[2 * DIM] = learned[1 * DIM + 3] = NAN;
  ParameterSpec specs[] = {matrix_spec(3, DIM, 0, table), matrix_spec(4, DIM, 0, learned)};
  Parameters p = parameters_new(f, specs, 2);
  const Embedding e = {.table = p.groups[0].matrix, .position_embedding = p.groups[1].matrix};
  Array ids = array_ints(f, tokens, 4), out = array_compute(f, NULL, 4 * DIM);
  ops->embedding(c, out.data, &p, &e, ids.data, 1, 4, NULL);
  const double *got = array_read(f, &out);
  for (int i = 0; i < 4 * DIM; i++) assert_int_equal(isnan(got[i]) != 0, i == 1 * DIM + 3 || i == 3 * DIM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embedding),
      cmocka_unit_test(test_position_embedding),
      cmocka_unit_test(test_embedding_frequent_token),
      cmocka_unit_test(test_embedding_nan),
  };
  return run_on_backends("kernels", tests, (int)(sizeof tests / sizeof *tests)) ? 1 : 0;
}
