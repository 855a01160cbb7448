/* The training text as a stream of tokens, and its windows.
 *
 * The text is mapped, not read: with the byte tokenizer a token is a byte of the file, so nothing is copied. A line
 * that is exactly <|endoftext|> (its newline included) separates documents and is one token, the end token, in the
 * stream; the end of every file is one too, unless such a line stands there already. */
#ifndef INKLING_TEXT_DATASET_H
#define INKLING_TEXT_DATASET_H

#include "cli/error.h"
#include "text/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Dataset Dataset;

/* Maps `path` and finds its documents. EXIT_INPUT for a missing or empty file or a directory. The tokenizer must
 * outlive it. */
bool dataset_open(Dataset **out, const char *path, const Tokenizer *tokenizer, Error *error);
void dataset_close(Dataset *dataset);

int64_t dataset_tokens(const Dataset *dataset);
int64_t dataset_documents(const Dataset *dataset);
/* Copies tokens [begin, begin + count) to `ids`; the range must lie inside the stream. */
void dataset_read(const Dataset *dataset, int64_t begin, int64_t count, int32_t *ids);
/* Bytes of the file that tokens [begin, end) stand for, separator lines included: what bits per byte are measured over.
 */
int64_t dataset_bytes(const Dataset *dataset, int64_t begin, int64_t end);

/* A part of a dataset: the training part or the validation tail. */
typedef struct Split {
  const Dataset *dataset;
  int64_t begin, end; /* tokens */
} Split;

/* Training part: the first floor(n * (1 - fraction)) tokens, or more when the tail would pass `max_tail` tokens. */
void dataset_split(const Dataset *dataset, double fraction, int64_t max_tail, Split *train, Split *tail);

/* First token of the training window of (step, sequence): uniform over the n - ctx windows of ctx + 1 tokens,
 * split->begin + floor(u * (n - ctx)) with u a 64-bit fraction from philox(seed, 0, SITE_WINDOW, step, sequence). The
 * split must hold at least ctx + 1 tokens. */
int64_t split_window(const Split *split, uint64_t seed, uint32_t step, uint32_t sequence, int ctx);

#endif
