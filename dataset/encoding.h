/* From documents to tokens: a BPE trained on a corpus, and the corpus as a token file. Memory does not grow with the
 * corpus (but for the unique words that training counts). */
#ifndef INKLING_DATASET_ENCODING_H
#define INKLING_DATASET_ENCODING_H

#include "util/error.h"
#include "dataset/corpus.h"
#include "dataset/token_file.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

/* Called several times a second with the bytes of the corpus that are done, or, while pairs are merged, with the merges
 * that are made. false, with `error` filled, stops the work. */
typedef bool (*EncodingProgress)(void *context, int64_t bytes, int64_t merges, Error *error);

typedef struct EncodingOptions {
  int threads;               /* > 0 */
  EncodingProgress progress; /* may be NULL */
  void *context;
} EncodingOptions;

/* A BPE of at most `vocab_size` >= 257 tokens from all documents; fewer when the text has no more pairs. Reads the
 * corpus from its beginning. What corpus_next and bpe_trainer_finish say. */
bool encoding_train(Tokenizer **out, Corpus *corpus, int vocab_size, const EncodingOptions *options, Error *error);

/* Of everything that the tokens depend on: TokenFileInfo.fingerprint. */
uint64_t encoding_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer);

/* Writes all documents, each followed by the end token, to the token file `path`; masked when the corpus has prompts.
 * Reads the corpus from its beginning. What corpus_next says, EXIT_OUTPUT, EXIT_MEMORY. */
bool encoding_write(const char *path, Corpus *corpus, const Tokenizer *tokenizer, const EncodingOptions *options,
                    Error *error);

#endif
