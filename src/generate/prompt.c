/* From the command line to a text to be made: reading a prompt, replacing escapes, encoding; stop texts, biases and
 * bans. */
#include "cli/options.h"
#include "generate/novelty.h"
#include "generate/program.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/array.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void prompt_tokens_free(PromptTokens *tokens) {
  free(tokens->source.ids);
  free(tokens->decoder.ids);
}

/* ---- files ---- */

static bool read_all(FILE *stream, const char *name, size_t limit, ByteBuffer *out, Error *error) {
  while (out->size < limit) {
    if (!array_reserve(&out->bytes, &out->capacity, out->size + (1 << 16), 1)) return error_memory(error, "the prompt");
    out->size += fread(out->bytes + out->size, 1, out->capacity - out->size, stream);
    if (ferror(stream)) return fail(error, EXIT_INPUT, "cannot read %s: %s", name, strerror(errno));
    if (feof(stream)) return true;
  }
  return fail(error, EXIT_INPUT, "%s is longer than %zu bytes", name, limit);
}

bool prompt_read_file(TextCheck *check, const char *path, size_t limit, ByteBuffer *out, Error *error) {
  FILE *stream = path_is_stdin(path) ? stdin : fopen(path, "rb");
  if (!stream) return fail(error, EXIT_INPUT, "cannot read %s: %s", path, strerror(errno));
  const bool ok = read_all(stream, path_shown(path), limit, out, error) &&
                  text_check(check, out->bytes, out->size, path, true, error);
  if (stream != stdin) fclose(stream);
  const size_t mark = utf8_mark(out->bytes, out->size);
  if (mark) memmove(out->bytes, out->bytes + mark, out->size -= mark);
  return ok;
}

/* ---- escapes ---- */

static int digit_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* Returns the byte of an escape; `text` starts after its backslash. Sets *skipped to its size there. -1: unknown. */
static int read_escape(const uint8_t *text, size_t *skipped) {
  static const char names[] = "nrt0\\\"'", values[] = "\n\r\t\0\\\"'";
  const char *name = *text ? strchr(names, *text) : NULL;
  *skipped = 1;
  if (name) return (uint8_t)values[name - names];
  const int high = *text == 'x' ? digit_of((char)text[1]) : -1, low = high < 0 ? -1 : digit_of((char)text[2]);
  *skipped = 3;
  return low < 0 ? -1 : 16 * high + low;
}

bool prompt_replace_escapes(ByteBuffer *buffer, Error *error) {
  uint8_t *text = buffer->bytes;
  size_t used = 0;
  for (size_t i = 0, skipped = 0; i < buffer->size; i += 1 + skipped) {
    const int byte = text[i] == '\\' ? read_escape(text + i + 1, &skipped) : text[i];
    if (byte < 0)
      return fail(error, EXIT_USAGE, "unknown escape \\%.1s; valid escapes are \\n \\r \\t \\0 \\\\ \\\" \\' \\x41",
                  (const char *)text + i + 1);
    if (text[i] != '\\') skipped = 0;
    text[used++] = (uint8_t)byte;
  }
  text[used] = '\0';
  buffer->size = used;
  return true;
}

bool prompt_has_escapes(const char *text, size_t size) {
  for (size_t i = 0; i + 1 < size; i++)
    if (text[i] == '\\' && memchr("nt\\", text[i + 1], 3)) return true;
  return false;
}

bool prompt_copy(const void *text, size_t size, ByteBuffer *out, Error *error) {
  if (!byte_buffer_add(out, text, size, error)) return false;
  out->bytes[size] = '\0';
  return true;
}

/* Copies a text of the command line; with -e, replaces its escapes. EXIT_USAGE, EXIT_MEMORY. */
static bool copy_text(const GenerateSettings *s, const char *given, ByteBuffer *out, Error *error) {
  return prompt_copy(given, strlen(given), out, error) && (!s->escapes || prompt_replace_escapes(out, error));
}

static bool has_escapes(const char *text) { return text && prompt_has_escapes(text, strlen(text)); }

