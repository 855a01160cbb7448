#include "util/error.h"

#include "util/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cut where it does not fit, but not inside a UTF-8 character. File names and file contents end up in messages: what
 * would move a terminal's cursor must not reach it. */
static void append(Error *error, const char *format, va_list arguments) {
  const size_t used = strlen(error->text), room = sizeof error->text - used;
  const int length = vsnprintf(error->text + used, room, format, arguments);
  if (length < 0) error->text[used] = '\0';
  if (length >= (int)room) error->text[utf8_complete((const uint8_t *)error->text, sizeof error->text - 1)] = '\0';
  char *end = error->text + strlen(error->text);
  for (char *c = error->text + used; c < end;) {
    const size_t character = utf8_read_visible((const uint8_t *)c, (size_t)(end - c));
    if (!character && *c != '\n') *c = '?';
    c += character ? character : 1;
  }
}

bool fail(Error *error, ExitCode code, const char *format, ...) {
  if (!error || error->code != EXIT_DONE) return false;
  *error = (Error){.code = code};
  va_list arguments;
  va_start(arguments, format);
  append(error, format, arguments);
  va_end(arguments);
  return false;
}

bool error_append(Error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  append(error, format, arguments);
  va_end(arguments);
  return false;
}
