/* Finds the passages that a short text shares verbatim with a long text.
 * It builds a suffix automaton of the short text (Blumer et al., "The smallest automaton recognizing the subwords of a
 * text", 1985) and runs the long text through it once. Time is linear in the length of both, memory in the length of
 * the short text, at most about 200 bytes per token. */
#ifndef INKLING_INFERENCE_LONGEST_MATCH_H
#define INKLING_INFERENCE_LONGEST_MATCH_H

#include "text/dataset/token_file.h"

enum { LONGEST_MATCH_TOKENS = 1 << 20 };

/* Computes lengths[i] for each id: the length in tokens of the longest sequence that ends with ids[i] and also occurs
 * in the range; 0: the range does not contain that token. A negative id occurs in no range and can separate several
 * texts. At most LONGEST_MATCH_TOKENS ids, else EXIT_INTERNAL. The function reads the range once; `progress` counts its
 * tokens. EXIT_MEMORY, EXIT_CHECKPOINT for a damaged file, or the error of `progress`. */
bool longest_match_lengths(const TokenRange *range, const int32_t *ids, size_t count, int32_t *lengths,
                           Progress progress, Error *error);

typedef struct MatchSpan {
  size_t begin, end; /* indexes into ids */
} MatchSpan;

/* Selects from such lengths the maximal passages of at least `tokens` tokens and `bytes` bytes. offsets[count + 1]: the
 * bytes before each id, and before the end. Of overlapping passages it selects only those that are needed to cover
 * every token of all of them, and always the longest in bytes, the first of equal ones. Selected passages may still
 * overlap, but their begins and ends ascend. Writes at most `count` spans and returns their number; *longest is the
 * index of the longest in bytes. */
size_t longest_match_spans(const int32_t *lengths, const int64_t *offsets, size_t count, int tokens, int64_t bytes,
                           MatchSpan *spans, size_t *longest);

#endif
