/* The scaling law of a table of runs: `./train --runs DIR... --fit`. */
#ifndef INKLING_REPORT_FIT_H
#define INKLING_REPORT_FIT_H

#include "report/table.h"
#include "base/error.h"

/* Fits law_fit() to the finished runs among `rows`, which have the columns of runs_print(), and prints a table with
 * the columns name, value, low, high and meaning. N is `params`; D is the tokens seen by the kept model; L is
 * bits_per_byte, or val_loss where runs have no bits per byte. Only runs with the most frequent validation text count.
 * Notes say what was left out, how well the law fits and what it does not determine. EXIT_INPUT: the runs do not carry
 * a law. */
bool fit_print(json_t *rows, TableFormat format, FILE *stream, Console *console, Error *error);

#endif
