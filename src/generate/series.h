/* Models that a run has kept on the way (./train --keep-at): the directory RUN/series stands for the models that its
 * manifest.json lists. */
#ifndef INKLING_GENERATE_SERIES_H
#define INKLING_GENERATE_SERIES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct SeriesModel {
  char *dir;
  int64_t step, tokens; /* of its training; -1: unknown, because the model is not of a series */
  double words;         /* NaN: unknown */
  double val_loss;      /* nats per token; NaN: unknown */
} SeriesModel;

/* Starts zeroed. */
typedef struct ModelSeries {
  SeriesModel *models;
  size_t count, capacity;
} ModelSeries;

/* Returns whether `dir` is a series: it has a manifest.json and is no model itself. */
bool series_is(const char *dir);
/* Adds the models of a series in the order of its manifest, or `dir` itself if it is no series; opens none of them.
 * Every model is a directory in `dir`. EXIT_CHECKPOINT: the manifest is damaged or lists no model; EXIT_MEMORY. The
 * caller frees the series also after a failure. */
bool series_add(ModelSeries *series, const char *dir, Error *error);
void series_free(ModelSeries *series);

#endif
