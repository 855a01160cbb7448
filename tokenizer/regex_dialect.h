/* Translation of the regular expressions of tokenizer.json, which the tokenizers library passes to Oniguruma, to
 * PCRE2. */
#ifndef INKLING_TOKENIZER_REGEX_DIALECT_H
#define INKLING_TOKENIZER_REGEX_DIALECT_H

#include "util/error.h"

enum { REGEX_PATTERN_BYTES = 1 << 14 }; /* the most bytes of a pattern */

/* Translates `pattern` to a pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE that matches the same texts as in
 * Oniguruma; the caller frees it. It rewrites syntax that the two interpret differently (\s is White_Space, \w has
 * marks and no numbers but digits, \p{Han} is the script without its extensions, {1,3}+ repeats), and refuses, by name,
 * syntax that occurs in no known file. EXIT_CHECKPOINT with only the reason, EXIT_MEMORY. */
bool regex_translate(const char *pattern, char **out, Error *error);

#endif
