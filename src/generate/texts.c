/* Generated text: one, as it is made (the default), or many: of one prompt (-N, --json), of each line of text (--lines)
 * or of JSON (--prompts). */
#include "cli/startup.h"
#include "text/dataset/line.h"
#include "generate/completion.h"
#include "generate/heat.h"
#include "generate/line_input.h"
#include "generate/novelty.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/file.h"
#include "base/system.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WAITING = 16 * PROGRAM_ROWS /* texts that may wait for an earlier one to be finished */ };

/* ---- one text ---- */

/* Prints the bytes that became ready after `from` bytes, and returns their end. */
static size_t show(Program *p, const Text *t, size_t from) {
  if (t->ready == from) return from;
  if (p->settings.heat) heat_print(t, from, t->ready);
  else fwrite(t->bytes.bytes + from, 1, t->ready - from, stdout);
  program_flush(p);
  return t->ready;
}

bool program_make_text(Program *p, Text *t, bool shown, Error *error) {
  LoadedModel *m = &p->model;
  size_t printed = 0;
  bool ok = (m->decoder || decoder_open(&m->decoder, m->model, 1, error)) &&
            (m->generation || generation_open(&m->generation, m->decoder, 1, m->tokenizer, error)) &&
            generation_add(m->generation, t, error);
  while (ok && !t->ended && !stop_signal && !p->write_error) {
    ok = generation_step(m->generation, error);
    if (shown) printed = show(p, t, printed);
    if (!shown || t->keep_tokens || !printed) continue;
    generation_drop_ready(t);
    printed = 0;
  }
  generation_interrupt(m->generation);
  t->bytes.size = t->ready;
  return ok;
}

void program_note_text(Console *console, const Text *t) {
  enum { FEWEST = 20 }; /* the speed of fewer tokens is not printed */
  const double rest = t->seconds - t->first_token_seconds;
  char speed[48] = "";
  if (!t->count) return;
  if (t->count > FEWEST && rest > 0)
    snprintf(speed, sizeof speed, ", then %s tokens/s", text_count((double)(t->count - 1) / rest).text);
  char cached[48] = "";
  if (t->cached) snprintf(cached, sizeof cached, ", %zu of them new", prompt_tokens_count(&t->prompt) - t->cached);
  console_note(console, "%s after a prompt of %zu%s; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
               text_plural((double)t->count, "token").text, prompt_tokens_count(&t->prompt), cached,
               1e3 * t->first_token_seconds, speed, generation_stop_name(t->reason), t->sampling.seed);
}

static bool print_one(Program *p, Text *t, Error *error) {
  Novelty *novelty = p->novelty;
  const GenerateSettings *s = &p->settings;
  Prompt *prompt = &p->prompt;
  const bool terminal = isatty(STDOUT_FILENO), at_end = novelty && terminal; /* when the passages are known */
  const bool echo = prompt->text.size && !prompt->tokens.source.count && (s->echo || (terminal && !p->model.chat));
  if (echo && !at_end && !program_write(p, prompt->text.bytes, prompt->text.size)) return program_check(p, error);
  if (!program_make_text(p, t, !at_end, error)) return false;
  const bool ok = !novelty || (novelty_add(novelty, t, error) && novelty_compare(novelty, error));
  if (at_end) {
    if (echo) program_write(p, prompt->text.bytes, prompt->text.size);
    novelty_print(novelty, 0);
  }
  if ((terminal || s->alternatives > 0) && !p->write_error) program_write(p, "\n", 1);
  else if (!p->console.quiet && file_is_same("/dev/stdout", "/dev/stderr")) fputc('\n', stderr); /* `>log 2>&1` */
  program_note_text(&p->console, t);
  if (novelty && ok) novelty_note(novelty);
  return ok && (!heat_is_shown(s) || heat_finish(p, prompt, t, error)) && program_check(p, error) &&
         bpe_ids_sink(&prompt->tokens.decoder, t->ids.ids, t->ids.count, error) && attention_write(p, error);
}

bool program_text(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  if (!attention_check_model(p, error)) return false;
  if (s->samples > 1) return program_samples(p, error);
  Text text = prompt_text(p, &p->prompt.tokens);
  text.keep_tokens = heat_is_shown(s) || p->novelty || s->attention.count;
  if (heat_is_shown(s)) text.alternatives = heat_alternatives(s, p->model.config.vocab);
  const bool ok = print_one(p, &text, error);
  generation_free_text(&text);
  return ok;
}

/* ---- many texts, printed in the order in which they were begun ---- */

typedef struct QueuedText {
  Text text;
  Completion *completion; /* it belongs to, and is freed with its last text */
  int index;              /* among its texts */
  struct QueuedText *next;
} QueuedText;

typedef struct Texts Texts;
typedef bool PrintText(Texts *t, const QueuedText *text, Error *error);

struct Texts {
  Program *p;
  PrintText *print;
  LineInput input; /* ended: there is only the prompt of the command line */
  bool json;
  Text settings;            /* of the command line */
  int64_t begun;            /* texts; with JSON each has the next seed */
  Completion *completion;   /* whose texts are being begun; NULL: none */
  QueuedText *first, **end; /* not yet printed */
  int64_t count, tokens;    /* of these; tokens of the printed ones */
  int held;                 /* the number of texts that wait for the copied passages to underline */
};

