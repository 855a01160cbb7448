#include "base/array.h"

#include <stdlib.h>

bool array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes) {
  if (wanted <= *capacity) return true;
  const size_t most = SIZE_MAX / item_bytes, larger = *capacity > wanted / 2 ? 2 * *capacity : wanted;
  if (wanted > most) return false;
  void *old;
  memcpy(&old, items, sizeof old);
  void *grown = realloc(old, (larger < most ? larger : most) * item_bytes);
  if (!grown) return false;
  memcpy(items, &grown, sizeof grown);
  *capacity = larger < most ? larger : most;
  return true; // cppcheck-suppress memleak -- the caller owns it now
}

int array_compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

Quantiles quantiles_of(double *values, size_t count) {
  double sum = 0;
  qsort(values, count, sizeof *values, array_compare_doubles);
  for (size_t i = 0; i < count; i++) sum += values[i];
  return (Quantiles){values[count / 10], values[count / 2], values[count - 1 - count / 10], sum / (double)count};
}
