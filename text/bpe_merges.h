/* The merges of a BPE from the counts of pieces: the second half of bpe_train.h. */
#ifndef INKLING_TEXT_BPE_MERGES_H
#define INKLING_TEXT_BPE_MERGES_H

#include "text/bpe_train.h"
#include "text/piece_counts.h"

typedef struct MergeSettings {
  size_t wanted;  /* merges at most */
  uint64_t bytes; /* of the text, for the progress */
  BpeProgress progress;
} MergeSettings;

/* As bpe_trainer_finish. Empties `counts`. */
bool merges_find(PieceCounts *counts, const MergeSettings *settings, BpeMerge **merges, size_t *merge_count,
                 Error *error);

#endif
