/* Work that is told to stop from outside, by the number of a signal at some address: any thread may look there. */
#ifndef INKLING_UTIL_STOP_H
#define INKLING_UTIL_STOP_H

#include "util/error.h"

/* NULL: it never has to. */
typedef const _Atomic int *StopSignal;

static inline bool stop_requested(StopSignal stop) { return stop && *stop; }

/* EXIT_SIGNALS + the signal, once there is one. */
static inline bool stop_go_on(StopSignal stop, const char *doing, Error *error) {
  return !stop_requested(stop) || fail(error, (ExitCode)(EXIT_SIGNALS + *stop), "stopped while %s", doing);
}

#endif
