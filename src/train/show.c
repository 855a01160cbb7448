/* --dry-run --show N: prints the windows that the first steps train on, as text, on stdout.
 *
 * Text is indented by four columns, remarks by two. Invisible characters are made visible: a newline is shown as a
 * symbol and also breaks the line, other control characters are shown as control pictures (escaped on a terminal that
 * is not UTF-8), bytes that are not UTF-8 are escaped. Tokens of a BPE have visible borders. */
#include "train/run.h"

#include "cli/startup.h"
#include "kernels.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PENDING = 4 }; /* bytes of a character */

typedef struct Page {
  FILE *out;
  const Tokenizer *tokenizer; /* of the text that is shown */
  bool utf8;                  /* pictures and borders; else ASCII instead */
  bool borders;               /* between its tokens */
  bool in_line;               /* a line of text has begun */
  bool any;                   /* since the last remark a token was shown */
  uint8_t pending[PENDING];   /* the first bytes of a character that spans several tokens without borders */
  size_t pending_size;
} Page;

/* ---- characters ---- */

/* Returns whether a character is invisible or changes how others are shown. */
static bool is_hidden(uint32_t point) {
  return (point >= 0x80 && point < 0xA0) || point == 0xAD || (point >= 0x200B && point <= 0x200F) ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF;
}

static void begin_line(Page *p) {
  if (!p->in_line) fputs("    ", p->out);
  p->in_line = true;
}

static void end_line(Page *p) {
  if (p->in_line) fputc('\n', p->out);
  p->in_line = false;
}

static void put_point(Page *p, uint32_t point, const uint8_t *bytes, size_t size) {
  begin_line(p);
  if (point == '\n') {
    fputs(p->utf8 ? "\u21b5" : "\\n", p->out);
    end_line(p);
  } else if (point == '\t') {
    fputs(p->utf8 ? "\u2192" : "\\t", p->out);
  } else if (!p->utf8 && (point < 0x20 || point == 0x7F)) {
    fprintf(p->out, "\\x%02x", (unsigned)point);
  } else if (point < 0x20 || point == 0x7F) {
    uint8_t picture[4];
    const size_t length = utf8_write(point == 0x7F ? 0x2421 : 0x2400 + point, picture);
    fwrite(picture, 1, length, p->out);
  } else if (is_hidden(point)) {
    fprintf(p->out, "<U+%04X>", (unsigned)point);
  } else {
    fwrite(bytes, 1, size, p->out);
  }
}

/* `last`: no more bytes follow. Returns the number of bytes shown. */
static size_t put_bytes(Page *p, const uint8_t *bytes, size_t size, bool last) {
  const size_t complete = last ? size : utf8_complete(bytes, size);
  for (size_t i = 0, length; i < complete; i += length) {
    uint32_t point = 0;
    length = utf8_read(bytes + i, complete - i, &point);
    if (length) {
      put_point(p, point, bytes + i, length);
      continue;
    }
    begin_line(p);
    fprintf(p->out, "\\x%02x", bytes[i]);
    length = 1;
  }
  return complete;
}

static void flush_pending(Page *p) {
  put_bytes(p, p->pending, p->pending_size, true);
  p->pending_size = 0;
}

/* ---- tokens and remarks ---- */

