/* Memory of this machine. */
#ifndef INKLING_UTIL_MEMORY_H
#define INKLING_UTIL_MEMORY_H

/* Bytes that can still be used without the system killing the process: Linux grants more than it has. Infinity where
 * nothing says; may be below 0. */
double memory_available(void);

#endif
