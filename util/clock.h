/* Measurement of time. */
#ifndef INKLING_UTIL_CLOCK_H
#define INKLING_UTIL_CLOCK_H

#include <time.h>

/* Returns seconds of a monotonic clock; only differences are meaningful. */
static inline double clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
