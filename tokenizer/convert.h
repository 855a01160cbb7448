/* Text to the numbers of its tokens and back, from one stream to another, however long. */
#ifndef INKLING_TOKENIZER_CONVERT_H
#define INKLING_TOKENIZER_CONVERT_H

#include "util/error.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

/* Prints the ids of the bytes in `in`, one text, a line each: no end token; special tokens as tokenizer_set_special()
 * has it. `name` of the input for messages. EXIT_INPUT when it cannot be read, EXIT_OUTPUT (errno says why) when `out`
 * cannot be written, EXIT_MEMORY; EXIT_CHECKPOINT for a pattern of tokenizer.json that takes too long on the text. */
bool convert_to_ids(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error);

/* Writes the bytes of the ids in `in`, which white space or commas separate; special tokens have no bytes. EXIT_INPUT,
 * with the word's place, for what is not an id of the vocabulary; EXIT_OUTPUT as above. */
bool convert_to_text(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error);

#endif
