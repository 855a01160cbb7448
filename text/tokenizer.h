/* Text to token ids and back. The interface is one for all tokenizers; the byte tokenizer is the first.
 *
 * Byte tokenizer: 257 entries, id = byte, 256 = <|endoftext|>. */
#ifndef INKLING_TEXT_TOKENIZER_H
#define INKLING_TEXT_TOKENIZER_H

#include "cli/error.h"

#include <stddef.h>
#include <stdint.h>

#define END_OF_TEXT "<|endoftext|>"

typedef struct Tokenizer Tokenizer;

Tokenizer *tokenizer_byte(void); /* NULL when out of memory */
void tokenizer_free(Tokenizer *tokenizer);

/* Reads `tokenizer.json` (the byte-level BPE form of Hugging Face's tokenizers). EXIT_CHECKPOINT. */
bool tokenizer_load(Tokenizer **out, const char *path, Error *error);
/* Writes tokenizer.json and tokenizer_config.json into `dir`, each atomically. `ctx` becomes model_max_length.
 * EXIT_OUTPUT. */
bool tokenizer_save(const Tokenizer *tokenizer, const char *dir, int ctx, Error *error);

const char *tokenizer_name(const Tokenizer *tokenizer); /* "byte" */
int tokenizer_vocab(const Tokenizer *tokenizer);
int tokenizer_end(const Tokenizer *tokenizer); /* id of <|endoftext|> */

/* Ids of the raw bytes of one document: no end token added, special tokens not recognised. Writes at most `capacity`
 * ids and returns how many the text has. */
size_t tokenizer_encode(const Tokenizer *tokenizer, const uint8_t *text, size_t size, int32_t *ids, size_t capacity);
/* The bytes that one id stands for (nothing for the end token); valid as long as the tokenizer. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, size_t *size);

#endif
