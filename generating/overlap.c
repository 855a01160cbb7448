/* Verbatim copies (--novelty): finds passages of the generated texts that appear in another text, such as the training
 * text. All texts of a call are searched at once. */
#include "generating/program.h"

#include "checkpoint/directory.h"
#include "cli/startup.h"
#include "dataset/longest_match.h"
#include "formats/model_files.h"
#include "util/array.h"
#include "util/path.h"
#include "util/text.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A passage has at least so many tokens and bytes: fewer are usual in any two texts. */
enum { FEWEST_TOKENS = 12, FEWEST_BYTES = 40, MOST_LINES = 10, QUOTED = 80, SEPARATOR = -1 };

/* A text that was written. */
typedef struct Written {
  size_t begin, count; /* of all ids */
  int64_t *offsets;    /* [count + 1] bytes before each token; the last tokens may stand behind the end of the text */
  uint8_t *bytes;      /* [offsets[count]] */
  MatchSpan *spans;    /* [span_count] of its tokens */
  size_t span_count, longest;
} Written;

struct Overlap {
  TokenFile tokens; /* of the other text */
  bool opened, compared;
  int64_t dropped; /* tokens whose pages are no longer held in memory */
  BpeIds ids;      /* of all texts, SEPARATOR after each */
  Written *written;
  size_t count, room;
};

/* ---- the other text ---- */

/* The tokens of a run are of its tokenizer, which has to be the model's. */
static bool open_run(Program *p, const char *dir, TokenFile *out, Error *error) {
  const PathText path = path_in(dir, CHECKPOINT_TOKENS);
  ModelFiles *files = NULL;
  Tokenizer *tokenizer = NULL;
  if (access(path.text, F_OK) != 0)
    return fail(error, EXIT_CHECKPOINT, "%s has no %s: name the text that it was trained on, a file or a directory",
                dir, CHECKPOINT_TOKENS);
  bool ok = model_files_open(&files, dir, error) && model_files_read_tokenizer(files, &tokenizer, error);
  if (ok && tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(p->tokenizer))
    ok = fail(error, EXIT_CHECKPOINT,
              "%s has another tokenizer than %s, so their tokens cannot be compared: name the text that it was "
              "trained on, a file or a directory",
              dir, p->dir);
  tokenizer_free(tokenizer);
  model_files_close(files);
  return ok && token_file_open(out, path.text, error);
}

static bool is_run(const char *path) {
  return model_files_exist(path) || access(path_in(path, CHECKPOINT_TOKENS).text, F_OK) == 0;
}

bool overlap_open(Program *p, Error *error) {
  const char *source = p->settings.overlap;
  Overlap *n = p->overlap = calloc(1, sizeof *n);
  if (!n) return error_memory(error, "a comparison of texts");
  n->opened =
      is_run(source) ? open_run(p, source, &n->tokens, error) : program_open_tokens(p, source, &n->tokens, error);
  return n->opened;
}

static void written_free(Written *w) {
  free(w->offsets);
  free(w->bytes);
  free(w->spans);
}

void overlap_free(Overlap *n) {
  if (!n) return;
  for (size_t i = 0; i < n->count; i++) written_free(&n->written[i]);
  free(n->written);
  free(n->ids.ids);
  if (n->opened) token_file_close(&n->tokens);
  free(n);
}

/* ---- the texts ---- */

int64_t overlap_most_tokens(int texts) {
  const int64_t each = LONGEST_MATCH_TOKENS / texts - 1; /* and the separator */
  return each > 0 ? each : 0;
}

/* The bytes of tokens, of which there are `size`: a stop text cuts them. */
static bool decode(const Program *p, const int32_t *ids, Written *w, int64_t size, Error *error) {
  w->offsets = malloc((w->count + 1) * sizeof *w->offsets);
  w->bytes = malloc(size ? (size_t)size : 1);
  w->spans = malloc((w->count + 1) * sizeof *w->spans);
  if (!w->offsets || !w->bytes || !w->spans) return error_memory(error, "a text");
  bool at_start = !tokenizer_has_text(p->tokenizer, p->prompt.ids, p->prompt.count);
  int64_t at = 0;
  for (size_t i = 0; i < w->count; i++) {
    size_t length;
    const uint8_t *bytes = tokenizer_decode_next(p->tokenizer, ids[i], &at_start, &length);
    if ((int64_t)length > size - at) length = (size_t)(size - at);
    w->offsets[i] = at;
    if (length) memcpy(w->bytes + at, bytes, length);
    at += (int64_t)length;
  }
  w->offsets[w->count] = at;
  return true;
}

bool overlap_add(Program *p, const int32_t *ids, size_t count, int64_t bytes, Error *error) {
  Overlap *n = p->overlap;
  const int32_t end = SEPARATOR;
  if (!array_reserve(&n->written, &n->room, n->count + 1, sizeof *n->written)) return error_memory(error, "a text");
  Written w = {.begin = n->ids.count, .count = count};
  if (!decode(p, ids, &w, bytes, error) || !bpe_ids_sink(&n->ids, ids, count, error) ||
      !bpe_ids_sink(&n->ids, &end, 1, error)) {
    written_free(&w);
    return false;
  }
  n->written[n->count++] = w;
  return true;
}

/* ---- comparing ---- */

/* What was written is printed first, whether it was compared or not: a signal is no error yet. */
static bool keep_comparing(void *context, int64_t tokens, Error *error) {
  enum { KEPT_TOKENS = 16 << 20 };
  Program *p = context;
  const TokenFile *file = &p->overlap->tokens;
  console_work(&p->console, &(ConsoleWork){"comparing", (double)tokens, (double)file->info.tokens, false});
  if (tokens - p->overlap->dropped >= KEPT_TOKENS) {
    token_file_drop_pages(file);
    p->overlap->dropped = tokens;
  }
  return !stop_signal && token_file_check(file, error);
}

