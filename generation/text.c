/* Writing one text. */
#include "generation/program.h"

#include "cli/startup.h"
#include "tokenizer/bpe_encode.h"
#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

bool program_emit(void *context, const uint8_t *bytes, size_t size) {
  Program *p = context;
  errno = 0;
  if (fwrite(bytes, 1, size, stdout) != size || fflush(stdout) != 0) p->write_error = errno ? errno : EIO;
  return !p->write_error && !stop_signal;
}

/* Not an error yet: what was written is summed up first. */
static bool keep_generating(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens, (void)error;
  return !stop_signal;
}

static uint64_t random_seed(void) {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)getpid();
  return seed & 0xFFFFFFFFu; /* short enough to type again */
}

bool program_report_output(const Program *p, Error *error) {
  if (p->write_error == EPIPE) return true; /* the reader has what it wanted */
  if (p->write_error) return fail(error, EXIT_OUTPUT, "cannot write the text to stdout: %s", strerror(p->write_error));
  return startup_go_on("generating", error);
}

GenerationRequest program_request(Program *p) {
  const GenerateSettings *s = &p->settings;
  const bool no_text = s->attention.count && !p->config.encoder_layers && !options_given(&p->options, &s->tokens);
  GenerationRequest request = {.tokenizer = p->tokenizer,
                               .sampling = s->sampling,
                               .prompt = p->prompt.ids,
                               .prompt_tokens = (int)p->prompt.count,
                               .max_tokens = no_text ? 0 : s->tokens,
                               .slide = s->on_full == ON_FULL_SLIDE && !s->attention.count,
                               .ignore_end = s->ignore_end,
                               .emit = program_emit,
                               .emit_context = p,
                               .progress = {keep_generating, NULL}};
  request.sampling.seed = options_given(&p->options, &s->seed) ? s->seed : random_seed();
  if (s->greedy) request.sampling.temperature = 0;
  return request;
}

bool program_open_decoder(Program *p, Error *error) {
  return decoder_open(&p->decoder, p->model, 1, error) &&
         (!p->source.count || decoder_source(p->decoder, 0, p->source.ids, (int)p->source.count, error));
}

/* ", then 23.0k tokens/s", or nothing after so few that it would say nothing. */
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

bool program_generate(Program *p, const uint8_t *text, size_t size, Error *error) {
  const GenerateSettings *s = &p->settings;
  GenerationRequest request = program_request(p);
  GenerationResult result;
  const bool terminal = isatty(STDOUT_FILENO), echo = !p->source.count && (s->echo || terminal);
  if (echo && size && !program_emit(p, text, size)) return program_report_output(p, error);
  if (!program_open_decoder(p, error)) return false;
  request.decoder = p->decoder;
  request.drawn = &p->text;
  if (!bpe_ids_sink(&p->text, p->prompt.ids, p->prompt.count, error) || !generation_run(&request, &result, error))
    return false;
  if (terminal && !p->write_error) program_emit(p, (const uint8_t *)"\n", 1);
  if (result.tokens)
    console_note(&p->console,
                 "%" PRId64 " tokens after a prompt of %zu; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
                 result.tokens, p->source.count ? p->source.count : p->prompt.count, 1e3 * result.first_token_seconds,
                 speed_words(&result).text, generation_stop_name(result.reason), request.sampling.seed);
  return program_report_output(p, error) && program_write_attention(p, &p->text, error);
}
