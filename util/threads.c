#include "util/threads.h"

#include <omp.h>
#include <stdio.h>

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
