/* Several texts for one prompt (-N), and texts as JSON (--json). */
#include "generating/completion.h"
#include "generating/overlap.h"
#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

typedef struct Samples {
  Outputs outputs;
  Program *p;
  const GenerateSettings *settings;
  GenerationRequest request;
  int begun;
  Completion *completion; /* for --json */
  bool at_end;            /* texts are printed at the end, when the overlap to underline is known */
  int held;               /* the number of texts that wait for that */
} Samples;

/* Begins text i with seed + i. */
static bool next_output(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Samples *s = context;
  (void)wait;
  if (s->begun >= s->settings->samples) return true;
  Output *output = outputs_add(&s->outputs, error);
  if (!output) return false;
  output->index = s->begun++;
  output->keep_ids = s->completion || s->settings->overlap;
  output->request = s->request;
  output->request.sampling.seed += (uint64_t)output->index;
  output->request.text = output;
  *out = output->request;
  *given = true;
  return true;
}

/* Prints the heading of a text, and the prompt with --echo; false when writing failed. */
static bool print_head(const Samples *s, int index) {
  const Prompt *prompt = &s->p->prompt;
  if (s->settings->samples > 1)
    printf("%s--- %d of %d, seed %" PRIu64 "\n", index ? "\n" : "", index + 1, s->settings->samples,
           s->request.sampling.seed + (uint64_t)index);
  if (s->settings->echo) stdout_write(s->p, prompt->bytes, prompt->size);
  return !s->p->stdout_error;
}

static void print_end(const Samples *s, int index) {
  if (index == s->settings->samples - 1 && isatty(STDOUT_FILENO)) putchar('\n');
  stdout_flush(s->p);
}

static bool print_sample(void *context, const Output *o, Error *error) {
  Samples *s = context;
  Program *p = s->p;
  if (p->overlap && !overlap_add(p->overlap, o, error)) return false;
  if (s->at_end) return s->held++, true;
  if (s->completion) {
    if (!completion_add(p, s->completion, o, error)) return false;
    return o->index < s->settings->samples - 1 || completion_print(p, s->completion, error);
  }
  if (print_head(s, o->index) && (!o->size || stdout_write(p, o->bytes, o->size))) print_end(s, o->index);
  return stdout_check(p, error);
}

/* Compares all texts at once, because the other text may be long. Prints the texts that wait, even after an error. */
static bool finish_samples(const Samples *s, bool ok, Error *error) {
  Program *p = s->p;
  ok = ok && (!p->overlap || overlap_compare(p->overlap, error));
  for (int i = 0; i < s->held && print_head(s, i) && overlap_print(p->overlap, (size_t)i); i++) print_end(s, i);
  return ok;
}

static bool open_completion(Samples *s, Error *error) {
  const Prompt *prompt = &s->p->prompt;
  if (!s->settings->json) return true;
  s->completion = completion_new(error);
  if (!s->completion) return false;
  s->completion->n = s->settings->samples;
  s->completion->prompt_tokens = (int64_t)prompt_tokens_count(&prompt->tokens);
  s->completion->prompt = completion_string(prompt->bytes, prompt->size, NULL);
  return s->completion->prompt || error_memory(error, "a completion");
}

bool program_samples(Program *p, Error *error) {
  Samples s = {.p = p,
               .settings = &p->settings,
               .request = request_make(p, &p->prompt.tokens),
               .at_end = p->overlap && isatty(STDOUT_FILENO)};
  const int count = s.settings->samples, rows = count < OUTPUTS_ROWS ? count : OUTPUTS_ROWS;
  const double start = clock_seconds();
  s.outputs = (Outputs){.p = p, .print = print_sample, .context = &s};
  bool ok = open_completion(&s, error) && outputs_run(&s, rows, next_output, error);
  ok = finish_samples(&s, ok, error);
  if (ok && !p->stdout_error)
    console_note(&p->console, "%s in %s in %s; seed %" PRIu64, text_plural((double)s.outputs.tokens, "token").text,
                 text_plural(count, "text").text, text_duration(clock_seconds() - start).text, s.request.sampling.seed);
  if (ok && p->overlap) overlap_note(p->overlap);
  outputs_free(&s.outputs);
  completion_free(s.completion);
  return ok && stdout_check(p, error);
}
