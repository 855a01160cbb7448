/* Detection of prompt bytes that never appeared in training prompts; a model with an encoder has learned nothing about
 * them. */
#include "generate/program.h"

#include "files/checkpoint/directory.h"
#include "text/dataset/pairs.h"
#include "base/array.h"
#include "base/path.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 32 << 20 /* reading a larger token file takes too long */, BLOCK = 1024 };

/* ---- training prompts ---- */

/* Marks in found [vocab] the tokens of the prompts in a token file. Returns false when they are unknown. */
static bool find_tokens(const TokenFile *file, PairTokens pairs, int32_t vocab, bool *found) {
  Error none = {0};
  if (!file->info.loss_mask || file->info.tokens > MOST_TOKENS || file->info.vocab != pairs.source_first + vocab)
    return false;
  for (int64_t at = 0; at < file->info.tokens; at += BLOCK) {
    int32_t ids[BLOCK], targets[BLOCK];
    const int64_t size = file->info.tokens - at < BLOCK ? file->info.tokens - at : BLOCK;
    if (!token_file_check(file, &none) || !token_file_read(file, at, size, ids, &none) ||
        !token_file_read_targets(file, at, size, IGNORE_INDEX, targets, &none))
      return false;
    for (int64_t i = 0; i < size; i++)
      if (targets[i] == IGNORE_INDEX && ids[i] >= pairs.source_first) found[ids[i] - pairs.source_first] = true;
  }
  return true;
}

/* Reads the tokens of the run; without them nothing is known. */
static void look(SeenBytes *seen, const LoadedModel *m) {
  const Tokenizer *tokenizer = loaded_source_tokenizer(m);
  const int32_t vocab = tokenizer_vocab(tokenizer);
  TokenFile file = {0};
  Error none = {0};
  bool *found = calloc((size_t)vocab, sizeof *found);
  seen->looked = true;
  if (found && token_file_open(&file, path_in(m->dir, CHECKPOINT_TOKENS).text, &none)) {
    seen->known = find_tokens(&file, pair_tokens(m->tokenizer, m->source_tokenizer), vocab, found);
    token_file_close(&file);
  }
  for (int32_t id = 0; found && seen->known && id < vocab; id++) {
    size_t size = 0;
    const uint8_t *bytes = found[id] ? tokenizer_decode(tokenizer, id, &size) : NULL;
    for (size_t i = 0; i < size; i++) seen->bytes[bytes[i]] = true;
  }
  free(found);
}

/* ---- a prompt ---- */

/* Writes the text that the model reads; a tokenizer may have changed the given one. */
static bool decode(const LoadedModel *m, const BpeIds *source, ByteBuffer *out) {
  Error none = {0};
  for (size_t i = 0; i < source->count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(loaded_source_tokenizer(m), source->ids[i], &size);
    if (!byte_buffer_add(out, bytes, size, &none)) return false;
  }
  return true;
}

/* Adds a character to `out` unless it is there already; "..." when there are many. */
static void add_character(OneLine *out, const uint8_t *bytes, size_t size) {
  enum { MOST_BYTES = 48 };
  char shown[8];
  const size_t used = strlen(out->text);
  if (utf8_read_visible(bytes, size) == size) snprintf(shown, sizeof shown, "%.*s", (int)size, bytes);
  else snprintf(shown, sizeof shown, "\\x%02x", bytes[0]);
  const size_t length = strlen(shown);
  for (const char *at = out->text; (at = strstr(at, shown)); at++)
    if ((at == out->text || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return;
  if (used < MOST_BYTES) sprintf(out->text + used, "%s%s", used ? " " : "", shown);
  else if (strcmp(out->text + used - 3, "...") != 0) strcpy(out->text + used, " ...");
}

static OneLine unseen_characters(SeenBytes *seen, const LoadedModel *m, const BpeIds *source) {
  OneLine out = {""};
  ByteBuffer text = {0};
  if (!m->config.encoder_layers) return out;
  if (!seen->looked) look(seen, m);
  const bool read = seen->known && decode(m, source, &text);
  for (size_t i = 0, length; read && i < text.size; i += length) {
    bool all_seen = true;
    utf8_next(text.bytes + i, text.size - i, &length);
    for (size_t k = 0; k < length; k++) all_seen = all_seen && seen->bytes[text.bytes[i + k]];
    if (!all_seen) add_character(&out, text.bytes + i, length);
  }
  free(text.bytes);
  return out;
}

void unseen_note(Program *p, const BpeIds *source, int64_t line) {
  SeenBytes *seen = &p->seen;
  const OneLine unseen = unseen_characters(seen, &p->model, source);
  if (!unseen.text[0]) return;
  if (!line)
    console_note(&p->console, "no training prompt of %s has %s: the answer is a guess", p->model.dir, unseen.text);
  else if (seen->lines++ == 0) seen->first = line, seen->in_first = unseen;
}

void unseen_note_lines(Program *p, int64_t lines) {
  const SeenBytes *seen = &p->seen;
  if (seen->lines)
    console_note(&p->console,
                 "%" PRId64 " of %" PRId64
                 " lines have characters that no training prompt of %s has, first line %" PRId64
                 " (%s): their answers are guesses",
                 seen->lines, lines, p->model.dir, seen->first, seen->in_first.text);
}
