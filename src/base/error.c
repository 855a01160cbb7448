#include "base/error.h"

#include "base/text.h"

#include <stdarg.h>
#include <string.h>

static void append(Error *error, const char *format, va_list arguments) {
  const size_t used = strlen(error->text);
  text_append_list(error->text, sizeof error->text, format, arguments);
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
