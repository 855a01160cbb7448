/* What the processor and the operating system can run. */
#ifndef INKLING_KERNELS_PROCESSOR_H
#define INKLING_KERNELS_PROCESSOR_H

#include <stdbool.h>

/* Instruction sets; each has all instructions of those before it that are of the same architecture. */
typedef enum Level {
  LEVEL_generic,
  LEVEL_v2, /* x86-64 */
  LEVEL_v3,
  LEVEL_v4,
  LEVEL_avx512bf16,
  LEVEL_amx,
  LEVEL_neon, /* aarch64 */
  LEVEL_dotprod,
  LEVEL_bf16
} Level;

Level processor_level(void); /* the highest one */
/* AMD's AVX512-BF16 multiplies at twice the rate of f32, Intel's at half of it (docs/measurements/performance.md). */
bool processor_has_fast_bf16(void);
bool processor_has_vnni(void); /* of AVX-512, for vectors of 512 bits */

#endif
