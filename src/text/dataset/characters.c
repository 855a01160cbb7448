#include "text/dataset/characters.h"

#include "base/utf8.h"

#include <stdlib.h>

static void count(Characters *out, uint8_t *seen, const uint8_t *text, size_t size) {
  for (size_t at = 0; at < size && out->bytes < CHARACTERS_SAMPLE;) {
    uint32_t point;
    size_t length = utf8_read(text + at, size - at, &point);
    if (!length) length = 1, point = text[at];
    out->distinct += !seen[point];
    seen[point] = 1;
    out->count++;
    out->bytes += (int64_t)length;
    at += length;
  }
}

bool characters_count(Characters *out, Corpus *corpus, Progress progress, Error *error) {
  uint8_t *seen = calloc(UTF8_POINTS, 1);
  Document document = {0};
  *out = (Characters){0};
  if (!seen) return error_memory(error, "the characters of the text");
  corpus_rewind(corpus, progress);
  bool ok;
  while ((ok = corpus_next(corpus, &document, error)) && document.text && out->bytes < CHARACTERS_SAMPLE)
    count(out, seen, document.text, document.size);
  free(seen);
  return ok;
}
