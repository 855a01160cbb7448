/* Added tokens: tokens that encoding finds in a text before any other step, the "added_tokens" of tokenizer.json.
 * The search goes from left to right, takes the longest token at a position and continues after it (the
 * leftmost-longest matches of Aho and Corasick). As in the tokenizers library, a match that is then rejected, because
 * it is special or not a single word, still hides the tokens that it overlaps. */
#ifndef INKLING_TEXT_TOKENIZER_ADDED_TOKENS_H
#define INKLING_TEXT_TOKENIZER_ADDED_TOKENS_H

#include "base/error.h"
#include "text/tokenizer/pretokenize.h"

#include <stddef.h>
#include <stdint.h>

enum {
  ADDED_TOKEN_BYTES = 512, /* the most bytes of one token */
  ADDED_TOKENS_BYTES = 16 << 20
};

/* One entry of the file's list. */
typedef struct AddedToken {
  char *text;
  int32_t id;
  bool special;
  bool normalized;     /* the search for it reads the normalized text */
  bool single_word;    /* matches only where no letter, digit or mark is next to it */
  bool lstrip, rstrip; /* the match includes the white space before it, after it */
} AddedToken;

/* A byte in the prefix tree of all texts; the children of a node are a list. */
typedef struct AddedNode {
  uint32_t child, next;    /* 0: none */
  const AddedToken *token; /* the token that ends here, or NULL */
  uint8_t byte;
} AddedNode;

/* A set of tokens to search for. Starts as {0}. */
typedef struct AddedTokens {
  AddedNode *nodes; /* [node_count + 1], from 1 on */
  size_t node_count, capacity;
  uint32_t first[256];                       /* the first bytes of texts */
  bool special, plain, strips, looks_around; /* some token is special, is not, strips, is a single word */
} AddedTokens;

void added_tokens_free(AddedTokens *set);
/* Adds a token, which must outlive the set, by its text or its normalized text. EXIT_CHECKPOINT when it is too long,
 * there are too many, or one has the same text; EXIT_MEMORY. */
bool added_tokens_add(AddedTokens *set, const uint8_t *text, size_t size, const AddedToken *token, Error *error);

/* A match, from which the search continues; starts as {0}. */
typedef struct AddedMatch {
  size_t begin, end; /* begin >= the end of the previous match; end may be inside the next match */
  size_t at;         /* where the search continues */
  int32_t id;
} AddedMatch;

/* Finds the next match; `special`: special tokens match, too. False: there is none. */
bool added_tokens_next(const AddedTokens *set, const CharClasses *classes, bool special, const uint8_t *text,
                       size_t size, AddedMatch *match);

#endif
