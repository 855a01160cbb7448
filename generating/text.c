/* Text mode, the default: one text to stdout, as it is generated. */
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
  BpeIds ids;  /* the prompt and the generated tokens */
  bool keep;   /* keep the text, for the overlap and for the options of surprisal.h */
  Output text; /* if kept */
  bool at_end; /* print the text at the end, when the overlap to underline is known */
} TextMode;

static bool emit(void *mode, void *text, const uint8_t *bytes, size_t size) {
  TextMode *m = mode;
  (void)text;
  if (m->keep && !output_add(&m->text, bytes, size)) return false;
  if (m->at_end) return true;
  if (!m->p->command.settings.surprisal) return stdout_write(&m->p->out, bytes, size);
  surprisal_print(&m->text, m->text.size - size, m->text.size);
  return stdout_write(&m->p->out, "", 0);
}

static bool take_token(void *mode, void *text, const GeneratedToken *token, Error *error) {
  TextMode *m = mode;
  (void)text;
  return bpe_ids_sink(&m->ids, &token->id, 1, error) && (!m->keep || output_add_token(&m->text, token, error));
}

void program_note_result(Console *console, const GenerationRequest *request, const GenerationResult *result) {
  enum { FEWEST = 20 }; /* the speed of fewer tokens is not printed */
  const double rest = result->seconds - result->first_token_seconds;
  char speed[48] = "";
  if (!result->tokens) return;
  if (result->tokens > FEWEST && rest > 0)
    snprintf(speed, sizeof speed, ", then %s tokens/s", text_count((double)(result->tokens - 1) / rest).text);
  console_note(console, "%s after a prompt of %d; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
               text_plural((double)result->tokens, "token").text,
               request->source ? request->source_tokens : request->prompt_tokens, 1e3 * result->first_token_seconds,
               speed, generation_stop_name(result->reason), request->sampling.seed);
}

static bool generate(TextMode *m, Error *error) {
  Program *p = m->p;
  Overlap *overlap = p->overlap;
  const GenerateSettings *s = &p->command.settings;
  const Prompt *prompt = &p->prompt;
  const BpeIds *read = &prompt->tokens.decoder;
  const bool surprisal = surprisal_is_shown(s), terminal = isatty(STDOUT_FILENO);
  const bool echo = prompt->size && !prompt->tokens.source.count && (s->echo || terminal);
  GenerationRequest request = request_make(&p->command, &p->model, &prompt->tokens);
  GenerationResult result;
  if (surprisal) request.alternatives = m->text.request.alternatives;
  if (echo && !m->at_end && !stdout_write(&p->out, prompt->bytes, prompt->size)) return stdout_check(&p->out, error);
  if (!decoder_open(&p->model.decoder, p->model.model, 1, error)) return false;
  const Generation generation = {.decoder = p->model.decoder,
                                 .tokenizer = p->model.tokenizer,
                                 .context = m,
                                 .emit = emit,
                                 .token = take_token,
                                 .progress = {output_until_signal, NULL}};
  if (!bpe_ids_sink(&m->ids, read->ids, read->count, error) ||
      !generation_run_one(&generation, &request, &result, error) || (m->keep && !output_end(&m->text, &result, error)))
    return false;
  const bool ok = !overlap || (overlap_add(overlap, &m->text, error) && overlap_compare(overlap, &p->out, error));
  if (m->at_end) {
    if (echo) stdout_write(&p->out, prompt->bytes, prompt->size);
    overlap_print(overlap, 0, &p->out);
  }
  if ((terminal || s->alternatives > 0) && !p->out.error) stdout_write(&p->out, "\n", 1);
  program_note_result(&p->console, &request, &result);
  if (overlap && ok) overlap_note(overlap);
  return ok && (!surprisal || surprisal_finish(p, prompt, &m->text, error)) && stdout_check(&p->out, error) &&
         attention_write(s, &p->model, &p->console, &prompt->tokens.source, &m->ids, error);
}

bool program_text(Program *p, Error *error) {
  const GenerateSettings *s = &p->command.settings;
  const bool surprisal = surprisal_is_shown(s);
  if (s->samples > 1) return program_samples(p, error);
  const int alternatives = surprisal ? surprisal_alternatives(s, p->model.config.vocab) : -1;
  TextMode m = {.p = p,
                .keep = surprisal || p->overlap,
                .text = {.request.alternatives = alternatives, .keep_ids = p->overlap},
                .at_end = p->overlap && isatty(STDOUT_FILENO)};
  const bool ok = generate(&m, error);
  free(m.ids.ids);
  output_free(&m.text);
  return ok;
}
