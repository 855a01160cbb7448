/* Line mode (--lines): one output line for each input line. */
#include "generating/line_input.h"
#include "generating/program.h"
#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct Lines {
  Outputs outputs;
  Program *p;
  LineInput input;
  GenerationRequest request; /* the settings of all lines */
  int64_t bad;               /* lines that do not fit into the context; their answers are empty */
} Lines;

/* ---- input ---- */

static bool take_line(Lines *l, const uint8_t *line, size_t size, Error *error) {
  Program *p = l->p;
  Output *output = outputs_add(&l->outputs, error);
  Error why = {0};
  if (!output) return false;
  const bool ok = prompt_encode(&p->model, &p->command.settings, line, size, &output->prompt, &why);
  output->request = l->request;
  output->request.stream = (uint32_t)(l->input.taken - 1);
  output->done = !ok;
  if (ok) unseen_count(&p->seen, &p->model, l->input.taken, &output->prompt.source);
  if (ok) return true;
  if (why.code != EXIT_INPUT) return fail(error, why.code, "%s", why.text);
  console_warning(&p->console, "%s:%" PRId64 ": %s", l->input.name, l->input.taken, why.text);
  l->bad++;
  return outputs_print(&l->outputs, error);
}

static bool next_output(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Lines *l = context;
  while (l->outputs.count < OUTPUTS_WAITING) {
    const uint8_t *line;
    size_t size;
    if (!line_input_next(&l->input, wait, &line, &size, error)) return false;
    if (!line) return true;
    if (!take_line(l, line, size, error)) return false;
    *given = l->outputs.last && !l->outputs.last->done;
    if (*given) *out = output_request(l->outputs.last);
    if (*given) return true;
  }
  return true;
}

/* ---- output ---- */

/* Prints an answer as one line, with each newline as \n and each backslash as two. */
static bool print_line(void *out, const Output *output, Error *error) {
  for (size_t i = 0; i < output->size; i++) {
    const uint8_t byte = output->bytes[i];
    if (byte == '\n' || byte == '\\') putchar('\\');
    putchar(byte == '\n' ? 'n' : byte);
  }
  putchar('\n');
  return stdout_flush_and_check(out, error);
}

static bool answer_all(Lines *l, Error *error) {
  Program *p = l->p;
  const double start = clock_seconds();
  if (!outputs_run(l, &p->model, &p->out, OUTPUTS_ROWS, next_output, error)) return false;
  outputs_note_lines(&l->outputs, &p->console, l->input.taken, start, l->request.sampling.seed);
  unseen_note_lines(&p->seen, &p->model, l->input.taken, &p->console);
  return !l->bad || fail(error, EXIT_INPUT, "%" PRId64 " of %s did not fit, and got an empty answer", l->bad,
                         text_plural((double)l->input.taken, "line").text);
}

bool program_lines(Program *p, Error *error) {
  Lines l = {.p = p,
             .input.fd = -1,
             .outputs = {.print = print_line, .context = &p->out},
             .request = request_make(&p->command, &p->model, &p->prompt.tokens)};
  if (p->command.settings.prompt) return fail(error, EXIT_USAGE, "--lines reads standard input or -f FILE, not -p");
  l.request.keep = 0;
  bool ok = line_input_open(&l.input, p->command.settings.prompt_file, error) && answer_all(&l, error);
  line_input_close(&l.input);
  outputs_free(&l.outputs);
  return ok;
}
