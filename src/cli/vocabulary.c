#include "cli/vocabulary.h"

static void note(Console *console, const char *dir, const Tokenizer *tokenizer, const char *of, const char *used) {
  const int rows = tokenizer_vocab(tokenizer), tokens = tokenizer_tokens(tokenizer), unused = rows - tokens;
  if (!unused) return;
  console_note(console,
               "%s: the model has %d rows in its vocabulary%s, the tokenizer %d tokens; the other %d %s never %s", dir,
               rows, of, tokens, unused, unused == 1 ? "is" : "are", used);
}

void vocabulary_note_unused(Console *console, const char *dir, const Tokenizer *tokenizer, const Tokenizer *source) {
  note(console, dir, tokenizer, "", "written");
  if (source) note(console, dir, source, " of sources", "read");
}
