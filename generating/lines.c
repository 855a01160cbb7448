/* Line mode (--lines): one output line for each input line. */
#include "generating/program.h"

#include "cli/startup.h"
#include "generating/line_input.h"
#include "generating/outputs.h"
#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>

enum { WAITING = 16 * GENERATE_ROWS }; /* lines that may wait for one before them to be answered */

typedef struct Lines {
  Outputs texts;
  Program *p;
  LineInput input;
  GenerationRequest request; /* what all have in common */
  int64_t bad;               /* lines that did not fit: they have empty answers */
} Lines;

/* ---- input ---- */

/* What does not fit is said, and the others are done. */
static bool take_line(Lines *l, const uint8_t *line, size_t size, Error *error) {
  Program *p = l->p;
  Output *text = outputs_add(&l->texts, error);
  Error why = {0};
  if (!text) return false;
  const bool ok = program_encode(p, line, size, &text->source, &text->prompt, &why);
  text->request = l->request;
  text->request.stream = (uint32_t)(l->input.taken - 1);
  text->done = !ok;
  if (ok) program_count_unseen(p, l->input.taken, &text->source);
  if (ok) return true;
  if (why.code != EXIT_INPUT) return fail(error, why.code, "%s", why.text);
  console_warning(&p->console, "%s:%" PRId64 ": %s", l->input.name, l->input.taken, why.text);
  l->bad++;
  return outputs_print(&l->texts, error);
}

static bool next_text(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Lines *l = context;
  while (l->texts.count < WAITING) {
    const uint8_t *line;
    size_t size;
    if (!line_input_next(&l->input, wait, &line, &size, error)) return false;
    if (!line) return true;
    if (!take_line(l, line, size, error)) return false;
    *given = l->texts.last && !l->texts.last->done;
    if (*given) *out = output_request(l->texts.last);
    if (*given) return true;
  }
  return true;
}

/* ---- answers ---- */

/* A line, with a newline in it as \n. */
static bool print_line(void *context, const Output *text, Error *error) {
  Program *p = context;
  for (size_t i = 0; i < text->size; i++) {
    const uint8_t byte = text->bytes[i];
    if (byte == '\n' || byte == '\\') putchar('\\');
    putchar(byte == '\n' ? 'n' : byte);
  }
  putchar('\n');
  program_flush(p);
  return program_report_output(p, error);
}

/* ---- all of it ---- */

static bool answer_all(Lines *l, Error *error) {
  Program *p = l->p;
  const double start = clock_seconds();
  if (!outputs_run(p, l, GENERATE_ROWS, next_text, error)) return false;
  console_note(&p->console, "%s, %s in %s; seed %" PRIu64, text_plural((double)l->input.taken, "line").text,
               text_plural((double)l->texts.tokens, "token").text, text_duration(clock_seconds() - start).text,
               l->request.sampling.seed);
  program_note_unseen_lines(p, l->input.taken);
  if (l->bad)
    return fail(error, EXIT_INPUT, "%" PRId64 " of %s did not fit, and got an empty answer", l->bad,
                text_plural((double)l->input.taken, "line").text);
  return true;
}

bool program_lines(Program *p, Error *error) {
  Lines l = {.p = p, .input.fd = -1, .texts = {.print = print_line, .context = p}, .request = program_request(p)};
  if (p->settings.prompt) return fail(error, EXIT_USAGE, "--lines reads standard input or -f FILE, not -p");
  l.request.keep = 0;
  bool ok = line_input_open(&l.input, p->settings.prompt_file, error) && answer_all(&l, error);
  line_input_close(&l.input);
  outputs_free(&l.texts);
  return ok;
}
