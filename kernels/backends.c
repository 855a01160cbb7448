/* The backends of this build that the machine can run, best first. */
#include "kernels.h"

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

/* Whether processor and system have the instructions of a level: those in which processors differ. */
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
  int count = 0;
  for (int i = 0; i < ALL; i++)
    if (!all[i]->isa || can_run(all[i]->isa)) list[count++] = all[i];
  return list;
}
