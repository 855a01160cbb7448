/* Measurement of time. */
#ifndef INKLING_UTIL_CLOCK_H
#define INKLING_UTIL_CLOCK_H

#include <stddef.h>
#include <time.h>

/* Returns seconds of a monotonic clock; only differences are meaningful. */
static inline double clock_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Statistics of a series of timings, in the unit of the values. */
typedef struct Quantiles {
  double p10, median, p90, mean;
} Quantiles;

/* Computes the quantiles of `count` >= 1 values; sorts the values. */
Quantiles quantiles_of(double *values, size_t count);

#endif
