/* From a corpus to a token file. Memory does not grow with the corpus, but with its largest prompt.
 *
 * Prompts may have a tokenizer of their own: then their ids are stored above the other's vocabulary (id + vocabulary),
 * so that its end token alone ends documents, and the file's vocabulary is the sum of both. */
#ifndef INKLING_DATASET_TOKENIZATION_H
#define INKLING_DATASET_TOKENIZATION_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "dataset/token_file.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

typedef struct Tokenization {
  const Tokenizer *source_tokenizer; /* of prompts; NULL: one tokenizer for all */
  int threads;                       /* > 0 */
  Progress encoding;                 /* bytes of the corpus */
  Progress checking;                 /* tokens of a file that is there already */
  StopSignal stop;                   /* also heard between two reports */
} Tokenization;

/* Hash of everything that the tokens depend on: TokenFileInfo.fingerprint. */
uint64_t tokenization_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer, const Tokenizer *source_tokenizer);

/* Opens the token file `path` that holds all documents of the corpus, each followed by the end token, with a loss mask
 * when the corpus has prompts. A file that is there is used if its fingerprint and checksum are right; otherwise the
 * corpus is read from its beginning and the file is written. Without a corpus (NULL) the file must be there, intact and
 * of this vocabulary: EXIT_CHECKPOINT. What corpus_next says, EXIT_OUTPUT, EXIT_MEMORY; the error of a progress. */
bool tokenization_open(TokenFile *out, const char *path, Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options, Error *error);

#endif
