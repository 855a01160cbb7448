#include "generating/surprisal.h"

#include "checkpoint/directory.h"
#include "inference/evaluation.h"
#include "inference/logprobs.h"
#include "util/file.h"
#include "util/html.h"
#include "util/path.h"
#include "util/text.h"
#include "util/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = 6, HOVER_ALTERNATIVES = 5, FILE_LIMIT = 4 << 20 };

static const double level_bits[LEVELS - 1] = {1, 2, 4, 6, 9}; /* where the next level begins */
/* Of a terminal's 256: green to red, all pale. */
static const int level_colors[LEVELS] = {194, 229, 222, 215, 209, 203};

bool surprisal_is_shown(const GenerateSettings *s) { return s->surprisal || s->surprisal_html || s->alternatives > 0; }

/* The page that ./train has written of the run. */
static bool is_report(const char *path, bool *out, Error *error) {
  char *dir = path_directory(path);
  if (!dir) return error_memory(error, "a path");
  *out = strcmp(path_base(path), CHECKPOINT_REPORT) == 0 && checkpoint_is_run(dir);
  free(dir);
  return true;
}

/* Whether the file, "-" the standard input, is what `text` names. NULL: nothing is read. */
static bool is_read(const char *file, const char *text) {
  return text && path_same(file, strcmp(text, "-") == 0 ? "/dev/stdin" : text);
}

/* Not on a terminal that shows no more than text; what is written elsewhere is for another one. */
static bool can_color(void) { return !isatty(STDOUT_FILENO) || console_can_mark(); }

bool surprisal_check(Program *p, Error *error) {
  FileWriter file;
  const GenerateSettings *s = &p->settings;
  const char *page = s->surprisal_html;
  bool report;
  if (s->surprisal && !can_color())
    console_note(&p->console,
                 "this terminal shows no colors (TERM); --heat-html FILE writes a page of them, and --alts 1 "
                 "prints numbers");
  if (!page) return true;
  if (!text_ends_with(page, ".html") && !text_ends_with(page, ".htm"))
    return fail(error, EXIT_USAGE, "--heat-html %s: the name of a page ends in .html", page);
  for (int i = 0; i < s->attention.count; i++)
    if (path_same(page, s->attention.items[i]))
      return fail(error, EXIT_USAGE, "--heat-html and --attention both write %s", page);
  if (is_read(page, s->score) || is_read(page, s->prompt_file))
    return fail(error, EXIT_USAGE, "--heat-html %s would replace the text that is read", page);
  if (!is_report(page, &report, error)) return false;
  if (report) return fail(error, EXIT_USAGE, "--heat-html %s would replace the page of a run", page);
  if (!file_writer_begin(&file, page, error)) return false;
  file_writer_abort(&file);
  return true;
}

int surprisal_alternatives(const Program *p) {
  const int shown = p->settings.surprisal_html ? HOVER_ALTERNATIVES : 0;
  const int wanted = p->settings.alternatives > shown ? p->settings.alternatives : shown;
  return wanted < p->config.vocab ? wanted : p->config.vocab;
}

/* ---- tokens ---- */

/* 0 - : of a token that is certain it is not -0. */
static double bits_of(const Output *text, size_t at) { return 0 - (double)text->logprobs[at] / NATS_PER_BIT; }

static int level_of(const Output *text, size_t at) {
  int level = 0;
  while (level < LEVELS - 1 && bits_of(text, at) >= level_bits[level]) level++;
  return level;
}

static size_t begin_of(const Output *text, size_t at, size_t end) {
  return at < text->ids.count && (size_t)text->begins[at] < end ? (size_t)text->begins[at] : end;
}

/* The last token that begins at or before byte `at` of the text, which has a token. */
static size_t token_at(const Output *text, size_t at) {
  size_t low = 0, high = text->ids.count;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if ((size_t)text->begins[middle] <= at) low = middle;
    else high = middle;
  }
  return low;
}

/* ---- a terminal ---- */

static void set_color(int level) { printf("\033[30;48;5;%dm", level_colors[level]); }

void surprisal_print(const Output *text, size_t from, size_t to) {
  const uint8_t *bytes = text->bytes;
  int shown = -1;
  if (!can_color()) {
    fwrite(bytes + from, 1, to - from, stdout);
    return;
  }
  for (size_t i = from; i < to; i++) {
    if (!utf8_continues(bytes[i])) { /* a character has the color of its first token */
      const int level = text->ids.count ? level_of(text, token_at(text, i)) : 0;
      if (level != shown) set_color(level);
      shown = level;
    }
    if (bytes[i] == '\n') fputs("\033[0m", stdout); /* or the rest of the line would have it, too */
    putchar(bytes[i]);
    if (bytes[i] == '\n') shown = -1;
  }
  if (shown >= 0) fputs("\033[0m", stdout);
}

