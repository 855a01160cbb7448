/* Progress reports of long work, which can also stop it. */
#ifndef INKLING_UTIL_PROGRESS_H
#define INKLING_UTIL_PROGRESS_H

#include "util/error.h"

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

#endif
