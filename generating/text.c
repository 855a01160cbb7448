/* Generation of one text to stdout. */
#include "generating/surprisal.h"

#include "cli/startup.h"
#include "model/decoder.h"
#include "tokenizer/bpe_encode.h"
#include "util/file.h"
#include "util/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void program_flush(Program *p) {
  const int cause = file_flush_cause(stdout);
  if (!p->write_error) p->write_error = cause;
}

bool program_emit(Program *p, const uint8_t *bytes, size_t size) {
  fwrite(bytes, 1, size, stdout);
  program_flush(p);
  return !p->write_error && !stop_signal;
}

/* Not an error yet: what was written is summed up first. */
static bool keep_generating(void *context, int64_t tokens, Error *error) {
  (void)context, (void)tokens, (void)error;
  return !stop_signal;
}

bool program_report_output(const Program *p, Error *error) {
  if (p->write_error == EPIPE) return true; /* the reader has what it wanted */
  if (p->write_error) return fail(error, EXIT_OUTPUT, "cannot write the text to stdout: %s", strerror(p->write_error));
  return startup_go_on("generating", error);
}

/* When the context is full; 0: that is the end. */
static int kept_tokens(const Program *p) {
  const GenerateSettings *s = &p->settings;
  const int ctx = p->config.ctx, half = ctx > 1 ? ctx / 2 : 1;
  if (s->on_full == ON_FULL_STOP || s->attention.count) return 0;
  return !s->keep ? half : s->keep < ctx ? s->keep : ctx;
}

uint64_t program_seed(const Program *p) {
  return options_given(&p->options, &p->settings.seed) ? p->settings.seed : options_random_seed();
}

GenerationRequest program_request(Program *p) {
  const GenerateSettings *s = &p->settings;
  const bool no_text = s->attention.count && !p->config.encoder_layers && !options_given(&p->options, &s->tokens);
  GenerationRequest request = {.source = p->source.count ? p->source.ids : NULL,
                               .source_tokens = (int)p->source.count,
                               .prompt = p->prompt.ids,
                               .prompt_tokens = (int)p->prompt.count,
                               .sampling = s->sampling,
                               .max_tokens = no_text ? 0 : s->tokens,
                               .keep = kept_tokens(p),
                               .ignore_end = s->ignore_end,
                               .stops = p->stops,
                               .rules = p->rules.tokenizer ? &p->rules : NULL,
                               .alternatives = s->logprobs < p->config.vocab ? s->logprobs : p->config.vocab};
  if (s->overlap && request.max_tokens < 0) request.max_tokens = overlap_most_tokens(s->samples);
  request.sampling.seed = program_seed(p);
  if (s->greedy) request.sampling.temperature = 0;
  return request;
}

/* ---- stop texts ---- */

bool program_add_stop(StopTexts *stops, const char *text, size_t size, Error *error) {
  Pattern *grown = realloc(stops->patterns, (size_t)(stops->count + 1) * sizeof *grown);
  uint8_t *copy = malloc(size ? size : 1);
  if (grown) stops->patterns = grown;
  if (copy && size) memcpy(copy, text, size);
  if (grown && copy && size && pattern_make(&grown[stops->count], copy, size, error)) {
    stops->count++;
    return true;
  }
  free(copy);
  return grown && copy && !size ? fail(error, EXIT_USAGE, "--stop \"\": a text of nothing is everywhere")
                                : error_memory(error, "a text to look for");
}

void program_free_stops(StopTexts *stops) {
  for (int i = 0; i < stops->count; i++) {
    free((void *)stops->patterns[i].bytes);
    pattern_free(&stops->patterns[i]);
  }
  free(stops->patterns);
  *stops = (StopTexts){0};
}

bool program_make_stops(Program *p, Error *error) {
  const TextList *texts = &p->settings.stops;
  bool ok = true;
  for (int i = 0; ok && i < texts->count; i++) {
    uint8_t *text;
    size_t size;
    ok = program_given_text(p, texts->items[i], &text, &size, error) &&
         program_add_stop(&p->stops, (const char *)text, size, error);
    free(text);
  }
  return ok;
}

/* ---- many texts ---- */

static bool add_bytes(void *context, void *text, const uint8_t *bytes, size_t size) {
  (void)context;
  return output_add(text, bytes, size);
}

