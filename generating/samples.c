/* Several texts for one prompt (-N), and texts as JSON (--json). */
#include "generating/completion.h"

#include "cli/startup.h"
#include "util/clock.h"
#include "util/text.h"

#include <inttypes.h>
#include <unistd.h>

typedef struct Samples {
  Outputs texts;
  Program *p;
  GenerationRequest request;
  int begun;
  Completion *completion; /* --json */
  bool at_end;            /* texts are printed when it is known what to mark */
  int held;               /* so many of them wait for that */
} Samples;

/* The i-th text is that of the seed i further on. */
static bool next_sample(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Samples *s = context;
  (void)wait;
  if (s->begun >= s->p->settings.samples) return true;
  Output *text = outputs_add(&s->texts, error);
  if (!text) return false;
  text->index = s->begun++;
  text->keep_ids = s->completion || s->p->settings.overlap;
  text->request = s->request;
  text->request.sampling.seed += (uint64_t)text->index;
  text->request.text = text;
  *out = text->request;
  *given = true;
  return true;
}

/* What stands before a text, and after the last. */
static bool begin_sample(const Samples *s, int index) {
  const GenerateSettings *settings = &s->p->settings;
  if (settings->samples > 1)
    printf("%s--- %d of %d, seed %" PRIu64 "\n", index ? "\n" : "", index + 1, settings->samples,
           s->request.sampling.seed + (uint64_t)index);
  if (settings->echo) program_emit(s->p, s->p->given, s->p->given_size);
  return !s->p->write_error;
}

static void end_sample(const Samples *s, int index) {
  if (index == s->p->settings.samples - 1 && isatty(STDOUT_FILENO)) putchar('\n');
  program_flush(s->p);
}

static bool print_sample(void *context, const Output *text, Error *error) {
  Samples *s = context;
  Program *p = s->p;
  if (p->overlap && !overlap_add(p, text->ids.ids, text->ids.count, (int64_t)text->size, error)) return false;
  if (s->at_end) return s->held++, true;
  if (s->completion) {
    if (!completion_add(p, s->completion, text, error)) return false;
    return text->index < p->settings.samples - 1 ||
           (completion_print(p, s->completion, error) && program_report_output(p, error));
  }
  if (begin_sample(s, text->index) && (!text->size || program_emit(p, text->bytes, text->size)))
    end_sample(s, text->index);
  return program_report_output(p, error);
}

/* All texts at once: the other one may be long. Those that are there are printed whatever went wrong. */
static bool finish_samples(const Samples *s, bool ok, Error *error) {
  Program *p = s->p;
  ok = ok && (!p->overlap || overlap_compare(p, error));
  for (int i = 0; i < s->held && begin_sample(s, i) && overlap_print(p, (size_t)i); i++) end_sample(s, i);
  return ok;
}

static bool open_completion(Samples *s, Error *error) {
  Program *p = s->p;
  if (!p->settings.json) return true;
  s->completion = completion_new(error);
  if (!s->completion) return false;
  s->completion->n = p->settings.samples;
  s->completion->prompt_tokens = (int64_t)(p->source.count ? p->source.count : p->prompt.count);
  bool whole;
  s->completion->prompt = completion_string(p->given, p->given_size, &whole);
  return s->completion->prompt || error_memory(error, "a completion");
}

bool program_samples(Program *p, Error *error) {
  Samples s = {.p = p, .request = program_request(p)};
  const int rows = p->settings.samples < GENERATE_ROWS ? p->settings.samples : GENERATE_ROWS;
  const double start = clock_seconds();
  s.at_end = p->settings.overlap && isatty(STDOUT_FILENO);
  s.texts = (Outputs){.print = print_sample, .context = &s};
  bool ok = open_completion(&s, error) && outputs_run(p, &s, rows, next_sample, error);
  ok = finish_samples(&s, ok, error);
  if (ok && !p->write_error)
    console_note(&p->console, "%s in %s in %s; seed %" PRIu64, text_plural((double)s.texts.tokens, "token").text,
                 text_plural(p->settings.samples, "text").text, text_duration(clock_seconds() - start).text,
                 s.request.sampling.seed);
  if (ok && p->overlap) overlap_note(p);
  outputs_free(&s.texts);
  completion_free(s.completion);
  return ok && program_report_output(p, error);
}
