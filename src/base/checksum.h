/* XXH64 (Collet, xxHash specification, section "XXH64 algorithm"), little-endian: detects changed bytes. It does not
 * protect against forgery. */
#ifndef INKLING_BASE_CHECKSUM_H
#define INKLING_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of `size` bytes. For several arrays, pass the checksum of the previous array as the seed. */
uint64_t checksum_xxh64(const void *data, size_t size, uint64_t seed);

/* Returns whether to read a file whose checksum matches or not. Fuzzing builds accept every file, because fuzzed inputs
 * would fail every checksum. */
static inline bool checksum_accept(bool same) {
#ifdef INKLING_FUZZ
  (void)same;
  return true;
#else
  return same;
#endif
}

#endif
