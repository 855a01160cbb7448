/* A chat (-i with a model that has a chat template): the messages of the user and the answers of the model. */
#include "generate/session.h"
#include "generate/completion.h"
#include "text/dataset/conversation.h"
#include "text/dataset/line.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/array.h"
#include "base/file.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

static bool has_system(const ChatSession *c) { return c->count && c->messages[0].role == CHAT_SYSTEM; }

static void drop_messages(ChatSession *c, size_t count) {
  while (c->count > count) {
    const ChatTurn *last = &c->messages[--c->count];
    c->bytes -= last->size;
    free((void *)last->text);
  }
  if (c->dropped + has_system(c) >= c->count) c->dropped = 0;
}

/* EXIT_INPUT, EXIT_MEMORY. */
static bool add_message(ChatSession *c, ChatRole role, const void *text, size_t size, Error *error) {
  if (c->bytes + size > SESSION_LIMIT)
    return fail(error, EXIT_INPUT, "a session is limited to %d MiB of text; /save it and /reset", SESSION_LIMIT >> 20);
  uint8_t *copy = malloc(size + 1);
  if (!copy || !array_reserve(&c->messages, &c->capacity, c->count + 1, sizeof *c->messages)) {
    free(copy);
    return error_memory(error, "a message");
  }
  if (size) memcpy(copy, text, size);
  c->messages[c->count++] = (ChatTurn){role, copy, size};
  c->bytes += size;
  return true; // cppcheck-suppress memleak -- the chat owns the copy now
}

/* ---- what the model reads ---- */

static size_t room(const Program *p) { return chat_room((size_t)p->model.config.ctx, p->settings.tokens); }

/* Makes p->prompt.tokens of the chat, without its oldest messages if the context is full. *cached: see
 * chat_encode_newest(). */
static bool encode(Session *s, size_t *cached, Error *error) {
  ChatSession *c = &s->chat;
  const LoadedModel *m = &s->p->model;
  const size_t ctx = (size_t)m->config.ctx, before = c->dropped;
  const bool ok = chat_encode_newest(m->chat, m->tokenizer, c->messages, c->count, ctx, room(s->p), &c->dropped,
                                     &s->p->prompt.tokens.decoder, cached, error);
  if (ok && c->dropped > before)
    console_note(&s->p->console, "the context of %zu tokens is full: the model no longer sees the first %zu messages",
                 ctx, c->dropped);
  return ok;
}

/* Returns the number of ids of turns; -1 with the error: the template or the vocabulary lacks something. */
static int64_t count_ids(const Session *s, const ChatTurn *turns, size_t count, Error *error) {
  const LoadedModel *m = &s->p->model;
  BpeIds ids = {0};
  const bool ok = chat_encode(m->chat, m->tokenizer, turns, count, true, &ids, error);
  free(ids.ids);
  return ok ? (int64_t)ids.count : -1;
}

/* Returns whether the vocabulary has the first `size` bytes of an answer to the last message; if not, *why says so. */
static bool can_encode(const Session *s, const Text *text, size_t size, Error *why) {
  const bool first = !s->chat.count; /* after /retry of a loaded chat */
  const ChatTurn turns[] = {first ? (ChatTurn){CHAT_USER, NULL, 0} : s->chat.messages[s->chat.count - 1],
                            {CHAT_ASSISTANT, text->bytes.bytes, size}};
  return count_ids(s, turns + first, 2 - first, why) >= 0;
}

/* Drops tokens from the end of an answer until the vocabulary can express the rest: it lacks the half of a word before
 * a stop text, and with that in the chat no later message could be encoded. EXIT_MEMORY. */
static bool drop_unreadable(const Session *s, Text *text, Error *error) {
  const size_t all = text->bytes.size;
  size_t count = text->ids.count;
  Error why = {0};
  for (; !can_encode(s, text, text->bytes.size, &why); why = (Error){0}) {
    if (why.code != EXIT_INPUT || !text->bytes.size) return fail(error, why.code, "%s", why.text);
    while (count > 0 && text->tokens[--count].begin >= text->bytes.size) {
    }
    text->bytes.size = text->tokens[count].begin;
  }
  if (text->bytes.size < all)
    console_note(&s->p->console,
                 "the vocabulary cannot express this answer: the chat goes on with the first %zu of its "
                 "%zu bytes",
                 text->bytes.size, all);
  return true;
}

