#include "tokenizer/char_class.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { SURROGATES = 0xD800, SURROGATES_END = 0xE000, GROUP_LETTERS = 1 };

size_t utf8_decode(const uint8_t *text, size_t size, uint32_t *point) {
  uint32_t lead = text[0];
  size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0 || length > size) return 0;
  uint32_t out = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xC0) != 0x80) return 0;
    out = out << 6 | (text[i] & 0x3Fu);
  }
  /* C0 and C1 are no leads, so only forms of three and four bytes can be overlong. */
  bool overlong = (length == 3 && out < 0x800) || (length == 4 && out < 0x10000);
  if (overlong || (out >= SURROGATES && out < SURROGATES_END) || out >= CODE_POINTS) return 0;
  *point = out;
  return length;
}

static size_t utf8_encode(uint32_t point, uint8_t *out) {
  if (point < 0x80) {
    out[0] = (uint8_t)point;
    return 1;
  }
  size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--, point >>= 6) out[i] = (uint8_t)(0x80 | (point & 0x3F));
  out[0] = (uint8_t)((0xF00u >> length & 0xF0) | point);
  return length;
}

/* All characters but the surrogates, in order: about 4.4 MB. */
static size_t write_all_characters(uint8_t *out) {
  size_t size = 0;
  for (uint32_t point = 0; point < CODE_POINTS; point++) {
    if (point < SURROGATES || point >= SURROGATES_END) size += utf8_encode(point, out + size);
  }
  return size;
}

/* White_Space by name and not by PCRE2's \s, which also takes U+180E. */
static void set_spaces(CharClasses *classes) {
  static const uint32_t ranges[][2] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                       {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                       {0x205F, 0x205F}, {0x3000, 0x3000}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    for (uint32_t point = ranges[i][0]; point <= ranges[i][1]; point++) classes->of[point] = CHAR_SPACE;
  }
}

static void set_range(CharClasses *classes, const uint8_t *text, size_t size, CharClass class) {
  for (size_t at = 0; at < size;) {
    uint32_t point = 0;
    at += utf8_decode(text + at, size - at, &point);
    classes->of[point] = (uint8_t) class;
  }
}

static bool pcre2_failed(int code, Error *error) {
  if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) {
    return fail(error, EXIT_MEMORY, "out of memory while asking PCRE2 for letters and numbers");
  }
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
  bool done = match ? set_letters_and_numbers(classes, code, match, text, size, error)
                    : pcre2_failed(PCRE2_ERROR_NOMEMORY, error);
  pcre2_match_data_free(match);
  pcre2_code_free(code);
  return done;
}

bool char_classes_create(CharClasses **out, Error *error) {
  *out = NULL;
  CharClasses *classes = calloc(1, sizeof *classes);
  uint8_t *text = malloc((size_t)CODE_POINTS * 4);
  if (!classes || !text) {
    free(classes);
    free(text);
    return fail(error, EXIT_MEMORY, "out of memory for the table of characters");
  }
  bool done = ask_pcre2(classes, text, write_all_characters(text), error);
  free(text);
  if (!done) {
    free(classes);
    return false;
  }
  set_spaces(classes);
  for (int byte = 0; byte < 256; byte++) {
    classes->of_byte[byte] = byte < 0x80 ? classes->of[byte] : (uint8_t)CHAR_MULTIBYTE;
  }
  *out = classes;
  return true;
}
