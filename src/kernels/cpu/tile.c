#include "kernels/cpu/tile.h"

/* The factors: fp32 numbers, or pairs of bf16, widened or for the instruction that multiplies pairs. */
typedef enum Kind { FLOATS, PAIRS, PAIR_DOTS } Kind;

/* The strides of a are in bytes; b is [depth][b_row] of 4-byte numbers or pairs. */
#define TILE_PARAMETERS                                                                                                \
  int rows, int64_t depth, const char *a, int64_t a_row, int64_t a_k, const float *b, int64_t b_row, float *c,         \
      int64_t c_row, bool add

typedef uint32_t Pairs __attribute__((vector_size(4 * LANES)));
typedef uint32_t UnalignedPair __attribute__((aligned(2), may_alias));

/* Converts the first or the second number of every pair to fp32, exactly. */
static inline Vector half_of(Pairs pairs, int half) { return (Vector)(half ? pairs & 0xFFFF0000u : pairs << 16); }

/* Returns the pair at `from` in every lane. gcc would split the pair first, with an instruction for each half. */
static inline Pairs spread(const char *from) {
  Pairs pair = *(const UnalignedPair *)from - (Pairs){0};
#if defined(__x86_64__)
  __asm__ volatile("" : "+x"(pair)); /* loaded again for the other half: registers are few */
#elif defined(__aarch64__)
  __asm__ volatile("" : "+w"(pair));
#endif
  return pair;
}

#ifdef HAVE_BF16_PRODUCTS
/* No intrinsics: not every processor of this level has the instructions. */
static inline Vector add_dots(Vector sum, Pairs a, Vector b) {
#ifdef __aarch64__
  __asm__(".arch_extension bf16\n\tbfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
#else
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#endif
  return sum;
}
#endif

/* sum[i] += row[i] * b: multiplies one number or pair of every row with a row of b. */
static inline __attribute__((always_inline)) void add_products(Kind kind, int vectors,
                                                               Vector sum[TILE_ROWS][TILE_VECTORS],
                                                               const char *const row[TILE_ROWS], int64_t at,
                                                               const float *b) {
  Vector of_b[TILE_VECTORS];
  if (kind != PAIRS) UNROLL for (int j = 0; j < vectors; j++) of_b[j] = *(const UnalignedVector *)(b + j * LANES);
  if (kind == FLOATS) {
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
      float factor;
      memcpy(&factor, row[i] + at, sizeof factor);
#if defined(__aarch64__) && !defined(__clang__)
      __asm__ volatile("" : "+w"(factor)); /* one by one: gcc would load all, and keep two sums in memory */
#endif
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] += factor * of_b[j];
    }
    return;
  }
#ifdef HAVE_BF16_PRODUCTS
  if (kind == PAIR_DOTS) {
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
      Pairs pair = spread(row[i] + at);
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = add_dots(sum[i][j], pair, of_b[j]);
    }
    return;
  }
#endif
  UNROLL for (int half = 0; half < 2; half++) {
#ifdef __aarch64__
    __asm__ volatile("" : "+r"(b), "+r"(at)); /* both are loaded again for the other half: registers are few */
#endif
    UNROLL for (int j = 0; j < vectors; j++) {
      const Vector pairs = *(const UnalignedVector *)(b + j * LANES);
      of_b[j] = half_of((Pairs)pairs, half);
    }
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
      Vector factor = half_of(spread(row[i] + at), half);
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] += factor * of_b[j];
    }
  }
}

/* Computes a tile; rows from `rows` on repeat the last row and are not written. `kind` and `vectors` are constants at
 * every call, so that each call becomes straight-line code. */
static inline __attribute__((always_inline)) void tile(Kind kind, int vectors, TILE_PARAMETERS) {
  const char *row[TILE_ROWS];
  Vector sum[TILE_ROWS][TILE_VECTORS];
  UNROLL for (int i = 0; i < TILE_ROWS; i++) row[i] = a + (i < rows ? i : rows - 1) * a_row;
  UNROLL for (int i = 0; i < TILE_ROWS; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = (Vector){0};
  if (add)
    UNROLL for (int i = 0; i < TILE_ROWS; i++) if (i < rows) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] =
        *(const UnalignedVector *)(c + i * c_row + j * LANES);
  for (int64_t k = 0, at = 0; k < depth; k++, at += a_k, b += b_row) add_products(kind, vectors, sum, row, at, b);
  UNROLL for (int i = 0; i < TILE_ROWS; i++) if (i < rows) UNROLL for (int j = 0; j < vectors; j++) *
      (UnalignedVector *)(c + i * c_row + j * LANES) = sum[i][j];
}

typedef void (*Tile)(TILE_PARAMETERS);

/* Tiles below each other. A full tile's stores have no branches. */
#define DEFINE_TILE(kind, vectors)                                                                                     \
  static void tile_##kind##_##vectors(TILE_PARAMETERS) {                                                               \
    for (; rows >= TILE_ROWS; rows -= TILE_ROWS, a += TILE_ROWS * a_row, c += TILE_ROWS * c_row)                       \
      tile(kind, vectors, TILE_ROWS, depth, a, a_row, a_k, b, b_row, c, c_row, add);                                   \
    if (rows > 0) tile(kind, vectors, rows, depth, a, a_row, a_k, b, b_row, c, c_row, add);                            \
  }
