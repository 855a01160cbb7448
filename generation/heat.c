#include "generation/heat.h"

#include "cli/startup.h"
#include "model/logprobs.h"
#include "tokenizer/bpe_encode.h"
#include "util/file.h"
#include "util/html.h"
#include "util/path.h"
#include "util/text.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS = 6, HOVER_ALTERNATIVES = 5, FILE_LIMIT = 4 << 20 };

static const double BIT = 0.6931471805599453;                 /* nats */
static const double level_bits[LEVELS - 1] = {1, 2, 4, 6, 9}; /* where the next level begins */
static const int level_colors[LEVELS] = {194, 229, 222,
                                         215, 209, 203}; /* of a terminal's 256: green to red, all pale */

bool heat_is_asked(const GenerateSettings *s) { return s->heat || s->heat_html || s->alternatives > 0; }

bool heat_check(const Program *p, Error *error) {
  FileWriter file;
  const GenerateSettings *s = &p->settings;
  if (!s->heat_html) return true;
  if (!text_ends_with(s->heat_html, ".html") && !text_ends_with(s->heat_html, ".htm"))
    return fail(error, EXIT_USAGE, "--heat-html %s: the name of a page ends in .html", s->heat_html);
  for (int i = 0; i < s->attention.count; i++)
    if (strcmp(s->heat_html, s->attention.items[i]) == 0)
      return fail(error, EXIT_USAGE, "--heat-html and --attention both write %s", s->heat_html);
  if ((s->score && path_same(s->heat_html, s->score)) || (s->prompt_file && path_same(s->heat_html, s->prompt_file)))
    return fail(error, EXIT_USAGE, "--heat-html %s would replace the text that is read", s->heat_html);
  if (!file_writer_begin(&file, s->heat_html, error)) return false;
  file_writer_abort(&file);
  return true;
}

int heat_alternatives(const Program *p) {
  const int shown = p->settings.heat_html ? HOVER_ALTERNATIVES : 0;
  const int wanted = p->settings.alternatives > shown ? p->settings.alternatives : shown;
  return wanted < p->config.vocab ? wanted : p->config.vocab;
}

/* ---- tokens ---- */

static double bits_of(const Text *text, size_t at) { return -(double)text->logprobs[at] / BIT; }

static int level_of(const Text *text, size_t at) {
  int level = 0;
  while (level < LEVELS - 1 && bits_of(text, at) >= level_bits[level]) level++;
  return level;
}

static size_t begin_of(const Text *text, size_t at, size_t end) {
  return at < text->ids.count && (size_t)text->begins[at] < end ? (size_t)text->begins[at] : end;
}

/* The token that byte `at` of the text belongs to, at or behind token `from`. */
static size_t token_at(const Text *text, size_t from, size_t at) {
  while (from + 1 < text->ids.count && (size_t)text->begins[from + 1] <= at) from++;
  return from;
}

/* ---- a terminal ---- */

static void set_color(int level) { printf("\033[30;48;5;%dm", level_colors[level]); }

void heat_print(const Text *text, const uint8_t *bytes, size_t size) {
  size_t token = 0;
  int shown = -1;
  for (size_t i = 0; i < size; i++) {
    if (!utf8_continues(bytes[i])) { /* a character has the color of its first token */
      token = token_at(text, token, text->size + i);
      const int level = text->ids.count ? level_of(text, token) : 0;
      if (level != shown) set_color(level);
      shown = level;
    }
    if (bytes[i] == '\n') fputs("\033[0m", stdout); /* or the rest of the line would have it, too */
    putchar(bytes[i]);
    if (bytes[i] == '\n') shown = -1;
  }
  if (shown >= 0) fputs("\033[0m", stdout);
}

static void print_table(const Program *p, const Text *text) {
  const int kept = text->request.alternatives, wanted = p->settings.alternatives;
  const int shown = wanted < kept ? wanted : kept;
  for (size_t i = 0; i < text->ids.count; i++) {
    printf("%7.2f bits  %-16s", bits_of(text, i), program_token(p->tokenizer, text->ids.ids[i]).text);
    for (int k = 0; k < shown; k++) {
      const TokenAlternative *top = &text->top[i * (size_t)kept + (size_t)k];
      printf("  %s %.1f %%", program_token(p->tokenizer, top->id).text, 100 * exp((double)top->logprob));
    }
    putchar('\n');
  }
}

