/* How long work tells how far it is, and asks whether to continue. */
#ifndef INKLING_UTIL_PROGRESS_H
#define INKLING_UTIL_PROGRESS_H

#include "util/error.h"

#include <stdint.h>

/* Called now and then with how much is done, in the unit that the work names; false, with `error` filled, stops the
 * work. {0}: no reports. */
typedef struct Progress {
  bool (*report)(void *context, int64_t done, Error *error);
  void *context;
} Progress;

static inline bool progress_report(Progress progress, int64_t done, Error *error) {
  return !progress.report || progress.report(progress.context, done, error);
}

#endif
