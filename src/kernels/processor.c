/* The bits are those of CPUID and XGETBV (Intel's manual, volumes 1 and 2A) and of Linux's <asm/hwcap.h>. */
#define _DEFAULT_SOURCE /* syscall() */
#include "kernels/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef enum Register { EAX, EBX, ECX, EDX } Register;

static bool has(unsigned leaf, unsigned subleaf, Register in, int bit) {
  unsigned r[4] = {0};
  return __get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) && r[in] >> bit & 1;
}

/* Does the operating system save these registers? */
static bool saves(uint32_t registers) {
  uint32_t low = 0, high = 0;
  if (!has(1, 0, ECX, 27)) return false; /* OSXSAVE */
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & registers) == registers;
}

static bool has_v2(void) {
  return has(1, 0, ECX, 0) && has(1, 0, ECX, 9) && has(1, 0, ECX, 13) && has(1, 0, ECX, 19) && has(1, 0, ECX, 20) &&
         has(1, 0, ECX, 23) && has(0x80000001, 0, ECX, 0); /* SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT, LAHF */
}

static bool has_v3(void) {
  enum { SSE_AND_AVX = 0x6 };
  return saves(SSE_AND_AVX) && has(1, 0, ECX, 28) && has(7, 0, EBX, 5) && has(1, 0, ECX, 12) && has(1, 0, ECX, 29) &&
         has(7, 0, EBX, 3) && has(7, 0, EBX, 8) && has(1, 0, ECX, 22) &&
         has(0x80000001, 0, ECX, 5); /* AVX, AVX2, FMA, F16C, BMI1, BMI2, MOVBE, LZCNT */
}

static bool has_v4(void) {
  enum { SSE_TO_AVX512 = 0xE6 };
  return saves(SSE_TO_AVX512) && has(7, 0, EBX, 16) && has(7, 0, EBX, 17) && has(7, 0, EBX, 28) && has(7, 0, EBX, 30) &&
         has(7, 0, EBX, 31); /* F, DQ, CD, BW, VL */
}

/* Asks Linux for the tile registers; it refuses if it does not save them. */
static bool has_amx(void) {
#ifdef __linux__
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
  return has(7, 0, EDX, 22) && has(7, 0, EDX, 24) && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
  return false;
#endif
}

Level processor_level(void) {
  if (!has_v2()) return LEVEL_generic;
  if (!has_v3()) return LEVEL_v2;
  if (!has_v4()) return LEVEL_v3;
  if (!has(7, 1, EAX, 5)) return LEVEL_v4;
  return has_amx() ? LEVEL_amx : LEVEL_avx512bf16;
}

bool processor_has_fast_bf16(void) {
  unsigned highest, name[3];
  return __get_cpuid(0, &highest, &name[0], &name[2], &name[1]) && memcmp(name, "AuthenticAMD", sizeof name) == 0;
}

bool processor_has_vnni(void) { return has(7, 0, ECX, 11); }

#else

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

Level processor_level(void) {
  enum { DOTPROD = 20 /* of AT_HWCAP */, BF16 = 14 /* of AT_HWCAP2 */ };
  if (!(getauxval(AT_HWCAP) >> DOTPROD & 1)) return LEVEL_neon;
  return getauxval(AT_HWCAP2) >> BF16 & 1 ? LEVEL_bf16 : LEVEL_dotprod;
}
#elif defined(__aarch64__) && defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>

static bool has(const char *feature) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(feature, &value, &size, NULL, 0) == 0 && value;
}

Level processor_level(void) {
  if (!has("hw.optional.arm.FEAT_DotProd")) return LEVEL_neon;
  return has("hw.optional.arm.FEAT_BF16") ? LEVEL_bf16 : LEVEL_dotprod;
}
#elif defined(__aarch64__)
Level processor_level(void) { return LEVEL_neon; }
#else
Level processor_level(void) { return LEVEL_generic; }
#endif

bool processor_has_fast_bf16(void) { return false; }
bool processor_has_vnni(void) { return false; }
#endif
