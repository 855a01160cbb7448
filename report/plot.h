/* A picture of a run for the terminal: `./train --plot RUN`. */
#ifndef INKLING_REPORT_PLOT_H
#define INKLING_REPORT_PLOT_H

#include "report/history.h"

/* Training loss as fine dots, validation losses as `o`, the best of them as `*`, over steps; in braille, or with
 * `utf8` false in ASCII. 16 lines of 72 characters, or of what `width` columns (0: any number) leave, with axes. A
 * history of nothing is a line that says so. */
void plot_print(FILE *stream, const History *history, const char *name, int width, bool utf8);

#endif
