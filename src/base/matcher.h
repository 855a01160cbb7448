/* Search for a text in a stream of bytes (Knuth, Morris & Pratt 1977). */
#ifndef INKLING_BASE_MATCHER_H
#define INKLING_BASE_MATCHER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* The text to search for, at least 1 byte. Several searches may share it. */
typedef struct Pattern {
  const uint8_t *bytes; /* owned by the caller; must outlive the pattern */
  size_t size;
  size_t *borders; /* [size] the length of the longest proper suffix of the first i + 1 bytes that is also a prefix */
} Pattern;

/* Prepares a pattern. EXIT_MEMORY. pattern_free is harmless on a zeroed struct. */
bool pattern_make(Pattern *out, const uint8_t *bytes, size_t size, Error *error);
void pattern_free(Pattern *pattern);

/* Advances a search by one byte. `matched`: how many bytes of the pattern the stream so far ends with, 0 at first;
 * returns the new value. It equals the pattern's size where a match ends; the next call also finds overlapping
 * matches. */
size_t pattern_advance(const Pattern *pattern, size_t matched, uint8_t byte);

#endif
