#include "report/license.h"

#include "files/formats/model_files.h"
#include "report/result.h"
#include "base/file.h"
#include "base/path.h"

#include <string.h>

enum { LONGEST = 40 /* bytes of a license */, LARGEST = 64 << 10 /* bytes of a card that are read */ };

bool is_license(const char *text) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-";
  const size_t length = strlen(text);
  return length > 0 && length <= LONGEST && strspn(text, allowed) == length && strcmp(text, "null") != 0;
}

/* Copies the value of `license: VALUE` without quotes and without a comment; "" unless it is an identifier. */
static OneLine license_of_line(const char *from, const char *to) {
  static const char around[] = " \t\r\"'";
  OneLine out = {""};
  const char *comment = memchr(from, '#', (size_t)(to - from));
  if (comment) to = comment;
  while (from < to && memchr(around, *from, sizeof around - 1)) from++;
  while (to > from && memchr(around, to[-1], sizeof around - 1)) to--;
  if (to - from <= LONGEST) memcpy(out.text, from, (size_t)(to - from));
  return is_license(out.text) ? out : (OneLine){""};
}

/* Looks in the lines between the first two lines "---". */
static OneLine license_of_card(const char *text, size_t size) {
  static const char key[] = "license:", byte_order_mark[] = "\xEF\xBB\xBF";
  OneLine license = {""};
  const char *end = text + size, *line = text;
  if (size >= 3 && memcmp(line, byte_order_mark, 3) == 0) line += 3;
  for (int number = 0; line < end; number++) {
    const char *next = memchr(line, '\n', (size_t)(end - line));
    const size_t length = (size_t)((next ? next : end) - line);
    const bool fence = length >= 3 && memcmp(line, "---", 3) == 0;
    if (fence != (number == 0)) return fence ? license : (OneLine){""};
    if (length > strlen(key) && memcmp(line, key, strlen(key)) == 0)
      license = license_of_line(line + strlen(key), line + length);
    if (!next) break;
    line = next + 1;
  }
  return (OneLine){""}; /* the front matter does not end */
}

OneLine model_license(const char *dir) {
  OneLine license = {""};
  MappedFile card;
  Error ignored = {0};
  if (file_map(&card, path_in(dir, MODEL_FILE_CARD).text, EXIT_INPUT, &ignored)) {
    license = license_of_card((const char *)card.bytes, card.size < LARGEST ? card.size : LARGEST);
    file_unmap(&card);
  }
  if (license.text[0]) return license;
  json_t *settings = result_settings(dir, &ignored);
  const char *set = json_string_value(json_object_get(settings, "license"));
  if (set && is_license(set)) license = text_one_line(set, LONGEST);
  json_decref(settings);
  return license;
}
