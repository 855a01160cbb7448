#include "generate/heat.h"

#include "files/checkpoint/directory.h"
#include "inference/evaluation.h"
#include "base/file.h"
#include "base/html.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = 6, HOVER_ALTERNATIVES = 5 };

static const double level_bits[LEVELS - 1] = {1, 2, 4, 6, 9}; /* where the next level begins */
/* Of the 256 colors of a terminal: pale green to red. */
static const int level_colors[LEVELS] = {194, 229, 222, 215, 209, 203};

bool heat_is_shown(const GenerateSettings *s) { return s->heat || s->heat_html || s->alternatives > 0; }

/* Returns false on a terminal without colors; a file or pipe may reach a terminal that has them. */
static bool can_color(void) { return !isatty(STDOUT_FILENO) || console_can_mark(); }

bool heat_check(const GenerateSettings *s, Console *console, Error *error) {
  const char *page = s->heat_html;
  if (s->heat && !can_color())
    console_note(console, "this terminal shows no colors (TERM); --heat-html FILE writes a page of them, and --alts 1 "
                          "prints numbers");
  if (!page) return true;
  if (!text_ends_with(page, ".html") && !text_ends_with(page, ".htm"))
    return fail(error, EXIT_USAGE, "--heat-html %s: the name of a page ends in .html", page);
  for (int i = 0; i < s->attention.count; i++)
    if (file_is_same(page, s->attention.items[i]))
      return fail(error, EXIT_USAGE, "--heat-html and --attention both write %s", page);
  return program_check_file("--heat-html", page, s, error);
}

int heat_alternatives(const GenerateSettings *s, int vocab) {
  const int hover = s->heat_html ? HOVER_ALTERNATIVES : 0;
  const int wanted = s->alternatives > hover ? s->alternatives : hover;
  return wanted < vocab ? wanted : vocab;
}

/* ---- tokens ---- */

/* Returns the surprisal in bits; "0 -" avoids -0 for a token of probability 1. */
static double bits_of(const Text *t, size_t at) { return 0 - (double)t->tokens[at].logprob / NATS_PER_BIT; }

/* Returns the index of the color. */
static int level_of(const Text *t, size_t at) {
  int level = 0;
  while (level < LEVELS - 1 && bits_of(t, at) >= level_bits[level]) level++;
  return level;
}

/* Returns the first byte of token `at`, or `end` when that is smaller. */
static size_t begin_of(const Text *t, size_t at, size_t end) {
  return at < t->ids.count && t->tokens[at].begin < end ? t->tokens[at].begin : end;
}

/* ---- a terminal ---- */

static void set_color(int level) { printf("\033[30;48;5;%dm", level_colors[level]); }

void heat_print(const Text *t, size_t from, size_t to) {
  const uint8_t *bytes = t->bytes.bytes;
  size_t token = t->ids.count ? t->ids.count - 1 : 0; /* the one of byte i */
  int shown = -1;
  if (!can_color()) {
    fwrite(bytes + from, 1, to - from, stdout);
    return;
  }
  while (token > 0 && begin_of(t, token, to) > from) token--;
  for (size_t i = from; i < to; i++) {
    while (begin_of(t, token + 1, to) <= i) token++;
    if (!utf8_continues(bytes[i])) { /* a character has the color of its first token */
      const int level = t->ids.count ? level_of(t, token) : 0;
      if (level != shown) set_color(level);
      shown = level;
    }
    if (bytes[i] == '\n') fputs("\033[0m", stdout); /* otherwise the rest of the line is colored */
    putchar(bytes[i]);
    if (bytes[i] == '\n') shown = -1;
  }
  if (shown >= 0) fputs("\033[0m", stdout);
}

static void print_table(const Tokenizer *tokenizer, int alternatives, const Text *t) {
  const int kept = t->alternatives, shown = alternatives < kept ? alternatives : kept;
  for (size_t i = 0; i < t->ids.count; i++) {
    printf("%7.2f bits  %-16s", bits_of(t, i), tokenizer_show(tokenizer, t->ids.ids[i]).text);
    for (int k = 0; k < shown; k++) {
      const TokenAlternative *top = &t->top[i * (size_t)kept + (size_t)k];
      printf("  %s %.1f %%", tokenizer_show(tokenizer, top->id).text, 100 * exp((double)top->logprob));
    }
    putchar('\n');
  }
}

/* ---- a page ---- */

static void write_alternatives(FILE *out, const Tokenizer *tokenizer, const Text *t, size_t at, const char *between) {
  const int kept = t->alternatives;
  for (int k = 0; k < kept; k++) {
    const TokenAlternative *top = &t->top[at * (size_t)kept + (size_t)k];
    fputs(k ? between : "", out);
    html_write_text(out, tokenizer_show(tokenizer, top->id).text);
    fprintf(out, " %.1f %%", 100 * exp((double)top->logprob));
  }
}

