/* Training of a byte-level BPE: count the pieces of a text (tokenizer/pretokenize.h), then merge the most frequent pair
 * of tokens, again and again.
 *
 * Ids: bytes are 0..255, merge i is 256 + i, <|endoftext|> comes last. A tie goes to the pair with the lowest left id,
 * then the lowest right id. The result depends on the text alone, not on the number of threads or on the order of its
 * documents. */
#ifndef INKLING_TOKENIZER_BPE_TRAIN_H
#define INKLING_TOKENIZER_BPE_TRAIN_H

#include "util/error.h"
#include "util/progress.h"
#include "tokenizer/pipeline.h"

#include <stddef.h>
#include <stdint.h>

enum {
  /* A pair that occurs once would save one token in one place and cost an entry of the vocabulary. The tokenizers
   * library merges such pairs too unless it is told min_frequency = 2. */
  BPE_MIN_COUNT = 2,
  /* No merge makes a longer token (GPT-2's longest has 128 bytes). Without a limit a run of 50 MB of spaces gives
   * tokens of 16 MB. */
  BPE_TOKEN_BYTES = 256
};

typedef struct BpeTrainer BpeTrainer;

/* `threads` > 0 count pieces. The caller frees with bpe_trainer_free. EXIT_MEMORY. */
bool bpe_trainer_create(BpeTrainer **out, int threads, Error *error);
void bpe_trainer_free(BpeTrainer *trainer);
const Pipeline *bpe_trainer_pipeline(const BpeTrainer *trainer); /* what it does with texts */

/* Counts documents; nothing is merged across their ends. Give many small ones in one call: its threads share them.
 * Their text is not used after it returns. EXIT_MEMORY. */
bool bpe_trainer_add(BpeTrainer *trainer, const PipelineText *documents, size_t count, Error *error);

/* Makes at most `vocab_size` - 257 merges (vocab_size >= 257 is an upper bound) and stores how many in *merge_count: it
 * stops when no pair occurs BPE_MIN_COUNT times. *merges is the caller's, to free(). The trainer can only be freed
 * afterwards. `progress` counts merges. EXIT_MEMORY; EXIT_INPUT when the different pieces have more than 4 GiB; the
 * error of `progress`. */
bool bpe_trainer_finish(BpeTrainer *trainer, int32_t vocab_size, Progress progress, BpeMerge **merges,
                        size_t *merge_count, Error *error);

#endif
