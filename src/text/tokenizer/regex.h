/* Successive matches of a pattern of tokenizer.json in a text.
 * The text may be any bytes: a byte that is not part of well-formed UTF-8 is a single character without a class, not a
 * letter, number, space or line end (as in pretokenize.h). The steps and the memory of a match are limited: a pattern
 * with exponential search time ends with an error. */
#ifndef INKLING_TEXT_TOKENIZER_REGEX_H
#define INKLING_TEXT_TOKENIZER_REGEX_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Regex Regex;

/* Compiles a pattern; the result is read-only. `literal`: the pattern matches itself as plain text. The caller frees
 * it. EXIT_CHECKPOINT with the pattern and its error, EXIT_MEMORY. */
bool regex_create(Regex **out, const char *pattern, bool literal, Error *error);
void regex_free(Regex *regex);
const char *regex_pattern(const Regex *regex); /* as it was given; NULL for a literal one */

/* The memory that a thread needs for matching. */
typedef struct RegexMatcher RegexMatcher;
bool regex_matcher_create(RegexMatcher **out, Error *error); /* EXIT_MEMORY */
void regex_matcher_free(RegexMatcher *matcher);

/* A text to search: its bytes if they are UTF-8, else a copy. Starts as {0}; reusable. */
typedef struct RegexText {
  const uint8_t *original, *text; /* text: as PCRE2 reads it */
  size_t original_size, size;
  size_t at, last_end; /* where the search continues; where the previous match ended */
  bool matched;
  size_t mapped, original_mapped; /* the same position in both */
  uint8_t *copy;
  size_t capacity;
} RegexText;
void regex_text_free(RegexText *text);
bool regex_begin(RegexText *out, const uint8_t *text, size_t size, Error *error); /* EXIT_MEMORY */

/* Finds the next match, as offsets into the original text. An empty match also cuts, but never occurs at the end of the
 * previous match. *found false: there is none. EXIT_CHECKPOINT when the pattern exceeds the limit of steps or memory,
 * EXIT_MEMORY. */
bool regex_next(const Regex *regex, RegexMatcher *matcher, RegexText *text, size_t *begin, size_t *end, bool *found,
                Error *error);

#endif
