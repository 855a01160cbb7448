/* Threads of this process. */
#ifndef INKLING_UTIL_THREADS_H
#define INKLING_UTIL_THREADS_H

/* CPUs that it may use: its affinity mask and, in a container, the quota of its control group. */
int threads_available(void);

#endif
