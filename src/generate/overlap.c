#include "generate/overlap.h"

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

struct Overlap {
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
static bool open_run(Overlap *o, const char *dir, Error *error) {
  const PathText path = path_in(dir, CHECKPOINT_TOKENS);
  ModelFiles *files = NULL;
  Tokenizer *tokenizer = NULL;
  if (access(path.text, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s has no %s: name the text that it was trained on, a file or a directory",
                dir, CHECKPOINT_TOKENS);
  bool ok = model_files_open(&files, dir, error) && model_files_read_tokenizer(files, &tokenizer, error);
  if (ok && tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(o->p->model.tokenizer))
    ok = fail(error, EXIT_CHECKPOINT,
              "%s has another tokenizer than %s, so their tokens cannot be compared: name the text that it was trained "
              "on, a file or a directory",
              dir, o->p->model.dir);
  tokenizer_free(tokenizer);
  model_files_close(files);
  return ok && token_file_open(&o->tokens, path.text, error);
}

static bool is_run(const char *path) {
  return model_files_exist(path) || access(path_in(path, CHECKPOINT_TOKENS).text, F_OK) == 0;
}

bool overlap_open(Program *p, Error *error) {
  const char *name = p->settings.overlap;
  Overlap *o = p->overlap = calloc(1, sizeof *o);
  if (!o) return error_memory(error, "a comparison of texts");
  o->p = p;
  o->opened = is_run(name) ? open_run(o, name, error) : loaded_encode_file(p, name, &o->tokens, NULL, error);
  return o->opened;
}

static void free_text(GeneratedText *t) {
  free(t->offsets);
  free(t->bytes);
  free(t->spans);
}

void overlap_free(Overlap *o) {
  if (!o) return;
  for (size_t i = 0; i < o->count; i++) free_text(&o->texts[i]);
  free(o->texts);
  free(o->ids.ids);
  if (o->opened) token_file_close(&o->tokens);
  free(o);
}

/* ---- generated texts ---- */

int64_t overlap_most_tokens(int texts) {
  const int64_t each = LONGEST_MATCH_TOKENS / texts - 1; /* and the separator */
  return each > 0 ? each : 0;
}

bool overlap_add(Overlap *o, const Output *output, Error *error) {
  const size_t count = output->ids.count, size = output->text.size;
  const int32_t end = SEPARATOR;
  if (!array_reserve(&o->texts, &o->capacity, o->count + 1, sizeof *o->texts)) return error_memory(error, "a text");
  GeneratedText t = {.begin = o->ids.count,
                     .count = count,
                     .offsets = malloc((count + 1) * sizeof *t.offsets),
                     .bytes = malloc(size ? size : 1),
                     .spans = malloc((count + 1) * sizeof *t.spans)};
  const bool ok = (t.offsets && t.bytes && t.spans) || error_memory(error, "a text");
  if (!ok || !bpe_ids_sink(&o->ids, output->ids.ids, count, error) || !bpe_ids_sink(&o->ids, &end, 1, error)) {
    free_text(&t);
    return false;
  }
  if (size) memcpy(t.bytes, output->text.bytes, size);
  for (size_t i = 0; i <= count; i++) {
    const int64_t begin = i < count ? output->tokens[i].begin : (int64_t)size;
    t.offsets[i] = begin < (int64_t)size ? begin : (int64_t)size; /* a stop text may cut the last tokens off */
  }
  o->texts[o->count++] = t;
  return true;
}

/* ---- comparing ---- */

/* A signal ends the search without an error, because the generated texts are still printed. */
static bool report(void *overlap, int64_t tokens, Error *error) {
  enum { KEPT_TOKENS = 16 << 20 };
  Overlap *o = overlap;
  console_work(&o->p->console, &(ConsoleWork){"comparing", (double)tokens, (double)o->tokens.info.tokens, false});
  if (tokens - o->dropped >= KEPT_TOKENS) {
    token_file_drop_pages(&o->tokens);
    o->dropped = tokens;
  }
  return !stop_signal && token_file_check(&o->tokens, error);
}

bool overlap_compare(Overlap *o, Error *error) {
  const TokenRange all = {&o->tokens, 0, o->tokens.info.tokens};
  int32_t *lengths = malloc((o->ids.count + 1) * sizeof *lengths);
  if (!lengths) return error_memory(error, "a comparison of texts");
  o->compared = !stop_signal && !o->p->out.error &&
                longest_match_lengths(&all, o->ids.ids, o->ids.count, lengths, (Progress){report, o}, error);
  console_work_end(&o->p->console);
  for (size_t i = 0; o->compared && i < o->count; i++) {
    GeneratedText *t = &o->texts[i];
    t->span_count = longest_match_spans(lengths + t->begin, t->offsets, t->count, FEWEST_TOKENS, FEWEST_BYTES, t->spans,
                                        &t->longest);
  }
  free(lengths);
  return o->compared || !error->code;
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

bool overlap_print(const Overlap *o, size_t text) {
  if (text >= o->count) return true;
  const GeneratedText *t = &o->texts[text];
  const bool can_underline = console_can_mark();
  int64_t at = 0;
  for (size_t i = 0; i < t->span_count; i++) {
    at = print_bytes(t, at, t->offsets[t->spans[i].begin], false);
    at = print_bytes(t, at, t->offsets[t->spans[i].end], can_underline);
  }
  print_bytes(t, at, t->offsets[t->count], false);
  stdout_flush(&o->p->out);
  return !o->p->out.error;
}

/* ---- notes ---- */

static int64_t span_bytes(const GeneratedText *t, MatchSpan span) {
  return t->offsets[span.end] - t->offsets[span.begin];
}

/* Returns the number of bytes in all passages, which may overlap each other. */
static int64_t overlap_bytes(const GeneratedText *t) {
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

static void note_text(const Overlap *o, size_t text) {
  GeneratedText *t = &o->texts[text];
  const int64_t size = t->offsets[t->count];
  const char *other = path_shown(o->p->settings.overlap);
  char name[32] = "";
  if (o->count > 1) snprintf(name, sizeof name, "text %zu: ", text + 1);
  if (!t->span_count) {
    console_note(&o->p->console, "%s0 %% of %" PRId64 " bytes appear in %s: no passage of %d tokens and %d bytes", name,
                 size, other, FEWEST_TOKENS, FEWEST_BYTES);
    return;
  }
  const MatchSpan longest = t->spans[t->longest];
  console_note(&o->p->console,
               "%s%.3g %% of %" PRId64 " bytes appear in %s, in %s; the longest, %" PRId64 " bytes: '%s'", name,
               100.0 * (double)overlap_bytes(t) / (double)size, size, other,
               text_plural((double)t->span_count, "span").text, span_bytes(t, longest), quoted(t, longest).text);
  if (o->count == 1) list_spans(&o->p->console, t);
}

void overlap_note(Overlap *o) {
  for (size_t i = 0; o->compared && i < o->count; i++) note_text(o, i);
}
