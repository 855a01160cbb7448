/* tokenizer.json and tokenizer_config.json: Hugging Face's files of a byte-level BPE. */
#ifndef INKLING_TOKENIZER_TOKENIZER_JSON_H
#define INKLING_TOKENIZER_TOKENIZER_JSON_H

#include "util/error.h"
#include "tokenizer/bpe.h"

#include <stddef.h>
#include <stdint.h>

/* What was read, or is to be written. */
typedef struct TokenizerFile {
  Bpe *bpe;
  int32_t end;          /* id of the token that ends a document */
  const char *end_text; /* its text: static */
  bool begins_with_end; /* the end token is put before a text */
  char *json;           /* the whole file; NULL: to be made of the above */
  size_t json_size;
  bool json_differs; /* its post_processor does not say begins_with_end */
} TokenizerFile;

/* All fields are the caller's to free (bpe_free, free). EXIT_CHECKPOINT, EXIT_MEMORY; then there is nothing to free. */
bool tokenizer_json_read(TokenizerFile *out, const char *path, Error *error);
/* Both files into `dir`, each atomically. `ctx` becomes model_max_length. EXIT_OUTPUT. */
bool tokenizer_json_write(const TokenizerFile *file, const char *dir, int ctx, Error *error);

#endif
