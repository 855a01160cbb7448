/* Threads that share out work in pieces.
 *
 * A job is the pieces 0 .. count-1. Every thread has a run of its own, always the same part, so that over rows of the
 * same data it finds what it wrote before in its own cache; done with it, it takes what others have not begun. Pieces
 * are taken in ever smaller parts, and a job ends when its pieces are done, not when every thread has been there: a
 * thread that the machine holds up (shared machines do) delays the others by little. Waiting threads spin for some
 * tens of microseconds and then sleep. */
#ifndef INKLING_UTIL_POOL_H
#define INKLING_UTIL_POOL_H

#include "util/error.h"

#include <stdbool.h>

typedef struct Pool Pool;

/* Does pieces begin .. end-1. thread: 0 .. threads-1; two calls at the same time have different ones. */
typedef void (*PoolWork)(const void *job, int begin, int end, int thread);

/* The caller is one of the threads. EXIT_MEMORY where the system grants no thread. */
bool pool_open(Pool **out, int threads, Error *error);
void pool_close(Pool *pool); /* NULL is allowed */

/* Returns when all pieces are done. A thread takes at least `least` pieces at a time, and at most `most`; up to `least`
 * pieces are done by the caller alone. Which thread does a piece must not change its result. Not from within work. */
void pool_run(Pool *pool, int count, int least, int most, PoolWork work, const void *job);

#endif
