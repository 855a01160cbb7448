#include "util/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

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
