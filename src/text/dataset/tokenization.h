/* Training of a tokenizer on a corpus, and tokenization of a corpus into a token file.
 * Prompts may have a separate tokenizer. Then the file stores their ids above the other vocabulary (id + vocabulary),
 * so that only the other end token ends documents, and the file's vocabulary size is the sum of both. */
#ifndef INKLING_TEXT_DATASET_TOKENIZATION_H
#define INKLING_TEXT_DATASET_TOKENIZATION_H

#include "base/error.h"
#include "base/progress.h"
#include "text/dataset/corpus.h"
#include "text/dataset/token_file.h"
#include "text/tokenizer/bpe_encode.h"
#include "text/tokenizer/tokenizer.h"

#include <stdint.h>

/* ---- training of a tokenizer ---- */

/* The texts of a corpus with prompts to train on; without prompts, all. */
typedef enum TrainingTexts { TRAINING_ALL, TRAINING_PROMPTS, TRAINING_RESPONSES } TrainingTexts;

typedef struct TokenizerTraining {
  WordLevel level; /* WORD_LEVEL_NONE: a BPE */
  int vocab_size;  /* the most tokens; fewer when the text has no more pairs or pieces. A BPE: >= 257. 0: all pieces */
  bool unknown;    /* with a level: <unk> for pieces that are not in the vocabulary */
  int threads;     /* > 0 */
  Progress counting; /* bytes of the corpus */
  Progress merging;  /* merges */
  TrainingTexts texts;
} TokenizerTraining;

/* Reads the corpus from its beginning and trains a BPE, or a vocabulary of whole pieces, on it. Memory grows with the
 * number of distinct words, not with the corpus. Conversations count in the form of new models, ChatML; the caller then
 * adds its tokens with chat_extend_tokenizer(). Errors of corpus_next, bpe_trainer_add, bpe_trainer_finish and
 * bpe_trainer_word_level. */
bool tokenization_train(Tokenizer **out, Corpus *corpus, const TokenizerTraining *options, Error *error);

/* ---- token files ---- */

typedef struct Tokenization {
  const Tokenizer *source_tokenizer; /* for prompts; NULL: one tokenizer for all */
  int threads;                       /* > 0 */
  Progress encoding;                 /* bytes of the corpus */
  Progress checking;                 /* tokens of an existing file */
  StopSignal stop;                   /* also checked between two reports */
  bool special;                      /* the texts of special tokens in documents become these tokens */
  bool all_turns;                    /* the loss counts all turns of conversations, not only the assistant's */
  const char *written;               /* where a new file is written; NULL: in place of the existing one */
  /* of the text, and of prompts with a source tokenizer: [2], added to when a file is written, and missing pieces are
   * left out of it; NULL: they are an error */
  EncodedPieces *counts;
} Tokenization;

/* Returns the hash of everything that the tokens depend on without options: TokenFileInfo.fingerprint. */
uint64_t tokenization_fingerprint(const Corpus *corpus, const Tokenizer *tokenizer, const Tokenizer *source_tokenizer);

/* Opens the token file `path` that holds all documents of the corpus, each followed by the end token, with a loss mask
 * when the corpus has prompts. Conversations have the form of the tokenizer's chat template (text/tokenizer/chat.h). It
 * uses an existing file if fingerprint and checksum match; otherwise it reads the
 * corpus from its beginning and writes the file, or `options->written`; memory grows only with the largest prompt.
 * Without a corpus (NULL) the file must exist, be intact and have this vocabulary, else EXIT_CHECKPOINT. Errors of
 * corpus_next, EXIT_OUTPUT, EXIT_MEMORY; EXIT_INPUT, with file and line, for a piece that is not in a vocabulary of
 * whole pieces; EXIT_CHECKPOINT for conversations without a supported template; the error of a progress. */
bool tokenization_open(TokenFile *out, const char *path, Corpus *corpus, const Tokenizer *tokenizer,
                       const Tokenization *options, Error *error);

/* Computes a checksum that identifies the text of a range, independent of the tokenizer: XXH64 of the bytes of the
 * text, with a byte 0xFF for each end token. EXIT_CHECKPOINT for a damaged token file. */
bool tokenization_text_sum(const TokenRange *range, const Tokenizer *tokenizer, const Tokenizer *source_tokenizer,
                           uint64_t *out, Error *error);

#endif
