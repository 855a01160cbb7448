/* Hashes: checksums of files, and hashes for tables in memory. */
#ifndef INKLING_BASE_HASH_H
#define INKLING_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- checksums ---- */

/* XXH64 (Collet, xxHash specification, section "XXH64 algorithm"), little-endian: detects changed bytes. It does not
 * protect against forgery. For several arrays, pass the checksum of the previous array as the seed. */
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

/* ---- hashes of short byte strings and of pairs of numbers, only for tables in memory: they depend on the byte
 * order */

/* Multiplies and combines the two halves of the product: every bit of both factors affects the low half of the
 * result. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_load_u64(const uint8_t *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

/* Returns up to 8 bytes as a number, padded with zeros. */
static inline uint64_t hash_load_tail(const uint8_t *bytes, size_t size) {
  uint64_t word = 0;
  if (size >= 4) {
    uint32_t low, high; /* they overlap below 8 bytes */
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + size - 4, 4);
    return low | (uint64_t)high << 32;
  }
  for (size_t i = 0; i < size; i++) word = word << 8 | bytes[i];
  return word;
}

static inline uint64_t hash_bytes(const uint8_t *bytes, size_t size) {
  uint64_t hash = size;
  for (; size > 8; bytes += 8, size -= 8) hash = hash_mix(hash, hash_load_u64(bytes));
  return hash_mix(hash_mix(hash, hash_load_tail(bytes, size)), 0);
}

#endif
