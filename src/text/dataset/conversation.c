#include "text/dataset/conversation.h"

#include "text/dataset/line.h"
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  ChatRole role;
} roles[] = {{"system", CHAT_SYSTEM},       {"user", CHAT_USER},     {"human", CHAT_USER},
             {"assistant", CHAT_ASSISTANT}, {"gpt", CHAT_ASSISTANT}, {"model", CHAT_ASSISTANT}};

/* A conversation that is read, and its place for messages. */
typedef struct Reader {
  Record *record;
  const char *file;
  int64_t line;
  size_t message; /* from 1 */
  Error *error;
} Reader;

/* "a.jsonl, line 3, message 2 is of ..." */
#define refuse(r, ...)                                                                                                 \
  (fail((r)->error, EXIT_INPUT, "%s, message %zu ", line_name((r)->file, (r)->line).text, (r)->message),               \
   error_append((r)->error, __VA_ARGS__))

/* ---- messages ---- */

static bool find_role(const Reader *r, const json_t *name, ChatRole *out) {
  const char *text = json_string_value(name);
  for (size_t i = 0; text && i < sizeof roles / sizeof *roles; i++) {
    *out = roles[i].role;
    if (strcmp(text, roles[i].name) == 0) return true;
  }
  if (!text) return refuse(r, "has no role; each message needs \"role\" and \"content\", or \"from\" and \"value\"");
  return refuse(r, "is of the role \"%s\", but only system, user and assistant are read; remove the message",
                text_one_line(text, 40).text);
}

/* Adds a list of text parts as one text. */
static bool add_parts(const Reader *r, ChatRole role, const json_t *parts) {
  ByteBuffer text = {0};
  const json_t *part;
  size_t i;
  bool ok = true;
  json_array_foreach(parts, i, part) {
    const json_t *value = json_object_get(part, "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!json_is_string(value))
      ok = refuse(r, "has a part of the type \"%s\", but only texts are read; remove the conversation",
                  text_one_line(type ? type : "unknown", 40).text);
    ok = ok && byte_buffer_add(&text, json_string_value(value), json_string_length(value), r->error);
    if (!ok) break;
  }
  if (ok && !text.size) ok = refuse(r, "is empty; remove the conversation");
  ok = ok && record_add_turn(r->record, role, text.bytes, text.size, r->error);
  free(text.bytes);
  return ok;
}

static bool add_content(const Reader *r, ChatRole role, const json_t *content) {
  if (json_is_array(content)) return add_parts(r, role, content);
  if (!json_is_string(content))
    return refuse(r, "has %s as content, not a text; remove the conversation",
                  content ? line_kind(content) : "nothing");
  if (!json_string_length(content)) return role == CHAT_SYSTEM || refuse(r, "is empty; remove the conversation");
  return record_add_turn(r->record, role, json_string_value(content), json_string_length(content), r->error);
}

static bool add_message(const Reader *r, const json_t *message) {
  const Record *record = r->record;
  const bool named = json_object_get(message, "from");
  const json_t *content = json_object_get(message, named ? "value" : "content");
  const char *const calls[] = {"tool_calls", "function_call"};
  ChatRole role = CHAT_USER;
  if (!json_is_object(message)) return refuse(r, "is %s, not an object", message ? line_kind(message) : "nothing");
  if (!find_role(r, json_object_get(message, named ? "from" : "role"), &role)) return false;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (line_value(message, calls[i]) && json_array_size(line_value(message, calls[i])) + (i == 1) > 0)
      return refuse(r, "calls a tool, which is not supported; remove the conversation");
  if (role == CHAT_SYSTEM && r->message > 1)
    return refuse(r, "is a system prompt, which can only be the first message; move it or remove it");
  if (record->turn_count && record->turns[record->turn_count - 1].role == role)
    return refuse(r, "is the second in a row of the %s; join them into one", role == CHAT_USER ? "user" : "assistant");
  return add_content(r, role, content);
}

static bool has_answer(const Record *record) {
  for (size_t i = 0; i < record->turn_count; i++)
    if (record->turns[i].role == CHAT_ASSISTANT) return true;
  return false;
}

static const json_t *messages_of(const json_t *object) {
  const json_t *messages = line_value(object, "messages");
  return messages ? messages : line_value(object, "conversations");
}

bool conversation_is(const json_t *object) {
  return messages_of(object) || (json_object_get(object, "instruction") && json_object_get(object, "output"));
}

/* Adds {"instruction": ..., "input": ..., "output": ...}. */
static bool add_instruction(Reader *r, const json_t *object) {
  const json_t *input = json_object_get(object, "input"), *system = line_value(object, "system");
  if (system && !add_content(r, CHAT_SYSTEM, system)) return false;
  r->message = 1;
  if (!add_content(r, CHAT_USER, json_object_get(object, "instruction"))) return false;
  if (json_string_length(input) > 0 && !add_content(r, CHAT_USER, input)) return false;
  r->message = 2;
  return add_content(r, CHAT_ASSISTANT, json_object_get(object, "output"));
}

bool conversation_take(Record *record, const json_t *object, bool needs_answer, const char *file, int64_t number,
                       Error *error) {
  const json_t *messages = messages_of(object), *message;
  Reader r = {.record = record, .file = file, .line = number, .error = error};
  size_t i;
  record_begin_turns(record);
  if (!messages && !add_instruction(&r, object)) return false;
  if (messages && !json_is_array(messages))
    return fail(error, EXIT_INPUT, "%s, has %s as messages; expected a list of {\"role\": ..., \"content\": ...}",
                line_name(file, number).text, line_kind(messages));
  json_array_foreach(messages, i, message) {
    r.message = i + 1;
    if (!add_message(&r, message)) return false;
  }
  if (needs_answer && !has_answer(record))
    return fail(error, EXIT_INPUT, "%s, is a conversation without an answer of the assistant; remove it",
                line_name(file, number).text);
  record_end_turns(record);
  return true;
}

/* ---- plain text ---- */

bool conversation_parse(Record *record, const char *speaker, const uint8_t *text, size_t size, size_t *bytes,
                        int64_t *lines, const char *file, int64_t number, Error *error) {
  const size_t name = strlen(speaker);
  size_t at = 0, length;
  record_begin_turns(record);
  for (*lines = 0; at < size;) {
    const uint8_t *line = line_take(text, size, &at, &length);
    ++*lines;
    if (line_is_blank(line, length)) break;
    const uint8_t *colon = memchr(line, ':', length);
    if (!colon || colon == line)
      return fail(error, EXIT_INPUT, "%s, does not begin with a name and a colon, as in \"%.60s: Hello\"",
                  line_name(file, number + *lines - 1).text, text_one_line(speaker, 60).text);
    const bool own = (size_t)(colon - line) == name && memcmp(line, speaker, name) == 0;
    const uint8_t *content = colon + 1;
    if (content < line + length && *content == ' ') content++;
    if (!record_add_turn(record, own ? CHAT_ASSISTANT : CHAT_USER, content, (size_t)(line + length - content), error))
      return false;
  }
  *bytes = at;
  if (record->turn_count && !has_answer(record))
    return fail(error, EXIT_INPUT, "%s, begins a conversation without a line of %.60s; remove it",
                line_name(file, number).text, text_one_line(speaker, 60).text);
  record_end_turns(record);
  return true;
}
