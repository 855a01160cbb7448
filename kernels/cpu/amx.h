/* The eight tile registers of AMX, each with 16 rows of 64 bytes. The code uses inline assembly because gcc's
 * intrinsics do not declare that they read and write memory. AMX_EMULATED replaces it by C, for tests on processors
 * without AMX. */
#ifndef INKLING_KERNELS_CPU_AMX_H
#define INKLING_KERNELS_CPU_AMX_H

#include "kernels/cpu/element.h"

#include <stdint.h>
#include <string.h>

enum { AMX_ROWS = 16, AMX_WORDS = 16 };

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

#else

static _Thread_local union {
  float sum[AMX_ROWS][AMX_WORDS];
  uint32_t word[AMX_ROWS][AMX_WORDS];
} amx_tile[8];

static inline void amx_begin(void) { memset(amx_tile, 0, sizeof amx_tile); }
static inline void amx_end(void) {}

static inline void amx_load(int tile, const void *from, int64_t stride) {
  for (int i = 0; i < AMX_ROWS; i++) memcpy(amx_tile[tile].word[i], (const char *)from + i * stride, 4 * AMX_WORDS);
}

static inline void amx_store(int tile, void *to, int64_t stride) {
  for (int i = 0; i < AMX_ROWS; i++) memcpy((char *)to + i * stride, amx_tile[tile].word[i], 4 * AMX_WORDS);
}

static inline void amx_dot(int sum, int a, int b) {
  for (int i = 0; i < AMX_ROWS; i++)
    for (int k = 0; k < AMX_WORDS; k++)
      for (int j = 0; j < AMX_WORDS; j++) {
        uint32_t x = amx_tile[a].word[i][k], y = amx_tile[b].word[k][j];
        amx_tile[sum].sum[i][j] += bf16_to_f32((uint16_t)x) * bf16_to_f32((uint16_t)y);
        amx_tile[sum].sum[i][j] += bf16_to_f32((uint16_t)(x >> 16)) * bf16_to_f32((uint16_t)(y >> 16));
      }
}

#define AMX_ZERO(tile) memset(&amx_tile[tile], 0, sizeof amx_tile[tile])
#define AMX_LOAD(tile, from, stride) amx_load(tile, from, stride)
#define AMX_STORE(tile, to, stride) amx_store(tile, to, stride)
#define AMX_DOT(sum, a, b) amx_dot(sum, a, b)

#endif
#endif
