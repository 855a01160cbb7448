/* Text mode, the default: one text to stdout, as it is generated. */
#include "cli/startup.h"
#include "generating/program.h"
#include "generating/surprisal.h"
#include "tokenizer/bpe_encode.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct TextMode {
  Program *p;
  BpeIds ids;     /* the prompt and the generated tokens */
  Output *output; /* for the options of surprisal.h; NULL: none is given */
} TextMode;

static bool emit(void *mode, void *text, const uint8_t *bytes, size_t size) {
  const TextMode *m = mode;
  Output *output = m->output;
  (void)text;
  if (output && !output_add(output, bytes, size)) return false;
  if (!m->p->command.settings.surprisal) return stdout_write(&m->p->out, bytes, size);
  surprisal_print(output, output->size - size, output->size);
  return stdout_write(&m->p->out, "", 0);
}

static bool take_token(void *mode, void *text, const GeneratedToken *token, Error *error) {
  TextMode *m = mode;
  (void)text;
  return bpe_ids_sink(&m->ids, &token->id, 1, error) && (!m->output || output_add_token(m->output, token, error));
}

/* ", then 23.0k tokens/s"; "" after too few tokens. */
typedef struct SpeedWords {
  char text[48];
} SpeedWords;
static SpeedWords speed_words(const GenerationResult *result) {
  enum { FEWEST = 20 };
  SpeedWords words = {""};
  const double rest = result->seconds - result->first_token_seconds;
  if (result->tokens > FEWEST && rest > 0)
    snprintf(words.text, sizeof words.text, ", then %s tokens/s", text_count((double)(result->tokens - 1) / rest).text);
  return words;
}

void program_note_result(Console *console, const GenerationRequest *request, const GenerationResult *result) {
  if (result->tokens)
    console_note(console, "%s after a prompt of %d; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
                 text_plural((double)result->tokens, "token").text,
                 request->source ? request->source_tokens : request->prompt_tokens, 1e3 * result->first_token_seconds,
                 speed_words(result).text, generation_stop_name(result->reason), request->sampling.seed);
}

static bool find_overlap(const TextMode *m, const GenerationResult *result, Error *error) {
  Program *p = m->p;
  const BpeIds *prompt = &p->prompt.tokens.decoder;
  return overlap_add(p->overlap, prompt, m->ids.ids + prompt->count, m->ids.count - prompt->count, result->bytes,
                     error) &&
         overlap_compare(p->overlap, &p->out, error);
}

static bool generate(TextMode *m, Error *error) {
  Program *p = m->p;
  const GenerateSettings *s = &p->command.settings;
  const Prompt *prompt = &p->prompt;
  const BpeIds *read = &prompt->tokens.decoder;
  GenerationRequest request = request_make(&p->command, &p->model, &prompt->tokens);
  GenerationResult result;
  if (m->output) request.alternatives = m->output->request.alternatives;
  const bool terminal = isatty(STDOUT_FILENO), echo = !prompt->tokens.source.count && (s->echo || terminal);
  const bool at_end = s->overlap && terminal; /* the overlap to underline is known only then */
  if (echo && !at_end && prompt->size && !stdout_write(&p->out, prompt->bytes, prompt->size))
    return stdout_check(&p->out, error);
  if (!decoder_open(&p->model.decoder, p->model.model, 1, error)) return false;
  const Generation generation = {.decoder = p->model.decoder,
                                 .tokenizer = p->model.tokenizer,
                                 .context = m,
                                 .emit = at_end ? NULL : emit,
                                 .token = take_token,
                                 .progress = {output_until_signal, NULL}};
  if (!bpe_ids_sink(&m->ids, read->ids, read->count, error) ||
      !generation_run_one(&generation, &request, &result, error) ||
      (m->output && !output_end(m->output, &result, error)))
    return false;
  const bool ok = !s->overlap || find_overlap(m, &result, error);
  if (at_end) {
    if (echo && prompt->size) stdout_write(&p->out, prompt->bytes, prompt->size);
    overlap_print(p->overlap, 0, &p->out);
  }
  if ((terminal || s->alternatives > 0) && !p->out.error) stdout_write(&p->out, "\n", 1);
  program_note_result(&p->console, &request, &result);
  if (s->overlap && ok) overlap_note(p->overlap);
  return ok && (!m->output || surprisal_finish(p, prompt, m->output, error)) && stdout_check(&p->out, error) &&
         attention_write(p, &m->ids, error);
}

bool program_text(Program *p, Error *error) {
  const GenerateSettings *s = &p->command.settings;
  Output output = {.request.alternatives = surprisal_alternatives(s, p->model.config.vocab)};
  TextMode m = {.p = p, .output = surprisal_is_shown(s) ? &output : NULL};
  const bool ok = generate(&m, error);
  free(m.ids.ids);
  output_free(&output);
  return ok;
}
