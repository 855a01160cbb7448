#include "generate/novelty.h"

#include "files/checkpoint/directory.h"
#include "cli/startup.h"
#include "inference/longest_match.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/array.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A passage has at least this many tokens and bytes; shorter ones are usual in any two texts. */
enum { FEWEST_TOKENS = 12, FEWEST_BYTES = 40, MOST_LINES = 10, QUOTED = 80, SEPARATOR = -1 };

typedef struct GeneratedText {
  size_t begin, count; /* its tokens among all ids */
  int64_t *offsets;    /* [count + 1] bytes before each token; the last tokens may lie after the end of the text */
  uint8_t *bytes;      /* [offsets[count]] */
  MatchSpan *spans;    /* [span_count] passages found, in tokens */
  size_t span_count, longest;
} GeneratedText;

struct Novelty {
  Program *p;
  TokenFile tokens; /* of the other text: a run, a file, a directory or "-" */
  bool opened, compared;
  int64_t dropped; /* tokens whose pages are no longer held in memory */
  BpeIds ids;      /* of all generated texts, SEPARATOR after each */
  GeneratedText *texts;
  size_t count, capacity;
};

/* ---- the other text ---- */

/* Opens the tokens of a run, whose tokenizer must be the model's. */
static bool open_run(Novelty *n, const char *dir, Error *error) {
  const PathText path = path_in(dir, CHECKPOINT_TOKENS);
  ModelFiles *files = NULL;
  Tokenizer *tokenizer = NULL;
  if (access(path.text, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s has no %s: name the text that it was trained on, a file or a directory",
                dir, CHECKPOINT_TOKENS);
  bool ok = model_files_open(&files, dir, error) && model_files_read_tokenizer(files, &tokenizer, error);
  if (ok && tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(n->p->model.tokenizer))
    ok = fail(error, EXIT_CHECKPOINT,
              "%s has another tokenizer than %s, so their tokens cannot be compared: name the text that it was trained "
              "on, a file or a directory",
              dir, n->p->model.dir);
  tokenizer_free(tokenizer);
  model_files_close(files);
  return ok && token_file_open(&n->tokens, path.text, error);
}

static bool is_run(const char *path) {
  return model_files_exist(path) || access(path_in(path, CHECKPOINT_TOKENS).text, F_OK) == 0;
}

bool novelty_open(Program *p, Error *error) {
  const char *name = p->settings.novelty;
  Novelty *n = p->novelty = calloc(1, sizeof *n);
  if (!n) return error_memory(error, "a comparison of texts");
  n->p = p;
  n->opened = is_run(name) ? open_run(n, name, error) : program_encode_file(p, name, &n->tokens, NULL, error);
  return n->opened;
}

static void free_text(GeneratedText *t) {
  free(t->offsets);
  free(t->bytes);
  free(t->spans);
}

void novelty_free(Novelty *n) {
  if (!n) return;
  for (size_t i = 0; i < n->count; i++) free_text(&n->texts[i]);
  free(n->texts);
  free(n->ids.ids);
  if (n->opened) token_file_close(&n->tokens);
  free(n);
}

/* ---- generated texts ---- */

int64_t novelty_most_tokens(int texts) {
  const int64_t each = LONGEST_MATCH_TOKENS / texts - 1; /* and the separator */
  return each > 0 ? each : 0;
}

bool novelty_add(Novelty *n, const Text *text, Error *error) {
  const size_t count = text->ids.count, size = text->bytes.size;
  const int32_t end = SEPARATOR;
  if (!array_reserve(&n->texts, &n->capacity, n->count + 1, sizeof *n->texts)) return error_memory(error, "a text");
  GeneratedText t = {.begin = n->ids.count,
                     .count = count,
                     .offsets = malloc((count + 1) * sizeof *t.offsets),
                     .bytes = malloc(size ? size : 1),
                     .spans = malloc((count + 1) * sizeof *t.spans)};
  const bool ok = (t.offsets && t.bytes && t.spans) || error_memory(error, "a text");
  if (!ok || !bpe_ids_sink(&n->ids, text->ids.ids, count, error) || !bpe_ids_sink(&n->ids, &end, 1, error)) {
    free_text(&t);
    return false;
  }
  if (size) memcpy(t.bytes, text->bytes.bytes, size);
  for (size_t i = 0; i <= count; i++) {
    const size_t begin = i < count ? text->tokens[i].begin : size;
    t.offsets[i] = (int64_t)(begin < size ? begin : size); /* a stop text may cut the last tokens off */
  }
  n->texts[n->count++] = t;
  return true;
}

/* ---- comparing ---- */

/* A signal ends the search without an error, because the generated texts are still printed. */
static bool report(void *novelty, int64_t tokens, Error *error) {
  enum { KEPT_TOKENS = 16 << 20 };
  Novelty *n = novelty;
  console_work(&n->p->console, &(ConsoleWork){"comparing", (double)tokens, (double)n->tokens.info.tokens, false});
  if (tokens - n->dropped >= KEPT_TOKENS) {
    token_file_drop_pages(&n->tokens);
    n->dropped = tokens;
  }
  return !stop_signal && token_file_check(&n->tokens, error);
}

bool novelty_compare(Novelty *n, Error *error) {
  const TokenRange all = {&n->tokens, 0, n->tokens.info.tokens};
  int32_t *lengths = malloc((n->ids.count + 1) * sizeof *lengths);
  if (!lengths) return error_memory(error, "a comparison of texts");
  n->compared = !stop_signal && !n->p->write_error &&
                longest_match_lengths(&all, n->ids.ids, n->ids.count, lengths, (Progress){report, n}, error);
  console_work_end(&n->p->console);
  for (size_t i = 0; n->compared && i < n->count; i++) {
    GeneratedText *t = &n->texts[i];
    t->span_count = longest_match_spans(lengths + t->begin, t->offsets, t->count, FEWEST_TOKENS, FEWEST_BYTES, t->spans,
                                        &t->longest);
  }
  free(lengths);
  return n->compared || !error->code;
}

/* ---- printing ---- */

/* Prints bytes [from, to) of a text and the rest of a character that `to` divides. Returns the end of what it printed;
 * it is `from` when nothing is left. */
static int64_t print_bytes(const GeneratedText *t, int64_t from, int64_t to, bool underlined) {
  if (to <= from) return from;
  while (to < t->offsets[t->count] && utf8_continues(t->bytes[to])) to++;
  if (underlined) fputs("\033[4m", stdout);
  fwrite(t->bytes + from, 1, (size_t)(to - from), stdout);
  if (underlined) fputs("\033[24m", stdout);
  return to;
}

bool novelty_print(const Novelty *n, size_t text) {
  if (text >= n->count) return true;
  const GeneratedText *t = &n->texts[text];
  const bool can_underline = console_can_mark();
  int64_t at = 0;
  for (size_t i = 0; i < t->span_count; i++) {
    at = print_bytes(t, at, t->offsets[t->spans[i].begin], false);
    at = print_bytes(t, at, t->offsets[t->spans[i].end], can_underline);
  }
  print_bytes(t, at, t->offsets[t->count], false);
  program_flush(n->p);
  return !n->p->write_error;
}

/* ---- notes ---- */

static int64_t span_bytes(const GeneratedText *t, MatchSpan span) {
  return t->offsets[span.end] - t->offsets[span.begin];
}

/* Returns the number of bytes in all passages, which may share some. */
static int64_t copied_bytes(const GeneratedText *t) {
  int64_t sum = 0, end = 0;
  for (size_t i = 0; i < t->span_count; i++) {
    const int64_t from = t->offsets[t->spans[i].begin], to = t->offsets[t->spans[i].end];
    sum += to - (from > end ? from : end);
    end = to;
  }
  return sum;
}

static OneLine quoted(const GeneratedText *t, MatchSpan span) {
  char text[ONE_LINE_BYTES * 2];
  const uint8_t *bytes = t->bytes + t->offsets[span.begin];
  const size_t half = sizeof text / 2 - 1, size = (size_t)span_bytes(t, span);
  if (size < sizeof text) memcpy(text, bytes, size);
  else memcpy(text, bytes, half), memcpy(text + half, bytes + size - half, half);
  const size_t used = size < sizeof text ? size : 2 * half;
  for (size_t i = 0; i < used; i++) text[i] = text[i] == '\n' ? ' ' : text[i] ? text[i] : '?';
  text[used] = '\0';
  return text_one_line(text, QUOTED);
}

/* Lists the longest passages, longest first; changes the order of the spans. */
static void list_spans(Console *console, GeneratedText *t) {
  const size_t lines = t->span_count < MOST_LINES ? t->span_count : MOST_LINES;
  for (size_t line = 0; line < lines; line++) {
    size_t longest = line;
    for (size_t i = line; i < t->span_count; i++)
      if (span_bytes(t, t->spans[i]) > span_bytes(t, t->spans[longest])) longest = i;
    const MatchSpan span = t->spans[longest];
    memmove(t->spans + line + 1, t->spans + line, (longest - line) * sizeof *t->spans);
    t->spans[line] = span;
    console_line(console, "  %6" PRId64 " bytes at %6" PRId64 ": '%s'", span_bytes(t, span), t->offsets[span.begin],
                 quoted(t, span).text);
  }
  if (lines < t->span_count) console_line(console, "  and %zu more", t->span_count - lines);
}

static void note_text(const Novelty *n, size_t text) {
  GeneratedText *t = &n->texts[text];
  const int64_t size = t->offsets[t->count];
  const char *other = path_shown(n->p->settings.novelty);
  char name[32] = "";
  if (n->count > 1) snprintf(name, sizeof name, "text %zu: ", text + 1);
  if (!t->span_count) {
    console_note(&n->p->console, "%s0 %% of %" PRId64 " bytes appear in %s: no passage of %d tokens and %d bytes", name,
                 size, other, FEWEST_TOKENS, FEWEST_BYTES);
    return;
  }
  const MatchSpan longest = t->spans[t->longest];
  console_note(&n->p->console,
               "%s%.3g %% of %" PRId64 " bytes appear in %s, in %s; the longest, %" PRId64 " bytes: '%s'", name,
               100.0 * (double)copied_bytes(t) / (double)size, size, other,
               text_plural((double)t->span_count, "span").text, span_bytes(t, longest), quoted(t, longest).text);
  if (n->count == 1) list_spans(&n->p->console, t);
}

void novelty_note(Novelty *n) {
  for (size_t i = 0; n->compared && i < n->count; i++) note_text(n, i);
}
