/* The alphabet in which files of byte-level BPEs have bytes: bytes_to_unicode in GPT-2's encoder.py. */
#ifndef INKLING_TOKENIZER_ALPHABET_H
#define INKLING_TOKENIZER_ALPHABET_H

#include "tokenizer/bpe.h"

#include <stddef.h>
#include <stdint.h>

enum {
  SYMBOL_BYTES = 3, /* a symbol of the alphabet in UTF-8, and its end */
  SYMBOLS = 0x144   /* code points of the alphabet are below it */
};

typedef struct Alphabet {
  char symbol[BPE_BYTES][SYMBOL_BYTES]; /* UTF-8 */
  int16_t byte[SYMBOLS];                /* of a code point; -1: none */
} Alphabet;

Alphabet alphabet_make(void);

/* A token in the alphabet, "" for one without bytes; the caller frees it. NULL: no memory. */
char *alphabet_token(const Alphabet *alphabet, const Bpe *bpe, int32_t id);

/* The bytes that a text in the alphabet stands for, at most one a byte of the text; -1 when it is not in it. */
int64_t alphabet_read(const Alphabet *alphabet, const char *text, uint8_t *out);

#endif