/* Adds an answer, and its tokens to those that the decoder has. */
static bool take_answer(Session *s, Text *text, Error *error) {
  BpeIds *ids = &s->p->prompt.tokens.decoder;
  return bpe_ids_sink(ids, text->ids.ids, text->ids.count, error) &&
         (text->reason != STOP_END || bpe_ids_sink(ids, &text->last, 1, error)) && drop_unreadable(s, text, error) &&
         add_message(&s->chat, CHAT_ASSISTANT, text->bytes.bytes, text->bytes.size, error);
}

static bool answer(Session *s, Error *error) {
  Text text = {0};
  size_t cached;
  const bool ok = encode(s, &cached, error) && session_answer(s, cached, s->chat.bytes, &text, error) &&
                  take_answer(s, &text, error);
  if (!ok) s->p->prompt.tokens.decoder.count = 0;
  generation_free_text(&text);
  return ok;
}

static bool take_message(Session *s, const uint8_t *line, size_t size, Error *error) {
  ChatSession *c = &s->chat;
  const size_t before = c->count;
  if (line_is_blank(line, size)) return true;
  if (!add_message(c, CHAT_USER, line, size, error)) return false;
  if (answer(s, error)) return true;
  drop_messages(c, before);
  return false;
}

/* ---- commands ---- */

static bool retry(Session *s, const char *argument, Error *error) {
  ChatSession *c = &s->chat;
  (void)argument;
  if (!c->count || c->messages[c->count - 1].role != CHAT_ASSISTANT)
    return fail(error, EXIT_USAGE, "/retry: there is no answer yet");
  drop_messages(c, c->count - 1);
  return answer(s, error);
}

static bool undo(Session *s, const char *argument, Error *error) {
  ChatSession *c = &s->chat;
  size_t keep = c->count;
  (void)argument;
  while (keep > 0 && c->messages[keep - 1].role == CHAT_ASSISTANT) keep--;
  if (!keep || c->messages[keep - 1].role != CHAT_USER)
    return fail(error, EXIT_USAGE, "/undo: there is nothing to undo");
  drop_messages(c, keep - 1);
  console_note(&s->p->console, "back to %s", text_plural((double)(c->count - has_system(c)), "message").text);
  return true;
}

/* Replaces the system prompt. */
static bool set_system(Session *s, const char *text, Error *error) {
  ChatSession *c = &s->chat;
  if (!*text) {
    console_note(&s->p->console, has_system(c) ? "%.*s" : "there is no system prompt; /system TEXT sets one",
                 has_system(c) ? (int)c->messages[0].size : 0, has_system(c) ? (char *)c->messages[0].text : "");
    return true;
  }
  const ChatTurn turn = {CHAT_SYSTEM, (const uint8_t *)text, strlen(text)};
  const bool replaces = has_system(c);
  const int64_t ids = count_ids(s, &turn, 1, error);
  if (ids < 0) return false; /* the template may have none */
  if (ids + (int64_t)room(s->p) > s->p->model.config.ctx)
    return fail(error, EXIT_INPUT,
                "this system prompt makes %" PRId64 " tokens; the context of %d has no room for a chat", ids,
                s->p->model.config.ctx);
  if (!add_message(c, CHAT_SYSTEM, turn.text, turn.size, error)) return false;
  const size_t last = c->count - 1;
  const ChatTurn added = c->messages[last];
  if (replaces) c->messages[last] = c->messages[0];
  else memmove(c->messages + 1, c->messages, last * sizeof *c->messages);
  c->messages[0] = added;
  if (replaces) drop_messages(c, last);
  return true;
}

static bool begin(Session *s, Error *error) {
  const char *prompt = s->p->settings.system;
  return !prompt || !*prompt || set_system(s, prompt, error);
}

static bool reset(Session *s, const char *argument, Error *error) {
  (void)argument, (void)error;
  drop_messages(&s->chat, has_system(&s->chat));
  s->chat.dropped = 0;
  return true;
}

