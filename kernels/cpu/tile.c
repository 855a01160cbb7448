#include "kernels/cpu/tile.h"

/* One tile; rows beyond `rows` are computed from its last row and not written. `vectors` is a constant at every call,
 * so that each call becomes straight code. */
static inline __attribute__((always_inline)) void tile(int vectors, int rows, int64_t depth, const float *a,
                                                       int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
                                                       float *c, int64_t c_row, bool add) {
  const float *row[TILE_ROWS];
  Vector sum[TILE_ROWS][TILE_VECTORS];
  UNROLL for (int i = 0; i < TILE_ROWS; i++) row[i] = a + (i < rows ? i : rows - 1) * a_row;
  UNROLL for (int i = 0; i < TILE_ROWS; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = (Vector){0};
  if (add)
    UNROLL for (int i = 0; i < TILE_ROWS; i++) if (i < rows) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
        *(const UnalignedVector *)(c + i * c_row + j * LANES);
  for (int64_t k = 0, at = 0; k < depth; k++, at += a_k, b += b_row) {
    Vector of_b[TILE_VECTORS];
    UNROLL for (int j = 0; j < vectors; j++) of_b[j] = *(const UnalignedVector *)(b + j * LANES);
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
      float factor = row[i][at];
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] += factor * of_b[j];
    }
  }
  UNROLL for (int i = 0; i < TILE_ROWS; i++) if (i < rows) UNROLL for (int j = 0; j < vectors; j++) *
      (UnalignedVector *)(c + i * c_row + j * LANES) = sum[i][j];
}

typedef void (*Tile)(int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row,
                     float *c, int64_t c_row, bool add);

/* The full tile's stores have no branches. */
#define DEFINE_TILE(vectors)                                                                                           \
  static void tile_##vectors(int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_k, const float *b,      \
                             int64_t b_row, float *c, int64_t c_row, bool add) {                                       \
    if (rows >= TILE_ROWS) tile(vectors, TILE_ROWS, depth, a, a_row, a_k, b, b_row, c, c_row, add);                    \
    else tile(vectors, rows, depth, a, a_row, a_k, b, b_row, c, c_row, add);                                           \
  }
DEFINE_TILE(1)
DEFINE_TILE(2)
#if defined(__AVX512F__) || defined(__aarch64__)
DEFINE_TILE(3)
DEFINE_TILE(4)
static const Tile tiles[] = {tile_1, tile_2, tile_3, tile_4};
#else
static const Tile tiles[] = {tile_1, tile_2};
#endif
_Static_assert(sizeof tiles / sizeof tiles[0] == TILE_VECTORS, "a tile for every number of vectors");

/* A tile whose last vector is not whole passes through memory of its own. */
static void tile_with_tail(Tile multiply, int cols, int rows, int64_t depth, const float *a, int64_t a_row, int64_t a_k,
                           const float *b, int64_t b_row, float *c, int64_t c_row, bool add) {
  _Alignas(64) float whole[TILE_ROWS * TILE_COLS];
  size_t bytes = (size_t)cols * sizeof(float);
  int count = rows < TILE_ROWS ? rows : TILE_ROWS;
  if (add) {
    memset(whole, 0, sizeof whole);
    for (int i = 0; i < count; i++) memcpy(whole + i * TILE_COLS, c + i * c_row, bytes);
  }
  multiply(rows, depth, a, a_row, a_k, b, b_row, whole, TILE_COLS, add);
  for (int i = 0; i < count; i++) memcpy(c + i * c_row, whole + i * TILE_COLS, bytes);
}

void CPU(tile_multiply)(int rows, int cols, int64_t depth, const float *a, int64_t a_row, int64_t a_k, const float *b,
                        int64_t b_row, float *c, int64_t c_row, bool add) {
  for (int j = 0; j < cols; j += TILE_COLS) {
    int width = cols - j < TILE_COLS ? cols - j : TILE_COLS;
    Tile multiply = tiles[(width + LANES - 1) / LANES - 1];
    for (int i = 0; i < rows; i += TILE_ROWS) {
      float *to = c + i * c_row + j;
      if (width % LANES)
        tile_with_tail(multiply, width, rows - i, depth, a + i * a_row, a_row, a_k, b + j, b_row, to, c_row, add);
      else multiply(rows - i, depth, a + i * a_row, a_row, a_k, b + j, b_row, to, c_row, add);
    }
  }
}

/* ---- transposing ---- */

/* Of two rows, the elements that stay in the first or the second when the off-diagonal blocks of width h are
 * exchanged: log2(LANES) such exchanges transpose a square. */
#define STAYS(l, h) ((l) & (h) ? LANES + (l) - (h) : (l))
#define MOVES(l, h) ((l) & (h) ? LANES + (l) : (l) + (h))
#define FOUR(m, l, h) m(l, h), m(l + 1, h), m(l + 2, h), m(l + 3, h)
#if defined(__AVX512F__)
#define EVERY_LANE(m, h) FOUR(m, 0, h), FOUR(m, 4, h), FOUR(m, 8, h), FOUR(m, 12, h)
#elif defined(__AVX__)
#define EVERY_LANE(m, h) FOUR(m, 0, h), FOUR(m, 4, h)
#else
#define EVERY_LANE(m, h) FOUR(m, 0, h)
#endif
#ifdef __clang__
#define SELECT(a, b, m, h) __builtin_shufflevector(a, b, EVERY_LANE(m, h))
#else
typedef int32_t LaneNumbers __attribute__((vector_size(4 * LANES)));
#define SELECT(a, b, m, h) __builtin_shuffle(a, b, (LaneNumbers){EVERY_LANE(m, h)})
#endif
#define EXCHANGE(h)                                                                                                    \
  UNROLL for (int i = 0; i < LANES; i++) if (!(i & (h))) {                                                             \
    Vector first = r[i], second = r[i + (h)];                                                                          \
    r[i] = SELECT(first, second, STAYS, h);                                                                            \
    r[i + (h)] = SELECT(first, second, MOVES, h);                                                                      \
  }

static void transpose_square(const float *from, int64_t from_stride, float *to, int64_t to_stride) {
  Vector r[LANES];
  UNROLL for (int i = 0; i < LANES; i++) r[i] = *(const UnalignedVector *)(from + i * from_stride);
  EXCHANGE(1)
  EXCHANGE(2)
#if defined(__AVX__)
  EXCHANGE(4)
#endif
#if defined(__AVX512F__)
  EXCHANGE(8)
#endif
  UNROLL for (int i = 0; i < LANES; i++) * (UnalignedVector *)(to + i * to_stride) = r[i];
}

void CPU(transpose)(int rows, int cols, const float *from, int64_t from_stride, float *to, int64_t to_stride) {
  for (int i = 0; i < rows; i += LANES)
    for (int j = 0; j < cols; j += LANES) {
      const float *block = from + i * from_stride + j;
      float *turned = to + j * to_stride + i;
      if (rows - i >= LANES && cols - j >= LANES) {
        transpose_square(block, from_stride, turned, to_stride);
        continue;
      }
      for (int y = 0; y < LANES && y < rows - i; y++)
        for (int x = 0; x < LANES && x < cols - j; x++) turned[x * to_stride + y] = block[y * from_stride + x];
    }
}
