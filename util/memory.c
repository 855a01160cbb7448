#define _DEFAULT_SOURCE /* madvise */
#include "util/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A number in a file, or `otherwise`. */
static double read_number(const char *path, const char *format, double otherwise) {
  FILE *file = fopen(path, "r");
  if (!file) return otherwise;
  char line[128];
  double number;
  bool found = false;
  while (!found && fgets(line, sizeof line, file)) found = sscanf(line, format, &number) == 1;
  fclose(file);
  return found ? number : otherwise;
}

double memory_available(void) {
  double machine = 1024 * read_number("/proc/meminfo", "MemAvailable: %lf", INFINITY);
  double granted = read_number("/sys/fs/cgroup/memory.max", "%lf", INFINITY); /* "max" is no number */
  double used = read_number("/sys/fs/cgroup/memory.current", "%lf", 0);
  return fmin(machine, granted - used);
}

enum { HUGE_PAGE = 2 << 20 };

/* Pages of their own, which are zeros without anybody writing them; but a sanitizer does not look at their ends. */
static bool is_mapped(size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return (void)bytes, false;
#else
  return bytes >= HUGE_PAGE;
#endif
}

static size_t whole_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

/* From a multiple of the size of a page on. */
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
