/* The self-check of the grammar and of the writer. */
#ifndef INKLING_DATA_STORIES_CHECK_H
#define INKLING_DATA_STORIES_CHECK_H

#include "data/stories/writer.h"

/* Prints a line on stdout when the grammar is unambiguous and what the writer charges is right; otherwise EXIT_INTERNAL
 * says what is not. */
bool check_grammar(const Grammar *g, Writer *w, Error *error);

#endif
