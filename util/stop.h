/* Requests to stop work: the number of a signal in an atomic variable, which any thread may read. */
#ifndef INKLING_UTIL_STOP_H
#define INKLING_UTIL_STOP_H

#include "util/error.h"

typedef const _Atomic int *StopSignal; /* NULL: the work cannot be stopped */

static inline bool stop_requested(StopSignal stop) { return stop && *stop; }

/* Returns false with EXIT_SIGNALS + the signal once a signal has arrived, else true. */
bool stop_go_on(StopSignal stop, const char *doing, Error *error);

#endif