static void remark(Page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void remark(Page *p, const char *format, ...) {
  va_list arguments;
  flush_pending(p);
  end_line(p);
  p->any = false;
  fputs("  -- ", p->out);
  va_start(arguments, format);
  vfprintf(p->out, format, arguments);
  va_end(arguments);
  fputc('\n', p->out);
}

static void read_with(Page *p, const Tokenizer *tokenizer) {
  p->tokenizer = tokenizer;
  p->borders = strcmp(tokenizer_name(tokenizer), "byte") != 0;
}

static void put_token(Page *p, int32_t id) {
  size_t size;
  const uint8_t *bytes = tokenizer_decode(p->tokenizer, id, &size);
  const char *special = tokenizer_special(p->tokenizer, id);
  if (special) {
    flush_pending(p);
    put_bytes(p, (const uint8_t *)special, strlen(special), true);
  } else if (p->borders) {
    if (p->any) {
      begin_line(p);
      fputs(p->utf8 ? "\u2502" : "|", p->out);
    }
    put_bytes(p, bytes, size, true);
  } else if (size == 1) {
    p->pending[p->pending_size++] = bytes[0];
    const size_t shown = put_bytes(p, p->pending, p->pending_size, p->pending_size == PENDING);
    p->pending_size -= shown;
    memmove(p->pending, p->pending + shown, p->pending_size);
  }
  p->any = true;
}

/* ---- windows of the stream ---- */

/* The first token is only an input; every other one is a target, or is excluded from the loss. */
static void show_stream(Page *p, const RunText *text, int ctx, const Window *w) {
  const int32_t end = tokenizer_end(text->tokenizer);
  bool counts = true;
  remark(p, "begins %s; the first token is read, not learned",
         w->tokens[0] == end ? "with the end of a document" : "somewhere in a document");
  for (int i = -1; i < ctx; i++) {
    const int32_t target = i < 0 ? IGNORE_INDEX : w->targets[i];
    if (target == IGNORE_INDEX && i + 1 == ctx) break; /* the rest is not in the window */
    const int32_t id = target != IGNORE_INDEX ? target : w->tokens[i + 1];
    if (i >= 0 && counts != (target != IGNORE_INDEX)) {
      counts = !counts;
      remark(p, counts ? "in the loss" : "not in the loss");
    }
    if (id == end) remark(p, i + 1 < ctx ? "a document ends, the next one begins" : "a document ends");
    else put_token(p, id);
  }
}

/* ---- documents in a window ---- */

/* Positions [begin, stop) hold one document or a part of it. */
static void show_document(Page *p, const RunText *text, const Window *w, int begin, int stop, int number) {
  const Tokenizer *tokenizer = text->tokenizer;
  const int32_t end = tokenizer_end(tokenizer);
  const bool conversations = text->train.file.info.conversations;
  bool counts = !conversations, ended = false;
  remark(p,
         conversations || w->tokens[begin] == tokenizer_before(tokenizer) ? "document %d begins"
                                                                          : "document %d goes on from another window",
         number);
  if (conversations) { /* its first token is no target */
    remark(p, "not in the loss");
    put_token(p, w->tokens[begin]);
  }
  for (int i = begin; i < stop; i++) {
    const bool counted = w->targets[i] != IGNORE_INDEX;
    if (counts != counted)
      remark(p, counted ? "in the loss" : conversations ? "not in the loss" : "prompt, not in the loss");
    counts = counted;
    if (!counted && i + 1 == stop) continue; /* the rest is in another window */
    const int32_t id = counted ? w->targets[i] : w->tokens[i + 1];
    ended = id == end && (!conversations || i + 2 >= stop);
    if (!ended || conversations) put_token(p, id);
  }
  remark(p, ended ? "document %d ends" : "document %d is cut here", number);
}

/* ---- windows of pairs or documents ---- */

static void show_pair(Page *p, const RunText *text, const Window *w, int begin, int stop, int number) {
  const Tokenizer *source = run_source_tokenizer(text);
  remark(p, "pair %d: the encoder reads", number);
  read_with(p, source);
  for (int i = w->cross_begin[begin]; i < w->cross_end[begin]; i++)
    if (w->source_tokens[i] != tokenizer_end(source)) put_token(p, w->source_tokens[i]);
  remark(p, "pair %d: the decoder learns to write, in the loss", number);
  read_with(p, text->tokenizer);
  for (int i = begin; i < stop; i++)
    if (w->targets[i] != tokenizer_end(text->tokenizer)) put_token(p, w->targets[i]);
  remark(p, "pair %d ends", number);
}

static void show_parts(Page *p, const RunText *text, int ctx, const Window *w) {
  int padding = 0, parts = 0, sources = 0;
  for (int begin = 0, stop; begin < ctx; begin = stop) {
    stop = begin + 1;
    while (stop < ctx && w->positions[stop] > 0) stop++;
    if (stop == begin + 1 && w->targets[begin] == IGNORE_INDEX) {
      padding++;
    } else if (text->train.windows.pairs) {
      sources += w->cross_end[begin] - w->cross_begin[begin];
      show_pair(p, text, w, begin, stop, ++parts);
    } else {
      show_document(p, text, w, begin, stop, ++parts);
    }
  }
  if (text->train.windows.pairs)
    remark(p, "%s of padding for prompts and %d for responses, not in the loss",
           text_plural(ctx - sources, "place").text, padding);
  else if (padding) remark(p, "%s of padding, not in the loss", text_plural(padding, "place").text);
}

/* ---- all of them ---- */

static void show_window(Page *p, const RunText *text, int ctx, const Window *w, int number, int step, int sequence) {
  int counted = 0;
  for (int i = 0; i < ctx; i++) counted += w->targets[i] != IGNORE_INDEX;
  fprintf(p->out, "window %d (step %d, sequence %d): %d of %d places count in the loss\n", number, step, sequence + 1,
          counted, ctx);
  read_with(p, text->tokenizer);
  if (text->train.windows.pairs || text->train.windows.packing) show_parts(p, text, ctx, w);
  else show_stream(p, text, ctx, w);
  flush_pending(p);
  end_line(p);
  p->any = false;
}

bool run_show_windows(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  const int sequences = s->batch * s->grad_accum;
  Page page = {.out = stdout, .utf8 = r->console.utf8 || !isatty(STDOUT_FILENO)};
  Batch batch;
  if (!batch_make(&batch, &r->text.train.windows, 1, error)) return false;
  const Window window = batch_window(&batch, 0);
  bool ok = true;
  for (int i = 0; ok && i < s->show; i++) {
    const int step = 1 + i / sequences, sequence = i % sequences;
    int64_t index;
    const Windows *windows = run_windows(&r->text, i, &index);
    ok = startup_go_on("showing windows", error) && windows_draw(windows, s->seed, index, &window, error);
    if (ok) show_window(&page, &r->text, r->model.config.ctx, &window, i + 1, step, sequence);
    if (ferror(stdout)) break;
  }
  batch_free(&batch);
  return ok && file_flush(stdout, "stdout", error);
}
