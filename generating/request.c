#include "generating/request.h"

#include "generating/overlap.h"
#include "util/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of tokens to keep when the context is full; 0: generation stops. */
static int kept_tokens(const GenerateSettings *s, int ctx) {
  const int half = ctx > 1 ? ctx / 2 : 1;
  if (s->on_full == ON_FULL_STOP || s->attention.count) return 0;
  return !s->keep ? half : s->keep < ctx ? s->keep : ctx;
}

uint64_t request_seed(const CommandLine *c) {
  return options_given(&c->options, &c->settings.seed) ? c->settings.seed : options_random_seed();
}

void request_set_prompt(GenerationRequest *request, const PromptTokens *prompt) {
  request->source = prompt->source.count ? prompt->source.ids : NULL;
  request->source_tokens = (int)prompt->source.count;
  request->prompt = prompt->decoder.ids;
  request->prompt_tokens = (int)prompt->decoder.count;
}

GenerationRequest request_make(const CommandLine *c, LoadedModel *m, const PromptTokens *prompt) {
  const GenerateSettings *s = &c->settings;
  const int vocab = m->config.vocab;
  const bool no_text = s->attention.count && !m->config.encoder_layers && !options_given(&c->options, &s->tokens);
  GenerationRequest request = {.sampling = s->sampling,
                               .max_tokens = no_text ? 0 : s->tokens,
                               .keep = kept_tokens(s, m->config.ctx),
                               .ignore_end = s->ignore_end,
                               .stops = c->stops,
                               .rules = m->rules.tokenizer ? &m->rules : NULL,
                               .alternatives = s->logprobs < vocab ? s->logprobs : vocab};
  request_set_prompt(&request, prompt);
  if (s->overlap && request.max_tokens < 0) request.max_tokens = overlap_most_tokens(s->samples);
  request.sampling.seed = request_seed(c);
  if (s->greedy) request.sampling.temperature = 0;
  return request;
}

/* ---- --stop ---- */

bool request_add_stop(StopTexts *stops, const char *text, size_t size, Error *error) {
  Pattern *grown = realloc(stops->patterns, (size_t)(stops->count + 1) * sizeof *grown);
  uint8_t *copy = malloc(size ? size : 1);
  if (grown) stops->patterns = grown;
  if (copy && size) memcpy(copy, text, size);
  if (grown && copy && size && pattern_make(&grown[stops->count], copy, size, error)) {
    stops->count++;
    return true;
  }
  free(copy);
  return grown && copy && !size ? fail(error, EXIT_USAGE, "--stop must not be empty")
                                : error_memory(error, "a text to look for");
}

void request_free_stops(StopTexts *stops) {
  for (int i = 0; i < stops->count; i++) {
    free((void *)stops->patterns[i].bytes);
    pattern_free(&stops->patterns[i]);
  }
  free(stops->patterns);
  *stops = (StopTexts){0};
}

typedef bool AddText(void *to, const char *text, size_t size, Error *error);

/* Calls `add` for each text, with its escapes replaced. */
static bool add_texts(const GenerateSettings *s, const TextList *texts, AddText *add, void *to, Error *error) {
  bool ok = true;
  for (int i = 0; ok && i < texts->count; i++) {
    uint8_t *text;
    size_t size;
    ok = prompt_copy_text(s, texts->items[i], &text, &size, error) && add(to, (const char *)text, size, error);
    free(text);
  }
  return ok;
}

static bool add_stop(void *stops, const char *text, size_t size, Error *error) {
  return request_add_stop(stops, text, size, error);
}

bool request_make_stops(StopTexts *stops, const GenerateSettings *s, Error *error) {
  return add_texts(s, &s->stops, add_stop, stops, error);
}

/* ---- --bias and --ban ---- */

/* Adds "TEXT=N"; TEXT itself may contain "=". */
static bool add_bias(void *model, const char *given, size_t size, Error *error) {
  LoadedModel *m = model;
  (void)size;
  const char *equals = strrchr(given, '=');
  char *end = NULL;
  const float value = equals ? strtof(equals + 1, &end) : NAN;
  BpeIds ids = {0};
  if (!equals || end == equals + 1 || *end || !(value < INFINITY) || equals == given)
    return fail(error, EXIT_USAGE, "--bias %s: need TEXT=N with a number N, such as ' Romeo=+2' or 'x=-inf'",
                text_one_line(given, 100).text);
  bool ok = tokenizer_encode(m->tokenizer, (const uint8_t *)given, (size_t)(equals - given), &ids, error);
  if (ok && ids.count != 1)
    ok = fail(error, EXIT_USAGE, "--bias %s: that text is %zu tokens here, not one; see --encode",
              text_one_line(given, 100).text, ids.count);
  ok = ok && token_rules_bias(&m->rules, ids.ids[0], value, error);
  free(ids.ids);
  return ok;
}

static bool add_ban(void *model, const char *text, size_t size, Error *error) {
  return size ? token_rules_ban(&((LoadedModel *)model)->rules, (const uint8_t *)text, size, error)
              : fail(error, EXIT_USAGE, "--ban must not be empty");
}

bool request_make_rules(LoadedModel *m, const GenerateSettings *s, Error *error) {
  if (!s->biases.count && !s->bans.count) return true;
  return token_rules_make(&m->rules, m->tokenizer, error) && add_texts(s, &s->biases, add_bias, m, error) &&
         add_texts(s, &s->bans, add_ban, m, error);
}
