#define _GNU_SOURCE /* sched_getaffinity() */
#include "base/threads.h"

#include "base/control_group.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

void threads_mask(unsigned char out[THREADS_MASK_BYTES]) {
  memset(out, 0, THREADS_MASK_BYTES);
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  memcpy(out, &set, sizeof set < THREADS_MASK_BYTES ? sizeof set : THREADS_MASK_BYTES);
#endif
}

static int allowed_cpus(void) {
  unsigned char mask[THREADS_MASK_BYTES];
  int allowed = 0;
  threads_mask(mask);
  for (int i = 0; i < THREADS_MASK_BYTES; i++) allowed += __builtin_popcount(mask[i]);
  if (allowed > 0) return allowed;
  const long online = sysconf(_SC_NPROCESSORS_ONLN); /* macOS, or more CPUs than the set holds */
  return online > 0 ? (int)online : 1;
}

/* A group of version 1 without a quota has the number -1, one of version 2 the word "max". */
static void take_quota(const char *directory, int version, void *cpus) {
  const bool first = version == 1;
  const double quota = control_group_number(directory, first ? "cpu.cfs_quota_us" : "cpu.max", "%lf", -1);
  const double period =
      control_group_number(directory, first ? "cpu.cfs_period_us" : "cpu.max", first ? "%lf" : "%*s %lf", 0);
  if (quota > 0 && period > 0) *(double *)cpus = fmin(*(double *)cpus, quota / period);
}

double threads_quota(const char *root) {
  double cpus = INFINITY;
  control_groups_take(root, "cpu", take_quota, &cpus);
  return cpus;
}

int threads_count(int wanted) { return wanted > 0 ? wanted : (int)fmin(allowed_cpus(), ceil(threads_quota(""))); }
