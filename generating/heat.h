/* How surprising each token was (--heat, --heat-html, --alts): in colors, in a page, in a table. */
#ifndef INKLING_GENERATING_HEAT_H
#define INKLING_GENERATING_HEAT_H

#include "generating/program.h"
#include "generating/texts.h"

bool heat_is_asked(const GenerateSettings *settings);
/* Whether the page can be written, before there is anything to write. EXIT_OUTPUT; EXIT_USAGE for a name that is not
 * of a page, or of something else that is read or written. */
bool heat_check(Program *p, Error *error);
/* Alternatives of each token that are shown somewhere. */
int heat_alternatives(const Program *p);

/* Bytes [from, to) of a text to stdout, whole characters, in the colors of its tokens. */
void heat_print(const Text *text, size_t from, size_t to);

/* What the text follows; zeroed: nothing. */
typedef struct HeatPrompt {
  const uint8_t *bytes;
  size_t size;
} HeatPrompt;

/* The table of --alts to stdout, and the page. EXIT_OUTPUT, EXIT_MEMORY. */
bool heat_finish(Program *p, HeatPrompt prompt, const Text *text, Error *error);

/* --score FILE with one of them: the text of the file instead of one that is written. EXIT_INPUT: it is longer than
 * 4 MiB; EXIT_USAGE for a model with an encoder; EXIT_MEMORY; EXIT_NONFINITE. */
bool heat_score(Program *p, Error *error);

#endif