/* Appends the next text of the completion. NULL: EXIT_MEMORY. */
static QueuedText *add_text(Texts *t, Error *error) {
  Completion *c = t->completion;
  QueuedText *q = calloc(1, sizeof *q);
  if (!q) error_memory(error, "a text");
  if (!q) return NULL;
  q->text = c->settings;
  q->text.prompt = c->tokens;
  q->text.keep_tokens = t->json || t->p->novelty;
  q->completion = c;
  q->index = c->begun++;
  q->text.sampling.seed += (uint64_t)q->index;
  if (c->begun == c->n) t->completion = NULL;
  *t->end = q;
  t->end = &q->next;
  t->count++;
  return q;
}

static void remove_first(Texts *t) {
  QueuedText *q = t->first;
  t->first = q->next;
  if (!t->first) t->end = &t->first;
  t->count--;
  if (q->index == q->completion->n - 1) completion_free(q->completion);
  generation_free_text(&q->text);
  free(q);
}

/* Prints and frees the finished texts, up to the first unfinished one. */
static bool print_ended(Texts *t, Error *error) {
  while (t->first && t->first->text.ended) {
    if (!t->print(t, t->first, error)) return false;
    t->tokens += t->first->text.count;
    remove_first(t);
  }
  return true;
}

/* Queues the refusal of a line as a text of nothing, so that it is printed in order. */
static bool refuse_line(Texts *t, const Error *why, Error *error) {
  Completion *c = t->completion;
  c->why = *why;
  c->n = 1;
  if (t->json) t->input.refused++;
  else line_input_refuse(&t->input, &t->p->console, why->text);
  QueuedText *q = add_text(t, error);
  if (q) q->text.ended = true;
  return q && print_ended(t, error);
}

static bool take_line(Texts *t, const uint8_t *line, size_t size, Error *error) {
  Program *p = t->p;
  Error why = {0};
  Completion *c = t->completion = completion_new(&t->settings, p->settings.samples, error);
  if (!c) return false;
  c->line = t->input.taken;
  if (t->json) c->settings.sampling.seed += (uint64_t)t->begun;
  else c->settings.stream = (uint32_t)(c->line - 1);
  if (t->json ? completion_read(p, c, line, size, &why) : prompt_encode(p, line, size, &c->tokens, &why)) {
    unseen_note(p, &c->tokens.source, c->line);
    t->begun += c->n;
    return true;
  }
  return why.code == EXIT_INPUT ? refuse_line(t, &why, error) : fail(error, why.code, "%s", why.text);
}

/* Queues the next text; *next NULL: there is none yet, or with `wait` no more. */
static bool next_text(Texts *t, bool wait, QueuedText **next, Error *error) {
  const uint8_t *line;
  size_t size;
  *next = NULL;
  while (t->count < MOST_WAITING) {
    if (t->completion) return (*next = add_text(t, error));
    if (!line_input_next(&t->input, wait, &line, &size, error)) return false;
    if (!line) return true;
    if ((!t->json || !line_is_blank(line, size)) && !take_line(t, line, size, error)) return false;
  }
  return true;
}

static bool begin_texts(Texts *t, Generation *generation, Error *error) {
  QueuedText *q;
  while (generation_has_room(generation)) {
    if (!next_text(t, !generation_count(generation), &q, error)) return false;
    if (!q) return true;
    if (!generation_add(generation, &q->text, error)) return false;
  }
  return true;
}

/* Makes and prints texts until there are no more, or writing to stdout fails. */
static bool make_texts(Texts *t, int most_rows, Error *error) {
  LoadedModel *m = &t->p->model;
  Generation *generation = NULL;
  const int rows = generation_rows(m->model, most_rows);
  bool ok = decoder_open(&m->decoder, m->model, rows, error) &&
            generation_open(&generation, m->decoder, rows, m->tokenizer, error);
  while (ok && !t->p->write_error) {
    ok = begin_texts(t, generation, error);
    if (!ok || !generation_count(generation)) break;
    ok = startup_go_on("generating", error) && generation_step(generation, error) && print_ended(t, error);
  }
  generation_close(generation);
  return ok;
}

static void open_texts(Texts *t, Program *p, bool json, PrintText *print) {
  *t = (Texts){.p = p,
               .print = print,
               .input = {.fd = -1, .ended = true},
               .json = json,
               .settings = prompt_text(p, &p->prompt.tokens),
               .end = &t->first};
}

static void close_texts(Texts *t) {
  line_input_close(&t->input);
  while (t->first) remove_first(t);
  completion_free(t->completion);
}

/* ---- answers to lines ---- */

/* Prints an answer as one line, with each newline as \n and each backslash as two. */
static bool print_line(Texts *t, const QueuedText *q, Error *error) {
  for (size_t i = 0; i < q->text.bytes.size; i++) {
    const uint8_t byte = q->text.bytes.bytes[i];
    if (byte == '\n' || byte == '\\') putchar('\\');
    putchar(byte == '\n' ? 'n' : byte);
  }
  putchar('\n');
  return program_check(t->p, error);
}

