/* What there is to say of a model whose vocabulary is larger than its tokenizer's. */
#ifndef INKLING_CLI_VOCABULARY_H
#define INKLING_CLI_VOCABULARY_H

#include "cli/console.h"
#include "tokenizer/tokenizer.h"

/* A note with the numbers where the model in `dir` has rows for no token; else nothing. `source` NULL: sources have no
 * tokenizer of their own. */
void vocabulary_note_unused(Console *console, const char *dir, const Tokenizer *tokenizer, const Tokenizer *source);

#endif
