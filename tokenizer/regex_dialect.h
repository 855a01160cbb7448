/* The regular expressions of tokenizer.json, which the tokenizers library gives to Oniguruma, in the words of PCRE2. */
#ifndef INKLING_TOKENIZER_REGEX_DIALECT_H
#define INKLING_TOKENIZER_REGEX_DIALECT_H

#include "util/error.h"

enum { REGEX_PATTERN_BYTES = 1 << 14 }; /* of a pattern, at most */

/* A pattern for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE that matches what Oniguruma's does; the caller frees it. What
 * the two read differently is rewritten (\s is White_Space, \w has marks and no numbers but digits, \p{Han} is the
 * script without its extensions, {1,3}+ repeats) or, where no known file has it, refused by name. EXIT_CHECKPOINT with
 * the reason alone, EXIT_MEMORY. */
bool regex_translate(const char *pattern, char **out, Error *error);

#endif
