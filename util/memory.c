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

void *memory_allocate(size_t alignment, size_t bytes) {
  const size_t huge = (size_t)2 << 20;
  const bool large = bytes >= huge;
  if (large && alignment < huge) alignment = huge;
  if (bytes > SIZE_MAX - alignment) return NULL;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void *memory = aligned_alloc(alignment, rounded);
  if (!memory) return NULL;
#ifdef MADV_HUGEPAGE
  if (large) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return memset(memory, 0, bytes);
}
