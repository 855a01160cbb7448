/* The settings of sampling, as one table: the options of ./generate, the keys of its JSON lines, the settings of its
 * interactive mode, and the parameters of a Modelfile all follow from it. A new sampler is a member of Sampling
 * (kernels.h), its two kernels, and a row here. */
#ifndef INKLING_INFERENCE_SAMPLING_H
#define INKLING_INFERENCE_SAMPLING_H

#include "kernels.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct SamplingSetting {
  const char *name; /* of the option: "top-k"; the JSON key has '_' for '-' */
  const char *key;  /* the member of Sampling: "top_k"; a JSON key, too, and Ollama's parameter */
  size_t offset;    /* of the member, an int if `whole`, else a float */
  bool whole;
  double min, max;  /* of its values */
  bool above;       /* min itself is out of the range */
  double off;       /* changes nothing; of the temperature: the most likely token */
  double initial;   /* when nothing is given */
  bool not_ollama;  /* Ollama has no such parameter */
  bool common;      /* --help prints it */
  const char *help; /* of the option */
} SamplingSetting;

/* In the order of their application; the last one has no name. */
extern const SamplingSetting sampling_settings[];

void sampling_set(Sampling *sampling, const SamplingSetting *setting, double value);

/* All initial values: of the samples of ./train, and of ./generate. Seed 0. */
Sampling sampling_initial(void);
/* Always the most likely token. */
Sampling sampling_greedy(void);

#endif
