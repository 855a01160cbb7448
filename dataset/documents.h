/* The documents of a range of a token file. */
#ifndef INKLING_DATASET_DOCUMENTS_H
#define INKLING_DATASET_DOCUMENTS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/token_file.h"

#include <stdint.h>

/* Receives the index of the first token of a document and of the one after its last. False stops the scan. */
typedef bool (*DocumentFound)(void *context, int64_t begin, int64_t stop);

/* Calls `found` for every document in order. A document includes its token `end`; tokens after the last `end` are also
 * a document. The first and the last may be parts of documents that the range cuts. `progress` counts tokens.
 * EXIT_CHECKPOINT for a damaged token file; EXIT_MEMORY; the error of `found` or of `progress`. */
bool documents_scan(const TokenRange *range, int32_t end, DocumentFound found, void *context, Progress progress,
                    Error *error);

/* A histogram of document lengths: counts[k] documents have more than 2^(k-1) and at most 2^k tokens, including the end
 * token. */
typedef struct DocumentLengths {
  int64_t documents, counts[64];
} DocumentLengths;

/* Adds one document of `tokens` >= 1 tokens. */
void document_lengths_add(DocumentLengths *lengths, int64_t tokens);

#endif
