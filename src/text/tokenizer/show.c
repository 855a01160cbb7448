#include "text/tokenizer/tokenizer.h"

#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static ShownToken show_bytes(const uint8_t *bytes, size_t size) {
  enum { LONGEST = 4 }; /* bytes that one character becomes */
  ShownToken out = {"'"};
  size_t used = 1;
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

ShownToken tokenizer_show(const Tokenizer *tokenizer, int32_t id) {
  ShownToken out;
  size_t size;
  const uint8_t *bytes = tokenizer_decode(tokenizer, id, &size);
  const char *special = tokenizer_special(tokenizer, id);
  if (size) return show_bytes(bytes, size);
  if (special) snprintf(out.text, sizeof out.text, "%.60s", text_one_line(special, 60).text);
  else snprintf(out.text, sizeof out.text, "<token %d>", (int)id);
  return out;
}

bool tokenizer_refuse_piece(const Bpe *bpe, const uint8_t *piece, size_t size, Error *error) {
  const char *kind = word_level_kinds[bpe->level].piece;
  const ShownToken shown = show_bytes(piece, size);
  const int tokens = (int)bpe->tokens.size - 1;
  if (!word_level_is_text(piece, size))
    return fail(error, EXIT_INPUT,
                "the %s %s is not UTF-8, or has a zero byte; convert the text (iconv), or give --tokenizer byte", kind,
                shown.text);
  if (bpe->level == WORD_LEVEL_IDS)
    return fail(error, EXIT_INPUT,
                "%s is not an id of the vocabulary: expected whole numbers from 0 to %d (the largest possible is %d)",
                shown.text, tokens ? tokens - 1 : 0, WORD_LEVEL_TOKENS - 2);
  return fail(error, EXIT_INPUT,
              "the %s %s is not in the vocabulary of %d %ss; one made with ./train --unk has <unk> for such %ss", kind,
              shown.text, tokens, kind, kind);
}
