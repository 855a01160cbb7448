/* Tokenization of a corpus into a token file. Memory does not grow with the corpus, only with its largest prompt.
 * Prompts may have a separate tokenizer. Then the file stores their ids above the other vocabulary (id + vocabulary),
 * so that only the other end token ends documents, and the file's vocabulary size is the sum of both. */
#ifndef INKLING_DATASET_TOKENIZATION_H
#define INKLING_DATASET_TOKENIZATION_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "dataset/token_file.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

typedef struct Tokenization {
  const Tokenizer *source_tokenizer; /* for prompts; NULL: one tokenizer for all */
  int threads;                       /* > 0 */
  Progress encoding;                 /* bytes of the corpus */
  Progress checking;                 /* tokens of an existing file */
  StopSignal stop;                   /* also checked between two reports */
} Tokenization;

/* Returns the hash of everything that the tokens depend on: TokenFileInfo.fingerprint. */
uint64_t tokenization_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer, const Tokenizer *source_tokenizer);

/* Opens the token file `path` that holds all documents of the corpus, each followed by the end token, with a loss mask
 * when the corpus has prompts. It uses an existing file if fingerprint and checksum match; otherwise it reads the
 * corpus from its beginning and writes the file. Without a corpus (NULL) the file must exist, be intact and have this
 * vocabulary, else EXIT_CHECKPOINT. Errors of corpus_next, EXIT_OUTPUT, EXIT_MEMORY; the error of a progress. */
bool tokenization_open(TokenFile *out, const char *path, Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options, Error *error);

#endif
