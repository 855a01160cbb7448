#include "generate/completion.h"

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Completion *completion_new(Error *error) {
  Completion *c = calloc(1, sizeof *c);
  if (!c) error_memory(error, "a completion");
  return c;
}

void completion_free(Completion *c) {
  if (!c) return;
  json_decref(c->id);
  json_decref(c->prompt);
  json_decref(c->choices);
  json_decref(c->score);
  pattern_list_free(&c->stops);
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
static size_t token_count(const Output *o) {
  const int64_t size = (int64_t)o->text.size;
  size_t count = o->ids.count;
  if (o->result.reason != STOP_TEXT && o->result.reason != STOP_CALLER) return count;
  while (count > 0 && o->tokens[count - 1].begin > size) count--;
  if (count > 0 && o->tokens[count - 1].begin == size) count--;
  return count;
}

/* Offsets count characters, as Python does. */
static json_t *logprobs_json(const Tokenizer *tokenizer, const Output *o) {
  const int alternatives = o->request.alternatives;
  json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
  int64_t at = 0, characters = 0;
  for (size_t i = 0, count = token_count(o); i < count; i++) {
    for (; at < o->tokens[i].begin; at++) characters += !utf8_continues(o->text.bytes[at]);
    const bool inside = at < (int64_t)o->text.size && utf8_continues(o->text.bytes[at]) && characters > 0;
    json_array_append_new(tokens, token_name(tokenizer, o->ids.ids[i]));
    json_array_append_new(values, json_real((double)o->tokens[i].logprob));
    json_array_append_new(offsets, json_integer(characters - inside));
    if (alternatives > 0)
      json_array_append_new(tops, top_of(tokenizer, o->top + i * (size_t)alternatives, alternatives));
  }
  return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs",
                   alternatives > 0 ? tops : (json_decref(tops), json_null()), "text_offset", offsets);
}

/* ---- completions ---- */

static json_t *ids_json(const Output *o) {
  json_t *ids = json_array();
  for (size_t i = 0, count = token_count(o); i < count; i++) json_array_append_new(ids, json_integer(o->ids.ids[i]));
  return ids;
}

bool completion_add(const Tokenizer *tokenizer, Completion *c, const Output *o, Error *error) {
  const bool stopped = o->result.reason == STOP_END || o->result.reason == STOP_TEXT;
  bool valid;
  json_t *string = completion_string(o->text.bytes, o->text.size, &valid);
  json_t *choice =
      json_pack("{s:i,s:o,s:s,s:I,s:o,s:o}", "index", o->index, "text", string, "finish_reason",
                stopped ? "stop" : "length", "seed", (json_int_t)o->request.sampling.seed, "logprobs",
                o->request.alternatives < 0 ? json_null() : logprobs_json(tokenizer, o), "token_ids", ids_json(o));
  if (choice && !valid) json_object_set_new(choice, "bytes", base64(o->text.bytes, o->text.size));
  if (!c->choices) c->choices = json_array();
  c->tokens += o->result.tokens;
  if (choice && json_array_append_new(c->choices, choice) == 0) return json_memory_ok(error, "a completion");
  return error_memory(error, "a completion");
}

static json_t *refusal(const Completion *c) {
  return json_pack("{s:{s:I,s:o,s:s}}", "error", "line", (json_int_t)c->line, "message",
                   completion_string((const uint8_t *)c->why.text, strlen(c->why.text), NULL), "type",
                   "invalid_request_error");
}

static json_t *answer(const char *model, const Completion *c) {
  json_t *name = completion_string((const uint8_t *)model, strlen(model), NULL);
  return json_pack("{s:s,s:o,s:O,s:O,s:{s:I,s:I,s:I}}", "object", "text_completion", "model", name, "prompt", c->prompt,
                   "choices", c->choices, "usage", "prompt_tokens", (json_int_t)c->prompt_tokens, "completion_tokens",
                   (json_int_t)c->tokens, "total_tokens", (json_int_t)(c->prompt_tokens + c->tokens));
}

bool completion_print(const char *model, const Completion *c, Stdout *out, Error *error) {
  json_t *line = json_object(), *rest = c->why.code ? refusal(c) : answer(model, c);
  if (c->id) json_object_set(line, "id", c->id);
  if (c->score && !c->why.code) json_object_set(rest, "score", c->score);
  json_object_update(line, rest);
  char *text = rest ? json_text(line, JSON_COMPACT | JSON_REAL_PRECISION(9), "a completion", error) : NULL;
  if (text) puts(text);
  const bool ok = text ? stdout_check(out, error) : error_memory(error, "a completion");
  free(text);
  json_decref(rest);
  json_decref(line);
  return ok;
}
