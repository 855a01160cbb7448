/* Surprisal of tokens (--heat, --heat-html, --alts): as colors, as a page, as a table. */
#ifndef INKLING_GENERATE_HEAT_H
#define INKLING_GENERATE_HEAT_H

#include "generate/program.h"

/* Returns whether one of the options is given. */
bool heat_is_shown(const GenerateSettings *settings);
/* Checks, before generation, that the page can be written. EXIT_OUTPUT; EXIT_USAGE for a name without the extension of
 * a page, or of a file that is read or written otherwise. */
bool heat_check(const GenerateSettings *settings, Console *console, Error *error);
/* Returns the number of alternatives of each token that are shown. */
int heat_alternatives(const GenerateSettings *settings, int vocab);

/* Prints bytes [from, to) of a text, whole characters, to stdout in the colors of their tokens. */
void heat_print(const Text *text, size_t from, size_t to);

/* Prints the table of --alts to stdout and writes the page; `prompt`: NULL or the prompt before the text. EXIT_OUTPUT,
 * EXIT_MEMORY. */
bool heat_finish(Program *p, const Prompt *prompt, const Text *text, Error *error);

#endif
