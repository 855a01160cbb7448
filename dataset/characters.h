/* The characters that a text is written in. */
#ifndef INKLING_DATASET_CHARACTERS_H
#define INKLING_DATASET_CHARACTERS_H

#include "dataset/corpus.h"

/* Counted in the first megabyte of the documents. A byte that is not UTF-8 counts as a character. */
typedef struct Characters {
  int64_t bytes, all;
  int different; /* number of different characters */
} Characters;

/* Reads the corpus from its beginning. `progress` as for corpus_rewind(). Errors of corpus_next(), and EXIT_MEMORY. */
bool characters_count(Characters *out, Corpus *corpus, Progress progress, Error *error);

#endif
