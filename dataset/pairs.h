/* Pairs of a source and a target packed into windows, for a model with an encoder and a decoder. A window is two rows
 * of ctx places, one of sources and one of targets; several pairs share a window, each with its source in the one row
 * and its target in the other. What is left of a row is padding.
 *
 * A pair is a document of a token file with a loss mask: the tokens that the loss leaves out are the source, all that
 * follow are the target, its end token included. Either text may be empty.
 *
 *   row of sources   s1 s2 s3 end    every place sees the places of its own source, in both directions
 *   row of targets   end t1 t2       the input: an end token, then the target without its last token
 *                    t1  t2 end      what is to be said
 *
 * A source takes a place more than it has tokens, for an end token, so that an empty one can be seen, too. A target
 * takes as many as it has tokens, its end token included. A pair that is longer than ctx on either side is left out:
 * half a target would teach nonsense.
 *
 * Sources may be of a vocabulary of their own, whose ids a token file has above the target's (dataset/tokenization.h);
 * windows have them as they are. */
#ifndef INKLING_DATASET_PAIRS_H
#define INKLING_DATASET_PAIRS_H

#include "util/error.h"
#include "util/progress.h"
#include "dataset/documents.h"
#include "dataset/window_table.h"
#include "dataset/windows.h"
#include "tokenizer/tokenizer.h"

#include <stdint.h>

/* The tokens of pairs in a token file. */
typedef struct PairTokens {
  int32_t end; /* ends documents, and with them targets */
  int32_t
      source_first;   /* the first of the sources, which windows have as 0; 0: sources and targets share a vocabulary */
  int32_t source_end; /* closes sources in windows */
} PairTokens;

/* `source` NULL: one tokenizer for both. */
PairTokens pair_tokens(const Tokenizer *tokenizer, const Tokenizer *source);

/* One that does not fit, for a message. */
typedef struct PairSize {
  int64_t number;         /* of the pair, from 1: of the range's documents, so in a .tsv without empty lines its line */
  int64_t source, target; /* places */
} PairSize;

/* Made by pairs_make, freed by pairs_free; read-only. */
typedef struct Pairs {
  TokenRange range;
  int ctx;
  PairTokens tokens;
  WindowTable table;                /* its spans are pairs */
  int64_t pairs;                    /* whole ones of the range, those left out included */
  int64_t used_source, used_target; /* places that hold pairs, of table.windows * ctx on either side */
  int64_t empty_sources;            /* of `pairs` */
  int64_t first_empty;              /* PairSize.number of the first of them; 0: none */
  int64_t left_out;                 /* of `pairs`: longer than ctx */
  PairSize first_left_out, longest; /* first_left_out.number 0: none; longest: on its longer side */
  int64_t partial;                  /* 0..2 pairs at the ends of the range that it cuts: left out, not in `pairs` */
} Pairs;

/* How long pairs are on their longer sides, in places. Errors as pairs_make, but for pairs that do not fit. */
bool pairs_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error);

/* Takes 8 bytes a pair and 8 a window, which are filled as window_filler_add says. `progress` counts tokens. EXIT_INPUT
 * for a token file without a loss mask, and for a range of which no pair fits; EXIT_CHECKPOINT for a damaged token
 * file, or one that leaves tokens out of the loss behind others; EXIT_MEMORY; the error of `progress`. On failure there
 * is nothing to free. A range without a whole pair has no windows. */
bool pairs_make(Pairs *out, const TokenRange *range, int ctx, PairTokens tokens, Progress progress, Error *error);
void pairs_free(Pairs *pairs); /* harmless on a zeroed struct */

/* Window `index`; from table.windows on they are padding alone. Fills every array of `out`. A place of padding holds
 * its side's end token at position 0 and, among the sources, sees itself alone; among the targets it sees itself and no
 * source, and is left out of the loss. EXIT_CHECKPOINT for a token file that is damaged or has changed. */
bool pairs_read(const Pairs *pairs, int64_t index, const Window *out, Error *error);

#endif
