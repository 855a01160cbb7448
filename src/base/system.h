/* What differs between Linux and macOS. */
#ifndef INKLING_BASE_SYSTEM_H
#define INKLING_BASE_SYSTEM_H

#include "base/path.h"

#include <stddef.h>
#include <sys/stat.h>
#include <time.h>

/* Returns when the content of a file was last modified. */
struct timespec system_modified(const struct stat *file);

/* Like fsync(), and also on macOS the bytes reach the medium, not only the drive's cache. */
int system_sync(int fd);

/* A path that opens the file of this program, possibly a link; "": unknown. */
PathText system_program(void);

/* Returns the bytes of memory that can be used without taking them from another process; infinity: unknown. */
double system_free_memory(void);

/* Returns the most bytes of memory that this process has used at a time. */
size_t system_peak_memory(void);

/* Returns the number in the first line of a file of /proc or /sys that matches the format; `otherwise` where there is
 * none, as on macOS. */
double system_read_number(const char *path, const char *format, double otherwise);

/* Sends this process a signal when its parent dies. Not on macOS, which has no such signal. */
void system_end_with_parent(int number);

#endif
