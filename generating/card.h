/* The model card of an exported directory: README.md, as model hubs show it. */
#ifndef INKLING_GENERATING_CARD_H
#define INKLING_GENERATING_CARD_H

#include "generating/loaded.h"

/* A generated text for the card. */
typedef struct CardSample {
  const char *prompt, *text; /* text NULL: no sample */
  size_t prompt_size, text_size;
  uint64_t seed;
} CardSample;

/* Writes the card: the model, its training (for a run of ./train, from its result.json and config.txt, without paths),
 * a sample and its usage; the license is left to fill in. `name` is the title; `type` is the type of the weights.
 * EXIT_OUTPUT, EXIT_MEMORY. */
bool card_write(const LoadedModel *m, const char *path, const char *name, TensorType type, const CardSample *sample,
                Error *error);

#endif
