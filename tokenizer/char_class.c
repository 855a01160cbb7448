#include "tokenizer/char_class.h"

#include <stdlib.h>
#include <utf8proc.h>

/* There are no letters or numbers from here on: planes 4 to 13 are empty, plane 14 has tags and selectors, and the last
 * two are for private use. */
enum { CLASSIFIED_POINTS = 0x40000 };

static CharClass class_of(uint32_t point) {
  const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return CHAR_LETTER;
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO ? CHAR_NUMBER : CHAR_OTHER;
}

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
