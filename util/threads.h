/* The number of threads that this process may use. */
#ifndef INKLING_UTIL_THREADS_H
#define INKLING_UTIL_THREADS_H

/* Returns `wanted` if it is positive, else the number of CPUs that the process may use, from its affinity mask and, in
 * a container, the quota of its control group. */
int threads_count(int wanted);

/* Stores the affinity mask, one bit per CPU; zeros where it is unknown. */
enum { THREADS_MASK_BYTES = 128 };
void threads_mask(unsigned char out[THREADS_MASK_BYTES]);

#endif
