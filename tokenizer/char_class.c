#include "tokenizer/char_class.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

enum { GROUP_LETTERS = 1 };

/* No letter or number is from here on: planes 4 to 13 are empty, 14 has tags and selectors, the last two are
 * private. */
enum { ASKED_POINTS = 0x40000 };

/* All characters below but the surrogates, in order: about 1 MB. */
static size_t write_characters(uint8_t *out) {
  size_t size = 0;
  for (uint32_t point = 0; point < ASKED_POINTS; point++)
    if (point < UTF8_SURROGATES || point >= UTF8_SURROGATES_END) size += utf8_write(point, out + size);
  return size;
}

/* White_Space by name and not by PCRE2's \s, which also takes U+180E. */
static void set_spaces(CharClasses *classes) {
  static const uint32_t ranges[][2] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                       {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                       {0x205F, 0x205F}, {0x3000, 0x3000}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    for (uint32_t point = ranges[i][0]; point <= ranges[i][1]; point++) classes->of[point] = CHAR_SPACE;
}

static void set_range(CharClasses *classes, const uint8_t *text, size_t size, CharClass class) {
  for (size_t at = 0; at < size;) {
    uint32_t point = 0;
    at += utf8_read(text + at, size - at, &point);
    classes->of[point] = (uint8_t) class;
  }
}

static bool pcre2_failed(int code, Error *error) {
  if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY)
    return fail(error, EXIT_MEMORY, "out of memory while asking PCRE2 for letters and numbers");
  return fail(error, EXIT_INTERNAL, "PCRE2 cannot tell letters from numbers (error %d): built without Unicode?", code);
}

/* Runs of letters and of numbers as PCRE2 finds them. */
static bool set_letters_and_numbers(CharClasses *classes, const pcre2_code *code, pcre2_match_data *match,
                                    const uint8_t *text, size_t size, Error *error) {
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(match);
  for (size_t at = 0; at < size; at = offsets[1]) {
    int groups = pcre2_match(code, text, size, at, PCRE2_NO_UTF_CHECK, match, NULL);
    if (groups == PCRE2_ERROR_NOMATCH) break;
    if (groups < 0) return pcre2_failed(groups, error);
    CharClass class = groups == GROUP_LETTERS + 1 ? CHAR_LETTER : CHAR_NUMBER;
    set_range(classes, text + offsets[0], offsets[1] - offsets[0], class);
  }
  return true;
}

static bool ask_pcre2(CharClasses *classes, const uint8_t *text, size_t size, Error *error) {
  int code_error;
  PCRE2_SIZE offset;
  pcre2_code *code =
      pcre2_compile((PCRE2_SPTR) "(\\p{L}++)|(\\p{N}++)", PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code_error, &offset, NULL);
  if (!code) return pcre2_failed(code_error, error);
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where there is no JIT the interpreter is used */
  pcre2_match_data *match = pcre2_match_data_create_from_pattern(code, NULL);
  bool ok = match ? set_letters_and_numbers(classes, code, match, text, size, error)
                  : pcre2_failed(PCRE2_ERROR_NOMEMORY, error);
  pcre2_match_data_free(match);
  pcre2_code_free(code);
  return ok;
}

bool char_classes_create(CharClasses **out, Error *error) {
  CharClasses *classes = *out = calloc(1, sizeof *classes);
  uint8_t *text = malloc((size_t)ASKED_POINTS * 4);
  bool ok = classes && text;
  if (!ok) error_memory(error, "the table of characters");
  ok = ok && ask_pcre2(classes, text, write_characters(text), error);
  free(text);
  if (!ok) {
    free(classes);
    *out = NULL;
    return false;
  }
  set_spaces(classes);
  for (int byte = 0; byte < 256; byte++)
    classes->of_byte[byte] = byte < 0x80 ? classes->of[byte] : (uint8_t)CHAR_MULTIBYTE;
  return true;
}