#if defined(__AVX512F__) || defined(__aarch64__)
#define DEFINE_TILES(kind)                                                                                             \
  DEFINE_TILE(kind, 1)                                                                                                 \
  DEFINE_TILE(kind, 2)                                                                                                 \
  DEFINE_TILE(kind, 3)                                                                                                 \
  DEFINE_TILE(kind, 4)                                                                                                 \
  static const Tile tiles_##kind[TILE_VECTORS] = {tile_##kind##_1, tile_##kind##_2, tile_##kind##_3, tile_##kind##_4};
#else
#define DEFINE_TILES(kind)                                                                                             \
  DEFINE_TILE(kind, 1)                                                                                                 \
  DEFINE_TILE(kind, 2)                                                                                                 \
  static const Tile tiles_##kind[TILE_VECTORS] = {tile_##kind##_1, tile_##kind##_2};
#endif

/* A tile with a partial last vector is computed in separate memory. */
static void tile_with_tail(Tile multiply, int cols, TILE_PARAMETERS) {
  _Alignas(64) float whole[TILE_ROWS * TILE_COLS];
  size_t bytes = (size_t)cols * sizeof(float);
  int count = smaller(rows, TILE_ROWS);
  if (add) {
    memset(whole, 0, sizeof whole);
    for (int i = 0; i < count; i++) memcpy(whole + i * TILE_COLS, c + i * c_row, bytes);
  }
  multiply(rows, depth, a, a_row, a_k, b, b_row, whole, TILE_COLS, add);
  for (int i = 0; i < count; i++) memcpy(c + i * c_row, whole + i * TILE_COLS, bytes);
}

static void multiply_tiles(const Tile *tiles, int cols, TILE_PARAMETERS) {
  for (int j = 0; j < cols; j += TILE_COLS) {
    int width = smaller(cols - j, TILE_COLS);
    Tile multiply = tiles[(width + LANES - 1) / LANES - 1];
    if (width % LANES == 0) multiply(rows, depth, a, a_row, a_k, b + j, b_row, c + j, c_row, add);
    else
      for (int i = 0; i < rows; i += TILE_ROWS)
        tile_with_tail(multiply, width, smaller(rows - i, TILE_ROWS), depth, a + i * a_row, a_row, a_k, b + j, b_row,
                       c + i * c_row + j, c_row, add);
  }
}

DEFINE_TILES(FLOATS)

void CPU(tile_multiply)(int rows, int cols, int64_t depth, const float *a, int64_t a_row, int64_t a_k, const float *b,
                        int64_t b_row, float *c, int64_t c_row, bool add) {
  multiply_tiles(tiles_FLOATS, cols, rows, depth, (const char *)a, 4 * a_row, 4 * a_k, b, b_row, c, c_row, add);
}

/* ---- the multipliers of words ---- */

#if CPU_BF16
#define MULTIPLY_WORDS(function, kind)                                                                                 \
  DEFINE_TILES(kind)                                                                                                   \
  static void function(int rows, int cols, int64_t depth, const Element *a, int64_t a_row, int64_t a_k, const Word *b, \
                       int64_t b_row, float *c, int64_t c_row, bool add) {                                             \
    multiply_tiles(tiles_##kind, cols, rows, depth, (const char *)a, 2 * a_row, 4 * a_k, (const void *)b, b_row, c,    \
                   c_row, add);                                                                                        \
  }
MULTIPLY_WORDS(multiply_widened, PAIRS)
const Microkernel CPU(microkernel) = {.rows = TILE_ROWS, .multiply = multiply_widened};
#ifdef HAVE_BF16_PRODUCTS
MULTIPLY_WORDS(multiply_dots, PAIR_DOTS)
#ifdef __aarch64__
#define PAIR_DOTS_NAME "BF16"
#else
#define PAIR_DOTS_NAME "AVX512-BF16"
#endif
const Microkernel CPU(pair_dots) = {.name = PAIR_DOTS_NAME, .rows = TILE_ROWS, .multiply = multiply_dots};
#endif
#else
const Microkernel CPU(microkernel) = {.rows = TILE_ROWS, .multiply = CPU(tile_multiply)};
#endif

/* ---- transposing ---- */

/* The elements of the first or second of two rows after exchanging their off-diagonal blocks of width h; log2(LANES)
 * exchanges transpose a square. */
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
#define EXCHANGE(h)                                                                                                    \
  UNROLL for (int i = 0; i < LANES; i++) if (!(i & (h))) {                                                             \
    Vector first = r[i], second = r[i + (h)];                                                                          \
    r[i] = SHUFFLE(LaneNumbers, first, second, EVERY_LANE(STAYS, h));                                                  \
    r[i + (h)] = SHUFFLE(LaneNumbers, first, second, EVERY_LANE(MOVES, h));                                            \
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
        for (int x = 0; x < LANES && x < cols - j; x++)
          memcpy(turned + x * to_stride + y, block + y * from_stride + x, sizeof *to);
    }
}