/* ---- a page ---- */

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
    "<title>Surprise</title>\n<style>\n"
    ":root { color-scheme: light dark; --ink: #1c2733; --soft: #5d6b7a; --paper: #fff; --h0: #e3f5dc; --h1: #fbf6c4; "
    "--h2: #fde3a6; --h3: #fbc38a; --h4: #f69a80; --h5: #ee7676; }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --soft: #97a5b3; --paper: #12171c; --h0: #17301b; "
    "--h1: #3a3812; --h2: #55400d; --h3: #6d3f10; --h4: #7f331f; --h5: #962626; } }\n"
    "body { margin: 0 auto; max-width: 900px; padding: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); "
    "background: var(--paper); }\n"
    "h1 { font-size: 1.3rem; overflow-wrap: anywhere; } p, summary, th { color: var(--soft); }\n"
    "pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 1rem/1.8 ui-monospace, monospace; }\n"
    "span { border-radius: 3px; } .h0 { background: var(--h0); } .h1 { background: var(--h1); } .h2 { background: "
    "var(--h2); } .h3 { background: var(--h3); } .h4 { background: var(--h4); } .h5 { background: var(--h5); }\n"
    "table { border-collapse: collapse; font-size: .9rem; } th, td { text-align: left; padding: .1rem .8rem .1rem 0; "
    "vertical-align: top; }\n</style>\n</head>\n<body>\n";

static void write_alternatives(FILE *out, const Program *p, const Text *text, size_t at, const char *between) {
  const int kept = text->request.alternatives;
  for (int k = 0; k < kept; k++) {
    const TokenAlternative *top = &text->top[at * (size_t)kept + (size_t)k];
    fputs(k ? between : "", out);
    html_write_text(out, program_token(p->tokenizer, top->id).text);
    fprintf(out, " %.1f %%", 100 * exp((double)top->logprob));
  }
}

/* Tokens that are parts of a character stand together. */
static size_t write_span(FILE *out, const Program *p, const Text *text, size_t at) {
  size_t next = at + 1;
  const size_t begin = begin_of(text, at, text->size);
  size_t end = begin_of(text, next, text->size);
  while (next < text->ids.count && utf8_complete(text->bytes + begin, end - begin) < end - begin)
    end = begin_of(text, ++next, text->size);
  if (begin == end) return next;
  fprintf(out, "<span class=\"h%d\" title=\"", level_of(text, at));
  for (size_t i = at; i < next; i++) {
    if (i > at) fputs("&#10;", out);
    html_write_text(out, program_token(p->tokenizer, text->ids.ids[i]).text);
    fprintf(out, ": %.2f bits&#10;", bits_of(text, i));
    write_alternatives(out, p, text, i, "&#10;");
  }
  fputs("\">", out);
  html_write(out, (const char *)text->bytes + begin, end - begin);
  fputs("</span>", out);
  return next;
}

static void write_legend(FILE *out) {
  fputs("<p>Bits of surprise: ", out);
  for (int i = 0; i < LEVELS; i++) {
    fprintf(out, "<span class=\"h%d\"> ", i);
    if (i == 0) fprintf(out, "below %g", level_bits[0]);
    else if (i < LEVELS - 1) fprintf(out, "%g to %g", level_bits[i - 1], level_bits[i]);
    else fprintf(out, "%g and more", level_bits[LEVELS - 2]);
    fputs(" </span> ", out);
  }
  fputs("</p>\n", out);
}

/* For what has no pointer to rest on a token. */
static void write_list(FILE *out, const Program *p, const Text *text) {
  fputs("<details><summary>Every token</summary><table><tr><th>bits</th><th>token</th><th>likeliest</th></tr>\n", out);
  for (size_t i = 0; i < text->ids.count; i++) {
    fprintf(out, "<tr><td>%.2f</td><td>", bits_of(text, i));
    html_write_text(out, program_token(p->tokenizer, text->ids.ids[i]).text);
    fputs("</td><td>", out);
    write_alternatives(out, p, text, i, ", ");
    fputs("</td></tr>\n", out);
  }
  fputs("</table></details>\n", out);
}

static bool write_page(const Program *p, const Text *text, Error *error) {
  FileWriter file;
  if (!file_writer_begin(&file, p->settings.heat_html, error)) return false;
  fputs(head, file.stream);
  fputs("<h1>What surprises ", file.stream);
  html_write_text(file.stream, p->dir);
  fputs("</h1>\n", file.stream);
  write_legend(file.stream);
  fputs("<pre>", file.stream);
  for (size_t i = 0; i < text->ids.count;) i = write_span(file.stream, p, text, i);
  fputs("</pre>\n", file.stream);
  write_list(file.stream, p, text);
  fputs("</body>\n</html>\n", file.stream);
  return file_writer_commit(&file, error);
}

/* ---- all of it ---- */

bool heat_finish(Program *p, const Text *text, Error *error) {
  double bits = 0;
  for (size_t i = 0; i < text->ids.count; i++) bits += bits_of(text, i);
  if (p->settings.alternatives > 0) print_table(p, text);
  program_flush(p);
  if (text->ids.count)
    console_note(&p->console, "%.3f bits per token, over %zu tokens", bits / (double)text->ids.count, text->ids.count);
  return !p->settings.heat_html || write_page(p, text, error);
}

