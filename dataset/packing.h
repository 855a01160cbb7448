/* Documents packed into windows of ctx tokens (--pack docs): several short ones share a window, one that is longer is
 * cut into windows of its own and a rest. What is left of a window is padding.
 *
 * Every token of a document is a target, its end token too; the input before its first token is the end token, as if a
 * document stood before it. So a document takes as many places as it has tokens. */
#ifndef INKLING_DATASET_PACKING_H
#define INKLING_DATASET_PACKING_H

#include "util/error.h"
#include "dataset/token_file.h"

#include <stdint.h>

/* A part of a token file: what is learned, or what is kept for validation. */
typedef struct TokenRange {
  const TokenFile *file;
  int64_t begin, end; /* tokens */
} TokenRange;

/* One sequence to be filled, each [ctx]. */
typedef struct Sequence {
  int32_t *tokens, *targets;
  int32_t *positions; /* for packed documents only */
} Sequence;

/* Made by packing_make, freed by packing_free; nothing of it is to be changed. */
typedef struct Packing {
  TokenRange split;
  int ctx;
  int32_t end;       /* the token that ends documents */
  int64_t windows;   /* number of them */
  int64_t used;      /* places that hold tokens, of windows * ctx */
  int64_t documents; /* of the split */
  int64_t cut;       /* those that are longer than a window */
  int64_t left_out;  /* tokens: windows of prompts alone, of which nothing would be learned */
  int64_t *firsts;   /* [windows + 1] first piece of each window */
  int64_t *pieces;   /* [firsts[windows]] token that each piece begins with */
} Packing;

/* Hears how many tokens were looked at; false, with `error` filled, stops. */
typedef bool (*PackingTick)(void *context, int64_t tokens, Error *error);

/* How long documents are: counts[k] of them have more than 2^(k-1) and at most 2^k tokens, their end token included. */
typedef struct DocumentLengths {
  int64_t documents, counts[64];
} DocumentLengths;

/* EXIT_CHECKPOINT for a damaged token file; EXIT_MEMORY; what `tick` (may be NULL) says. */
bool packing_measure(const TokenRange *split, int32_t end, DocumentLengths *out, PackingTick tick, void *context,
                     Error *error);

/* Takes 8 bytes a document and 8 a window. Among the windows that are still open (a few dozen) a document goes into the
 * one that it leaves the least room in. `tick` may be NULL. EXIT_MEMORY; EXIT_CHECKPOINT for a damaged token file. On
 * failure there is nothing to free. */
bool packing_make(Packing *out, const TokenRange *split, int ctx, int32_t end, PackingTick tick, void *context,
                  Error *error);
void packing_free(Packing *packing); /* harmless on a zeroed struct */

/* Padding sees itself alone and is not learned. EXIT_CHECKPOINT for a damaged token file. */
bool packing_read(const Packing *packing, int64_t window, const Sequence *out, Error *error);

#endif
