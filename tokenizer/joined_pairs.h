/* Which characters stand side by side in some text of a set (the tokens of a vocabulary): between two that do not, no
 * token is, and a text may be cut. */
#ifndef INKLING_TOKENIZER_JOINED_PAIRS_H
#define INKLING_TOKENIZER_JOINED_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a byte that is not UTF-8 is: beside it everything may be cut. What is behind the end of a text. */
enum { JOINED_NONE = -1, JOINED_END = -2 };

/* 128 KB: a bit for each of 2^20 hashes of pairs. Two pairs may share one: then a place is not cut that could be. */
typedef struct JoinedPairs JoinedPairs;

/* The caller frees it with free(); NULL: out of memory. */
JoinedPairs *joined_pairs_create(void);
void joined_pairs_add(JoinedPairs *pairs, const uint8_t *text, size_t size);
void joined_pairs_add_end(JoinedPairs *pairs, const uint8_t *text, size_t size); /* its last character and JOINED_END */
bool joined_pairs_have(const JoinedPairs *pairs, int32_t left, int32_t right);

/* The character at text[0], or JOINED_NONE, and its bytes; size > 0. */
int32_t joined_character(const uint8_t *text, size_t size, size_t *length);
/* The one that ends before text[at], at > 0, where a character begins or a byte that is none. */
int32_t joined_character_before(const uint8_t *text, size_t at);

#endif
