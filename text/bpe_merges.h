/* The merges of a BPE from the counts of pieces: the second half of bpe_train.h. */
#ifndef INKLING_TEXT_BPE_MERGES_H
#define INKLING_TEXT_BPE_MERGES_H

#include "text/bpe_train.h"
#include "text/piece_counts.h"

/* As bpe_trainer_finish, with at most `wanted` merges. Empties `counts`. */
bool merges_find(PieceCounts *counts, size_t wanted, BpeProgress progress, BpeMerge **merges, size_t *merge_count,
                 Error *error);

#endif
