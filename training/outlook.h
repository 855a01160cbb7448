/* What other time budgets would make of a text: the plan of each, and how its loss compares (docs/learning.md). */
#ifndef INKLING_TRAINING_OUTLOOK_H
#define INKLING_TRAINING_OUTLOOK_H

#include "training/auto_settings.h"

#include <jansson.h>

typedef struct Outlook {
  double minutes;
  int preset;
  double parameters, without_embeddings, epochs;
  double loss; /* loss_law() */
} Outlook;

/* Plans a run of so many minutes. `asked`: the settings before any choice. Returns false if the settings do not fit each other. */
bool outlook_plan(const TrainSettings *asked, const AutoInputs *given, double minutes, Outlook *out);

/* Returns plans as JSON. bits: of the first one, in bits per byte; NaN: unknown. A failed allocation is left to
 * json_text(). */
json_t *outlook_json(const Outlook *items, int count, double bits);

#endif
