/* Memory of this machine. */
#ifndef INKLING_UTIL_MEMORY_H
#define INKLING_UTIL_MEMORY_H

#include <stddef.h>

/* Bytes that can still be used without the system killing the process: Linux grants more than it has. Infinity where
 * nothing says; may be below 0. */
double memory_available(void);

/* Zeroed memory at a multiple of `alignment` (a power of 2), for free(); NULL when there is none. Large blocks ask for
 * huge pages: with small ones, going through them costs as much in address translation as in memory. */
void *memory_allocate(size_t alignment, size_t bytes);

#endif
