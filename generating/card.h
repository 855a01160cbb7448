/* The model card of an exported directory: README.md, as model hubs show it. */
#ifndef INKLING_GENERATING_CARD_H
#define INKLING_GENERATING_CARD_H

#include "generating/program.h"

/* What the model wrote, for the card. */
typedef struct CardSample {
  const char *prompt, *text; /* text NULL: there is none */
  size_t prompt_size, text_size;
  uint64_t seed;
} CardSample;

/* Writes the card: what the model is, how it was trained (of a run of ./train, from its result.json and config.txt:
 * no paths), a sample, how it is used; the license is left to fill in. `name` for people; `type`: of its weights.
 * EXIT_OUTPUT, EXIT_MEMORY. */
bool card_write(const Program *p, const char *path, const char *name, TensorType type, const CardSample *sample,
                Error *error);

#endif
