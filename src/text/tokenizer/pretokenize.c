#include "text/tokenizer/pretokenize.h"

#include <stdlib.h>
#include <utf8proc.h>

/* ---- classes ---- */

static CharClass class_of(uint32_t point) {
  const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return CHAR_LETTER;
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO ? CHAR_NUMBER : CHAR_OTHER;
}

CharClass char_class_above(uint32_t point) { return class_of(point); } /* all spaces are below */

static void set_spaces(CharClasses *classes) {
  static const uint32_t ranges[][2] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                       {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                       {0x205F, 0x205F}, {0x3000, 0x3000}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    for (uint32_t point = ranges[i][0]; point <= ranges[i][1]; point++) classes->of[point] = CHAR_SPACE;
}

bool char_classes_create(CharClasses **out, Error *error) {
  CharClasses *classes = *out = calloc(1, sizeof *classes);
  if (!classes) return error_memory(error, "the table of characters");
  for (uint32_t point = 0; point < CLASSIFIED_POINTS; point++) classes->of[point] = (uint8_t)class_of(point);
  set_spaces(classes);
  for (int byte = 0; byte < 256; byte++)
    classes->of_byte[byte] = byte < 0x80 ? classes->of[byte] : (uint8_t)CHAR_MULTIBYTE;
  return true;
}

/* ---- pieces ---- */

/* Returns the number of bytes of the run of `class` at the start of the text; may be 0. */
static size_t run_of(const CharClasses *classes, CharClass class, const uint8_t *text, size_t size) {
  size_t at = 0, length;
  while (at < size && char_class(classes, text + at, size - at, &length) == class) at += length;
  return at;
}

/* Returns the number of bytes of 's, 't, 'm, 'd, 're, 've or 'll, or 0; text[0] is the apostrophe. */
static size_t contraction(const uint8_t *text, size_t size) {
  if (size < 2) return 0;
  uint8_t first = text[1], second = size > 2 ? text[2] : 0;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

/* Matches \s+(?!\S)|\s+ : a run of several spaces before another character leaves its last space to the next piece. */
static size_t spaces(const CharClasses *classes, const uint8_t *text, size_t size) {
  size_t at = 0, last = 0;
  while (at < size) {
    size_t length;
    if (char_class(classes, text + at, size - at, &length) != CHAR_SPACE) return last > 0 ? last : at;
    last = at;
    at += length;
  }
  return at;
}

size_t pretokenize_first(const CharClasses *classes, const uint8_t *text, size_t size) {
  if (text[0] == '\'') {
    size_t length = contraction(text, size);
    if (length > 0) return length;
  }
  size_t length, prefix = text[0] == ' ' && size > 1;
  CharClass class = char_class(classes, text + prefix, size - prefix, &length);
  if (class == CHAR_SPACE) return spaces(classes, text, size);
  size_t begin = prefix + length;
  return begin + run_of(classes, class, text + begin, size - begin);
}

bool pretokenize_cuts(const CharClasses *classes, const uint8_t *text, size_t at) {
  if (text[at] >= 0x80 || text[at - 1] == '\'') return false;
  const CharClass before = char_class_of(classes, utf8_previous(text, at));
  return before != CHAR_SPACE && before != char_class_of(classes, text[at]);
}
