#include "generate/completion.h"

#include "text/dataset/conversation.h"
#include "text/dataset/line.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXTS = 1000000 };

/* Keys with a whole number, in addition to the sampling settings. */
enum { KEY_N, KEY_TOKENS, KEY_SEED, KEY_LOGPROBS, KEYS };
static const SamplingSetting number_keys[KEYS] = {{.key = "n", .whole = true, .min = 1, .max = MOST_TEXTS},
                                                  {.key = "max_tokens", .whole = true, .min = -1, .max = 1e12},
                                                  {.key = "seed", .whole = true, .min = -1, .max = 9e18},
                                                  {.key = "logprobs", .whole = true, .min = 0, .max = 1000}};

Completion *completion_new(const Text *settings, int n, Error *error) {
  Completion *c = calloc(1, sizeof *c);
  if (!c) error_memory(error, "a completion");
  if (!c) return NULL;
  c->settings = *settings;
  c->n = n;
  return c;
}

void completion_free(Completion *c) {
  if (!c) return;
  json_decref(c->id);
  json_decref(c->prompt);
  json_decref(c->choices);
  json_decref(c->score);
  pattern_list_free(&c->stops);
  prompt_tokens_free(&c->tokens);
  free(c);
}

/* ---- bytes as JSON ---- */

/* Makes a JSON string of a text, which it frees; NULL: no memory, or there is no text. */
static json_t *take_text(char *text, size_t size) {
  json_t *string = text ? json_stringn(text, size) : NULL;
  free(text);
  return string;
}

json_t *completion_string(const uint8_t *bytes, size_t size, bool *valid) {
  char *text = json_allocate(3 * size + 1);
  size_t used = 0;
  bool all_valid = true;
  for (size_t i = 0, length; text && i < size; i += length) {
    const int32_t point = utf8_next(bytes + i, size - i, &length);
    used += utf8_write(point == UTF8_INVALID ? 0xFFFD : (uint32_t)point, (uint8_t *)text + used);
    all_valid = all_valid && point != UTF8_INVALID;
  }
  if (valid) *valid = all_valid;
  return take_text(text, used);
}

bool completion_write(FILE *out, const uint8_t *bytes, size_t size, Error *error) {
  json_t *string = completion_string(bytes, size, NULL);
  const bool ok = string && json_dumpf(string, out, JSON_ENCODE_ANY) == 0;
  json_decref(string);
  return ok || json_memory_ok(error, "a text");
}

static json_t *base64(const uint8_t *bytes, size_t size) {
  char *text = json_allocate((size + 2) / 3 * 4 + 1);
  size_t used = 0;
  for (size_t i = 0; text && i < size; i += 3, used += 4) text_base64(bytes + i, size - i, text + used);
  return take_text(text, used);
}

json_t *completion_bytes(const uint8_t *bytes, size_t size) {
  bool valid;
  json_t *text = completion_string(bytes, size, &valid);
  if (valid) return text;
  json_decref(text);
  char *name = json_allocate(6 + 4 * size + 1);
  if (name) strcpy(name, "bytes:");
  for (size_t i = 0; name && i < size; i++) sprintf(name + 6 + 4 * i, "\\x%02x", (unsigned)bytes[i]);
  return take_text(name, 6 + 4 * size);
}

/* Returns the name of a token: its text as completion_bytes() writes it, or the name of a special token. */
static json_t *token_name(const Tokenizer *tokenizer, int32_t id) {
  size_t size;
  const uint8_t *bytes = tokenizer_decode(tokenizer, id, &size);
  if (tokenizer_special(tokenizer, id)) return json_string(tokenizer_special(tokenizer, id));
  return tokenizer_has_id(tokenizer, id) ? completion_bytes(bytes, size)
                                         : json_string(tokenizer_show(tokenizer, id).text);
}

/* ---- a line of JSON ---- */

static bool check_number(const char *name, const json_t *value, const SamplingSetting *row, Error *why) {
  const double number = json_number_value(value);
  if ((row->whole ? json_is_integer(value) : json_is_number(value)) && number <= row->max &&
      (row->above ? number > row->min : number >= row->min))
    return true;
  return fail(why, EXIT_INPUT, "\"%s\" must be a %snumber from %g%s to %g", name, row->whole ? "whole " : "", row->min,
              row->above ? " (excluded)" : "", row->max);
}

