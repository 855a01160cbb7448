/* Compression of a text with xz, a baseline for a model's bits per byte. */
#ifndef INKLING_REPORT_XZ_H
#define INKLING_REPORT_XZ_H

#include <stddef.h>
#include <stdint.h>

enum { XZ_BYTES = 8 << 20 }; /* the window of xz; longer texts are not measured */

/* Returns the bits per byte that `xz -9` needs for bytes[before..size), given the bytes before them: the increase of
 * its output, which is flushed in between. liblzma is loaded at the first call. NaN without it, or without memory
 * (100 MB). */
double xz_bits_per_byte(const uint8_t *bytes, size_t before, size_t size);

#endif
