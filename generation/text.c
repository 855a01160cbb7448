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

bool program_emit(Program *p, const uint8_t *bytes, size_t size) {
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
  const int ctx = p->config.ctx;
  GenerationRequest request = {.source = p->source.count ? p->source.ids : NULL,
                               .source_tokens = (int)p->source.count,
                               .prompt = p->prompt.ids,
                               .prompt_tokens = (int)p->prompt.count,
                               .sampling = s->sampling,
                               .max_tokens = no_text ? 0 : s->tokens,
                               .keep = s->on_full == ON_FULL_STOP || s->attention.count ? 0
                                       : ctx > 1                                        ? ctx / 2
                                                                                        : 1,
                               .ignore_end = s->ignore_end,
                               .alternatives = -1};
  request.sampling.seed = options_given(&p->options, &s->seed) ? s->seed : random_seed();
  if (s->greedy) request.sampling.temperature = 0;
  return request;
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

static bool emit_text(void *program, void *text, const uint8_t *bytes, size_t size) {
  (void)text;
  return program_emit(program, bytes, size);
}

static bool keep_token(void *program, void *text, const GeneratedToken *token, Error *error) {
  Program *p = program;
  (void)text;
  return bpe_ids_sink(&p->text, &token->id, 1, error);
}

bool program_generate(Program *p, const uint8_t *text, size_t size, Error *error) {
  const GenerateSettings *s = &p->settings;
  const GenerationRequest request = program_request(p);
  GenerationResult result;
  const bool terminal = isatty(STDOUT_FILENO), echo = !p->source.count && (s->echo || terminal);
  if (echo && size && !program_emit(p, text, size)) return program_report_output(p, error);
  if (!decoder_open(&p->decoder, p->model, 1, error)) return false;
  const Generation generation = {.decoder = p->decoder,
                                 .tokenizer = p->tokenizer,
                                 .context = p,
                                 .emit = emit_text,
                                 .token = keep_token,
                                 .progress = {keep_generating, NULL}};
  if (!bpe_ids_sink(&p->text, p->prompt.ids, p->prompt.count, error) ||
      !generation_run_one(&generation, &request, &result, error))
    return false;
  if (terminal && !p->write_error) program_emit(p, (const uint8_t *)"\n", 1);
  if (result.tokens)
    console_note(&p->console,
                 "%" PRId64 " tokens after a prompt of %zu; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
                 result.tokens, p->source.count ? p->source.count : p->prompt.count, 1e3 * result.first_token_seconds,
                 speed_words(&result).text, generation_stop_name(result.reason), request.sampling.seed);
  return program_report_output(p, error) && program_write_attention(p, &p->text, error);
}
