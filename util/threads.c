#ifdef __linux__
#define _GNU_SOURCE /* sched_getaffinity() */
#endif
#include "util/threads.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

static int allowed_cpus(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  const long online = sysconf(_SC_NPROCESSORS_ONLN); /* sched_getaffinity() fails for more CPUs than the set holds */
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

void threads_mask(unsigned char out[THREADS_MASK_BYTES]) {
  memset(out, 0, THREADS_MASK_BYTES);
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  memcpy(out, &set, sizeof set < THREADS_MASK_BYTES ? sizeof set : THREADS_MASK_BYTES);
#endif
}
