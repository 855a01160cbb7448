/* The files that base/file.h reads in a WebAssembly module: those of a pack. */
#ifndef INKLING_TOOLS_WEB_PLATFORM_H
#define INKLING_TOOLS_WEB_PLATFORM_H

#include "base/error.h"

#include <stddef.h>

/* Opens a pack, which must stay unchanged. EXIT_CHECKPOINT when it is cut off. */
bool platform_open_pack(const void *pack, size_t size, Error *error);
/* Returns the bytes of a file and its size; NULL: there is none. */
const void *platform_find(const char *name, size_t *size);

#endif
