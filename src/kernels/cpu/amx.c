/* Products of pairs of bf16 in the tile registers of AMX, of which there are eight, each with 16 rows of 64 bytes: four
 * hold 32 x 32 sums. The code uses inline assembly because gcc's intrinsics do not declare that they read and write
 * memory; tests/test_amx.c replaces it by C (AMX_EMULATED). */
#include "kernels/cpu/tile.h"

#if (defined(HAVE_BF16_PRODUCTS) && defined(__x86_64__)) || defined(AMX_EMULATED)

enum { AMX_ROWS = 16, AMX_WORDS = 16, SIDE = 2 * AMX_ROWS /* of a block of sums */ };

#ifndef AMX_EMULATED
/* Configures all eight registers at full size: palette 1 (Intel's manual, LDTILECFG). */
static inline void amx_begin(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } config __attribute__((aligned(64))) = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 4 * AMX_WORDS;
    config.rows[i] = AMX_ROWS;
  }
  __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

static inline void amx_end(void) { __asm__ volatile("tilerelease" ::: "memory"); }

/* `stride` is in bytes. The register number must be a constant. */
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define AMX_LOAD(tile, from, stride)                                                                                   \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"((const void *)(from)), "r"((int64_t)(stride)) : "memory")
#define AMX_STORE(tile, to, stride)                                                                                    \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(to)), "r"((int64_t)(stride)) : "memory")
/* sum[i][j] += a[i][k].low * b[k][j].low + a[i][k].high * b[k][j].high over k */
#define AMX_DOT(sum, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::)
#endif

/* A block with partial rows, columns or depth, padded with zeros. */
typedef struct Margins {
  Word a[SIDE][AMX_WORDS], b[AMX_WORDS][SIDE];
  float c[SIDE][SIDE];
} Margins;

static const char *rows_of_a(Margins *m, int rows, int words, const Element *a, int64_t a_row) {
  memset(m->a, 0, sizeof m->a);
  for (int i = 0; i < rows; i++) memcpy(m->a[i], a + i * a_row, (size_t)words * sizeof(Word));
  return (const char *)m->a;
}

static const char *rows_of_b(Margins *m, int words, int cols, const Word *b, int64_t b_row) {
  memset(m->b, 0, sizeof m->b);
  for (int k = 0; k < words; k++) memcpy(m->b[k], b + k * b_row, (size_t)cols * sizeof(Word));
  return (const char *)m->b;
}

/* Loads the sums of a block; up to 16 rows or columns need half the registers. Registers 0 to 3 hold sums, 4 and 5 rows
 * of a, 6 and 7 columns of b. */
static void load_sums(bool low, bool right, const float *c, int64_t row) {
  AMX_LOAD(0, c, row);
  if (right) AMX_LOAD(1, c + AMX_WORDS, row);
  if (low) AMX_LOAD(2, (const char *)c + AMX_ROWS * row, row);
  if (low && right) AMX_LOAD(3, (const char *)(c + AMX_WORDS) + AMX_ROWS * row, row);
}

static void store_sums(bool low, bool right, float *c, int64_t row) {
  AMX_STORE(0, c, row);
  if (right) AMX_STORE(1, c + AMX_WORDS, row);
  if (low) AMX_STORE(2, (char *)c + AMX_ROWS * row, row);
  if (low && right) AMX_STORE(3, (char *)(c + AMX_WORDS) + AMX_ROWS * row, row);
}

static void add_dots(bool low, bool right, const char *a, int64_t a_row, const char *b, int64_t b_row) {
  AMX_LOAD(4, a, a_row);
  AMX_LOAD(6, b, b_row);
  AMX_DOT(0, 4, 6);
  if (right) {
    AMX_LOAD(7, b + 4 * AMX_WORDS, b_row);
    AMX_DOT(1, 4, 7);
  }
  if (low) {
    AMX_LOAD(5, a + AMX_ROWS * a_row, a_row);
    AMX_DOT(2, 5, 6);
    if (right) AMX_DOT(3, 5, 7);
  }
}

/* Multiplies a block of at most SIDE rows and columns. */
static void multiply_block(int rows, int cols, int64_t depth, const Element *a, int64_t a_row, const Word *b,
                           int64_t b_row, float *c, int64_t c_row, bool add) {
  Margins m;
  bool low = rows > AMX_ROWS, right = cols > AMX_WORDS;
  bool whole_rows = rows % AMX_ROWS == 0, whole = whole_rows && cols % AMX_WORDS == 0;
  float *sums = whole ? c : m.c[0]; // cppcheck-suppress uninitvar -- its address
  int64_t sums_row = 4 * (whole ? c_row : SIDE);
  if (!add) {
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
  } else {
    for (int i = 0; i < rows && !whole; i++) memcpy(m.c[i], c + i * c_row, (size_t)cols * sizeof(float));
    load_sums(low, right, sums, sums_row);
  }
  for (int64_t k = 0; k < depth; k += AMX_WORDS, a += PER_WORD * AMX_WORDS, b += AMX_WORDS * b_row) {
    int words = depth - k < AMX_WORDS ? (int)(depth - k) : AMX_WORDS;
    bool whole_a = whole_rows && words == AMX_WORDS, whole_b = cols % AMX_WORDS == 0 && words == AMX_WORDS;
    add_dots(low, right, whole_a ? (const char *)a : rows_of_a(&m, rows, words, a, a_row),
             whole_a ? 2 * a_row : 4 * AMX_WORDS, whole_b ? (const char *)b : rows_of_b(&m, words, cols, b, b_row),
             4 * (whole_b ? b_row : SIDE));
  }
  store_sums(low, right, sums, sums_row);
  for (int i = 0; i < rows && !whole; i++) memcpy(c + i * c_row, m.c[i], (size_t)cols * sizeof(float));
}

static void multiply(int rows, int cols, int64_t depth, const Element *a, int64_t a_row, int64_t a_k, const Word *b,
                     int64_t b_row, float *c, int64_t c_row, bool add) {
  (void)a_k; /* 1 */
  for (int j = 0; j < cols; j += SIDE)
    for (int i = 0; i < rows; i += SIDE)
      multiply_block(smaller(rows - i, SIDE), smaller(cols - j, SIDE), depth, a + i * a_row, a_row, b + j, b_row,
                     c + i * c_row + j, c_row, add);
}

const Microkernel CPU(amx) = {.name = "AMX", .rows = SIDE, .multiply = multiply, .begin = amx_begin, .end = amx_end};
#endif
