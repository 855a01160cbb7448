/* A checksum that identifies the text of a range of tokens, independent of the tokenizer. */
#ifndef INKLING_DATASET_TEXT_SUM_H
#define INKLING_DATASET_TEXT_SUM_H

#include "util/error.h"
#include "dataset/token_file.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

/* Computes XXH64 of the bytes of the text, with a byte 0xFF for each end token. `source`: the tokenizer of sources;
 * NULL: one for both. EXIT_CHECKPOINT for a damaged token file. */
bool text_sum(const TokenRange *range, const Tokenizer *tokenizer, const Tokenizer *source, uint64_t *out,
              Error *error);

#endif
