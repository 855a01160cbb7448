/* The table of options of ./train. */
#ifndef INKLING_TRAINING_OPTIONS_H
#define INKLING_TRAINING_OPTIONS_H

#include "training/settings.h"

/* Sets defaults in `settings` and puts the table of its options into `options`. */
void train_options(Options *options, TrainSettings *settings);

#endif
