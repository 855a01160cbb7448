/* What a short text has in common with a long one. */
#ifndef INKLING_DATASET_LONGEST_MATCH_H
#define INKLING_DATASET_LONGEST_MATCH_H

#include "dataset/token_file.h"

enum { LONGEST_MATCH_TOKENS = 4096, LONGEST_MATCH_LEAST = 4 };

/* The most tokens in a row that `ids` and the range both have: *length of them, from ids[*begin] on. Fewer than
 * LONGEST_MATCH_LEAST count as none. At most LONGEST_MATCH_TOKENS ids are looked at; the range is read once. Progress
 * is in its tokens. EXIT_MEMORY, EXIT_CHECKPOINT for a damaged file, or what `progress` says. */
bool longest_match(const TokenRange *range, const int32_t *ids, size_t count, size_t *begin, size_t *length,
                   Progress progress, Error *error);

#endif
