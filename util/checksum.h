/* XXH64 (Collet, xxHash specification, section "XXH64 algorithm"), little-endian: tells whether bytes have changed. Not
 * against forgery. */
#ifndef INKLING_UTIL_CHECKSUM_H
#define INKLING_UTIL_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of several things: each with the sum of the one before as its seed. */
uint64_t checksum_xxh64(const void *data, size_t size, uint64_t seed);

/* Whether a file whose checksum is the right one, or not, is read. Fuzzing would not come past a checksum. */
static inline bool checksum_accept(bool same) {
#ifdef INKLING_FUZZ
  (void)same;
  return true;
#else
  return same;
#endif
}

#endif
