/* Text mode, the default: one text to stdout, as it is generated. */
#include "generate/novelty.h"
#include "generate/heat.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/file.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

typedef struct TextMode {
  Program *p;
  bool keep;   /* keep the text, for --novelty and for the options of heat.h */
  bool at_end; /* print the text at the end, when the copied passages to underline are known */
} TextMode;

static bool emit(void *mode, void *output, const uint8_t *bytes, size_t size, Error *error) {
  const TextMode *m = mode;
  Output *o = output;
  if (m->keep && !byte_buffer_add(&o->text, bytes, size, error)) return false;
  if (m->at_end) return true;
  if (!m->p->settings.heat) return stdout_write(&m->p->out, bytes, size);
  heat_print(o, o->text.size - size, o->text.size);
  return stdout_write(&m->p->out, "", 0);
}

void program_note_result(Console *console, const GenerationRequest *request, const GenerationResult *result) {
  enum { FEWEST = 20 }; /* the speed of fewer tokens is not printed */
  const double rest = result->seconds - result->first_token_seconds;
  char speed[48] = "";
  if (!result->tokens) return;
  if (result->tokens > FEWEST && rest > 0)
    snprintf(speed, sizeof speed, ", then %s tokens/s", text_count((double)(result->tokens - 1) / rest).text);
  console_note(console, "%s after a prompt of %zu; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
               text_plural((double)result->tokens, "token").text, prompt_tokens_count(&request->prompt),
               1e3 * result->first_token_seconds, speed, generation_stop_name(result->reason), request->sampling.seed);
}

static bool generate(TextMode *m, Output *text, Error *error) {
  Program *p = m->p;
  Novelty *novelty = p->novelty;
  const GenerateSettings *s = &p->settings;
  Prompt *prompt = &p->prompt;
  const bool terminal = isatty(STDOUT_FILENO);
  const bool echo = prompt->text.size && !prompt->tokens.source.count && (s->echo || terminal);
  if (echo && !m->at_end && !stdout_write(&p->out, prompt->text.bytes, prompt->text.size))
    return stdout_check(&p->out, error);
  if (!output_generate(&p->model, text, emit, m, error)) return false;
  const bool ok = !novelty || (novelty_add(novelty, text, error) && novelty_compare(novelty, error));
  if (m->at_end) {
    if (echo) stdout_write(&p->out, prompt->text.bytes, prompt->text.size);
    novelty_print(novelty, 0);
  }
  if ((terminal || s->alternatives > 0) && !p->out.error) stdout_write(&p->out, "\n", 1);
  else if (!p->console.quiet && file_is_same("/dev/stdout", "/dev/stderr")) fputc('\n', stderr); /* `>log 2>&1` */
  program_note_result(&p->console, &text->request, &text->result);
  if (novelty && ok) novelty_note(novelty);
  return ok && (!heat_is_shown(s) || heat_finish(p, prompt, text, error)) && stdout_check(&p->out, error) &&
         bpe_ids_sink(&prompt->tokens.decoder, text->ids.ids, text->ids.count, error) && attention_write(p, error);
}

bool program_text(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  const bool heat = heat_is_shown(s);
  if (!attention_check_model(p, error)) return false;
  if (s->samples > 1) return program_samples(p, error);
  TextMode m = {.p = p, .keep = heat || p->novelty, .at_end = p->novelty && isatty(STDOUT_FILENO)};
  Output text = {.request = request_make(p, &p->prompt.tokens), .keep_ids = p->novelty || s->attention.count};
  if (heat) text.request.alternatives = heat_alternatives(s, p->model.config.vocab);
  const bool ok = generate(&m, &text, error);
  output_free(&text);
  return ok;
}
