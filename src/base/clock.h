/* Measurement of time. */
#ifndef INKLING_BASE_CLOCK_H
#define INKLING_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Both return the time of a monotonic clock; only differences are meaningful. */
static inline int64_t clock_nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline double clock_seconds(void) { return 1e-9 * (double)clock_nanoseconds(); }

/* Statistics of a series of timings, in the unit of the values. */
typedef struct Quantiles {
  double p10, median, p90, mean;
} Quantiles;

/* Computes the quantiles of `count` >= 1 values; sorts the values. */
Quantiles quantiles_of(double *values, size_t count);

#endif
