#include "util/html.h"

#include "util/utf8.h"

#include <stdint.h>
#include <string.h>

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