static bool any_has_escapes(const TextList *texts) {
  for (int i = 0; i < texts->count; i++)
    if (has_escapes(texts->items[i])) return true;
  return false;
}

void prompt_note_escapes(Program *p) {
  const GenerateSettings *s = &p->settings;
  const char *option = has_escapes(s->prompt)        ? "-p"
                       : has_escapes(s->answer)      ? "--answer"
                       : any_has_escapes(&s->stops)  ? "--stop"
                       : any_has_escapes(&s->bans)   ? "--ban"
                       : any_has_escapes(&s->biases) ? "--bias"
                                                     : NULL;
  if (option && !s->escapes)
    console_note(&p->console, "the backslash in %s is taken as it is; with -e, \\n is a line break and \\t a tab",
                 option);
}

/* ---- prompts ---- */

bool prompt_read(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  if (s->prompt && s->prompt_file) return fail(error, EXIT_USAGE, "-p and -f both give a prompt; use one");
  if (s->prompt) return copy_text(s, s->prompt, &p->prompt.text, error);
  return !s->prompt_file || prompt_read_file(&p->check, s->prompt_file, (size_t)1 << 30, &p->prompt.text, error);
}

/* Refuses more tokens than the context holds; advice: how to get along. EXIT_INPUT. */
static bool check_fits(const Program *p, const char *what, const char *advice, const BpeIds *ids, Error *error) {
  const size_t ctx = (size_t)p->model.config.ctx;
  return ids->count <= ctx || fail(error, EXIT_INPUT, "the %s has %zu tokens, %zu more than the context of %zu holds%s",
                                   what, ids->count, ids->count - ctx, ctx, advice);
}

/* Makes the tokens fit into the context: drops the first ones where that is allowed. */
static bool fit(const Program *p, const char *what, BpeIds *ids, Error *error) {
  const size_t ctx = (size_t)p->model.config.ctx;
  if (!p->settings.truncate_prompt)
    return check_fits(p, what, "; --truncate-prompt left drops its beginning", ids, error);
  if (ids->count <= ctx) return true;
  memmove(ids->ids, ids->ids + ids->count - ctx, ctx * sizeof *ids->ids);
  ids->count = ctx;
  return true;
}

bool prompt_encode_turns(const Program *p, const ChatTurn *turns, size_t count, BpeIds *out, Error *error) {
  const LoadedModel *m = &p->model;
  size_t dropped = 0, cached;
  const char *prompt = p->settings.system;
  const bool adds = prompt && *prompt && !(count && turns[0].role == CHAT_SYSTEM);
  ChatTurn *all = malloc((count + 1) * sizeof *all);
  if (!all) return error_memory(error, "a conversation");
  if (adds) all[0] = (ChatTurn){CHAT_SYSTEM, (const uint8_t *)prompt, strlen(prompt)};
  if (count) memcpy(all + adds, turns, count * sizeof *all);
  const bool one = count + adds == 1 + (size_t)(count + adds && all[0].role == CHAT_SYSTEM);
  const char *const advice = one ? "" : "; --truncate-prompt left drops its oldest messages";
  const bool ok = p->settings.truncate_prompt
                      ? chat_encode_newest(m->chat, m->tokenizer, all, count + adds, (size_t)m->config.ctx, 0, &dropped,
                                           out, &cached, error)
                      : chat_encode(m->chat, m->tokenizer, all, count + adds, true, out, error);
  free(all);
  return ok && check_fits(p, "prompt", advice, out, error);
}

