/* Finding a text in bytes that come one after the other (Knuth, Morris & Pratt 1977). */
#ifndef INKLING_UTIL_MATCHER_H
#define INKLING_UTIL_MATCHER_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* A text, 1 byte at least, that is looked for. Shared by all that look. */
typedef struct Pattern {
  const uint8_t *bytes; /* the caller's, and must outlive it */
  size_t size;
  size_t
      *borders; /* [size] of its first i + 1 bytes: the longest end that is also a beginning, shorter than they are */
} Pattern;

/* EXIT_MEMORY. pattern_free is harmless on a zeroed struct. */
bool pattern_make(Pattern *out, const uint8_t *bytes, size_t size, Error *error);
void pattern_free(Pattern *pattern);

/* `matched`: bytes of the pattern that the bytes so far end with; 0 at first, and the result after one more. Is the
 * pattern's size where it stands there; the next call then goes on as if it might begin anew inside of it. */
size_t pattern_advance(const Pattern *pattern, size_t matched, uint8_t byte);

#endif
