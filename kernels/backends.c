/* The backends of this build that the machine can run, best first. */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

extern const Backend cuda_backend;
/* The instruction sets that kernels/cpu is compiled for (ISAS in the Makefile), best first. */
#ifdef __x86_64__
#define CPU_ISAS(X) X(v4) X(v3) X(v2)
#else
#define CPU_ISAS(X) X(generic)
#endif
#define DECLARE(isa) extern const Backend cpu_##isa##_backend;
CPU_ISAS(DECLARE)

/* Whether processor and system have the instructions of a level (the x86-64 psABI lists them). */
static bool can_run(const char *isa) {
#ifdef __x86_64__
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (strcmp(isa, "v2") == 0) return v2;
  if (strcmp(isa, "v3") == 0) return v3;
  if (strcmp(isa, "v4") == 0) return v4;
#endif
  return strcmp(isa, "generic") == 0;
}

const Backend *const *backend_list(void) {
  static const Backend *const all[] = {
#ifdef INKLING_CUDA
      &cuda_backend,
#endif
#define ADDRESS(isa) &cpu_##isa##_backend,
      CPU_ISAS(ADDRESS)};
  enum { ALL = sizeof all / sizeof all[0] };
  static const Backend *list[ALL + 1];
  const char *only = getenv("INKLING_ISA");
  int count = 0;
  for (int i = 0; i < ALL; i++) {
    const char *isa = all[i]->isa;
    if (!isa || ((!only || strcmp(isa, only) == 0) && can_run(isa))) list[count++] = all[i];
  }
  list[count] = NULL;
  return list;
}
