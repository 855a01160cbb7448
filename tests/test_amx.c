/* The products of kernels/cpu/amx.c with its instructions replaced by C (AMX_EMULATED), on any processor: blocks,
 * partial blocks, memory that is read and written. The tests of the kernels test the instructions on processors that
 * have them. */
#define CPU_BUILD emulated
#define CPU_ISA emulated
#define CPU_BF16 1
#define AMX_EMULATED

#include "kernels/cpu/element.h"

/* ---- the instructions ---- */

enum { ROWS = 16, WORDS = 16 }; /* of a tile register */

static _Thread_local union {
  float sum[ROWS][WORDS];
  uint32_t word[ROWS][WORDS];
} amx_tile[8];

static inline void amx_begin(void) { memset(amx_tile, 0, sizeof amx_tile); }
static inline void amx_end(void) {}

static inline void amx_load(int tile, const void *from, int64_t stride) {
  for (int i = 0; i < ROWS; i++) memcpy(amx_tile[tile].word[i], (const char *)from + i * stride, 4 * WORDS);
}

static inline void amx_store(int tile, void *to, int64_t stride) {
  for (int i = 0; i < ROWS; i++) memcpy((char *)to + i * stride, amx_tile[tile].word[i], 4 * WORDS);
}

static inline void amx_dot(int sum, int a, int b) {
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < WORDS; k++)
      for (int j = 0; j < WORDS; j++) {
        uint32_t x = amx_tile[a].word[i][k], y = amx_tile[b].word[k][j];
        amx_tile[sum].sum[i][j] += half_bf16_to_float((uint16_t)x) * half_bf16_to_float((uint16_t)y);
        amx_tile[sum].sum[i][j] += half_bf16_to_float((uint16_t)(x >> 16)) * half_bf16_to_float((uint16_t)(y >> 16));
      }
}

#define AMX_ZERO(tile) memset(&amx_tile[tile], 0, sizeof amx_tile[tile])
#define AMX_LOAD(tile, from, stride) amx_load(tile, from, stride)
#define AMX_STORE(tile, to, stride) amx_store(tile, to, stride)
#define AMX_DOT(sum, a, b) amx_dot(sum, a, b)

#include "kernels/cpu/amx.c"

#include "kernels/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { MOST = 80, PAIRS = 40, GUARD = 64 };

static float number(uint32_t at, uint32_t kind) {
  return half_bf16_to_float(half_float_to_bf16(philox_uniform(philox(7, at, kind, 0, 0).word[0]) - 0.5f));
}

/* Memory beyond the operands is NaN, so that reading it is detected. */
static void check(int rows, int cols, int depth, bool add) {
  static uint16_t a[MOST * 2 * PAIRS + GUARD];
  static Word b[PAIRS * MOST];
  static float c[MOST * MOST];
  const int a_row = 2 * depth + 1, b_row = cols + 3, c_row = cols + 5; /* odd, as rows of activations may be */
  memset(a, 0xFF, sizeof a);
  memset(b, 0xFF, sizeof b);
  memset(c, 0xFF, sizeof c);
  for (int i = 0; i < rows; i++)
    for (int k = 0; k < 2 * depth; k++) a[i * a_row + k] = half_float_to_bf16(number((uint32_t)(i * 1000 + k), 1));
  for (int k = 0; k < depth; k++)
    for (int j = 0; j < cols; j++) {
      uint32_t at = (uint32_t)(2 * k * 1000 + j);
      b[k * b_row + j] = (Word)half_float_to_bf16(number(at, 2)) | (Word)half_float_to_bf16(number(at + 1000, 2)) << 16;
    }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < cols; j++)
      if (add) c[i * c_row + j] = (float)(i - j);
  const Microkernel *by = &CPU(amx);
  by->begin();
  by->multiply(rows, cols, depth, a, a_row, 1, b, b_row, c, c_row, add);
  by->end();
  for (int i = 0; i < MOST * MOST / c_row; i++) /* rows beyond the last one must not change */
    for (int j = 0; j < c_row; j++) {
      double sum = add ? i - j : 0;
      for (int k = 0; k < 2 * depth && i < rows && j < cols; k++)
        sum += (double)number((uint32_t)(i * 1000 + k), 1) * (double)number((uint32_t)(k * 1000 + j), 2);
      float got = c[i * c_row + j];
      bool right = i < rows && j < cols ? fabs((double)got - sum) < 1e-5 * (1 + fabs(sum)) : isnan(got);
      if (!right)
        fail_msg("%d x %d x %d, add %d: [%d][%d] is %g, not %g", rows, cols, depth, add, i, j, (double)got, sum);
    }
}

static void test_shapes(void **state) {
  (void)state;
  const int sides[] = {1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 70}, depths[] = {1, 15, 16, 17, 32, 39};
  enum { SIDES = sizeof sides / sizeof sides[0], DEPTHS = sizeof depths / sizeof depths[0] };
  for (int i = 0; i < SIDES; i++)
    for (int j = 0; j < SIDES; j++)
      for (int k = 0; k < DEPTHS; k++) {
        check(sides[i], sides[j], depths[k], false);
        check(sides[i], sides[j], depths[k], true);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
  return cmocka_run_group_tests_name("amx, emulated", tests, NULL, NULL);
}
