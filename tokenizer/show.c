#include "tokenizer/tokenizer.h"

#include "util/text.h"
#include "util/utf8.h"

#include <stdio.h>
#include <string.h>

ShownToken tokenizer_show(const Tokenizer *tokenizer, int32_t id) {
  enum { LONGEST = 4 }; /* bytes that one character becomes */
  ShownToken out;
  size_t size, used = 1;
  const uint8_t *bytes = tokenizer_decode(tokenizer, id, &size);
  const char *special = tokenizer_special(tokenizer, id);
  if (special) snprintf(out.text, sizeof out.text, "%.60s", text_one_line(special, 60).text);
  else if (!size) snprintf(out.text, sizeof out.text, "<token %d>", (int)id);
  if (!size) return out;
  out.text[0] = '\'';
  for (size_t i = 0, length; i < size && used + LONGEST + 5 < sizeof out.text; i += length ? length : 1) {
    char *to = out.text + used;
    const size_t left = sizeof out.text - used;
    length = utf8_read_visible(bytes + i, size - i);
    if (bytes[i] == '\n' || bytes[i] == '\t') used += (size_t)snprintf(to, left, bytes[i] == '\n' ? "\\n" : "\\t");
    else if (!length) used += (size_t)snprintf(to, left, "\\x%02X", bytes[i]);
    else used += (size_t)snprintf(to, left, "%s%.*s", strchr("'\\", bytes[i]) ? "\\" : "", (int)length, bytes + i);
    if (used + LONGEST + 5 >= sizeof out.text && i + length + 1 < size)
      used += (size_t)snprintf(out.text + used, sizeof out.text - used, "...");
  }
  snprintf(out.text + used, sizeof out.text - used, "'");
  return out;
}
