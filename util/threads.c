#define _GNU_SOURCE /* sched_getaffinity() */
#include "util/threads.h"

#include <sched.h>
#include <stdio.h>
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

int threads_count(int wanted) {
  if (wanted > 0) return wanted;
  int threads = allowed_cpus();
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
  if (!file) return threads;
  long quota, period;
  if (fscanf(file, "%ld %ld", &quota, &period) == 2 && quota > 0 && period > 0) {
    int granted = (int)((quota + period - 1) / period);
    threads = granted < threads ? granted : threads;
  }
  fclose(file);
  return threads;
}
