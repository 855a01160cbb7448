/* Memory of this machine. */
#ifndef INKLING_UTIL_MEMORY_H
#define INKLING_UTIL_MEMORY_H

#include <stddef.h>

/* What can still be used without the system refusing it or killing the process: Linux grants more than it has. */
typedef struct MemoryRoom {
  double bytes;       /* infinity: nothing is known of a limit; may be below 0 */
  double limit;       /* what this process or its group may use... */
  const char *set_by; /* ...says "ulimit -v", say; NULL: only the memory of the machine limits it */
} MemoryRoom;

/* The least of what the machine has, resource limits allow and control groups allow. */
MemoryRoom memory_room(void);

/* The part of control groups, of both versions: the least of the group's limit and those of all groups around it.
 * `membership` is /proc/self/cgroup, `mount` is /sys/fs/cgroup. */
MemoryRoom memory_room_in_groups(const char *membership, const char *mount);

/* "this process may use 1.9 GiB (ulimit -v)"; "": only the memory of the machine limits it. */
typedef struct MemoryLimitText {
  char text[96];
} MemoryLimitText;
MemoryLimitText memory_limit_text(const MemoryRoom *room);

/* Zeroed memory at a multiple of `alignment` (a power of 2, up to 2 MiB), for memory_release() with the same `bytes`;
 * NULL when there is none. Large blocks take memory where they are first written or read, and ask for huge pages: with
 * small ones, going through them costs as much in address translation as in memory. */
void *memory_allocate(size_t alignment, size_t bytes);
void memory_release(void *memory, size_t bytes);

#endif
