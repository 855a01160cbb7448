/* The merges of a BPE from the counts of pieces: the second half of bpe_train.h. */
#ifndef INKLING_TOKENIZER_BPE_MERGES_H
#define INKLING_TOKENIZER_BPE_MERGES_H

#include "tokenizer/bpe_train.h"
#include "tokenizer/piece_counts.h"

/* As bpe_trainer_finish, with at most `wanted` merges. Empties `counts`. */
bool bpe_merges_find(PieceCounts *counts, size_t wanted, Progress progress, BpeMerge **merges, size_t *merge_count,
                     Error *error);

#endif
