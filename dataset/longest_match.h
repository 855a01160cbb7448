/* What a short text has in common with a long one, word for word.
 *
 * The short one becomes a suffix automaton (Blumer et al., "The smallest automaton recognizing the subwords of a text",
 * 1985), over which the long one is read once: time grows with the sum of both, memory with the short one, at most
 * about 200 bytes a token. */
#ifndef INKLING_DATASET_LONGEST_MATCH_H
#define INKLING_DATASET_LONGEST_MATCH_H

#include "dataset/token_file.h"

enum { LONGEST_MATCH_TOKENS = 1 << 20 };

/* lengths[i], for each of the ids: the most tokens in a row that end with ids[i] and that the range has, too; 0: it
 * does not have that token. A negative id is in no range, so it parts several texts that are looked up at once. At most
 * LONGEST_MATCH_TOKENS ids, else EXIT_INTERNAL; the range is read once. Progress is in its tokens. EXIT_MEMORY,
 * EXIT_CHECKPOINT for a damaged file, or what `progress` says. */
bool longest_match_lengths(const TokenRange *range, const int32_t *ids, size_t count, int32_t *lengths,
                           Progress progress, Error *error);

typedef struct MatchSpan {
  size_t begin, end; /* of the ids */
} MatchSpan;

/* What is worth telling of such lengths: passages of at least so many tokens and bytes, each as long as it gets.
 * offsets[count + 1]: the bytes before each id, and before the end. Of passages that overlap only those are taken that
 * are needed to cover every token of all of them, and always the longest in bytes, the first of equal ones. They may
 * still overlap, but neither begins nor ends go back. Writes at most `count` spans and returns their number; *longest
 * is the index of that one. */
size_t longest_match_spans(const int32_t *lengths, const int64_t *offsets, size_t count, int tokens, int64_t bytes,
                           MatchSpan *spans, size_t *longest);

#endif
