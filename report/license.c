#include "report/license.h"

#include "checkpoint/directory.h"
#include "formats/model_files.h"
#include "report/result.h"
#include "util/file.h"
#include "util/path.h"

#include <string.h>

enum { LONGEST = 40 /* bytes of a license */, LARGEST = 64 << 10 /* bytes of a card that are read */ };
#define QUOTES " \t\r\"'"

static bool is_license(const char *text) {
  return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-")] == '\0';
}

/* Returns the value of `license: VALUE` in the lines between the first two lines "---"; "" unless it is an identifier. */
static OneLine front_matter_license(const char *text, size_t size) {
  static const char key[] = "license:";
  char value[LONGEST + 1] = "";
  const char *end = text + size, *line = text;
  for (int number = 0; line < end; number++) {
    const char *next = memchr(line, '\n', (size_t)(end - line));
    size_t length = (size_t)((next ? next : end) - line);
    const bool fence = length >= 3 && memcmp(line, "---", 3) == 0;
    if (fence != (number == 0) || !next) break;
    if (length > strlen(key) && memcmp(line, key, strlen(key)) == 0) {
      const char *from = line + strlen(key), *to = line + length;
      while (from < to && strchr(QUOTES, *from)) from++;
      while (to > from && strchr(QUOTES, to[-1])) to--;
      if (to - from <= LONGEST) memcpy(value, from, (size_t)(to - from));
    }
    line = next + 1;
  }
  return is_license(value) ? text_one_line(value, LONGEST) : (OneLine){""};
}

OneLine model_license(const char *dir) {
  OneLine license = {""};
  MappedFile card;
  Error ignored = {0};
  if (file_map(&card, path_in(dir, MODEL_FILE_CARD).text, EXIT_INPUT, &ignored)) {
    license = front_matter_license((const char *)card.bytes, card.size < LARGEST ? card.size : LARGEST);
    file_unmap(&card);
  }
  if (license.text[0]) return license;
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &ignored);
  const char *noted = json_string_value(json_object_get(result, "license"));
  if (noted && is_license(noted)) license = text_one_line(noted, LONGEST);
  json_decref(result);
  return license;
}
