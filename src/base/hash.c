#include "base/hash.h"

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

#define PRIME1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME3 UINT64_C(0x165667B19E3779F9)
#define PRIME4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t xxh_round(uint64_t lane, uint64_t word) { return rotate(lane + word * PRIME2, 31) * PRIME1; }

uint64_t checksum_xxh64(const void *data, size_t size, uint64_t seed) {
  const uint8_t *p = data;
  size_t left = size;
  uint64_t h = seed + PRIME5;
  if (size >= 32) {
    uint64_t lane[4] = {seed + PRIME1 + PRIME2, seed + PRIME2, seed, seed - PRIME1};
    for (; left >= 32; left -= 32, p += 32)
      for (int i = 0; i < 4; i++) lane[i] = xxh_round(lane[i], hash_load_u64(p + 8 * i));
    h = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
    for (int i = 0; i < 4; i++) h = (h ^ xxh_round(0, lane[i])) * PRIME1 + PRIME4;
  }
  h += size;
  for (; left >= 8; left -= 8, p += 8) h = rotate(h ^ xxh_round(0, hash_load_u64(p)), 27) * PRIME1 + PRIME4;
  if (left >= 4) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    h = rotate(h ^ word * PRIME1, 23) * PRIME2 + PRIME3;
    left -= 4;
    p += 4;
  }
  for (; left > 0; left--, p++) h = rotate(h ^ *p * PRIME5, 11) * PRIME1;
  h = (h ^ h >> 33) * PRIME2;
  h = (h ^ h >> 29) * PRIME3;
  return h ^ h >> 32;
}
