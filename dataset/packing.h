/* Documents packed into windows of ctx tokens (--pack docs): several short ones share a window, one that is longer is
 * cut into windows of its own and a rest. What is left of a window is padding.
 *
 * Every token of a document is a target, its end token too; the input before its first token is the token that prompts
 * begin with, or the end token, as if a document stood before it. So a document takes as many places as it has
 * tokens. */
#ifndef INKLING_DATASET_PACKING_H
#define INKLING_DATASET_PACKING_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/documents.h"
#include "dataset/window_table.h"
#include "dataset/windows.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

typedef struct PackTokens {
  int32_t before; /* the input before a document's first token */
  int32_t end;    /* ends documents */
} PackTokens;

PackTokens pack_tokens(const Tokenizer *tokenizer);

/* Made by packing_make, freed by packing_free; read-only. */
typedef struct Packing {
  TokenRange range;
  int ctx;
  PackTokens tokens;
  WindowTable table; /* its spans are documents, or parts of one */
  int64_t used;      /* places that hold tokens, of table.windows * ctx */
  int64_t documents; /* of the range */
  int64_t cut;       /* those that are longer than a window */
  int64_t left_out;  /* tokens: windows of prompts alone, which would have no target */
} Packing;

/* `progress` counts tokens. EXIT_CHECKPOINT for a damaged token file; EXIT_MEMORY; the error of `progress`. */
bool packing_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error);

/* Takes 8 bytes a document and 8 a window, which are filled as window_filler_add says. Errors as above. On failure
 * there is nothing to free. */
bool packing_make(Packing *out, const TokenRange *range, int ctx, PackTokens tokens, Progress progress, Error *error);
void packing_free(Packing *packing); /* harmless on a zeroed struct */

/* Padding attends to itself alone and is left out of the loss; from table.windows on there is nothing else.
 * EXIT_CHECKPOINT for a damaged token file. */
bool packing_read(const Packing *packing, int64_t index, const Window *out, Error *error);

#endif
