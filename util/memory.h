/* Memory of this machine. */
#ifndef INKLING_UTIL_MEMORY_H
#define INKLING_UTIL_MEMORY_H

#include <stddef.h>

/* Bytes that can still be used without the system killing the process: Linux grants more than it has. Infinity where
 * nothing says; may be below 0. */
double memory_available(void);

/* Zeroed memory at a multiple of `alignment` (a power of 2, up to 2 MiB), for memory_release() with the same `bytes`;
 * NULL when there is none. Large blocks take memory where they are first written or read, and ask for huge pages: with
 * small ones, going through them costs as much in address translation as in memory. */
void *memory_allocate(size_t alignment, size_t bytes);
void memory_release(void *memory, size_t bytes);

#endif
