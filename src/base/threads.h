/* Threads: how many this process may use, and a pool of them. */
#ifndef INKLING_BASE_THREADS_H
#define INKLING_BASE_THREADS_H

#include "base/error.h"

#include <stdbool.h>

/* ---- the number of threads ---- */

/* Returns `wanted` if it is positive, else the number of CPUs that the process may use, from its affinity mask and the
 * quotas of its control groups. */
int threads_count(int wanted);

/* Returns the CPUs that the quotas grant, for example 0.5; infinity: no quota. root: see control_groups_take(). */
double threads_quota(const char *root);

/* Stores the affinity mask, one bit per CPU; zeros where it is unknown. */
enum { THREADS_MASK_BYTES = 128 };
void threads_mask(unsigned char out[THREADS_MASK_BYTES]);

/* ---- a pool ---- */

/* Threads that divide work into pieces. A job consists of the pieces 0 .. count-1. Every thread has a contiguous part,
 * always the same, so that it finds rows that it wrote earlier in its own cache; after its part it takes pieces that
 * others have not begun. Threads take pieces in decreasing amounts, and a job ends when its pieces are done, even if a
 * thread has not started: a thread that the system delays (on a shared machine) delays the others only a little.
 * Waiting threads spin for some tens of microseconds and then sleep. */
typedef struct Pool Pool;

/* Processes pieces begin .. end-1. thread: 0 .. threads-1; concurrent calls have different values. */
typedef void (*PoolWork)(const void *job, int begin, int end, int thread);

/* Starts a pool; the caller is one of the threads. EXIT_MEMORY when a thread cannot be created. */
bool pool_open(Pool **out, int threads, Error *error);
void pool_close(Pool *pool); /* NULL is allowed */

/* Runs a job and returns when all pieces are done. A thread takes `least` to `most` pieces at a time; the caller alone
 * processes a job of at most `least` pieces. The result of a piece must not depend on the thread. Do not call it from
 * within work. */
void pool_run(Pool *pool, int count, int least, int most, PoolWork work, const void *job);

#endif
