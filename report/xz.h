/* What a general compressor makes of a text: a level to hold a model's bits per byte against. */
#ifndef INKLING_REPORT_XZ_H
#define INKLING_REPORT_XZ_H

#include <stddef.h>
#include <stdint.h>

enum { XZ_BYTES = 8 << 20 }; /* as much is in its window; longer texts are not measured */

/* Bits that `xz -9` takes for a byte of bytes[before..size), when it has seen what stands before: by how much they
 * lengthen its output. liblzma is loaded when this is called first. NaN without it, or without memory (100 MB). */
double xz_bits_per_byte(const uint8_t *bytes, size_t before, size_t size);

#endif
