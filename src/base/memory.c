#define _DEFAULT_SOURCE /* madvise */
#include "base/memory.h"

#include "base/control_group.h"
#include "base/system.h"
#include "base/text.h"

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

/* Does not count inactive pages of files, because the kernel frees them when memory is needed. The limit of a group
 * without one is "max", or a number far above any memory. */
static void take_group(const char *directory, int version, void *least) {
  static const struct GroupFiles {
    const char *limit, *used, *cached;
  } files[] = {{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file %lf"},
               {"memory.max", "memory.current", "inactive_file %lf"}};
  const struct GroupFiles *f = &files[version - 1];
  const double NONE = 0x1p60;
  const double limit = control_group_number(directory, f->limit, "%lf", INFINITY);
  if (limit >= NONE) return;
  const double used = control_group_number(directory, f->used, "%lf", 0);
  take_least(least, limit, fmax(0, used - control_group_number(directory, "memory.stat", f->cached, 0)), "cgroup");
}

AvailableMemory memory_available_in_groups(const char *root) {
  AvailableMemory least = {INFINITY, INFINITY, NULL};
  control_groups_take(root, "memory", take_group, &least);
  return least;
}

AvailableMemory memory_available(void) {
  AvailableMemory least = memory_available_in_groups("");
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
