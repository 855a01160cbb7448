/* The backends of this build that the machine can run, best first. */
#include "kernels.h"
#include "kernels/processor.h"

#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* CPU_TABLES(X) is X(table, level) for each table of kernels/cpu that this build has, best first:
 * tools/make/compiler.mk. */
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
  const Level level = processor_level();
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
  const bool fast = best && (!best->isa || (strcmp(best->isa, "avx512bf16") == 0 && processor_has_fast_bf16()));
  return fast ? DTYPE_BF16 : DTYPE_F32;
}
