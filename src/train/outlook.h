/* What other time budgets would make of a text: the plan of each, and how its loss compares (docs/learning.md). */
#ifndef INKLING_TRAIN_OUTLOOK_H
#define INKLING_TRAIN_OUTLOOK_H

#include "train/auto_settings.h"

#include <jansson.h>

typedef struct Outlook {
  double minutes;
  int preset;
  double parameters, without_embeddings, epochs;
  bool taught; /* by a teacher */
  double loss; /* loss_law() */
} Outlook;

/* The budget of a run, then others for the same text. */
typedef struct Outlooks {
  Outlook items[SETTINGS_BUDGETS + 1];
  int count; /* 0: the run has no budget, because its length is given */
} Outlooks;

/* Plans the budget of a new run of a text without pairs, and those that --minutes compares; without such, usual ones
 * that are longer. `asked`: the settings before any choice. */
Outlooks outlooks_plan(const TrainSettings *asked, const AutoInputs *given);

/* Returns the bits per byte that the run should have reached with its whole budget, by those that it reached in so many
 * epochs of a text of so many bytes. NaN: unknown. */
double outlooks_planned_bits(const Outlooks *all, double text_bytes, double epochs, double bits);

/* Makes the run's own budget one without a teacher, of at most so many epochs. */
void outlooks_drop_teacher(Outlooks *all, double text_bytes, double epochs);

/* Writes what longer budgets should reach, for people. bits: of the run's own budget; whole: the run has read the text
 * as often as is good for it. Leaves `text` empty if there is nothing to say. */
void outlooks_say(const Outlooks *all, double bits, bool whole, char *text, size_t size);

/* Returns the budgets as JSON. bits: of the first one; NaN: unknown. A failed allocation is left to json_text(). */
json_t *outlooks_json(const Outlooks *all, double bits);

#endif