static bool add_token(void *context, void *text, const GeneratedToken *token, Error *error) {
  (void)context;
  return output_add_token(text, token, error);
}

static bool end_one(void *context, void *text, const GenerationResult *result, Error *error) {
  Outputs *texts = context;
  return output_end(text, result, error) && outputs_print(texts, error);
}

static bool keep_writing(void *program, int64_t tokens, Error *error) {
  const Program *p = program;
  (void)tokens;
  return !p->write_error && startup_go_on("generating", error);
}

bool outputs_run(Program *p, void *context, int most_rows, GenerationNext *next, Error *error) {
  const int rows = generation_rows(p->model, most_rows);
  if (!decoder_open(&p->decoder, p->model, rows, error)) return false;
  const Generation generation = {.decoder = p->decoder,
                                 .rows = rows,
                                 .tokenizer = p->tokenizer,
                                 .context = context,
                                 .next = next,
                                 .emit = add_bytes,
                                 .token = add_token,
                                 .done = end_one,
                                 .progress = {keep_writing, p}};
  return generation_run(&generation, error) && outputs_print(context, error);
}

/* ---- one text, as it comes ---- */

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

static bool emit_text(void *program, void *context, const uint8_t *bytes, size_t size) {
  Program *p = program;
  Output *text = context;
  if (!text) return program_emit(p, bytes, size);
  if (!output_add(text, bytes, size)) return false;
  if (!p->settings.surprisal) return program_emit(p, bytes, size);
  surprisal_print(text, text->size - size, text->size);
  program_flush(p);
  return !p->write_error && !stop_signal;
}

static bool keep_token(void *program, void *text, const GeneratedToken *token, Error *error) {
  Program *p = program;
  return bpe_ids_sink(&p->text, &token->id, 1, error) && (!text || output_add_token(text, token, error));
}

void program_note_result(Program *p, const GenerationRequest *request, const GenerationResult *result) {
  if (result->tokens)
    console_note(&p->console, "%s after a prompt of %d; first after %.1f ms%s; stopped: %s; seed %" PRIu64,
                 text_plural((double)result->tokens, "token").text,
                 request->source ? request->source_tokens : request->prompt_tokens, 1e3 * result->first_token_seconds,
                 speed_words(result).text, generation_stop_name(result->reason), request->sampling.seed);
}

static bool find_overlap(Program *p, const GenerationResult *result, Error *error) {
  const size_t first = p->prompt.count;
  return overlap_add(p, p->text.ids + first, p->text.count - first, result->bytes, error) && overlap_compare(p, error);
}

bool program_generate(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  GenerationRequest request = program_request(p);
  GenerationResult result;
  Output output = {.request.alternatives = surprisal_alternatives(p)};
  if (surprisal_is_shown(s)) {
    request.alternatives = output.request.alternatives;
    request.text = &output;
  }
  const bool terminal = isatty(STDOUT_FILENO), echo = !p->source.count && (s->echo || terminal);
  const bool at_end = s->overlap && terminal; /* when it is known what to mark */
  if (echo && !at_end && p->given_size && !program_emit(p, p->given, p->given_size))
    return program_report_output(p, error);
  if (!decoder_open(&p->decoder, p->model, 1, error)) return false;
  const Generation generation = {.decoder = p->decoder,
                                 .tokenizer = p->tokenizer,
                                 .context = p,
                                 .emit = at_end ? NULL : emit_text,
                                 .token = keep_token,
                                 .progress = {keep_generating, NULL}};
  bool ok = bpe_ids_sink(&p->text, p->prompt.ids, p->prompt.count, error) &&
            generation_run_one(&generation, &request, &result, error) && output_end(&output, &result, error);
  const bool judged = ok && (!s->overlap || find_overlap(p, &result, error));
  if (ok && at_end) {
    if (echo && p->given_size) program_emit(p, p->given, p->given_size);
    overlap_print(p, 0);
  }
  if (ok && (terminal || s->alternatives > 0) && !p->write_error) program_emit(p, (const uint8_t *)"\n", 1);
  if (ok) program_note_result(p, &request, &result);
  if (s->overlap && judged) overlap_note(p);
  ok = judged &&
       (!surprisal_is_shown(s) || surprisal_finish(p, (SurprisalPrompt){p->given, p->given_size}, &output, error));
  output_free(&output);
  return ok && program_report_output(p, error) && program_write_attention(p, &p->text, error);
}
