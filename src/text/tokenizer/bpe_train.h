/* Training of a tokenizer: count the pieces of a text, then make a vocabulary. For a byte-level BPE, the pieces are
 * those of text/tokenizer/pretokenize.h, and the most frequent pair of tokens is merged repeatedly; for a vocabulary of
 * whole pieces (word_level.h), the most frequent pieces become tokens.
 * Ids of a BPE: bytes are 0..255, merge i is 256 + i, <|endoftext|> comes last. A tie goes to the pair with the lowest
 * left id, then the lowest right id. Whole pieces are numbered from 0 by descending count, a tie by their bytes; <unk>,
 * if there is one, and <|endoftext|> follow. The result depends only on the text, not on the number of threads or on
 * the order of its documents. */
#ifndef INKLING_TEXT_TOKENIZER_BPE_TRAIN_H
#define INKLING_TEXT_TOKENIZER_BPE_TRAIN_H

#include "base/error.h"
#include "base/progress.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

enum {
  /* The minimum count of a pair. Merging a pair that occurs once saves only one token in the text and costs an entry of
   * the vocabulary. The tokenizers library merges such pairs, too, unless min_frequency = 2. */
  BPE_MIN_COUNT = 2,
  /* The most bytes of a merged token (GPT-2's longest has 128 bytes). Without a limit, 50 MB of consecutive spaces give
   * tokens of 16 MB. */
  BPE_TOKEN_BYTES = 256,
  /* The most different pieces that are counted for a vocabulary of whole pieces, and their bytes. */
  WORD_LEVEL_COUNTED = 1 << 22,
  WORD_LEVEL_BYTES = 256 << 20
};

typedef struct BpeTrainer BpeTrainer;

/* Creates a trainer that counts pieces of `level` with `threads` > 0 threads. The caller frees it with
 * bpe_trainer_free. EXIT_MEMORY. */
bool bpe_trainer_create(BpeTrainer **out, WordLevel level, int threads, Error *error);
void bpe_trainer_free(BpeTrainer *trainer);
const Pipeline *bpe_trainer_pipeline(const BpeTrainer *trainer); /* the steps that it applies to texts */

/* Counts the pieces of documents; no merge crosses their ends. Pass many small documents in one call, so that threads
 * can share them. The trainer does not use their text after the call. EXIT_MEMORY; EXIT_INPUT for more than
 * WORD_LEVEL_COUNTED pieces or WORD_LEVEL_BYTES. */
bool bpe_trainer_add(BpeTrainer *trainer, const PipelineText *documents, size_t count, Error *error);

/* Computes at most `vocab_size` - 257 merges (vocab_size >= 257) and stores their number in *merge_count; it stops
 * early when no pair occurs BPE_MIN_COUNT times. The caller frees *merges with free(). Afterwards the trainer can only
 * be freed. `progress` counts merges. EXIT_MEMORY; EXIT_INPUT when the distinct pieces have more than 4 GiB; the error
 * of `progress`. */
bool bpe_trainer_finish(BpeTrainer *trainer, int32_t vocab_size, Progress progress, BpeMerge **merges,
                        size_t *merge_count, Error *error);

/* The same for a vocabulary of whole pieces: makes a tokenizer of at most `vocab_size` tokens, with <|endoftext|>; 0:
 * of all pieces. It has <unk> if `unknown` is set, if the text has that piece, or if vocab_size leaves pieces out.
 * Pieces that are not text (word_level_is_text()) are not in the vocabulary. Ids are 0 to vocab_size - 1, or to the
 * largest one of the text, besides <|endoftext|>. EXIT_MEMORY; EXIT_INPUT for a vocabulary that is too large. */
bool bpe_trainer_word_level(BpeTrainer *trainer, int32_t vocab_size, bool unknown, Tokenizer **out, Error *error);

#endif