static bool show(Session *s, const char *argument, Error *error) {
  (void)argument;
  for (const ChatTurn *m = s->chat.messages; m < s->chat.messages + s->chat.count; m++) {
    printf("%s: ", chat_role_names[m->role]);
    fwrite(m->text, 1, m->size, stdout);
    putchar('\n');
  }
  program_flush(s->p);
  return program_check(s->p, error);
}

/* Writes the chat as a line of JSON, from which ./train learns: without empty answers and what was asked. */
static bool save(Session *s, const char *path, Error *error) {
  const ChatTurn *end = s->chat.messages + s->chat.count;
  json_t *messages = json_array();
  for (const ChatTurn *m = s->chat.messages; m < end; m++)
    if (m->size && (m + 1 == end || m[1].size))
      json_array_append_new(messages, json_pack("{s:s, s:o}", "role", chat_role_names[m->role], "content",
                                                completion_string(m->text, m->size, NULL)));
  json_t *line = json_pack("{s:o}", "messages", messages);
  char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
  const size_t size = text ? strlen(text) : 0;
  if (text) text[size] = '\n'; /* in place of the 0 */
  const bool ok = text ? session_save(s, path, text, size + 1, error) : error_memory(error, "a chat");
  free(text);
  json_decref(line);
  return ok;
}

static bool take_turns(Session *s, const Record *record, Error *error) {
  ChatSession *c = &s->chat;
  size_t count = record->turn_count, size = 0;
  while (count && record->turns[count - 1].role == CHAT_USER) count--; /* a question is still to be asked */
  for (size_t i = 0; i < count; i++) size += record->turns[i].size;
  if (size > SESSION_LIMIT)
    return fail(error, EXIT_INPUT, "/load: the chat does not fit into the %d MiB of a session", SESSION_LIMIT >> 20);
  if (count_ids(s, record->turns, count, error) < 0) return false;
  drop_messages(c, 0);
  c->dropped = 0;
  for (size_t i = 0; i < count; i++)
    if (!add_message(c, record->turns[i].role, record->turns[i].text, record->turns[i].size, error)) return false;
  console_note(&s->p->console, "%s%s", text_plural((double)count, "message").text,
               count < record->turn_count ? "; the last one has no answer and is left out: type it again" : "");
  return true;
}

static bool load(Session *s, const char *path, Error *error) {
  MappedFile file;
  Record record = {0};
  size_t at, size;
  if (!*path) return fail(error, EXIT_USAGE, "/load FILE: the name of a file is missing");
  if (!file_map(&file, path, EXIT_INPUT, error)) return false;
  at = utf8_mark(file.bytes, file.size);
  bool ok = at < file.size || fail(error, EXIT_INPUT, "/load: %s is empty", path);
  const uint8_t *line = ok ? line_take(file.bytes, file.size, &at, &size) : NULL;
  json_t *object = line ? line_object(line, size, path, 1, error) : NULL;
  ok = object &&
       (conversation_is(object) ||
        fail(error, EXIT_INPUT, "/load: the first line of %s is no conversation; it needs \"messages\"", path));
  ok = ok && conversation_take(&record, object, false, path, 1, error) && take_turns(s, &record, error);
  json_decref(object);
  record_free(&record);
  file_unmap(&file);
  return ok;
}

/* ---- the kind ---- */

static const SessionCommand commands[] = {
    {"retry", "", "another answer, with the next seed", retry},
    {"undo", "", "take back the last message and its answer", undo},
    {"reset", "", "begin a new chat; the system prompt stays", reset},
    {"system", " TEXT", "set the system prompt; without TEXT print it", set_system},
    {"text", "", "print the chat so far", show},
    {"save", " FILE", "write the chat to a file, which train can learn from", save},
    {"load", " FILE", "go on with the chat in the first line of a file", load},
    {0}};

const SessionKind session_of_chat = {
    .greeting = "type a message and the model answers; /help lists the commands",
    .help = "Type a message: the model answers, and remembers the chat as far as its context reaches.",
    .commands = commands,
    .begin = begin,
    .take = take_message};
