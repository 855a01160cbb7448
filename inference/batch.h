/* A batch on its way from windows of tokens (dataset/windows.h) to the model. */
#ifndef INKLING_INFERENCE_BATCH_H
#define INKLING_INFERENCE_BATCH_H

#include "util/error.h"
#include "model.h"
#include "dataset/windows.h"

/* Made by batch_make, freed by batch_free. */
typedef struct Batch {
  int32_t *memory;
  int ctx;
  Window first;       /* of sequence 0; the other sequences follow in each array */
  SourceBatch source; /* of pairs: what batch_tokens() points to */
} Batch;

/* Room for `sequences` of the windows' kind: of the stream, packed documents or pairs. EXIT_MEMORY. */
bool batch_make(Batch *out, const Windows *windows, int sequences, Error *error);
void batch_free(Batch *batch); /* harmless on a zeroed struct */

/* Where a sequence's window is written. */
Window batch_window(const Batch *batch, int sequence);

/* As the model takes it, while the batch stays where it is. */
TokenBatch batch_tokens(Batch *batch);

#endif
