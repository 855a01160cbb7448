/* The alphabet of byte-level BPE: the characters that represent bytes in its tokens (bytes_to_unicode in GPT-2's
 * encoder.py). */
#ifndef INKLING_TOKENIZER_ALPHABET_H
#define INKLING_TOKENIZER_ALPHABET_H

#include "tokenizer/bpe.h"

/* Returns a token written in the alphabet, "" for one without bytes; the caller frees it. NULL when memory is out,
 * which json_memory_ok() also reports. */
char *alphabet_token(const Bpe *bpe, int32_t id);

/* Decodes a text that is written in the alphabet and returns the number of bytes, at most one per byte of the text; -1
 * when it contains other characters. */
int64_t alphabet_read(const char *text, uint8_t *out);

#endif
