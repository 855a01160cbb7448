/* Arrays that grow. */
#ifndef INKLING_UTIL_ARRAY_H
#define INKLING_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Room for `wanted` items of `item_bytes` bytes in the array that `items` (the address of its pointer, which may be
 * NULL) holds: at least twice the old capacity when it has to move. False, with nothing changed, when memory is out. */
bool array_reserve(void *items, size_t *capacity, size_t wanted, size_t item_bytes);

#endif
