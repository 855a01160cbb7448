/* A BPE trained on a corpus. Memory grows with the number of different words, not with the corpus. */
#ifndef INKLING_DATASET_TOKENIZER_TRAINING_H
#define INKLING_DATASET_TOKENIZER_TRAINING_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/corpus.h"
#include "tokenizer/tokenizer.h"

/* Of a corpus with prompts; others have texts alone. */
typedef enum TrainingTexts { TRAINING_ALL, TRAINING_PROMPTS, TRAINING_RESPONSES } TrainingTexts;

typedef struct TokenizerTraining {
  int vocab_size;    /* >= 257, at most that many tokens: fewer when the text has no more pairs */
  int threads;       /* > 0 */
  Progress counting; /* bytes of the corpus */
  Progress merging;  /* merges */
  TrainingTexts texts;
} TokenizerTraining;

/* Reads the corpus from its beginning. What corpus_next and bpe_trainer_finish say. */
bool tokenizer_training_run(Tokenizer **out, Corpus *corpus, const TokenizerTraining *options, Error *error);

#endif
