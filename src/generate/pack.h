/* A pack: the files of a model as one block of bytes, which a page holds and tools/web/module.c reads. It consists of
 * entries; each is a PackEntry and the bytes of the file, filled up with zeros to a multiple of 64. The last one has
 * no name. */
#ifndef INKLING_GENERATE_PACK_H
#define INKLING_GENERATE_PACK_H

#include <stddef.h>
#include <stdint.h>

enum { PACK_ALIGNMENT = 64 };
#define PACK_WEIGHTS "weights" /* an image of the weights (model.h) */
#define PACK_DTYPE "dtype"     /* the name of its dtype */

typedef struct PackEntry {
  uint64_t size; /* of the file */
  char name[56]; /* in the directory of the model, zero-terminated */
} PackEntry;

static inline uint64_t pack_padded(uint64_t size) {
  return (size + PACK_ALIGNMENT - 1) / PACK_ALIGNMENT * PACK_ALIGNMENT;
}

#endif
