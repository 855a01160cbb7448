/* Training of a BPE on a corpus. Memory grows with the number of distinct words, not with the corpus. */
#ifndef INKLING_DATASET_TOKENIZER_TRAINING_H
#define INKLING_DATASET_TOKENIZER_TRAINING_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "tokenizer/tokenizer.h"

/* The texts of a corpus with prompts to train on; without prompts, all. */
typedef enum TrainingTexts { TRAINING_ALL, TRAINING_PROMPTS, TRAINING_RESPONSES } TrainingTexts;

typedef struct TokenizerTraining {
  int vocab_size;    /* >= 257, the most tokens; fewer when the text has no more pairs */
  int threads;       /* > 0 */
  Progress counting; /* bytes of the corpus */
  Progress merging;  /* merges */
  TrainingTexts texts;
} TokenizerTraining;

/* Reads the corpus from its beginning and trains. Errors of corpus_next and bpe_trainer_finish. */
bool tokenizer_training_run(Tokenizer **out, Corpus *corpus, const TokenizerTraining *options, Error *error);

#endif
