/* Charts of the measurements of runs, for pages and for `./train --plot RUN...`. */
#ifndef INKLING_REPORT_RUN_CHARTS_H
#define INKLING_REPORT_RUN_CHARTS_H

#include "report/find_runs.h"

/* Writes the figures of a page: losses, bits per byte, learning rate and so on. `chance`: nats per token, the loss of
 * guessing of a single run; NaN: unknown. EXIT_MEMORY. */
bool run_charts_write(FILE *stream, const FoundRun *runs, int count, double chance, Error *error);

/* Prints a plot in braille, or in ASCII if `utf8` is false, of at most `width` columns (0: no limit). For one run it
 * shows the training loss as fine dots, validation losses as `o` and the kept model as `*`, over steps. For several
 * runs it shows the validation losses (training losses if a run has no validation) in one plot, each curve with the
 * letter of its run, and a line per run as legend. A run without data becomes a line that says so. EXIT_MEMORY. */
bool run_charts_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8, Error *error);

#endif
