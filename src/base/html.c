#include "base/html.h"

#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
    "<style>\n"
    ":root { --ink: #1c2733; --soft: #5d6b7a; --line: #dfe4ea; --paper: #fff; --box: #f5f7f9; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #e4e9ee; --soft: #97a5b3; --line: #2c3641; --paper: #12171c; --box: #1a2128; } }\n"
    "body { margin: 0 auto; padding: 1rem; font: 15px/1.5 system-ui, sans-serif; "
    "color: var(--ink); background: var(--paper); }\n"
    "h1, h2 { overflow-wrap: anywhere; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }\n"
    "table { border-collapse: collapse; font-size: .9rem; } "
    "th, td { text-align: left; padding: .1rem .8rem .1rem 0; vertical-align: top; }\n";

void html_begin(FILE *stream, const char *style) {
  fputs(head, stream);
  fputs(style, stream);
  fputs("</style>\n", stream);
}

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
  fprintf(stream, "</%s>", tag);
}
