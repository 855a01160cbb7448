#include "base/clock.h"

#include "base/array.h"

#include <stdlib.h>

Quantiles quantiles_of(double *values, size_t count) {
  double sum = 0;
  qsort(values, count, sizeof *values, array_compare_doubles);
  for (size_t i = 0; i < count; i++) sum += values[i];
  return (Quantiles){values[count / 10], values[count / 2], values[count - 1 - count / 10], sum / (double)count};
}
