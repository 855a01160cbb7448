#include "base/html.h"

#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
    "<style>\n";

void html_begin(FILE *stream, const char *kind, const char *title, const char *heading) {
  fputs(head, stream);
  fputs(html_style, stream);
  fputs("</style>\n", stream);
  html_write_element(stream, "title", title);
  fprintf(stream, "\n</head>\n<body class=\"%s\">\n", kind);
  html_write_element(stream, "h1", heading);
  fputc('\n', stream);
}

void html_end(FILE *stream) { fputs("</body>\n</html>\n", stream); }

void html_write(FILE *stream, const char *text, size_t size) {
  for (size_t i = 0; i < size;) {
    const unsigned char byte = (unsigned char)text[i];
    uint32_t point;
    const size_t length = utf8_read((const uint8_t *)text + i, size - i, &point);
    if (byte == '&') fputs("&amp;", stream);
    else if (byte == '<') fputs("&lt;", stream);
    else if (byte == '>') fputs("&gt;", stream);
    else if (byte == '"') fputs("&quot;", stream);
    else if (byte == '\'') fputs("&#39;", stream);
    else if (!length || (byte < 32 && byte != '\n' && byte != '\t') || byte == 127) fputs("\xEF\xBF\xBD", stream);
    else fwrite(text + i, 1, length, stream);
    i += length ? length : 1;
  }
}

void html_write_text(FILE *stream, const char *text) { html_write(stream, text, strlen(text)); }

void html_write_element(FILE *stream, const char *tag, const char *text) {
  fprintf(stream, "<%s>", tag);
  html_write_text(stream, text);
  fprintf(stream, "</%.*s>", (int)strcspn(tag, " "), tag);
}