static bool print_json(Texts *t, const QueuedText *q, Error *error) {
  Completion *c = q->completion;
  if (!c->why.code && !completion_add(t->p->model.tokenizer, c, &q->text, q->index, error)) return false;
  return q->index < c->n - 1 || completion_print(t->p, c, error);
}

static bool answer_lines(Texts *t, const char *path, Error *error) {
  Program *p = t->p;
  const double start = clock_seconds();
  if (!line_input_open(&t->input, path, &p->check, error) || !make_texts(t, PROGRAM_ROWS, error)) return false;
  const PluralText lines = text_plural((double)t->input.taken, "line");
  console_note(&p->console, "%s, %s in %s; seed %" PRIu64, lines.text, text_plural((double)t->tokens, "token").text,
               text_duration(clock_seconds() - start).text, t->settings.sampling.seed);
  unseen_note_lines(p, t->input.taken);
  if (!t->json) return line_input_check(&t->input, "got an empty answer", error);
  return !t->input.refused || p->write_error ||
         fail(error, EXIT_INPUT, "refused: %" PRId64 " of %s; the answers say why", t->input.refused, lines.text);
}

bool program_lines(Program *p, Error *error) {
  Texts t;
  if (p->settings.prompt) return fail(error, EXIT_USAGE, "--lines reads standard input or -f FILE, not -p");
  open_texts(&t, p, false, print_line);
  t.settings.keep = 0;
  const bool ok = answer_lines(&t, p->settings.prompt_file, error);
  close_texts(&t);
  return ok;
}

bool program_prompts(Program *p, Error *error) {
  Texts t;
  open_texts(&t, p, true, print_json);
  const bool ok = answer_lines(&t, p->settings.prompts, error);
  close_texts(&t);
  return ok;
}

/* ---- several texts for one prompt ---- */

/* Prints the heading of a text, and the prompt with --echo; false when writing failed. */
static bool print_head(const Texts *t, int index) {
  Program *p = t->p;
  const int count = p->settings.samples;
  if (count > 1)
    printf("%s--- %d of %d, seed %" PRIu64 "\n", index ? "\n" : "", index + 1, count,
           t->settings.sampling.seed + (uint64_t)index);
  if (p->settings.echo) program_write(p, p->prompt.text.bytes, p->prompt.text.size);
  return !p->write_error;
}

static void print_end(const Texts *t, int index) {
  if (index == t->p->settings.samples - 1 && isatty(STDOUT_FILENO)) putchar('\n');
  program_flush(t->p);
}

/* On a terminal, texts are printed at the end, when the copied passages to underline are known. */
static bool print_sample(Texts *t, const QueuedText *q, Error *error) {
  Program *p = t->p;
  const ByteBuffer *bytes = &q->text.bytes;
  if (p->novelty && !novelty_add(p->novelty, &q->text, error)) return false;
  if (p->novelty && isatty(STDOUT_FILENO)) return t->held++, true;
  if (print_head(t, q->index) && (!bytes->size || program_write(p, bytes->bytes, bytes->size))) print_end(t, q->index);
  return program_check(p, error);
}

/* Compares all texts at once, because the other text may be long. Prints the texts that wait, even after an error. */
static bool finish_samples(const Texts *t, bool ok, Error *error) {
  Program *p = t->p;
  ok = ok && (!p->novelty || novelty_compare(p->novelty, error));
  for (int i = 0; i < t->held && print_head(t, i) && novelty_print(p->novelty, (size_t)i); i++) print_end(t, i);
  return ok;
}

/* Takes the prompt of the command line. */
static bool take_prompt(Texts *t, Error *error) {
  Prompt *prompt = &t->p->prompt;
  Completion *c = t->completion = completion_new(&t->settings, t->p->settings.samples, error);
  if (!c) return false;
  c->tokens = prompt->tokens;
  prompt->tokens = (PromptTokens){0};
  c->prompt = completion_string(prompt->text.bytes, prompt->text.size, NULL);
  return c->prompt || error_memory(error, "a completion");
}

/* Text i has seed + i. */
bool program_samples(Program *p, Error *error) {
  const int count = p->settings.samples;
  const double start = clock_seconds();
  Texts t;
  open_texts(&t, p, p->settings.json, p->settings.json ? print_json : print_sample);
  bool ok = take_prompt(&t, error) && make_texts(&t, count < PROGRAM_ROWS ? count : PROGRAM_ROWS, error);
  ok = finish_samples(&t, ok, error);
  if (ok && !p->write_error)
    console_note(&p->console, "%s in %s in %s; seed %" PRIu64, text_plural((double)t.tokens, "token").text,
                 text_plural(count, "text").text, text_duration(clock_seconds() - start).text,
                 t.settings.sampling.seed);
  if (ok && p->novelty) novelty_note(p->novelty);
  close_texts(&t);
  return ok && program_check(p, error);
}
