/* What a series of timings says. */
#ifndef INKLING_UTIL_QUANTILES_H
#define INKLING_UTIL_QUANTILES_H

#include <stddef.h>

/* In the unit of the values. */
typedef struct Quantiles {
  double p10, median, p90, mean;
} Quantiles;

/* Of `count` values, at least one; sorts them. */
Quantiles quantiles_of(double *values, size_t count);

#endif
