#include "util/error.h"

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

/* A message that was cut to fit must not end inside a UTF-8 character. */
static void drop_torn_character(char *text) {
  size_t size = strlen(text);
  size_t lead = size;
  while (lead > 0 && size - lead < 4 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) lead--;
  if (lead > 0 && ((unsigned char)text[lead - 1] & 0xC0) == 0xC0) text[lead - 1] = '\0';
}

bool fail(Error *error, ExitCode code, const char *format, ...) {
  if (!error || error->code != EXIT_DONE) return false;
  error->code = code;
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  if (length < 0) error->text[0] = '\0';
  if (length >= (int)sizeof error->text) drop_torn_character(error->text);
  make_printable(error->text);
  return false;
}
