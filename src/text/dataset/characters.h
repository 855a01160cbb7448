/* The characters that a text is written in. */
#ifndef INKLING_TEXT_DATASET_CHARACTERS_H
#define INKLING_TEXT_DATASET_CHARACTERS_H

#include "text/dataset/corpus.h"

enum { CHARACTERS_SAMPLE = 1000000 }; /* bytes */

/* Of the first CHARACTERS_SAMPLE bytes of the documents. A byte that is not UTF-8 counts as a character. */
typedef struct Characters {
  int64_t bytes, count;
  int distinct;
} Characters;

/* Reads the corpus from its beginning. `progress` as for corpus_rewind(). Errors of corpus_next(), and EXIT_MEMORY. */
bool characters_count(Characters *out, Corpus *corpus, Progress progress, Error *error);

#endif
