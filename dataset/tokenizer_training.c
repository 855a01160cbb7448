#include "dataset/tokenizer_training.h"

#include "dataset/document_blocks.h"
#include "tokenizer/bpe_train.h"

#include <stdlib.h>

typedef struct Counting {
  BpeTrainer *trainer;
  TrainingTexts texts;
} Counting;

/* Nothing is merged across a slice's end either: it is the end of a piece. */
static bool count_block(void *context, const DocumentBlock *block, Error *error) {
  const Counting *c = context;
  const bool prompts = block->prompts && c->texts != TRAINING_RESPONSES;
  return (!prompts || bpe_trainer_add(c->trainer, block->prompts, block->count, error)) &&
         (c->texts == TRAINING_PROMPTS || bpe_trainer_add(c->trainer, block->texts, block->count, error));
}

bool tokenizer_training_run(Tokenizer **out, Corpus *corpus, const TokenizerTraining *options, Error *error) {
  Counting counting = {.texts = options->texts};
  BpeMerge *merges = NULL;
  size_t count = 0;
  *out = NULL;
  bool ok = bpe_trainer_create(&counting.trainer, options->threads, error) &&
            document_blocks_read(corpus, bpe_trainer_pipeline(counting.trainer), options->counting, count_block,
                                 &counting, error) &&
            bpe_trainer_finish(counting.trainer, options->vocab_size, options->merging, &merges, &count, error) &&
            tokenizer_from_merges(out, merges, count, error);
  bpe_trainer_free(counting.trainer);
  free(merges);
  return ok;
}
