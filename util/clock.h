/* Time spans. */
#ifndef INKLING_UTIL_CLOCK_H
#define INKLING_UTIL_CLOCK_H

#include <time.h>

/* Seconds of a clock that never goes back; only differences mean something. */
static inline double clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
