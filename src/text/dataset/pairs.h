/* Packing of source-target pairs into windows, for a model with an encoder and a decoder. A window has two rows of ctx
 * slots, one for sources and one for targets; several pairs share a window, each with its source in the first row and
 * its target in the second. The rest of a row is padding.
 * A pair is a document of a token file with a loss mask: the tokens that the loss ignores are the source, all tokens
 * after them are the target, including its end token. Either text may be empty.
 *   row of sources   s1 s2 s3 end    every slot attends to the slots of its own source, in both directions
 *   row of targets   end t1 t2       the input: an end token, then the target without its last token
 *                    t1  t2 end      the targets of the loss
 * A source takes one slot more than it has tokens, for an end token, so that attention has a key for an empty source.
 * A target takes as many slots as it has tokens, including its end token. A pair that is longer than ctx on either
 * side is left out, because a truncated target would be a wrong example.
 * Sources may have a separate vocabulary, whose ids in a token file are above the target's
 * (text/dataset/tokenization.h); windows contain the original ids. */
#ifndef INKLING_TEXT_DATASET_PAIRS_H
#define INKLING_TEXT_DATASET_PAIRS_H

#include "base/error.h"
#include "base/progress.h"
#include "text/dataset/packing.h"

#include <stdint.h>

/* The tokens of pairs in a token file. */
typedef struct PairTokens {
  int32_t end;          /* the token that ends documents, and so targets */
  int32_t source_first; /* the first id of sources, 0 in windows; 0: sources and targets share a vocabulary */
  int32_t source_end;   /* the token that ends sources in windows */
} PairTokens;

/* Returns the tokens for a pair of tokenizers; `source` NULL: one tokenizer for both. */
PairTokens pair_tokens(const Tokenizer *tokenizer, const Tokenizer *source);

/* The number and size of a pair, for a message. */
typedef struct PairSize {
  int64_t number;         /* of the pair among the range's documents, from 1; in a .tsv without empty lines the line
                             number */
  int64_t source, target; /* slots */
} PairSize;

/* Created by pairs_make, freed by pairs_free; read-only. */
typedef struct Pairs {
  TokenRange range;
  int ctx;
  PairTokens tokens;
  WindowTable table;                /* its spans are pairs */
  int64_t pairs;                    /* whole pairs of the range, including those left out */
  int64_t used_source, used_target; /* number of slots with pairs, of table.windows * ctx on either side */
  int64_t empty_sources;            /* of `pairs` */
  int64_t first_empty;              /* PairSize.number of the first of them; 0: none */
  int64_t left_out;                 /* of `pairs`: longer than ctx */
  PairSize first_left_out, longest; /* first_left_out.number 0: none; longest: on its longer side */
  int64_t partial;                  /* 0..2 pairs that the ends of the range cut: left out and not in `pairs` */
} Pairs;

/* Computes the histogram of the lengths of the pairs' longer sides, in slots. Errors as pairs_make, except for pairs
 * that do not fit. */
bool pairs_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error);

/* Packs the pairs of the range with window_filler_add. Memory: 8 bytes per pair and 8 per window. `progress` counts
 * tokens. EXIT_INPUT for a token file without a loss mask, and for a range in which no pair fits; EXIT_CHECKPOINT for a
 * damaged token file, or one with tokens outside of the loss after tokens in the loss; EXIT_MEMORY; the error of
 * `progress`. On failure there is nothing to free. A range without a whole pair has no windows. */
bool pairs_make(Pairs *out, const TokenRange *range, int ctx, PairTokens tokens, Progress progress, Error *error);
void pairs_free(Pairs *pairs); /* harmless on a zeroed struct */

/* Reads window `index` into every array of `out`; windows from table.windows on have only padding. A slot of padding
 * holds its side's end token at position 0 and attends only to itself; among the targets it attends to no source, and
 * the loss ignores it. EXIT_CHECKPOINT for a token file that is damaged or has changed. */
bool pairs_read(const Pairs *pairs, int64_t index, const Window *out, Error *error);

#endif