/* Writes a token, together with the tokens that complete its last character. Returns the next token. */
static size_t write_span(FILE *out, const Tokenizer *tokenizer, const Text *t, size_t at) {
  size_t next = at + 1;
  const size_t begin = begin_of(t, at, t->bytes.size);
  size_t end = begin_of(t, next, t->bytes.size);
  while (next < t->ids.count && utf8_complete(t->bytes.bytes + begin, end - begin) < end - begin)
    end = begin_of(t, ++next, t->bytes.size);
  if (begin == end) return next;
  fprintf(out, "<span class=\"h%d\" title=\"", level_of(t, at));
  for (size_t i = at; i < next; i++) {
    if (i > at) fputs("&#10;", out);
    html_write_text(out, tokenizer_show(tokenizer, t->ids.ids[i]).text);
    fprintf(out, ": %.2f bits&#10;", bits_of(t, i));
    write_alternatives(out, tokenizer, t, i, "&#10;");
  }
  fputs("\">", out);
  html_write(out, (const char *)t->bytes.bytes + begin, end - begin);
  fputs("</span>", out);
  return next;
}

static void write_legend(FILE *out, bool prompt) {
  fputs("<p>The color of a token says how much it surprised the model, in bits: 1 bit where the model gave it a chance "
        "of 1 in 2, 4 bits 1 in 16, 9 bits 1 in 512. Rest the pointer on one to see what the model thought likelier.",
        out);
  fputs(prompt ? " The prompt is bold.</p>\n" : "</p>\n", out);
  fputs("<ul class=\"legend\">\n", out);
  for (int i = 0; i < LEVELS; i++) {
    fprintf(out, "<li class=\"h%d\">", i);
    if (i == 0) fprintf(out, "below %g", level_bits[0]);
    else if (i < LEVELS - 1) fprintf(out, "%g to %g", level_bits[i - 1], level_bits[i]);
    else fprintf(out, "%g and more bits", level_bits[LEVELS - 2]);
    fputs("</li>\n", out);
  }
  fputs("</ul>\n", out);
}

/* Begins the text: writes the prompt before it, or above it with an encoder. */
static void begin_text(FILE *out, const Prompt *prompt) {
  const bool encoder = prompt && prompt->tokens.source.count > 0, before = prompt && prompt->text.size && !encoder;
  fputs(encoder ? "<pre class=\"prompt\">" : before ? "<pre><span class=\"prompt\">" : "<pre>", out);
  if (prompt) html_write(out, (const char *)prompt->text.bytes, prompt->text.size);
  fputs(encoder ? "</pre>\n<pre>" : before ? "</span>" : "", out);
}

/* Writes a table of the tokens, for readers without a pointer. */
static void write_list(FILE *out, const Tokenizer *tokenizer, const Text *t) {
  fputs("<details><summary>Every token</summary><table><tr><th>bits</th><th>token</th><th>likeliest</th></tr>\n", out);
  for (size_t i = 0; i < t->ids.count; i++) {
    fprintf(out, "<tr><td>%.2f</td><td>", bits_of(t, i));
    html_write_text(out, tokenizer_show(tokenizer, t->ids.ids[i]).text);
    fputs("</td><td>", out);
    write_alternatives(out, tokenizer, t, i, ", ");
    fputs("</td></tr>\n", out);
  }
  fputs("</table></details>\n", out);
}

static bool write_page(const GenerateSettings *s, const LoadedModel *m, const Prompt *prompt, const Text *t,
                       Error *error) {
  FileWriter file;
  OneLine heading = {"What surprises "};
  if (!file_writer_begin(&file, s->heat_html, error)) return false;
  text_append(heading.text, sizeof heading.text, "%s", text_one_line(m->dir, 250).text);
  html_begin(file.stream, "heat", "Surprise", heading.text);
  write_legend(file.stream, prompt && prompt->text.size > 0);
  begin_text(file.stream, prompt);
  for (size_t i = 0; i < t->ids.count;) i = write_span(file.stream, m->tokenizer, t, i);
  fputs("</pre>\n", file.stream);
  write_list(file.stream, m->tokenizer, t);
  html_end(file.stream);
  return file_writer_commit(&file, error);
}

bool heat_finish(Program *p, const Prompt *prompt, const Text *t, Error *error) {
  const GenerateSettings *s = &p->settings;
  double bits = 0;
  for (size_t i = 0; i < t->ids.count; i++) bits += bits_of(t, i);
  if (s->alternatives > 0) print_table(p->model.tokenizer, s->alternatives, t);
  program_flush(p);
  if (t->ids.count)
    console_note(&p->console, "%.3f bits per token, over %s", bits / (double)t->ids.count,
                 text_plural((double)t->ids.count, "token").text);
  return !s->heat_html || write_page(s, &p->model, prompt, t, error);
}
