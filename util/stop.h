/* Work that is told to stop from outside, by the number of a signal at some address: any thread may look there. */
#ifndef INKLING_UTIL_STOP_H
#define INKLING_UTIL_STOP_H

#include "util/error.h"

typedef const _Atomic int *StopSignal; /* NULL: nobody stops it */

static inline bool stop_requested(StopSignal stop) { return stop && *stop; }

/* EXIT_SIGNALS + the signal, once there is one. */
bool stop_go_on(StopSignal stop, const char *doing, Error *error);

#endif
