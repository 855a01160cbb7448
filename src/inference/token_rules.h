/* Rules of generation: biases on the logits of tokens, and banned texts; lists of texts to look for. */
#ifndef INKLING_INFERENCE_TOKEN_RULES_H
#define INKLING_INFERENCE_TOKEN_RULES_H

#include "text/tokenizer/tokenizer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* A text to search for in a stream of bytes (Knuth, Morris & Pratt 1977), at least 1 byte. Several searches may share
 * it. */
typedef struct Pattern {
  uint8_t *bytes; /* [size] */
  size_t size;
  size_t *borders; /* [size] the length of the longest proper suffix of the first i + 1 bytes that is also a prefix */
} Pattern;

/* Advances a search by one byte. `matched`: how many bytes of the pattern the stream so far ends with, 0 at first;
 * returns the new value. It equals the pattern's size where a match ends; the next call also finds overlapping
 * matches. */
size_t pattern_advance(const Pattern *pattern, size_t matched, uint8_t byte);

/* Texts to look for. Starts zeroed. */
typedef struct PatternList {
  Pattern *patterns;
  int count;
} PatternList;

/* Adds a copy of a text of at least 1 byte. EXIT_MEMORY. */
bool pattern_list_add(PatternList *list, const void *text, size_t size, Error *error);
void pattern_list_free(PatternList *list);

typedef struct TokenBias {
  int32_t id;
  float value; /* in nats; -INFINITY: never sampled */
} TokenBias;

/* Rules, shared by all texts that use them. */
typedef struct TokenRules {
  const Tokenizer *tokenizer;
  TokenBias *biases; /* [bias_count], different tokens */
  int bias_count;
  PatternList bans; /* a token that would complete one of these texts is never sampled */
  /* [bans.count][size of the text]: the tokens that do, by the number of bytes matched */
  struct Completing **completing;
  float *dense; /* [vocab]: scratch memory, zeros between calls */
  int tokens;   /* number of tokens that can be sampled: tokenizer_tokens() */
} TokenRules;

/* Makes empty rules for a tokenizer, which must outlive them. EXIT_MEMORY. token_rules_free() is harmless on zeros. */
bool token_rules_make(TokenRules *out, const Tokenizer *tokenizer, Error *error);
void token_rules_free(TokenRules *rules);

/* Sets the bias of a token, replacing an earlier one. EXIT_MEMORY. */
bool token_rules_bias(TokenRules *rules, int32_t id, float value, Error *error);
/* Bans a text of at least 1 byte, which is copied. EXIT_MEMORY. */
bool token_rules_ban(TokenRules *rules, const void *text, size_t size, Error *error);

/* Updates `matched` [bans.count] after a token of a text; it is zero at the beginning. */
void token_rules_advance(const TokenRules *rules, size_t *matched, int32_t id);

/* Lists the current biases in `tokens` and `values`, arrays of the size of the vocabulary; *count: their number.
 * EXIT_USAGE: no token is left; EXIT_MEMORY. */
bool token_rules_list(TokenRules *rules, const size_t *matched, int32_t *tokens, float *values, int *count,
                      Error *error);

#endif
