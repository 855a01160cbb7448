#define _DEFAULT_SOURCE /* madvise */
#include "util/memory.h"

#include "util/system.h"
#include "util/text.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* ---- available memory ---- */

static void take_least(AvailableMemory *least, double limit, double used, const char *set_by) {
  if (limit - used < least->bytes) *least = (AvailableMemory){limit - used, limit, set_by};
}

static double read_status(const char *format) { return 1024 * system_read_number("/proc/self/status", format, 0); }

static void take_resource(AvailableMemory *least, int resource, const char *used, const char *set_by) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  take_least(least, (double)limit.rlim_cur, read_status(used), set_by);
}

/* The files in the directory of a control group, for versions 2 and 1. */
typedef struct GroupFiles {
  const char *mount; /* below /sys/fs/cgroup */
  const char *limit, *used, *cached;
} GroupFiles;

static const GroupFiles group_files[] = {
    {"", "memory.max", "memory.current", "inactive_file %lf"},
    {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file %lf"}};

static double read_group(const char *group, const char *name, const char *format, double otherwise) {
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", group, name);
  return system_read_number(path, format, otherwise);
}

/* Does not count inactive pages of files, because the kernel frees them when memory is needed. */
static double used_by_group(const char *group, const GroupFiles *files) {
  const double used = read_group(group, files->used, "%lf", 0);
  return fmax(0, used - read_group(group, "memory.stat", files->cached, 0));
}

/* Reads the limits of `group` and its ancestors, up to the mount, which is its first `top` bytes. If the group of a
 * container has a name that exists only on the host, its directory is missing and the container's own group is at the
 * mount. The limit of a group without one is "max", or a number far above any memory. */
static void take_groups(AvailableMemory *least, const GroupFiles *files, char *group, size_t top) {
  const double NONE = 0x1p60;
  for (;;) {
    const double limit = read_group(group, files->limit, "%lf", INFINITY);
    if (limit < NONE) take_least(least, limit, used_by_group(group, files), "cgroup");
    char *slash = strrchr(group + top, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

/* Parses a line of the list of groups: "0::/path" of version 2, "4:memory:/path" of version 1. NULL: another group. */
static const GroupFiles *read_membership(char *line, const char **path) {
  line[strcspn(line, "\n")] = '\0';
  char *controllers = strchr(line, ':'), *colon = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!colon) return NULL;
  *colon = '\0';
  *path = colon + 1;
  if (!controllers[1]) return &group_files[0];
  char *rest = NULL;
  for (char *name = strtok_r(controllers + 1, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
    if (strcmp(name, "memory") == 0) return &group_files[1];
  return NULL;
}

AvailableMemory memory_available_in_groups(const char *membership, const char *mount) {
  AvailableMemory least = {INFINITY, INFINITY, NULL};
  FILE *file = fopen(membership, "r");
  if (!file) return least;
  char line[PATH_MAX], group[PATH_MAX];
  const char *path;
  while (fgets(line, sizeof line, file)) {
    const GroupFiles *files = read_membership(line, &path);
    if (!files) continue;
    const int top = snprintf(group, sizeof group, "%s%s", mount, files->mount);
    const int length = snprintf(group, sizeof group, "%s%s%s", mount, files->mount, path);
    if (length < (int)sizeof group) take_groups(&least, files, group, (size_t)top);
  }
  fclose(file);
  return least;
}

AvailableMemory memory_available(void) {
  AvailableMemory least = memory_available_in_groups("/proc/self/cgroup", "/sys/fs/cgroup");
  const double machine = system_free_memory();
  take_resource(&least, RLIMIT_AS, "VmSize: %lf", "ulimit -v");
  take_resource(&least, RLIMIT_DATA, "VmData: %lf", "ulimit -d");
  if (machine < least.bytes) least = (AvailableMemory){machine, INFINITY, NULL};
  return least;
}

MemoryLimitText memory_limit_text(const AvailableMemory *available) {
  MemoryLimitText out = {""};
  if (available->set_by)
    snprintf(out.text, sizeof out.text, "this process may use %s (%s)", text_bytes(available->limit).text,
             available->set_by);
  return out;
}

/* ---- blocks ---- */

enum { HUGE_PAGE = 2 << 20 };

/* Whether a block is mapped: fresh pages are already zero. Not under AddressSanitizer, which does not check the ends of
 * mapped blocks. */
static bool is_mapped(size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return (void)bytes, false;
#else
  return bytes >= HUGE_PAGE;
#endif
}

static size_t whole_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

/* Maps whole huge pages; the address is a multiple of their size. */
static void *map(size_t bytes) {
  const size_t size = whole_pages(bytes);
  uint8_t *memory = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  const size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
  if (before) munmap(memory, before);
  if (before < HUGE_PAGE) munmap(memory + before + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  madvise(memory + before, size, MADV_HUGEPAGE);
#endif
  return memory + before;
}

void *memory_allocate(size_t alignment, size_t bytes) {
  if (bytes > SIZE_MAX / 2 || alignment > HUGE_PAGE) return NULL;
  if (is_mapped(bytes)) return map(bytes);
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return memory ? memset(memory, 0, bytes) : NULL;
}

void memory_release(void *memory, size_t bytes) {
  if (memory && is_mapped(bytes)) munmap(memory, whole_pages(bytes));
  else free(memory);
}
