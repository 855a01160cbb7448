/* Token probabilities (--heat, --heat-html, --alts): as colors, as a page, as a table. */
#ifndef INKLING_GENERATING_SURPRISAL_H
#define INKLING_GENERATING_SURPRISAL_H

#include "generating/program.h"
#include "generating/outputs.h"

bool surprisal_is_shown(const GenerateSettings *settings);
/* Checks, before generation, that the page can be written. EXIT_OUTPUT; EXIT_USAGE for a name without the extension of
 * a page, or of a file that is read or written otherwise. */
bool surprisal_check(Program *p, Error *error);
/* Returns the number of alternatives of each token that are shown. */
int surprisal_alternatives(const Program *p);

/* Prints bytes [from, to) of a text, whole characters, to stdout in the colors of their tokens. */
void surprisal_print(const Output *text, size_t from, size_t to);

/* The prompt before the text; zeroed: none. */
typedef struct SurprisalPrompt {
  const uint8_t *bytes;
  size_t size;
} SurprisalPrompt;

/* Prints the table of --alts to stdout and writes the page. EXIT_OUTPUT, EXIT_MEMORY. */
bool surprisal_finish(Program *p, SurprisalPrompt prompt, const Output *text, Error *error);

/* Handles --score FILE with one of these options: shows the text of the file instead of a generated one. EXIT_INPUT: it
 * is longer than 4 MiB; EXIT_USAGE for a model with an encoder; EXIT_MEMORY; EXIT_NONFINITE. */
bool surprisal_score(Program *p, Error *error);

#endif
