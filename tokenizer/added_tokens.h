/* Tokens that are found in a text before anything else is done with it: the "added_tokens" of tokenizer.json.
 *
 * From left to right the longest that begins at a place; what follows is searched behind it (the leftmost-longest
 * matches of Aho and Corasick). As in the tokenizers library, one that is found and then not taken, because it is
 * special or no word of its own, still hides those that it overlaps. */
#ifndef INKLING_TOKENIZER_ADDED_TOKENS_H
#define INKLING_TOKENIZER_ADDED_TOKENS_H

#include "util/error.h"
#include "tokenizer/char_class.h"

#include <stddef.h>
#include <stdint.h>

enum {
  ADDED_TOKEN_BYTES = 512, /* of one, at most */
  ADDED_TOKENS_BYTES = 16 << 20
};

typedef struct AddedToken {
  int32_t id;
  bool special;
  bool single_word;    /* taken only where no letter, digit or mark stands beside it */
  bool lstrip, rstrip; /* with the white space before it, behind it */
} AddedToken;

/* One of the file's list. */
typedef struct AddedEntry {
  char *text;
  bool normalized; /* it is looked for in the normalized text */
  AddedToken token;
} AddedEntry;

typedef struct AddedTokens AddedTokens;

bool added_tokens_create(AddedTokens **out, Error *error); /* EXIT_MEMORY */
void added_tokens_free(AddedTokens *set);
/* EXIT_CHECKPOINT: too long, too many, or there is one of the same text; EXIT_MEMORY. */
bool added_tokens_add(AddedTokens *set, const uint8_t *text, size_t size, AddedToken token, Error *error);
bool added_tokens_have_any(const AddedTokens *set, bool special); /* one that is, or one that is not */
bool added_tokens_look_around(const AddedTokens *set);            /* one is a single word */
bool added_tokens_strip(const AddedTokens *set);                  /* one takes white space with it */

typedef struct AddedMatch {
  size_t begin, end; /* begin: not before the end of the match before, end: may be in the next match */
  int32_t id;
} AddedMatch;

/* Where the search goes on, and the end of the match before; starts as {0}. */
typedef struct AddedCursor {
  size_t at, used;
} AddedCursor;

/* The next match; `special`: special ones are taken, too. False: there is none. */
bool added_tokens_next(const AddedTokens *set, const CharClasses *classes, bool special, const uint8_t *text,
                       size_t size, AddedCursor *cursor, AddedMatch *match);

#endif