bool prompt_encode(const Program *p, const void *text, size_t size, PromptTokens *out, Error *error) {
  const LoadedModel *m = &p->model;
  const GenerateSettings *s = &p->settings;
  const bool encoder = m->config.encoder_layers;
  const PromptEncoder with = {encoder ? loaded_source_tokenizer(m) : NULL, m->tokenizer,
                              m->special.start >= 0 ? m->special.start : 0};
  ByteBuffer answer = {0};
  out->source.count = out->decoder.count = 0;
  if (!encoder && s->answer)
    return fail(error, EXIT_USAGE, "--answer is for a model with an encoder; give the text with -p");
  const ChatTurn turn = {CHAT_USER, text, size};
  const bool ok = copy_text(s, s->answer ? s->answer : "", &answer, error) &&
                  (m->chat ? prompt_encode_turns(p, &turn, size > 0, &out->decoder, error)
                           : generation_encode(&with, text, size, answer.bytes, answer.size, out, error) &&
                                 fit(p, "source", &out->source, error) &&
                                 fit(p, encoder ? "answer" : "prompt", &out->decoder, error));
  free(answer.bytes);
  return ok;
}

/* ---- texts ---- */

/* Returns the number of tokens to keep when the context is full; 0: generation stops. */
static int kept_tokens(const GenerateSettings *s, int ctx) {
  const int half = ctx > 1 ? ctx / 2 : 1;
  if (s->on_full == ON_FULL_STOP || s->attention.count) return 0;
  return !s->keep ? half : s->keep < ctx ? s->keep : ctx;
}

uint64_t prompt_seed(const Program *p) {
  return options_given(&p->options, &p->settings.seed) ? p->settings.seed : options_random_seed();
}

Text prompt_text(Program *p, const PromptTokens *prompt) {
  const GenerateSettings *s = &p->settings;
  LoadedModel *m = &p->model;
  const int vocab = m->config.vocab;
  const bool no_text = s->attention.count && !m->config.encoder_layers && !options_given(&p->options, &s->tokens);
  Text text = {.prompt = *prompt,
               .sampling = s->sampling,
               .max_tokens = no_text ? 0 : s->tokens,
               .keep = kept_tokens(s, m->config.ctx),
               .ignore_end = s->ignore_end,
               .stops = p->stops,
               .rules = m->rules.tokenizer ? &m->rules : NULL,
               .alternatives = s->logprobs < vocab ? s->logprobs : vocab};
  if (s->novelty && text.max_tokens < 0) text.max_tokens = novelty_most_tokens(s->samples);
  text.sampling.seed = prompt_seed(p);
  if (s->greedy) text.sampling.temperature = 0;
  return text;
}

/* ---- --stop, --bias and --ban ---- */

/* Copies a text, whose escapes are replaced, into a buffer with another one; `option` must not be empty. */
static bool take_text(const Program *p, const char *given, const char *option, ByteBuffer *out, Error *error) {
  out->size = 0;
  return copy_text(&p->settings, given, out, error) &&
         (out->size || fail(error, EXIT_USAGE, "%s must not be empty", option));
}

bool prompt_make_stops(Program *p, Error *error) {
  const TextList *stops = &p->settings.stops;
  ByteBuffer text = {0};
  bool ok = true;
  for (int i = 0; ok && i < stops->count; i++)
    ok = take_text(p, stops->items[i], "--stop", &text, error) &&
         pattern_list_add(&p->stops, text.bytes, text.size, error);
  free(text.bytes);
  return ok;
}

/* Adds "TEXT=N"; TEXT itself may contain "=". */
static bool add_bias(LoadedModel *m, const char *given, Error *error) {
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

bool prompt_make_rules(Program *p, Error *error) {
  const TextList *biases = &p->settings.biases, *bans = &p->settings.bans;
  LoadedModel *m = &p->model;
  ByteBuffer text = {0};
  if (!biases->count && !bans->count) return true;
  bool ok = token_rules_make(&m->rules, m->tokenizer, error);
  for (int i = 0; ok && i < biases->count; i++) {
    text.size = 0;
    ok = copy_text(&p->settings, biases->items[i], &text, error) && add_bias(m, (const char *)text.bytes, error);
  }
  for (int i = 0; ok && i < bans->count; i++)
    ok =
        take_text(p, bans->items[i], "--ban", &text, error) && token_rules_ban(&m->rules, text.bytes, text.size, error);
  free(text.bytes);
  return ok;
}