static void set_number(Completion *c, int key, const json_t *value, int vocab) {
  const double number = json_number_value(value);
  if (key == KEY_N) c->n = (int)number;
  if (key == KEY_TOKENS) c->settings.max_tokens = (int64_t)number;
  if (key == KEY_SEED)
    c->settings.sampling.seed = number < 0 ? options_random_seed() : (uint64_t)json_integer_value(value);
  if (key == KEY_LOGPROBS) c->settings.alternatives = number < vocab ? (int)number : vocab;
}

/* Sets *known unless the name is none of a number. */
static bool take_number(Completion *c, const char *name, const json_t *value, int vocab, bool *known, Error *why) {
  const SamplingSetting *row = sampling_settings;
  int key = 0;
  while (row->name && strcmp(name, row->key) != 0 && strcmp(name, row->name) != 0) row++;
  while (key < KEYS && strcmp(name, number_keys[key].key) != 0) key++;
  *known = row->name || key < KEYS;
  if (!*known) return true;
  if (!check_number(name, value, row->name ? row : &number_keys[key], why)) return false;
  if (row->name) sampling_set(&c->settings.sampling, row, json_number_value(value));
  else set_number(c, key, value, vocab);
  return true;
}

static bool add_stop(Completion *c, const json_t *text, Error *why) {
  if (!json_is_string(text) || !json_string_length(text))
    return fail(why, EXIT_INPUT, "\"stop\" must be a non-empty string or a list of them");
  return pattern_list_add(&c->stops, json_string_value(text), json_string_length(text), why);
}

static bool take_stops(Completion *c, const json_t *value, Error *why) {
  if (!json_is_array(value)) return add_stop(c, value, why);
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!add_stop(c, json_array_get(value, i), why)) return false;
  return true;
}

static bool check_score(const Program *p, const json_t *value, Error *why) {
  if (!json_is_boolean(value)) return fail(why, EXIT_INPUT, "\"score\" must be true or false");
  return !p->model.config.encoder_layers || json_is_false(value) ||
         fail(why, EXIT_INPUT, "\"score\" is for models without an encoder");
}

static bool fail_key(const char *name, Error *why) {
  fail(why, EXIT_INPUT, "unknown key \"%s\"; the keys are prompt, messages, id, stop, score",
       text_one_line(name, 60).text);
  for (int key = 0; key < KEYS; key++) error_append(why, ", %s", number_keys[key].key);
  for (const SamplingSetting *row = sampling_settings; row->name; row++) error_append(why, ", %s", row->key);
  return false;
}

static bool take_prompt(Completion *c, json_t *value, Error *why) {
  if (c->prompt) return fail(why, EXIT_INPUT, "\"prompt\" and \"messages\" are both given; use one");
  c->prompt = json_incref(value);
  return true;
}

static bool take_messages(const Program *p, Completion *c, json_t *value, Error *why) {
  if (!p->model.chat) return fail(why, EXIT_INPUT, "\"messages\" are for models with a chat template, without --raw");
  c->chat = true;
  return take_prompt(c, value, why);
}

static bool take_key(const Program *p, Completion *c, const char *name, json_t *value, Error *why) {
  bool known;
  if (!take_number(c, name, value, p->model.config.vocab, &known, why) || known) return !why->code;
  if (strcmp(name, "stop") == 0) return take_stops(c, value, why);
  if (strcmp(name, "id") == 0) return true; /* see read_object() */
  if (strcmp(name, "score") == 0) return check_score(p, value, why);
  if (strcmp(name, "messages") == 0) return take_messages(p, c, value, why);
  if (strcmp(name, "prompt") != 0) return fail_key(name, why);
  if (!json_is_string(value)) return fail(why, EXIT_INPUT, "\"prompt\" must be a string");
  return take_prompt(c, value, why);
}

