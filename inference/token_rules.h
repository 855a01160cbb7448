/* What is added to the logits of tokens, and texts that are never written. */
#ifndef INKLING_INFERENCE_TOKEN_RULES_H
#define INKLING_INFERENCE_TOKEN_RULES_H

#include "util/error.h"
#include "util/matcher.h"
#include "tokenizer/tokenizer.h"

typedef struct TokenBias {
  int32_t id;
  float value; /* in nats; -INFINITY: never drawn */
} TokenBias;

/* The same for all texts that obey them. */
typedef struct TokenRules {
  const Tokenizer *tokenizer;
  TokenBias *biases; /* [bias_count], of different tokens */
  int bias_count;
  Pattern *bans; /* [ban_count] texts that never appear: a token that would complete one is not drawn */
  int ban_count;
  struct Completing **completing; /* [ban_count][size of the ban]: by how much of it the text ends with */
  float *room;                    /* [vocab] */
  int tokens;                     /* that can be drawn: tokenizer_tokens() */
} TokenRules;

/* Empty rules for a tokenizer, which must outlive them. EXIT_MEMORY. token_rules_free is harmless on zeros. */
bool token_rules_make(TokenRules *out, const Tokenizer *tokenizer, Error *error);
void token_rules_free(TokenRules *rules);

/* A later bias of a token replaces an earlier one. EXIT_MEMORY. */
bool token_rules_bias(TokenRules *rules, int32_t id, float value, Error *error);
/* A text of 1 byte at least, which is copied. EXIT_MEMORY. */
bool token_rules_ban(TokenRules *rules, const uint8_t *text, size_t size, Error *error);

/* After a token of a text: `matched` [ban_count], zeros at its beginning. */
void token_rules_advance(const TokenRules *rules, size_t *matched, int32_t id);

/* What is now added to which tokens: [*count] of them into `tokens` and `values`, each with room for the vocabulary.
 * EXIT_USAGE: no token is left; EXIT_MEMORY. */
bool token_rules_list(TokenRules *rules, const size_t *matched, int32_t *tokens, float *values, int *count,
                      Error *error);

#endif
