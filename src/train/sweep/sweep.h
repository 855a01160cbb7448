/* A sweep: many runs of one text with different settings, and one table. `./train TEXT --sweep 'lr=1e-3,3e-3'` */
#ifndef INKLING_TRAIN_SWEEP_SWEEP_H
#define INKLING_TRAIN_SWEEP_SWEEP_H

#include "cli/console.h"
#include "train/settings.h"

/* Returns whether `dir` contains a sweep. */
bool sweep_is(const char *dir);

/* Makes the runs of a new sweep, or continues the sweep in settings->resume. Each run is a process of this program and
 * a run directory in the directory of the sweep, which also has sweep.json: the arguments of the runs and their
 * lengths. After a quarter of the steps only the best eighth of the settings goes on, and after a half the best third
 * of these, at least two; the other runs can be resumed. Writes report.html. Prints the table of runs to stdout. A run
 * that fails does not end the sweep. EXIT_USAGE: an invalid description, other options, or a directory that contains
 * another sweep; EXIT_INPUT; EXIT_CHECKPOINT: sweep.json is damaged; EXIT_NONFINITE: no run reached its end;
 * EXIT_BUSY; EXIT_MEMORY; EXIT_OUTPUT; EXIT_SIGNALS + a signal. */
bool sweep_run(const Options *options, const TrainSettings *settings, Console *console, Error *error);

#endif