static bool read_object(const Program *p, Completion *c, json_t *object, Error *why) {
  const char *name;
  json_t *value;
  if (json_is_string(object)) c->prompt = json_incref(object);
  if (json_is_string(object)) return true;
  if (!json_is_object(object)) return fail(why, EXIT_INPUT, "a line must be a string or an object with \"prompt\"");
  c->id = json_incref(line_value(object, "id"));
  json_object_foreach(object, name, value) if (!json_is_null(value) && !take_key(p, c, name, value, why)) return false;
  return c->prompt ||
         fail(why, EXIT_INPUT, p->model.chat ? "\"messages\" or \"prompt\" is missing" : "\"prompt\" is missing");
}

/* Computes the same score as --score --per-line. */
static bool score_prompt(Program *p, Completion *c, Error *why) {
  TextScore score = {0};
  if (!score_text(p, json_string_value(c->prompt), json_string_length(c->prompt), &score, why)) return false;
  c->score = json_pack("{s:f,s:I,s:I}", "nats", score.nats, "tokens", (json_int_t)score.tokens, "bytes",
                       (json_int_t)score.bytes);
  return c->score || error_memory(why, "a score");
}

/* Explains "n", which may be mistaken for -n, the length. */
static void note_number(Program *p, const Completion *c, const json_t *object) {
  if (p->noted_n || !json_is_integer(json_object_get(object, "n")) || c->n < 2 ||
      json_is_integer(json_object_get(object, "max_tokens")) || options_given(&p->options, &p->settings.tokens))
    return;
  console_note(&p->console,
               "line %" PRId64 ": \"n\" is the number of texts, here %d of up to %" PRId64
               " tokens each; \"max_tokens\" is their length",
               c->line, c->n, c->settings.max_tokens);
  p->noted_n = true;
}

static bool encode_messages(const Program *p, Completion *c, const json_t *object, Error *why) {
  Record record = {0};
  bool ok = conversation_take(&record, object, false, "the request", c->line, why);
  if (ok && (!record.turn_count || record.turns[record.turn_count - 1].role != CHAT_USER))
    ok = fail(why, EXIT_INPUT, "the last message must be the user's");
  ok = ok && prompt_encode_turns(p, record.turns, record.turn_count, &c->tokens.decoder, why);
  record_free(&record);
  return ok;
}

static bool take_object(Program *p, Completion *c, json_t *object, Error *why) {
  if (!read_object(p, c, object, why)) return false;
  if (c->chat ? !encode_messages(p, c, object, why)
              : !prompt_encode(p, json_string_value(c->prompt), json_string_length(c->prompt), &c->tokens, why))
    return false;
  if (c->stops.count) c->settings.stops = c->stops;
  if (c->chat && json_is_true(json_object_get(object, "score")))
    return fail(why, EXIT_INPUT, "\"score\" is for \"prompt\", not for \"messages\"");
  if (json_is_true(json_object_get(object, "score")) && !score_prompt(p, c, why)) return false;
  note_number(p, c, object);
  return true;
}

bool completion_read(Program *p, Completion *c, const uint8_t *line, size_t size, Error *why) {
  json_error_t cause;
  const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
  json_t *object = json_parse(line, size, flags, &cause, "a line", why);
  if (!object) return !why->code && fail(why, EXIT_INPUT, "not JSON: %.200s", cause.text);
  const bool ok = take_object(p, c, object, why);
  json_decref(object);
  return ok;
}

/* ---- log-probabilities ---- */

static json_t *top_of(const Tokenizer *tokenizer, const TokenAlternative *top, int count) {
  json_t *object = json_object();
  for (int k = 0; k < count; k++) {
    json_t *name = token_name(tokenizer, top[k].id);
    const char *key = json_string_value(name);
    /* of tokens with the same name, the likeliest */
    if (key && !json_object_get(object, key)) json_object_set_new(object, key, json_real((double)top[k].logprob));
    json_decref(name);
  }
  return object;
}

/* Returns the number of tokens of the text. At a stop text or an interruption, tokens that begin behind the end of the
 * text are dropped, and of those that begin at its end, the last: the others have no text, such as special ones. */
static size_t token_count(const Text *t) {
  const size_t size = t->bytes.size;
  size_t count = t->ids.count;
  if (t->reason != STOP_TEXT && t->reason != STOP_CALLER) return count;
  while (count > 0 && t->tokens[count - 1].begin > size) count--;
  if (count > 0 && t->tokens[count - 1].begin == size) count--;
  return count;
}

