/* A picture of runs for the terminal: `./train --plot RUN...`. */
#ifndef INKLING_REPORT_PLOT_H
#define INKLING_REPORT_PLOT_H

#include "report/find_runs.h"

/* In braille, or with `utf8` false in ASCII; 16 lines of 72 characters, or of what `width` columns (0: any number)
 * leave, with axes. Of one run the training loss as fine dots, validation losses as `o`, the best of them as `*`, over
 * steps. Of several the validation losses in one picture, each curve with the letter of its run, and a line a run that
 * says which it is; the training losses where a run has no validation. Runs of nothing are lines that say so. */
void plot_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8);

#endif
