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
  char part[40]; /* of the record: "message 2" */
  Error *error;
} Reader;

/* "a.jsonl, line 3, message 2 is of ..." */
#define refuse(r, ...)                                                                                                 \
  (fail((r)->error, EXIT_INPUT, "%s, %s ", line_name((r)->file, (r)->line).text, (r)->part),                           \
   error_append((r)->error, __VA_ARGS__))

#define EXPECTED "each message needs \"role\" and \"content\", or \"from\" and \"value\""

/* ---- messages ---- */

static bool find_role(const Reader *r, const json_t *name, ChatRole *out) {
  const char *text = json_string_value(name);
  for (size_t i = 0; text && i < sizeof roles / sizeof *roles; i++) {
    *out = roles[i].role;
    if (strcmp(text, roles[i].name) == 0) return true;
  }
  if (!text) return refuse(r, "has no role; " EXPECTED);
  return refuse(
      r,
      "is of the role \"%s\"; the roles are system, user (or human) and assistant (or gpt, model): rename it, "
      "or remove the conversation",
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
      ok = type ? refuse(r, "has a part of the type \"%s\", but only texts are read; remove the conversation",
                         text_one_line(type, 40).text)
                : refuse(r, "has %s as a part; expected {\"type\": \"text\", \"text\": ...}", line_kind(part));
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
  if (!content) return refuse(r, "has no content; " EXPECTED);
  if (!json_is_string(content))
    return refuse(r, "has %s as content, not a text; remove the conversation", line_kind(content));
  if (!json_string_length(content)) return role == CHAT_SYSTEM || refuse(r, "is empty; remove the conversation");
  return record_add_turn(r->record, role, json_string_value(content), json_string_length(content), r->error);
}

static bool add_message(const Reader *r, const json_t *message) {
  const Record *record = r->record;
  const bool named = json_object_get(message, "from");
  const json_t *content = json_object_get(message, named ? "value" : "content");
  const char *const calls[] = {"tool_calls", "function_call"};
  ChatRole role = CHAT_USER;
  if (!json_is_object(message)) return refuse(r, "is %s, not an object; " EXPECTED, line_kind(message));
  if (!find_role(r, json_object_get(message, named ? "from" : "role"), &role)) return false;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (line_value(message, calls[i]) && json_array_size(line_value(message, calls[i])) + (i == 1) > 0)
      return refuse(r, "calls a tool, which is not supported; remove the conversation");
  const json_t *weight = json_object_get(message, "weight");
  if (json_is_number(weight) && json_number_value(weight) == 0)
    return refuse(r, "has the weight 0, but every answer is learned; remove the weight or the conversation");
  if (role == CHAT_SYSTEM && record->turn_count)
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

static bool add_field(Reader *r, ChatRole role, const json_t *object, const char *name) {
  snprintf(r->part, sizeof r->part, "\"%s\"", name);
  return add_content(r, role, json_object_get(object, name));
}

/* Adds {"instruction": ..., "input": ..., "output": ..., "history": [[question, answer], ...]}. */
static bool add_instruction(Reader *r, const json_t *object) {
  const json_t *pair;
  size_t i;
  snprintf(r->part, sizeof r->part, "\"history\"");
  json_array_foreach(json_object_get(object, "history"), i, pair) {
    if (!add_content(r, CHAT_USER, json_array_get(pair, 0)) || !add_content(r, CHAT_ASSISTANT, json_array_get(pair, 1)))
      return false;
  }
  return add_field(r, CHAT_USER, object, "instruction") &&
         (!json_string_length(json_object_get(object, "input")) || add_field(r, CHAT_USER, object, "input")) &&
         add_field(r, CHAT_ASSISTANT, object, "output");
}

bool conversation_take(Record *record, const json_t *object, bool needs_answer, const char *file, int64_t number,
                       Error *error) {
  const json_t *messages = messages_of(object), *message;
  Reader r = {.record = record, .file = file, .line = number, .error = error};
  size_t i;
  record_begin_turns(record);
  if (line_value(object, "system") && !add_field(&r, CHAT_SYSTEM, object, "system")) return false;
  if (!messages && !add_instruction(&r, object)) return false;
  if (messages && !json_is_array(messages))
    return fail(error, EXIT_INPUT, "%s, has %s as messages; expected a list of {\"role\": ..., \"content\": ...}",
                line_name(file, number).text, line_kind(messages));
  json_array_foreach(messages, i, message) {
    snprintf(r.part, sizeof r.part, "message %zu", i + 1);
    if (!add_message(&r, message)) return false;
  }
  if (needs_answer && !has_answer(record))
    return fail(error, EXIT_INPUT, "%s, is a conversation without an answer of the assistant; remove it",
                line_name(file, number).text);
  record_end_turns(record);
  return true;
}

/* ---- plain text ---- */

/* Says that a speaker has no line in a conversation, and who has. */
static bool fail_speaker(const char *speaker, const uint8_t *text, size_t size, const char *file, int64_t number,
                         Error *error) {
  const uint8_t *colon;
  char name[64];
  fail(error, EXIT_INPUT, "%s, begins a conversation without a line of %.60s, but of", line_name(file, number).text,
       text_one_line(speaker, 60).text);
  for (size_t at = 0, length, shown = 0; at < size && shown < 4;) {
    const uint8_t *line = line_take(text, size, &at, &length);
    if (!(colon = memchr(line, ':', length))) break; /* the blank line after it */
    snprintf(name, sizeof name, "\"%.*s\"", colon - line < 60 ? (int)(colon - line) : 60, (const char *)line);
    const OneLine quoted = text_one_line(name, 60);
    if (!strstr(error->text, quoted.text)) error_append(error, "%s %s", shown++ ? "," : "", quoted.text);
  }
  return error_append(error, "; remove it, or choose another --speaker");
}

bool conversation_parse(Record *record, const char *speaker, const uint8_t *text, size_t size, size_t *bytes,
                        int64_t *lines, const char *file, int64_t number, Error *error) {
  const size_t name = strlen(speaker);
  size_t at = 0, length;
  record_begin_turns(record);
  for (*lines = 0; at < size;) {
    const uint8_t *line = line_take(text, size, &at, &length);
    ++*lines;
    if (line_is_blank(line, length)) break;
    const bool own = name < length && memcmp(line, speaker, name) == 0 && line[name] == ':';
    const uint8_t *colon = own ? line + name : memchr(line, ':', length);
    if (!colon || colon == line)
      return fail(
          error, EXIT_INPUT,
          "%s, does not begin with a name and a colon, as in \"%.60s: Hello\"; if other text files are documents, "
          "let the names of those with conversations end in .chat",
          line_name(file, number + *lines - 1).text, text_one_line(speaker, 60).text);
    const uint8_t *content = colon + 1;
    if (line_is_blank(content, (size_t)(line + length - content)))
      return fail(error, EXIT_INPUT, "%s, has a name and nothing after it; remove the line",
                  line_name(file, number + *lines - 1).text);
    if (*content == ' ' || *content == '\t') content++;
    if (!record_add_turn(record, own ? CHAT_ASSISTANT : CHAT_USER, content, (size_t)(line + length - content), error))
      return false;
  }
  *bytes = at;
  if (record->turn_count && !has_answer(record)) return fail_speaker(speaker, text, at, file, number, error);
  record_end_turns(record);
  return true;
}
