#include "util/error.h"

#include "util/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* File names and file contents end up in messages: what would move a terminal's cursor must not reach it. */
static void make_printable(char *text) {
  for (char *c = text; *c; c++) {
    unsigned char byte = (unsigned char)*c;
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) *c = '?';
  }
}

bool fail(Error *error, ExitCode code, const char *format, ...) {
  if (!error || error->code != EXIT_DONE) return false;
  error->code = code;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  if (length < 0) error->text[0] = '\0';
  if (length >= (int)sizeof error->text) /* cut to fit: not inside a character */
    error->text[utf8_complete((const uint8_t *)error->text, sizeof error->text - 1)] = '\0';
  make_printable(error->text);
  return false;
}
