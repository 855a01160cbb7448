/* Detection of prompt bytes that never appeared in training prompts; a model with an encoder has learned nothing about
 * them. */
#include "generating/program.h"

#include "checkpoint/directory.h"
#include "dataset/pairs.h"
#include "util/path.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 32 << 20, BLOCK = 4096 }; /* of a larger file it takes too long to know */

/* ---- what training has seen ---- */

/* Which tokens stand in the prompts of the file; false where that cannot be known. */
static bool find_sources(const TokenFile *file, PairTokens pairs, int32_t vocab, bool *found) {
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

/* Without the tokens of the run nothing is known, and then nothing is said. */
static void look(Program *p) {
  const Tokenizer *tokenizer = program_source_tokenizer(p);
  const int32_t vocab = tokenizer_vocab(tokenizer);
  TokenFile file = {0};
  Error none = {0};
  bool *found = calloc((size_t)vocab, sizeof *found);
  p->seen.looked = true;
  if (found && token_file_open(&file, path_in(p->dir, CHECKPOINT_TOKENS).text, &none)) {
    p->seen.known = find_sources(&file, pair_tokens(p->tokenizer, p->source_tokenizer), vocab, found);
    token_file_close(&file);
  }
  for (int32_t id = 0; p->seen.known && id < vocab; id++) {
    size_t size = 0;
    const uint8_t *bytes = found[id] ? tokenizer_decode(tokenizer, id, &size) : NULL;
    for (size_t i = 0; i < size; i++) p->seen.bytes[bytes[i]] = true;
  }
  free(found);
}

/* ---- what a prompt has ---- */

/* As the model reads it: a tokenizer may change a text. */
static bool read_source(const Program *p, const BpeIds *source, FILE *out) {
  for (size_t i = 0; i < source->count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(program_source_tokenizer(p), source->ids[i], &size);
    if (size) fwrite(bytes, 1, size, out);
  }
  return fclose(out) == 0;
}

/* Adds a character to `out`, once, as long as there is room. */
static void add_character(UnseenText *out, const uint8_t *bytes, size_t size) {
  char shown[8];
  const size_t used = strlen(out->text);
  if (utf8_read_visible(bytes, size) == size) snprintf(shown, sizeof shown, "%.*s", (int)size, bytes);
  else snprintf(shown, sizeof shown, "\\x%02x", bytes[0]);
  const size_t length = strlen(shown);
  for (const char *at = out->text; (at = strstr(at, shown)); at++)
    if ((at == out->text || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return;
  if (used + 2 * sizeof shown < sizeof out->text) sprintf(out->text + used, "%s%s", used ? " " : "", shown);
  else if (strcmp(out->text + used - 3, "...") != 0) strcpy(out->text + used, " ...");
}

UnseenText program_unseen(Program *p, const BpeIds *source) {
  UnseenText out = {""};
  char *text = NULL;
  size_t size = 0;
  if (!p->config.encoder_layers) return out;
  if (!p->seen.looked) look(p);
  FILE *stream = p->seen.known ? open_memstream(&text, &size) : NULL;
  const bool read = stream && read_source(p, source, stream);
  for (size_t i = 0, length; read && i < size; i += length) {
    const uint8_t *bytes = (const uint8_t *)text + i;
    uint32_t point;
    bool seen = true;
    length = utf8_read(bytes, size - i, &point);
    length = length ? length : 1;
    for (size_t k = 0; k < length; k++) seen = seen && p->seen.bytes[bytes[k]];
    if (!seen) add_character(&out, bytes, length);
  }
  free(text);
  return out;
}

void program_note_unseen(Program *p) {
  const UnseenText unseen = program_unseen(p, &p->source);
  if (unseen.text[0])
    console_note(&p->console, "no training prompt of %s has %s: the answer is a guess", p->dir, unseen.text);
}

void program_count_unseen(Program *p, int64_t line, const BpeIds *source) {
  const UnseenText unseen = program_unseen(p, source);
  if (!unseen.text[0]) return;
  if (p->seen.lines++ == 0) p->seen.first = line, p->seen.in_first = unseen;
}

void program_note_unseen_lines(Program *p, int64_t lines) {
  if (p->seen.lines)
    console_note(&p->console,
                 "%" PRId64 " of %" PRId64
                 " lines have characters that no training prompt of %s has, first line %" PRId64
                 " (%s): their answers are guesses",
                 p->seen.lines, lines, p->dir, p->seen.first, p->seen.in_first.text);
}
