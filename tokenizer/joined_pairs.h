/* The pairs of characters that are adjacent in some text of a set (the tokens of a vocabulary). No token contains any
 * other pair, so a text may be cut between the two characters of such a pair. */
#ifndef INKLING_TOKENIZER_JOINED_PAIRS_H
#define INKLING_TOKENIZER_JOINED_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters are code points, UTF8_INVALID, which joins nothing, or JOINED_END for the end of a text. */
enum { JOINED_END = -2 };

/* 128 KB: one bit for each of 2^20 hashes of pairs. Two pairs may share a hash; then some possible cuts are missed. */
typedef struct JoinedPairs JoinedPairs;

/* Creates an empty set. The caller frees it with free(). NULL when memory is out. */
JoinedPairs *joined_pairs_create(void);
void joined_pairs_add(JoinedPairs *pairs, const uint8_t *text, size_t size); /* adds the pairs of a text */
/* Adds the pair of a text's last character and JOINED_END. */
void joined_pairs_add_end(JoinedPairs *pairs, const uint8_t *text, size_t size);
bool joined_pairs_have(const JoinedPairs *pairs, int32_t left, int32_t right);

#endif
