/* A plot of runs in the terminal: `./train --plot RUN...`. */
#ifndef INKLING_REPORT_PLOT_H
#define INKLING_REPORT_PLOT_H

#include "report/find_runs.h"

/* Prints a plot in braille, or with `utf8` false in ASCII; 16 lines of 72 characters, or of the space that `width`
 * columns (0: no limit) leave, with axes. For one run it shows the training loss as fine dots, validation losses as
 * `o`, the best of them as `*`, over steps. For several runs it shows the validation losses (training losses of a run
 * without validation) in one plot, each curve with the letter of its run, and a line per run as legend. Runs without
 * data become a line that says so. */
void plot_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8);

#endif
