#include "text/tokenizer/word_level.h"

#include <string.h>

#define SPLIT(regex, behavior, invert)                                                                                 \
  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"" behavior "\", \"invert\": " invert \
  "}"
/* Puts a space before each token but the first: no token begins with the prefix, a space. */
#define JOINED_BY_SPACES "{\"type\": \"WordPiece\", \"prefix\": \" \", \"cleanup\": false}"
#define REPLACE(kind, from, to)                                                                                        \
  "{\"type\": \"Replace\", \"pattern\": {\"" kind "\": \"" from "\"}, \"content\": \"" to "\"}"
#define SEQUENCE(steps) "{\"type\": \"Sequence\", \"decoders\": [" steps "]}"
#define FUSE "{\"type\": \"Fuse\"}"

const WordLevelKind word_level_kinds[WORD_LEVELS] = {
    [WORD_LEVEL_CHARS] = {"chars", "character", "", "", SPLIT("[\\\\s\\\\S]", "Isolated", "false"), FUSE},
    [WORD_LEVEL_WORDS] = {"words", "word", " ", "", SPLIT("\\\\n|\\\\S+", "Removed", "true"),
                          SEQUENCE(JOINED_BY_SPACES ", " FUSE ", " REPLACE("String", " \\n", "\\n") ", " REPLACE(
                              "String", "\\n ", "\\n"))},
    [WORD_LEVEL_LINES] = {"lines", "line", "", "\n", SPLIT("[^\\\\n]+|(?<![^\\\\n])\\\\n", "Removed", "true"),
                          SEQUENCE(REPLACE("Regex", "(?<!\\\\n)\\\\z", "\\n") ", " FUSE)},
    [WORD_LEVEL_IDS] = {"ids", "id", " ", "", "{\"type\": \"WhitespaceSplit\"}", JOINED_BY_SPACES},
};

WordLevel word_level_named(const char *name) {
  for (int level = WORD_LEVEL_NONE + 1; level < WORD_LEVELS; level++)
    if (strcmp(name, word_level_kinds[level].name) == 0) return (WordLevel)level;
  return WORD_LEVEL_NONE;
}

bool word_level_is_text(const uint8_t *piece, size_t size) {
  for (size_t at = 0, length; at < size; at += length)
    if (utf8_next(piece + at, size - at, &length) <= 0) return false;
  return true;
}

/* ---- pieces ---- */

static bool is_space(const CharClasses *classes, const uint8_t *text, size_t size, size_t *length) {
  return char_class(classes, text, size, length) == CHAR_SPACE;
}

/* Returns the size of the piece at the beginning of a text: a newline, if it is one, or what is before white space. */
static size_t word_size(const CharClasses *classes, const uint8_t *text, size_t size) {
  size_t at = 0, length;
  while (at < size && !is_space(classes, text + at, size - at, &length)) at += length;
  return at > 0 ? at : 1;
}

static size_t line_size(const uint8_t *text, size_t size) {
  const uint8_t *newline = memchr(text, '\n', size);
  return newline && newline > text ? (size_t)(newline - text) : newline ? 1 : size;
}

bool word_level_next(WordLevel level, const CharClasses *classes, const uint8_t *text, size_t size, size_t *begin,
                     size_t *end) {
  size_t at = *end, length = 0;
  if (level == WORD_LEVEL_LINES && at > 0 && at < size && text[at] == '\n' && text[at - 1] != '\n') at++;
  if (level == WORD_LEVEL_WORDS || level == WORD_LEVEL_IDS)
    while (at < size && !(level == WORD_LEVEL_WORDS && text[at] == '\n') &&
           is_space(classes, text + at, size - at, &length))
      at += length;
  *begin = *end = at;
  if (at == size) return false;
  if (level == WORD_LEVEL_CHARS) utf8_next(text + at, size - at, &length);
  else length = level == WORD_LEVEL_LINES ? line_size(text + at, size - at) : word_size(classes, text + at, size - at);
  *end = at + length;
  return true;
}

bool word_level_cuts(WordLevel level, const uint8_t *text, size_t at) {
  if (level == WORD_LEVEL_CHARS) return !utf8_continues(text[at]);
  return text[at - 1] == '\n' || (level != WORD_LEVEL_LINES && text[at - 1] == ' ');
}