bool overlap_compare(Program *p, Error *error) {
  Overlap *n = p->overlap;
  const TokenRange all = {&n->tokens, 0, n->tokens.info.tokens};
  int32_t *lengths = malloc((n->ids.count + 1) * sizeof *lengths);
  if (!lengths) return error_memory(error, "a comparison of texts");
  n->compared = !stop_signal && !p->write_error &&
                longest_match_lengths(&all, n->ids.ids, n->ids.count, lengths, (Progress){keep_comparing, p}, error);
  console_work_end(&p->console);
  for (size_t i = 0; n->compared && i < n->count; i++) {
    Written *w = &n->written[i];
    w->span_count = longest_match_spans(lengths + w->begin, w->offsets, w->count, FEWEST_TOKENS, FEWEST_BYTES, w->spans,
                                        &w->longest);
  }
  free(lengths);
  return n->compared || !error->code;
}

/* ---- printing ---- */

/* To the next byte where the text begins or ends to be marked, from `at` on. Characters stay whole. */
static int64_t next_border(const Written *w, size_t *span, int64_t at, bool *marked) {
  const int64_t size = w->offsets[w->count];
  while (*span < w->span_count && w->offsets[w->spans[*span].end] <= at) ++*span;
  int64_t border = size;
  *marked = false;
  if (*span < w->span_count) {
    const int64_t begin = w->offsets[w->spans[*span].begin];
    *marked = begin <= at;
    border = *marked ? w->offsets[w->spans[*span].end] : begin;
  }
  while (border < size && utf8_continues(w->bytes[border])) border++;
  return border;
}

bool overlap_print(Program *p, size_t text) {
  if (text >= p->overlap->count) return true;
  const Written *w = &p->overlap->written[text];
  const int64_t size = w->offsets[w->count];
  const bool can_mark = console_can_mark();
  size_t span = 0;
  for (int64_t at = 0, border; at < size; at = border) {
    bool marked;
    border = next_border(w, &span, at, &marked);
    if (marked && can_mark) fputs("\033[4m", stdout);
    fwrite(w->bytes + at, 1, (size_t)(border - at), stdout);
    if (marked && can_mark) fputs("\033[24m", stdout);
  }
  program_flush(p);
  return !p->write_error;
}

/* ---- telling ---- */

static int64_t span_bytes(const Written *w, MatchSpan span) { return w->offsets[span.end] - w->offsets[span.begin]; }

static int64_t copied_bytes(const Written *w) {
  int64_t sum = 0, end = 0;
  for (size_t i = 0; i < w->span_count; i++) {
    const int64_t from = w->offsets[w->spans[i].begin], to = w->offsets[w->spans[i].end];
    sum += to - (from > end ? from : end);
    end = to;
  }
  return sum;
}

static OneLine quoted(const Written *w, MatchSpan span) {
  char text[ONE_LINE_BYTES * 2];
  const int64_t begin = w->offsets[span.begin], bytes = span_bytes(w, span);
  const size_t half = sizeof text / 2 - 1, size = (size_t)bytes;
  if (size < sizeof text) memcpy(text, w->bytes + begin, size);
  else memcpy(text, w->bytes + begin, half), memcpy(text + half, w->bytes + begin + size - half, half);
  const size_t used = size < sizeof text ? size : 2 * half;
  for (size_t i = 0; i < used; i++) text[i] = text[i] == '\n' ? ' ' : text[i] ? text[i] : '?';
  text[used] = '\0';
  return text_one_line(text, QUOTED);
}

/* The longest first. */
static void list_spans(Program *p, const Written *w) {
  const size_t lines = w->span_count < MOST_LINES ? w->span_count : MOST_LINES;
  MatchSpan *left = w->spans; /* not needed in their order any more */
  for (size_t line = 0; line < lines; line++) {
    size_t most = line;
    for (size_t i = line; i < w->span_count; i++)
      if (span_bytes(w, left[i]) > span_bytes(w, left[most])) most = i;
    const MatchSpan span = left[most];
    memmove(left + line + 1, left + line, (most - line) * sizeof *left);
    left[line] = span;
    console_line(&p->console, "  %6" PRId64 " bytes at %6" PRId64 ": '%s'", span_bytes(w, span), w->offsets[span.begin],
                 quoted(w, span).text);
  }
  if (lines < w->span_count) console_line(&p->console, "  and %zu more", w->span_count - lines);
}

static void note_text(Program *p, size_t text) {
  const Overlap *n = p->overlap;
  const Written *w = &n->written[text];
  const int64_t size = w->offsets[w->count], copied = copied_bytes(w);
  const char *source = path_shown(p->settings.overlap);
  char name[32] = "";
  if (n->count > 1) snprintf(name, sizeof name, "text %zu: ", text + 1);
  if (!w->span_count) {
    console_note(&p->console, "%s0 %% of %" PRId64 " bytes stand in %s: no %d tokens in a row that make %d bytes", name,
                 size, source, FEWEST_TOKENS, FEWEST_BYTES);
    return;
  }
  const MatchSpan longest = w->spans[w->longest];
  console_note(&p->console, "%s%.3g %% of %" PRId64 " bytes stand in %s, in %s; the longest, %" PRId64 " bytes: '%s'",
               name, 100.0 * (double)copied / (double)size, size, source,
               text_plural((double)w->span_count, "span").text, span_bytes(w, longest), quoted(w, longest).text);
  if (n->count == 1) list_spans(p, w);
}

void overlap_note(Program *p) {
  for (size_t i = 0; p->overlap->compared && i < p->overlap->count; i++) note_text(p, i);
}
