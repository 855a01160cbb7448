/* The backends of this build that the machine can run, best first. */
#define _DEFAULT_SOURCE /* syscall() */
#include "kernels.h"

#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

/* Instruction sets, each with all instructions of the one before. */
typedef enum Level { LEVEL_generic, LEVEL_v2, LEVEL_v3, LEVEL_v4, LEVEL_avx512bf16, LEVEL_amx } Level;

static bool has_v4(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_bf16(void) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 5 & 1;
}

/* AMD's AVX512-BF16 multiplies at twice the rate of f32, Intel's at half of it (docs/performance.md). */
static bool has_fast_bf16(void) { return __builtin_cpu_is("amd"); }

/* Asks the operating system for the tile registers; it refuses if it does not save them. */
static bool has_amx(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
#ifdef __linux__
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
  return false;
#endif
}

/* The highest level of processor and operating system. */
static Level highest_level(void) {
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt")) return LEVEL_generic;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2"))
    return LEVEL_v2;
  if (!has_v4()) return LEVEL_v3;
  if (!has_bf16()) return LEVEL_v4;
  return has_amx() ? LEVEL_amx : LEVEL_avx512bf16;
}

#else
typedef enum Level { LEVEL_generic } Level;
static Level highest_level(void) { return LEVEL_generic; }
static bool has_fast_bf16(void) { return false; }
#endif

/* CPU_TABLES(X) is X(table, level) for each table of kernels/cpu that this build has, best first: make/compiler.mk. */
extern const Backend cuda_backend;
int cuda_count(void); /* GPUs, at most 255; 0 on errors */
#define DECLARE(table, level) extern const Backend cpu_##table##_backend;
CPU_TABLES(DECLARE)

#define ENTRY(table, level) {&cpu_##table##_backend, LEVEL_##level},
static const struct {
  const Backend *backend;
  Level level;
} tables[] = {CPU_TABLES(ENTRY)};
enum { TABLES = sizeof tables / sizeof tables[0] };

int backend_gpus(void) {
#ifdef INKLING_CUDA
  int status = 0;
  const pid_t child = fork();
  if (child == 0) _exit(cuda_count());
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
#else
  return 0;
#endif
}

const Backend *const *backend_list(void) {
  static const Backend *list[TABLES + 2];
  if (list[0]) return list;
  const Level level = highest_level();
  int count = 0;
#ifdef INKLING_CUDA
  list[count++] = &cuda_backend;
#endif
  for (int i = 0; i < TABLES; i++)
    if (tables[i].level <= level) list[count++] = tables[i].backend;
  return list;
}

const char *const *backend_isas(void) {
  static const char *names[TABLES + 1];
  if (names[0]) return names;
  int count = 0;
  for (int i = 0; i < TABLES; i++) /* the tables of a level, one for each dtype, are adjacent */
    if (count == 0 || strcmp(names[count - 1], tables[i].backend->isa) != 0) names[count++] = tables[i].backend->isa;
  return names;
}

const Backend *backend_find(const char *name, const char *isa, unsigned dtypes) {
  bool reached = !isa;
  for (const Backend *const *b = backend_list(); *b; b++) {
    reached = reached || ((*b)->isa && strcmp((*b)->isa, isa) == 0);
    if (strcmp((*b)->name, name) == 0 && (reached || !(*b)->isa) && (*b)->dtypes & dtypes) return *b;
  }
  return NULL;
}

DType backend_natural_dtype(const char *name, const char *isa) {
  const Backend *best = backend_find(name, isa, ~0u);
  const bool fast = best && (!best->isa || (strcmp(best->isa, "avx512bf16") == 0 && has_fast_bf16()));
  return fast ? DTYPE_BF16 : DTYPE_F32;
}
