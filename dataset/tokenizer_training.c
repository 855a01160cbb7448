#include "dataset/tokenizer_training.h"

#include "dataset/document_blocks.h"
#include "tokenizer/bpe_train.h"

#include <stdlib.h>

static bool count_block(void *trainer, const PretokenizeText *texts, size_t count, bool ends, Error *error) {
  (void)ends; /* nothing is merged across a slice's end either: it is the end of a piece */
  return bpe_trainer_add(trainer, texts, count, error);
}

bool tokenizer_training_run(Tokenizer **out, Corpus *corpus, const TokenizerTraining *options, Error *error) {
  BpeTrainer *trainer = NULL;
  BpeMerge *merges = NULL;
  size_t count = 0;
  *out = NULL;
  bool ok =
      bpe_trainer_create(&trainer, options->threads, error) &&
      document_blocks_read(corpus, bpe_trainer_classes(trainer), options->counting, count_block, trainer, error) &&
      bpe_trainer_finish(trainer, options->vocab_size, options->merging, &merges, &count, error) &&
      tokenizer_from_merges(out, merges, count, error);
  bpe_trainer_free(trainer);
  free(merges);
  return ok;
}
