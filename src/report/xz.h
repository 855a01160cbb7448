/* Compression of a text with xz, a baseline for a model's bits per byte. */
#ifndef INKLING_REPORT_XZ_H
#define INKLING_REPORT_XZ_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { XZ_BYTES = 8 << 20 }; /* the window of xz; longer texts are not measured */

/* A measurement, by a thread of its own if there can be another one. */
typedef struct XzMeasurement XzMeasurement;

/* Begins to measure how many bits per byte `xz -9` needs for bytes[before..size), given the bytes before them: the
 * increase of its output, which is flushed in between. Takes over `bytes`, which malloc() has allocated. NULL with
 * EXIT_MEMORY. */
XzMeasurement *xz_begin(uint8_t *bytes, size_t before, size_t size, Error *error);

bool xz_has_finished(const XzMeasurement *measurement);

/* Waits for the measurement, frees it and returns the bits per byte. NaN without liblzma, which it loads, or without
 * memory (100 MB). */
double xz_end(XzMeasurement *measurement);

void xz_stop(XzMeasurement *measurement); /* frees it without a result; NULL is allowed */

#endif