/* ---- a text that is there ---- */

typedef struct Reading {
  Program *p;
  BpeIds ids; /* what comes before the text, then its tokens */
  Text text;
  float *logits;    /* [ctx][vocab] */
  int32_t *targets; /* [ctx] */
  TokenAlternative *top;
} Reading;

/* Tokens first + 1 ... of the ids, those from `scored` on for the first time. */
static bool score_window(Reading *r, int64_t first, int length, int64_t scored, Error *error) {
  const int vocab = r->p->config.vocab;
  const TokenBatch batch = {r->ids.ids + first, r->targets, NULL, NULL};
  double nats = 0;
  int64_t counted = 0;
  for (int i = 0; i < length; i++) r->targets[i] = r->ids.ids[first + i + 1];
  if (!model_evaluate(r->p->model, &batch, 1, length, &nats, &counted, r->logits, error)) return false;
  for (int64_t i = scored - first; i < length; i++) {
    GeneratedToken token = {.id = r->targets[i], .begin = (int64_t)r->text.size, .top = r->top};
    token.logprob =
        logprobs_of(r->logits + (size_t)i * (size_t)vocab, vocab, token.id, r->top, r->text.request.alternatives);
    if (!isfinite(token.logprob))
      return fail(error, EXIT_NONFINITE, "token %" PRId64 " of %s has no finite probability: the weights are damaged",
                  first + i + 1, r->p->settings.score);
    size_t size;
    const uint8_t *bytes = tokenizer_decode(r->p->tokenizer, token.id, &size);
    if (!text_add_token(&r->text, &token, error)) return false;
    if (size && !text_add(&r->text, bytes, size)) return error_memory(error, "a text");
  }
  return true;
}

/* Windows of at most ctx tokens, each but the first half old ones. */
static bool score_all(Reading *r, Error *error) {
  const int ctx = r->p->config.ctx, step = ctx > 1 ? ctx / 2 : 1;
  const int64_t count = (int64_t)r->ids.count - 1; /* of targets */
  int64_t scored = 0;
  for (int64_t first = 0; scored < count; first += step) {
    const int length = count - first < ctx ? (int)(count - first) : ctx;
    console_work(&r->p->console, &(ConsoleWork){"evaluating", (double)scored, (double)count, false});
    if (!startup_go_on("evaluating", error) || !score_window(r, first, length, scored, error)) return false;
    scored = first + length;
  }
  console_work_end(&r->p->console);
  return true;
}

static bool read_text(Reading *r, Error *error) {
  const Program *p = r->p;
  const int32_t end = tokenizer_end(p->tokenizer), start = p->special.start >= 0 ? p->special.start : 0;
  uint8_t *bytes;
  size_t size;
  const bool ok = program_read(p->settings.score, FILE_LIMIT, &bytes, &size, error) &&
                  bpe_ids_sink(&r->ids, tokenizer_begins_with_end(p->tokenizer) ? &end : &start, 1, error) &&
                  tokenizer_encode(p->tokenizer, bytes, size, &r->ids, error);
  free(bytes);
  return ok && (r->ids.count > 1 || fail(error, EXIT_INPUT, "%s is empty", p->settings.score));
}

static bool print_text(Reading *r, Error *error) {
  Program *p = r->p;
  Text unprinted = r->text;
  unprinted.size = 0;
  if (p->settings.heat) heat_print(&unprinted, r->text.bytes, r->text.size);
  if (p->settings.heat && r->text.size && r->text.bytes[r->text.size - 1] != '\n') putchar('\n');
  return heat_finish(p, &r->text, error) && program_report_output(p, error);
}

bool heat_score(Program *p, Error *error) {
  const size_t ctx = (size_t)p->config.ctx;
  if (p->config.encoder_layers)
    return fail(error, EXIT_USAGE,
                "--heat, --heat-html and --alts of a file are for models without an encoder; give a "
                "source with -p");
  Reading r = {.p = p, .text.request.alternatives = heat_alternatives(p)};
  r.logits = malloc(ctx * (size_t)p->config.vocab * sizeof *r.logits);
  r.targets = malloc(ctx * sizeof *r.targets);
  r.top = malloc((size_t)(r.text.request.alternatives + 1) * sizeof *r.top);
  const bool ok = ((r.logits && r.targets && r.top) || error_memory(error, "the logits of a window")) &&
                  read_text(&r, error) && model_evaluate_begin(p->model, 1, p->config.ctx, error) &&
                  score_all(&r, error) && print_text(&r, error);
  free(r.logits);
  free(r.targets);
  free(r.top);
  free(r.ids.ids);
  text_free(&r.text);
  return ok;
}
