/* The documents of a part of a token file. */
#ifndef INKLING_DATASET_DOCUMENTS_H
#define INKLING_DATASET_DOCUMENTS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/token_file.h"

#include <stdint.h>

/* Gets the first token of a document and the one after its last. False stops the scan. */
typedef bool (*DocumentFound)(void *context, int64_t begin, int64_t stop);

/* Calls `found` for every document in order: up to and with each token `end`, and what follows the last of them. The
 * first and the last may be parts of documents that the range cuts. `progress` counts tokens. EXIT_CHECKPOINT for a
 * damaged token file; EXIT_MEMORY; the error of `found` or of `progress`. */
bool documents_scan(const TokenRange *range, int32_t end, DocumentFound found, void *context, Progress progress,
                    Error *error);

/* How long documents are: counts[k] of them have more than 2^(k-1) and at most 2^k tokens, their end token included. */
typedef struct DocumentLengths {
  int64_t documents, counts[64];
} DocumentLengths;

/* One document more, of at least one token. */
void document_lengths_add(DocumentLengths *lengths, int64_t tokens);

#endif
