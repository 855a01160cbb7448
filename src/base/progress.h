/* Reports of the progress of long work, and requests to stop it. */
#ifndef INKLING_BASE_PROGRESS_H
#define INKLING_BASE_PROGRESS_H

#include "base/error.h"

#include <stdint.h>

/* `report` receives the amount of work done, repeatedly, in the unit that the work defines; false, with `error` filled,
 * stops the work. {0}: no reports. */
typedef struct Progress {
  bool (*report)(void *context, int64_t done, Error *error);
  void *context;
} Progress;

static inline bool progress_report(Progress progress, int64_t done, Error *error) {
  return !progress.report || progress.report(progress.context, done, error);
}

/* The number of a signal, or 0, in an atomic variable that any thread may read; NULL: the work cannot be stopped. */
typedef const _Atomic int *StopSignal;

static inline bool stop_requested(StopSignal stop) { return stop && *stop; }

/* Returns false with EXIT_SIGNALS + the signal once a signal has arrived, else true. */
bool stop_go_on(StopSignal stop, const char *doing, Error *error);

#endif
