/* Quantiles of a series of timings. */
#ifndef INKLING_UTIL_QUANTILES_H
#define INKLING_UTIL_QUANTILES_H

#include <stddef.h>

/* In the unit of the values. */
typedef struct Quantiles {
  double p10, median, p90, mean;
} Quantiles;

/* Computes the quantiles of `count` >= 1 values; sorts the values. */
Quantiles quantiles_of(double *values, size_t count);

#endif
