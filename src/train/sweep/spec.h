/* The description of a sweep: which runs it makes. */
#ifndef INKLING_TRAIN_SWEEP_SPEC_H
#define INKLING_TRAIN_SWEEP_SPEC_H

#include "cli/options.h"

#include <jansson.h>

enum { SWEEP_MAX_RUNS = 10000 };

typedef struct SweepSpec {
  const char *text; /* the name of a file, or the description itself */
  int draws;        /* runs of a line with a range */
  uint64_t seed;    /* of the random draws */
  bool timed;       /* --minutes sets the steps */
} SweepSpec;

/* Returns the runs as an array of objects {"option": "value", ...}. Each line describes runs by words:
 *
 *   lr=1e-3,3e-3 layers=2,4     one run for each combination: here four
 *   lr=1e-4..1e-2 layers=2,4    values drawn between two numbers, here `draws` times for each of two numbers of layers
 *
 *   tokenizer="my vocab.json",b.json    a value with spaces, commas or a quote (""), or with ".."
 *
 * Positive numbers that are a factor of 10 or more apart are drawn uniformly on a logarithmic scale. A word that begins
 * with '#' begins a comment. Equal runs occur once. EXIT_USAGE: an option that does not exist or that a sweep cannot
 * set, an invalid value, more than SWEEP_MAX_RUNS runs; EXIT_INPUT: the file. Messages name the file and the line. */
json_t *sweep_spec_read(const Options *options, const SweepSpec *spec, Error *error);

#endif
