/* A batch: copies windows of tokens (text/dataset/windows.h) into the arrays that the model reads. */
#ifndef INKLING_INFERENCE_BATCH_H
#define INKLING_INFERENCE_BATCH_H

#include "text/dataset/windows.h"
#include "model.h"
#include "base/error.h"

/* Made by batch_make, freed by batch_free. */
typedef struct Batch {
  int32_t *memory;
  int ctx;
  Window first; /* sequence 0; in each array the other sequences follow */
} Batch;

/* Allocates `sequences` windows of the given kind: stream, packed documents or pairs. EXIT_MEMORY. */
bool batch_make(Batch *out, const Windows *windows, int sequences, Error *error);
void batch_free(Batch *batch); /* harmless on a zeroed struct */

/* Returns the part of the arrays that holds a sequence. */
Window batch_window(const Batch *batch, int sequence);

/* Returns the batch as the model reads it. */
TokenBatch batch_tokens(const Batch *batch);

#endif
