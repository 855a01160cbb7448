/* Runs that differ only in their seed: groups of them, and the mean and standard deviation of a group. */
#ifndef INKLING_REPORT_SEEDS_H
#define INKLING_REPORT_SEEDS_H

#include "base/error.h"

#include <jansson.h>

/* Returns the first run with the same settings as `run`, apart from `seed` and `out`; `run` itself if it is the first
 * one, or if it has the seed of another run of that group. `known`: an empty object before the first of the runs,
 * which are counted from 0. EXIT_MEMORY. */
int seeds_group(json_t *known, const json_t *settings, int run, Error *error);

typedef struct SeedSum {
  int count;
  double sum, squares; /* squares: of the distances from the mean */
} SeedSum;

void seeds_add(SeedSum *s, double value);
double seeds_mean(const SeedSum *s);      /* NaN: of nothing; infinite if a value is */
double seeds_deviation(const SeedSum *s); /* of the sample, with count - 1; NaN: fewer than two values */

#endif
