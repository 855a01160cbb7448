/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the only source
 * of randomness in the project. Stateless: the same key and counter give the same four words on every machine, and
 * the same words as cuRAND's curand_Philox4x32_10.
 *
 * key = seed; counter = {element / 4, site, step, stream}; a SITE_ number is the purpose. */
#ifndef INKLING_KERNELS_PHILOX_H
#define INKLING_KERNELS_PHILOX_H

#include <stdint.h>

typedef struct PhiloxWords {
  uint32_t word[4];
} PhiloxWords;

enum {
  SITE_INIT = 0,             /* + row of the tensor in the parameter table: initial weights */
  SITE_DROPOUT = 0x01000000, /* + 8 * layer + DROPOUT_ kind */
  SITE_WINDOW = 0x02000000,  /* order of the training windows in an epoch: step = epoch, stream = round */
  SITE_SAMPLE = 0x03000000,  /* a token drawn while generating: step = index of the token, stream = sample */
  SITE_SWEEP = 0x04000000,   /* a value of a sweep: element = option, step = draw, stream = line */
};

static inline PhiloxWords philox(uint64_t seed, uint32_t element_div_4, uint32_t site, uint32_t step, uint32_t stream) {
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t c0 = element_div_4, c1 = site, c2 = step, c3 = stream;
  for (int round = 0; round < 10; round++) {
    uint64_t product0 = (uint64_t)0xD2511F53u * c0, product1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0, n2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c1 = (uint32_t)product1;
    c3 = (uint32_t)product0;
    c0 = n0;
    c2 = n2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  PhiloxWords out = {{c0, c1, c2, c3}};
  return out;
}

/* Returns a uniform number in (0, 1), never 0 or 1, so that log() and 1 - u are safe. */
static inline float philox_uniform(uint32_t word) { return ((float)(word >> 9) + 0.5f) * 0x1p-23f; }

#endif
