/* The machine and its operating system: clock, memory, control groups, and what differs between Linux and macOS. */
#ifndef INKLING_BASE_SYSTEM_H
#define INKLING_BASE_SYSTEM_H

#include "base/path.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

/* ---- clock ---- */

/* Both return the time of a monotonic clock; only differences are meaningful. */
static inline int64_t clock_nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline double clock_seconds(void) { return 1e-9 * (double)clock_nanoseconds(); }

/* ---- what differs between Linux and macOS ---- */

/* Returns when the content of a file was last modified. */
struct timespec system_modified(const struct stat *file);

/* Like fsync(), and also on macOS the bytes reach the medium, not only the drive's cache. */
int system_sync(int fd);

/* A path that opens the file of this program, possibly a link; "": unknown. */
PathText system_program(void);

/* Returns the bytes of memory that can be used without taking them from another process; infinity: unknown. */
double system_free_memory(void);

/* Returns the most bytes of memory that this process has used at a time. */
size_t system_peak_memory(void);

/* Returns the number in the first line of a file of /proc or /sys that matches the format; `otherwise` where there is
 * none, as on macOS. */
double system_read_number(const char *path, const char *format, double otherwise);

/* Opens a page in the user's browser (xdg-open, open, or Windows itself) and waits a moment for what goes wrong. Returns
 * the cause, NULL if there is none. */
const char *system_open_page(const char *path);

/* Sends this process a signal when its parent dies. Not on macOS, which has no such signal. */
void system_end_with_parent(int number);

/* ---- the control groups of this process, in which Linux and containers limit memory and processors ---- */

/* Called for each directory of a control group. version: that of the control groups, 1 or 2; their files differ. */
typedef void (*ControlGroupTake)(const char *directory, int version, void *out);

/* Calls `take` for the directories of the groups with this controller ("memory", "cpu") and of their ancestors, all of
 * which limit the process: those that <root>/proc/self/cgroup names, below <root>/sys/fs/cgroup. A directory may be
 * missing. root: "" except in tests. */
void control_groups_take(const char *root, const char *controller, ControlGroupTake take, void *out);

/* Returns the number in a file of the directory, as system_read_number() does. */
double control_group_number(const char *directory, const char *name, const char *format, double otherwise);

/* ---- memory ---- */

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
