/* The number of threads that this process may use. */
#ifndef INKLING_BASE_THREADS_H
#define INKLING_BASE_THREADS_H

/* Returns `wanted` if it is positive, else the number of CPUs that the process may use, from its affinity mask and the
 * quotas of its control groups. */
int threads_count(int wanted);

/* Returns the CPUs that the quotas grant, for example 0.5; infinity: no quota. root: see control_groups_take(). */
double threads_quota(const char *root);

/* Stores the affinity mask, one bit per CPU; zeros where it is unknown. */
enum { THREADS_MASK_BYTES = 128 };
void threads_mask(unsigned char out[THREADS_MASK_BYTES]);

#endif
