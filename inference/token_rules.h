/* Rules of generation: biases on the logits of tokens, and banned texts. */
#ifndef INKLING_INFERENCE_TOKEN_RULES_H
#define INKLING_INFERENCE_TOKEN_RULES_H

#include "tokenizer/tokenizer.h"
#include "util/error.h"
#include "util/matcher.h"

typedef struct TokenBias {
  int32_t id;
  float value; /* in nats; -INFINITY: never sampled */
} TokenBias;

/* Rules, shared by all texts that use them. */
typedef struct TokenRules {
  const Tokenizer *tokenizer;
  TokenBias *biases; /* [bias_count], different tokens */
  int bias_count;
  struct Ban *bans; /* [ban_count] banned texts: a token that would complete one is never sampled */
  int ban_count;
  float *dense; /* [vocab]: scratch memory, zeros between calls */
  int tokens;   /* number of tokens that can be sampled: tokenizer_tokens() */
} TokenRules;

/* Makes empty rules for a tokenizer, which must outlive them. EXIT_MEMORY. token_rules_free() is harmless on zeros. */
bool token_rules_make(TokenRules *out, const Tokenizer *tokenizer, Error *error);
void token_rules_free(TokenRules *rules);

/* Sets the bias of a token, replacing an earlier one. EXIT_MEMORY. */
bool token_rules_bias(TokenRules *rules, int32_t id, float value, Error *error);
/* Bans a text of at least 1 byte, which is copied. EXIT_MEMORY. */
bool token_rules_ban(TokenRules *rules, const uint8_t *text, size_t size, Error *error);

/* Updates `matched` [ban_count] after a token of a text; it is zero at the beginning. */
void token_rules_advance(const TokenRules *rules, size_t *matched, int32_t id);

/* Lists the current biases in `tokens` and `values`, arrays of the size of the vocabulary; *count: their number.
 * EXIT_USAGE: no token is left; EXIT_MEMORY. */
bool token_rules_list(TokenRules *rules, const size_t *matched, int32_t *tokens, float *values, int *count,
                      Error *error);

#endif
