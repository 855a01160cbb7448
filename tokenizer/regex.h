/* Matches of a pattern of tokenizer.json in a text, one behind the other.
 *
 * The text may be any bytes: a byte that is not part of well-formed UTF-8 is a character of its own that has no class
 * and is no letter, number, space or line end (char_class.h says the same). A match may take so many steps and so much
 * memory and no more: a pattern that would search for years ends with an error. */
#ifndef INKLING_TOKENIZER_REGEX_H
#define INKLING_TOKENIZER_REGEX_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Regex Regex;

/* Read-only once it is made. `literal`: the pattern is a text. The caller frees it. EXIT_CHECKPOINT with the pattern
 * and what is wrong with it, EXIT_MEMORY. */
bool regex_create(Regex **out, const char *pattern, bool literal, Error *error);
void regex_free(Regex *regex);
const char *regex_pattern(const Regex *regex); /* as it was given; NULL for a literal one */

/* What a thread needs to match. */
typedef struct RegexMatcher RegexMatcher;
bool regex_matcher_create(RegexMatcher **out, Error *error); /* EXIT_MEMORY */
void regex_matcher_free(RegexMatcher *matcher);

/* A text that is searched: its bytes where they are UTF-8, else a copy. Starts as {0} and is used again. */
typedef struct RegexText {
  const uint8_t *original, *text; /* text: as PCRE2 reads it */
  size_t original_size, size;
  size_t at, last_end; /* where the search goes on; where the match before ended */
  bool matched;
  size_t mapped, original_mapped; /* the same place in both */
  uint8_t *copy;
  size_t capacity;
} RegexText;
void regex_text_free(RegexText *text);
bool regex_begin(RegexText *out, const uint8_t *text, size_t size, Error *error); /* EXIT_MEMORY */

/* The next match, as offsets into the text as it was given; an empty one cuts, and does not stand where the match
 * before ended. *found false: there is none. EXIT_CHECKPOINT when the pattern takes more steps or memory than it may,
 * EXIT_MEMORY. */
bool regex_next(const Regex *regex, RegexMatcher *matcher, RegexText *text, size_t *begin, size_t *end, bool *found,
                Error *error);

#endif
