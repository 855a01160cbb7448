/* Memory of this machine. */
#ifndef INKLING_BASE_MEMORY_H
#define INKLING_BASE_MEMORY_H

#include <stddef.h>

/* The memory that can still be used before the system refuses it or kills the process, because Linux overcommits
 * memory. */
typedef struct AvailableMemory {
  double bytes;       /* infinity: no known limit; may be below 0 */
  double limit;       /* the limit of this process or its group... */
  const char *set_by; /* ...and its origin, for example "ulimit -v"; NULL: only the memory of the machine limits it */
} AvailableMemory;

/* Returns the minimum of the memory of the machine, of resource limits and of control groups. */
AvailableMemory memory_available(void);

/* Returns the part of control groups: the minimum of their limits. root: see control_groups_take(). */
AvailableMemory memory_available_in_groups(const char *root);

/* "this process may use 1.9 GiB (ulimit -v)"; "": only the memory of the machine limits it. */
typedef struct MemoryLimitText {
  char text[96];
} MemoryLimitText;
MemoryLimitText memory_limit_text(const AvailableMemory *available);

/* Allocates zeroed memory at a multiple of `alignment` (a power of 2, up to 2 MiB), to free with memory_release() and
 * the same `bytes`; NULL when memory is out. Large blocks take memory at the first access and request huge pages,
 * because with small pages address translation costs as much as the memory accesses. */
void *memory_allocate(size_t alignment, size_t bytes);
void memory_release(void *memory, size_t bytes);

#endif