/* Offsets count characters, as Python does. */
static json_t *logprobs_json(const Tokenizer *tokenizer, const Text *t) {
  const int alternatives = t->alternatives;
  json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
  size_t at = 0;
  int64_t characters = 0;
  for (size_t i = 0, count = token_count(t); i < count; i++) {
    for (; at < t->tokens[i].begin; at++) characters += !utf8_continues(t->bytes.bytes[at]);
    const bool inside = at < t->bytes.size && utf8_continues(t->bytes.bytes[at]) && characters > 0;
    json_array_append_new(tokens, token_name(tokenizer, t->ids.ids[i]));
    json_array_append_new(values, json_real((double)t->tokens[i].logprob));
    json_array_append_new(offsets, json_integer(characters - inside));
    if (alternatives > 0)
      json_array_append_new(tops, top_of(tokenizer, t->top + i * (size_t)alternatives, alternatives));
  }
  return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs",
                   alternatives > 0 ? tops : (json_decref(tops), json_null()), "text_offset", offsets);
}

/* ---- completions ---- */

static json_t *ids_json(const Text *t) {
  json_t *ids = json_array();
  for (size_t i = 0, count = token_count(t); i < count; i++) json_array_append_new(ids, json_integer(t->ids.ids[i]));
  return ids;
}

bool completion_add(const Tokenizer *tokenizer, Completion *c, const Text *t, int index, Error *error) {
  const bool stopped = t->reason == STOP_END || t->reason == STOP_TEXT;
  bool valid;
  json_t *string = completion_string(t->bytes.bytes, t->bytes.size, &valid);
  json_t *content = !c->chat ? string : json_pack("{s:s,s:o}", "role", "assistant", "content", string);
  json_t *choice =
      json_pack("{s:i,s:o,s:s,s:I,s:o,s:o}", "index", index, c->chat ? "message" : "text", content, "finish_reason",
                stopped ? "stop" : "length", "seed", (json_int_t)t->sampling.seed, "logprobs",
                t->alternatives < 0 ? json_null() : logprobs_json(tokenizer, t), "token_ids", ids_json(t));
  if (choice && !valid) json_object_set_new(choice, "bytes", base64(t->bytes.bytes, t->bytes.size));
  if (!c->choices) c->choices = json_array();
  c->generated += t->count;
  if (choice && json_array_append_new(c->choices, choice) == 0) return json_memory_ok(error, "a completion");
  return error_memory(error, "a completion");
}

static json_t *refusal(const Completion *c) {
  return json_pack("{s:{s:I,s:o,s:s}}", "error", "line", (json_int_t)c->line, "message",
                   completion_string((const uint8_t *)c->why.text, strlen(c->why.text), NULL), "type",
                   "invalid_request_error");
}

static json_t *answer(const char *model, const Completion *c) {
  const json_int_t read = (json_int_t)prompt_tokens_count(&c->tokens), written = (json_int_t)c->generated;
  json_t *name = completion_string((const uint8_t *)model, strlen(model), NULL);
  return json_pack("{s:s,s:o,s:O,s:O,s:{s:I,s:I,s:I}}", "object", c->chat ? "chat.completion" : "text_completion",
                   "model", name, c->chat ? "messages" : "prompt", c->prompt, "choices", c->choices, "usage",
                   "prompt_tokens", read, "completion_tokens", written, "total_tokens", read + written);
}

bool completion_print(Program *p, const Completion *c, Error *error) {
  json_t *line = json_object(), *rest = c->why.code ? refusal(c) : answer(p->model.dir, c);
  if (c->id) json_object_set(line, "id", c->id);
  if (c->score && !c->why.code) json_object_set(rest, "score", c->score);
  json_object_update(line, rest);
  char *text = rest ? json_text(line, JSON_COMPACT | JSON_REAL_PRECISION(9), "a completion", error) : NULL;
  if (text) puts(text);
  const bool ok = text ? program_check(p, error) : error_memory(error, "a completion");
  free(text);
  json_decref(rest);
  json_decref(line);
  return ok;
}
