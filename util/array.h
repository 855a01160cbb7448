/* Growing arrays. */
#ifndef INKLING_UTIL_ARRAY_H
#define INKLING_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for `wanted` items of `item_bytes` bytes in an array; `items` is the address of its pointer, which may be
 * NULL. A reallocation at least doubles the capacity. Returns false, without changes, when memory is out. */
bool array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes);

#endif
