/* Conversion of text to token ids and back, from one stream to another, of any length. */
#ifndef INKLING_TOKENIZER_CONVERT_H
#define INKLING_TOKENIZER_CONVERT_H

#include "util/error.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

/* Encodes all bytes of `in` as one text and prints one id per line, without an end token; special tokens as set with
 * tokenizer_set_special(). Messages use `name` for the input. EXIT_INPUT when reading `in` fails, EXIT_OUTPUT (with the
 * cause in errno) when writing `out` fails, EXIT_MEMORY; EXIT_CHECKPOINT for a pattern of tokenizer.json that takes too
 * long on the text. */
bool convert_to_ids(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error);

/* Reads ids from `in`, separated by white space or commas, and writes their bytes; special tokens have no bytes.
 * EXIT_INPUT, with the position of the word, for a word that is not an id of the vocabulary; EXIT_OUTPUT as above. */
bool convert_to_text(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error);

#endif
