/* Characters of a byte string and the three Unicode classes that splitting uses.
 * A byte that is not part of well-formed UTF-8 (RFC 3629: no overlong forms, surrogates or points over U+10FFFF) is a
 * single character of class CHAR_OTHER. So every byte string is a sequence of characters, and a character never depends
 * on the bytes before it: UTF-8 is self-synchronizing, because no lead byte is a continuation byte.
 * utf8proc supplies the classes; version 2.8 has Unicode 15. Characters that were added later are CHAR_OTHER, which
 * affects where a text is split but changes no byte. */
#ifndef INKLING_TOKENIZER_CHAR_CLASS_H
#define INKLING_TOKENIZER_CHAR_CLASS_H

#include "util/error.h"
#include "util/utf8.h"

#include <stddef.h>
#include <stdint.h>

typedef enum CharClass {
  CHAR_OTHER,
  CHAR_LETTER,   /* \p{L} */
  CHAR_NUMBER,   /* \p{N} */
  CHAR_SPACE,    /* White_Space */
  CHAR_MULTIBYTE /* only in of_byte: the first byte of a longer character */
} CharClass;

/* 1.1 MB. */
typedef struct CharClasses {
  uint8_t of[UTF8_POINTS];
  uint8_t of_byte[256];
} CharClasses;

/* Creates the tables. The caller frees them with free(). EXIT_MEMORY. */
bool char_classes_create(CharClasses **out, Error *error);

/* Returns the class of the character at text[0] and its number of bytes in *length; size > 0. */
static inline CharClass char_class(const CharClasses *classes, const uint8_t *text, size_t size, size_t *length) {
  CharClass class = (CharClass)classes->of_byte[text[0]];
  *length = 1;
  if (class != CHAR_MULTIBYTE) return class;
  uint32_t point;
  size_t bytes = utf8_read(text, size, &point);
  if (bytes == 0) return CHAR_OTHER;
  *length = bytes;
  return (CharClass)classes->of[point];
}

#endif
