#include "base/matcher.h"

#include <stdlib.h>

bool pattern_make(Pattern *out, const uint8_t *bytes, size_t size, Error *error) {
  *out = (Pattern){bytes, size, calloc(size, sizeof *out->borders)};
  if (!out->borders) return error_memory(error, "a text to look for");
  for (size_t i = 1, matched = 0; i < size; i++) {
    while (matched > 0 && bytes[matched] != bytes[i]) matched = out->borders[matched - 1];
    matched += bytes[matched] == bytes[i];
    out->borders[i] = matched;
  }
  return true;
}

void pattern_free(Pattern *pattern) {
  free(pattern->borders);
  *pattern = (Pattern){0};
}

size_t pattern_advance(const Pattern *p, size_t matched, uint8_t byte) {
  if (matched == p->size) matched = p->borders[matched - 1];
  while (matched > 0 && p->bytes[matched] != byte) matched = p->borders[matched - 1];
  return matched + (p->bytes[matched] == byte);
}
