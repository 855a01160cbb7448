/* Splitting of a text into pieces (pre-tokens); a byte-level BPE never merges across their ends.
 * The pattern of GPT-2 (encoder.py of openai/gpt-2, and the ByteLevel pre-tokenizer of Hugging Face):
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * with \s = White_Space. The pieces of a text, put together, are the text. Every text has pieces: a byte that is not
 * UTF-8 counts as a character that is neither letter, number nor space. Hand-written code matches the pattern in
 * constant time per byte: no backtracking, no stack, no limit on the length of a piece. */
#ifndef INKLING_TEXT_TOKENIZER_PRETOKENIZE_H
#define INKLING_TEXT_TOKENIZER_PRETOKENIZE_H

#include "base/error.h"
#include "base/utf8.h"

#include <stddef.h>
#include <stdint.h>

/* The three Unicode classes that splitting uses.
 * A byte that is not part of well-formed UTF-8 (RFC 3629: no overlong forms, surrogates or points over U+10FFFF) is a
 * single character of class CHAR_OTHER. So every byte string is a sequence of characters, and a character never depends
 * on the bytes before it: UTF-8 is self-synchronizing, because no lead byte is a continuation byte.
 * utf8proc supplies the classes; version 2.8 has Unicode 15. Characters that were added later are CHAR_OTHER, which
 * affects where a text is split but changes no byte. */
typedef enum CharClass {
  CHAR_OTHER,
  CHAR_LETTER,   /* \p{L} */
  CHAR_NUMBER,   /* \p{N} */
  CHAR_SPACE,    /* White_Space */
  CHAR_MULTIBYTE /* only in of_byte: the first byte of a longer character */
} CharClass;

/* Planes above the first are rare, and classifying them would take most of the time. */
enum { CLASSIFIED_POINTS = 0x10000 };

typedef struct CharClasses {
  uint8_t of[CLASSIFIED_POINTS];
  uint8_t of_byte[256];
} CharClasses;

/* Creates the tables. The caller frees them with free(). EXIT_MEMORY. */
bool char_classes_create(CharClasses **out, Error *error);

/* Returns the class of a code point, from CLASSIFIED_POINTS on. */
CharClass char_class_above(uint32_t point);

static inline CharClass char_class_of_point(const CharClasses *classes, uint32_t point) {
  return point < CLASSIFIED_POINTS ? (CharClass)classes->of[point] : char_class_above(point);
}

/* Returns the class of the character at text[0] and its number of bytes in *length; size > 0. */
static inline CharClass char_class(const CharClasses *classes, const uint8_t *text, size_t size, size_t *length) {
  CharClass class = (CharClass)classes->of_byte[text[0]];
  *length = 1;
  if (class != CHAR_MULTIBYTE) return class;
  uint32_t point;
  size_t bytes = utf8_read(text, size, &point);
  if (bytes == 0) return CHAR_OTHER;
  *length = bytes;
  return char_class_of_point(classes, point);
}

/* Returns the class of a code point of utf8_next() or utf8_previous(). */
static inline CharClass char_class_of(const CharClasses *classes, int32_t point) {
  return point == UTF8_INVALID ? CHAR_OTHER : char_class_of_point(classes, (uint32_t)point);
}

/* Returns the length in bytes of the first piece of a text of `size` > 0 bytes. */
size_t pretokenize_first(const CharClasses *classes, const uint8_t *text, size_t size);

/* Returns whether a text may be cut before text[at], at > 0, so that the pieces of the two parts are the pieces of the
 * whole.
 * The position is between characters a and b of different classes, where a is neither a space nor an apostrophe.
 * 1. No piece of the whole has both. A contraction starts with an apostrophe and has nothing but letters after it, so
 *    two adjacent characters of it are of one class, or the first is the apostrophe. A run has an optional space before
 *    characters of one class; a is not a space, and the classes differ. A piece of spaces has no a. So the whole has a
 *    boundary there, and what follows is matched alike in the whole and in the part, since the pattern never looks
 *    back.
 * 2. The pieces before it come out alike when the text ends after a. A run that reaches a ends there because of b or
 *    because of the end. A contraction is taken if its letters are there, and by 1. none continues after a. The
 *    look-ahead of \s+(?!\S) is at a character after a space, and a is not a space, so that character is never b or
 *    the end.
 * 3. The characters are the same: b is required to be ASCII, so whatever bytes stand before it are complete or broken
 *    with and without it. */
bool pretokenize_cuts(const CharClasses *classes, const uint8_t *text, size_t at);

#endif
