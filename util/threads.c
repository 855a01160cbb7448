#ifdef __linux__
#define _GNU_SOURCE /* sched_getaffinity() */
#endif
#include "util/threads.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#ifdef __linux__
#include <sched.h>
#endif

int threads_count(int wanted) {
  if (wanted > 0) return wanted;
  int threads = omp_get_num_procs();
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
