/* The table of sampling settings: the options of ./generate, the keys of its JSON lines, the settings of its
 * interactive mode and the parameters of a Modelfile. A new sampler needs a member of Sampling (kernels.h), its two
 * kernels, and a row here. */
#ifndef INKLING_INFERENCE_SAMPLING_H
#define INKLING_INFERENCE_SAMPLING_H

#include "kernels.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct SamplingSetting {
  const char *name; /* of the option: "top-k"; the JSON key has '_' instead of '-' */
  const char *key;  /* the member of Sampling: "top_k"; also the JSON key and Ollama's parameter */
  size_t offset;    /* offset of the member, an int if `whole`, else a float */
  bool whole;
  double min, max;  /* range of its values */
  bool above;       /* min itself is excluded */
  double off;       /* the value that has no effect; for the temperature: greedy sampling */
  double initial;   /* the default */
  bool not_ollama;  /* Ollama has no such parameter */
  bool common;      /* shown by --help */
  const char *help; /* of the option */
} SamplingSetting;

/* In the order of application; the last one has name NULL. */
extern const SamplingSetting sampling_settings[];

void sampling_set(Sampling *sampling, const SamplingSetting *setting, double value);

/* Returns the defaults of ./train's samples and ./generate. Seed 0. */
Sampling sampling_initial(void);
/* Returns settings that always choose the most likely token. */
Sampling sampling_greedy(void);

#endif
