/* A plot of runs in the terminal: `./train --plot RUN...`. */
#ifndef INKLING_REPORT_PLOT_H
#define INKLING_REPORT_PLOT_H

#include "report/find_runs.h"

/* Prints a plot in braille, or in ASCII if `utf8` is false: 16 lines of 72 characters, or fewer if axes and plot do not
 * fit into `width` columns (0: no limit). For one run it shows the training loss as fine dots, validation losses as `o`
 * and the best of them as `*`, over steps. For several runs it shows the validation losses (training losses if a run
 * has no validation) in one plot, each curve with the letter of its run, and a line per run as legend. A run without
 * data becomes a line that says so. */
void plot_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8);

#endif
