#include "util/error.h"

#include "util/text.h"
#include "util/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text that does not fit is cut, but not inside a UTF-8 character. */
static void append(Error *error, const char *format, va_list arguments) {
  const size_t used = strlen(error->text), left = sizeof error->text - used;
  const int length = vsnprintf(error->text + used, left, format, arguments);
  if (length < 0) error->text[used] = '\0';
  if (length >= (int)left) error->text[utf8_complete((const uint8_t *)error->text, sizeof error->text - 1)] = '\0';
  text_make_visible(error->text + used);
  for (char *c = error->text + used; *c; c++) *c = *c == '\n' ? ' ' : *c; /* an error is one line */
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
