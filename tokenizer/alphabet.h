/* The characters that stand for bytes in the tokens of byte-level BPE (bytes_to_unicode in GPT-2's encoder.py). */
#ifndef INKLING_TOKENIZER_ALPHABET_H
#define INKLING_TOKENIZER_ALPHABET_H

#include "tokenizer/bpe.h"

enum {
  ALPHABET_BYTES = 3,     /* a symbol in UTF-8, and its end */
  ALPHABET_POINTS = 0x144 /* all symbols are below it */
};

typedef struct Alphabet {
  char symbol[BPE_BYTES][ALPHABET_BYTES]; /* UTF-8 */
  int16_t byte[ALPHABET_POINTS];          /* of a code point; -1: none */
} Alphabet;

Alphabet alphabet_gpt2(void);

/* A token in the alphabet, "" for one without bytes; the caller frees it. NULL: no memory. */
char *alphabet_token(const Alphabet *alphabet, const Bpe *bpe, int32_t id);

/* The bytes that a text in the alphabet stands for, at most one a byte of the text; -1 when it is not in it. */
int64_t alphabet_read(const Alphabet *alphabet, const char *text, uint8_t *out);

#endif
