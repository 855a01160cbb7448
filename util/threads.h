/* Threads of this process. */
#ifndef INKLING_UTIL_THREADS_H
#define INKLING_UTIL_THREADS_H

/* `wanted`, or where that is not positive: the CPUs that it may use, by its affinity mask and, in a container, the
 * quota of its control group. */
int threads_count(int wanted);

/* Those CPUs by their affinity mask, a bit each; zeros where it is not known. */
enum { THREADS_MASK_BYTES = 128 };
void threads_mask(unsigned char out[THREADS_MASK_BYTES]);

#endif