static void print_table(const Program *p, const Output *text) {
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

static const char style[] =
    ":root { --h0: #e3f5dc; --h1: #fbf6c4; --h2: #fde3a6; --h3: #fbc38a; --h4: #f69a80; --h5: #ee7676; }\n"
    "@media (prefers-color-scheme: dark) { :root { --h0: #17301b; --h1: #3a3812; --h2: #55400d; --h3: #6d3f10; "
    "--h4: #7f331f; --h5: #962626; } }\n"
    "body { max-width: 900px; }\n"
    "h1 { font-size: 1.3rem; } p, summary, th { color: var(--soft); } .legend { list-style: none; display: flex; "
    "flex-wrap: wrap; gap: .4rem; padding: 0; } .legend li { padding: .1rem .6rem; border-radius: 3px; } "
    ".prompt { font-weight: 600; }\n"
    "pre { font: 1rem/1.8 ui-monospace, monospace; }\n"
    "span { border-radius: 3px; } .h0 { background: var(--h0); } .h1 { background: var(--h1); } "
    ".h2 { background: var(--h2); } .h3 { background: var(--h3); } .h4 { background: var(--h4); } "
    ".h5 { background: var(--h5); }\n";

static void write_alternatives(FILE *out, const Program *p, const Output *text, size_t at, const char *between) {
  const int kept = text->request.alternatives;
  for (int k = 0; k < kept; k++) {
    const TokenAlternative *top = &text->top[at * (size_t)kept + (size_t)k];
    fputs(k ? between : "", out);
    html_write_text(out, program_token(p->tokenizer, top->id).text);
    fprintf(out, " %.1f %%", 100 * exp((double)top->logprob));
  }
}

/* Tokens that are parts of a character stand together. */
static size_t write_span(FILE *out, const Program *p, const Output *text, size_t at) {
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

static void write_legend(FILE *out, bool prompt) {
  fputs("<p>The color of a token says how much it surprised the model, in bits: 1 bit where the model gave it a chance "
        "of 1 "
        "in 2, 4 bits 1 in 16, 9 bits 1 in 512. Rest the pointer on one to see what the model thought likelier.",
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

/* In front of the text that goes on with it, or above the answer to it. */
static void write_prompt(FILE *out, const Program *p, SurprisalPrompt prompt) {
  const bool answered = p->source.count > 0;
  fputs(answered ? "<pre class=\"prompt\">" : "<pre>", out);
  if (prompt.size && !answered) fputs("<span class=\"prompt\">", out);
  html_write(out, (const char *)prompt.bytes, prompt.size);
  if (prompt.size && !answered) fputs("</span>", out);
  if (answered) fputs("</pre>\n<pre>", out);
}

/* For what has no pointer to rest on a token. */
static void write_list(FILE *out, const Program *p, const Output *text) {
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

static bool write_page(const Program *p, SurprisalPrompt prompt, const Output *text, Error *error) {
  FileWriter file;
  if (!file_writer_begin(&file, p->settings.surprisal_html, error)) return false;
  html_begin(file.stream, style);
  fputs("<title>Surprise</title>\n</head>\n<body>\n<h1>What surprises ", file.stream);
  html_write_text(file.stream, p->dir);
  fputs("</h1>\n", file.stream);
  write_legend(file.stream, prompt.size > 0);
  write_prompt(file.stream, p, prompt);
  for (size_t i = 0; i < text->ids.count;) i = write_span(file.stream, p, text, i);
  fputs("</pre>\n", file.stream);
  write_list(file.stream, p, text);
  fputs("</body>\n</html>\n", file.stream);
  return file_writer_commit(&file, error);
}

/* ---- all of it ---- */

bool surprisal_finish(Program *p, SurprisalPrompt prompt, const Output *text, Error *error) {
  double bits = 0;
  for (size_t i = 0; i < text->ids.count; i++) bits += bits_of(text, i);
  if (p->settings.alternatives > 0) print_table(p, text);
  program_flush(p);
  if (text->ids.count)
    console_note(&p->console, "%.3f bits per token, over %s", bits / (double)text->ids.count,
                 text_plural((double)text->ids.count, "token").text);
  return !p->settings.surprisal_html || write_page(p, prompt, text, error);
}

/* ---- a text that is there ---- */

typedef struct Reading {
  const Program *p;
  Output text;
  TokenAlternative *top; /* [alternatives] */
  bool at_start;         /* of the text */
} Reading;

static bool take_token(void *context, int32_t id, const float *logits, Error *error) {
  Reading *r = context;
  size_t size;
  const uint8_t *bytes = tokenizer_decode_next(r->p->tokenizer, id, &r->at_start, &size);
  const float logprob = logprobs_of(logits, r->p->config.vocab, id, r->top, r->text.request.alternatives);
  const GeneratedToken token = {.id = id, .begin = (int64_t)r->text.size, .logprob = logprob, .top = r->top};
  return output_add_token(&r->text, &token, error) &&
         (!size || output_add(&r->text, bytes, size) || error_memory(error, "a text"));
}

static bool print_text(Program *p, const Output *text, Error *error) {
  if (p->settings.surprisal) surprisal_print(text, 0, text->size);
  if (p->settings.surprisal && text->size && text->bytes[text->size - 1] != '\n') putchar('\n');
  return surprisal_finish(p, (SurprisalPrompt){0}, text, error) && program_report_output(p, error);
}

bool surprisal_score(Program *p, Error *error) {
  uint8_t *bytes = NULL;
  size_t size;
  TextScore score;
  if (p->config.encoder_layers)
    return fail(error, EXIT_USAGE,
                "--heat, --heat-html and --alts of a file are for models without an encoder; give a source with -p");
  Reading r = {.p = p, .text.request.alternatives = surprisal_alternatives(p), .at_start = true};
  r.top = malloc((size_t)(r.text.request.alternatives + 1) * sizeof *r.top);
  const bool ok = (r.top || error_memory(error, "a text")) &&
                  program_read(p->settings.score, FILE_LIMIT, &bytes, &size, error) &&
                  (size || fail(error, EXIT_INPUT, "%s is empty", path_shown(p->settings.score))) &&
                  program_score_text(p, bytes, size, take_token, &r, &score, error) && print_text(p, &r.text, error);
  free(bytes);
  free(r.top);
  output_free(&r.text);
  return ok;
}
