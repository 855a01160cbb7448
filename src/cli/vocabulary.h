/* A note about models whose vocabulary is larger than their tokenizer's. */
#ifndef INKLING_CLI_VOCABULARY_H
#define INKLING_CLI_VOCABULARY_H

#include "cli/console.h"
#include "text/tokenizer/tokenizer.h"

/* Prints a note with the numbers when the model in `dir` has rows without a token. `source` NULL: sources have no
 * tokenizer of their own. */
void vocabulary_note_unused(Console *console, const char *dir, const Tokenizer *tokenizer, const Tokenizer *source);

#endif
