/* A session in which the model continues a text: each line is added to it, and so is what the model makes of it. */
#include "cli/startup.h"
#include "generate/session.h"
#include "base/array.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_encoder(const Session *s) { return s->p->model.config.encoder_layers > 0; }

static bool no_memory(Error *error) { return error_memory(error, "a text of many turns"); }

/* EXIT_INPUT, EXIT_MEMORY. */
static bool add_text(Session *s, const uint8_t *bytes, size_t size, Error *error) {
  if (s->text.now.size + size > SESSION_LIMIT)
    return fail(error, EXIT_INPUT, "a session is limited to %d MiB of text; /save it and start another",
                SESSION_LIMIT >> 20);
  if (!array_reserve(&s->text.text, &s->text.capacity, s->text.now.size + size + 1, 1)) return no_memory(error);
  if (size) memcpy(s->text.text + s->text.now.size, bytes, size);
  s->text.now.size += size;
  return true;
}

/* ---- answers ---- */

/* Encodes what the model reads: with an encoder the last line without its newline, otherwise the document. */
static bool encode(const Session *s, Error *error) {
  Program *p = s->p;
  const bool encoder = has_encoder(s);
  const size_t from = encoder ? s->text.now.typed : s->text.now.document;
  return prompt_encode(p, s->text.text ? s->text.text + from : (const uint8_t *)"", s->text.now.size - from - encoder,
                       &p->prompt.tokens, error);
}

static bool answer(Session *s, Error *error) {
  TextSession *t = &s->text;
  Text text = {0};
  if (!encode(s, error)) return false;
  unseen_note(s->p, &s->p->prompt.tokens.source, 0);
  t->now.answer = t->now.size;
  t->now.answered = true;
  const bool ok =
      session_answer(s, 0, t->now.size, &text, error) && add_text(s, text.bytes.bytes, text.bytes.size, error);
  t->now.ended = text.reason == STOP_END;
  generation_free_text(&text);
  return ok;
}

/* ---- turns ---- */

static bool begin_turn(Session *s, Error *error) {
  if (!array_reserve(&s->text.before, &s->text.turns_capacity, (size_t)s->text.turns + 1, sizeof *s->text.before))
    return no_memory(error);
  s->text.before[s->text.turns++] = s->text.now;
  s->text.now.answered = false;
  return true;
}

/* Adds what was typed, on a line of its own, and the answer. */
static bool take_text(Session *s, const uint8_t *line, size_t size, Error *error) {
  if (has_encoder(s) && size == 0) {
    console_note(&s->p->console, "this model needs a prompt: type one");
    return true;
  }
  if (!begin_turn(s, error)) return false;
  if (s->text.now.ended) s->text.now.document = s->text.now.size;
  s->text.now.ended = false;
  const bool follows = size && s->text.now.size > s->text.now.begin && s->text.text[s->text.now.size - 1] != '\n';
  bool ok = !follows || add_text(s, (const uint8_t *)"\n", 1, error);
  if (s->text.now.document == s->text.now.size - follows) s->text.now.document = s->text.now.size;
  s->text.now.typed = s->text.now.size;
  ok = ok && add_text(s, line, size, error) && (!has_encoder(s) || add_text(s, (const uint8_t *)"\n", 1, error));
  if (ok) return answer(s, error);
  s->text.now = s->text.before[--s->text.turns];
  return false;
}

/* ---- commands ---- */

static bool retry(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (!s->text.now.answered) return fail(error, EXIT_USAGE, "/retry: there is no answer yet");
  s->text.now.size = s->text.now.answer;
  s->text.now.ended = false;
  return answer(s, error);
}

static bool undo(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (!s->text.turns) return fail(error, EXIT_USAGE, "/undo: there is nothing to undo");
  s->text.now = s->text.before[--s->text.turns];
  console_note(&s->p->console, "back to %s of text",
               text_plural((double)(s->text.now.size - s->text.now.begin), "byte").text);
  return true;
}

static bool begin_anew(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (!begin_turn(s, error)) return false;
  s->text.now.begin = s->text.now.document = s->text.now.typed = s->text.now.answer = s->text.now.size;
  s->text.now.ended = false;
  return true;
}

static bool show(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (s->text.now.size > s->text.now.begin)
    program_write(s->p, s->text.text + s->text.now.begin, s->text.now.size - s->text.now.begin);
  if (s->text.now.size > s->text.now.begin && s->text.text[s->text.now.size - 1] != '\n') putchar('\n');
  program_flush(s->p);
  if (s->input.terminal) startup_take_interrupt();
  return program_check(s->p, error);
}

static bool save(Session *s, const char *path, Error *error) {
  const TextState *now = &s->text.now;
  return session_save(s, path, s->text.text ? s->text.text + now->begin : (const uint8_t *)"", now->size - now->begin,
                      error);
}

static bool load(Session *s, const char *path, Error *error) {
  MappedFile file;
  if (!*path) return fail(error, EXIT_USAGE, "/load FILE: the name of a file is missing");
  if (has_encoder(s)) return fail(error, EXIT_USAGE, "/load is for models without an encoder");
  if (!file_map(&file, path, EXIT_INPUT, error)) return false;
  const size_t mark = utf8_mark(file.bytes, file.size);
  if (file.size > SESSION_LIMIT - s->text.now.size) {
    file_unmap(&file);
    return fail(error, EXIT_INPUT, "/load: %s does not fit into the %d MiB of a session", path, SESSION_LIMIT >> 20);
  }
  const bool ok = text_check(&s->p->check, file.bytes, file.size, path, true, error) && begin_anew(s, path, error) &&
                  add_text(s, file.bytes + mark, file.size - mark, error);
  if (ok)
    console_note(&s->p->console, "%s of %s; an empty line continues the text",
                 text_plural((double)file.size, "byte").text, path);
  file_unmap(&file);
  return ok;
}

/* ---- the kind ---- */

static const SessionCommand commands[] = {{"retry", "", "another answer, with the next seed", retry},
                                          {"undo", "", "take back the last line and its answer", undo},
                                          {"new", "", "begin a new text", begin_anew},
                                          {"text", "", "print the text so far", show},
                                          {"save", " FILE", "write the text to a file", save},
                                          {"load", " FILE", "begin with the text of a file", load},
                                          {0}};

const SessionKind session_of_text = {
    .greeting = "type a line and the model continues it; /help lists the commands",
    .help = "Type a line: it is added to the text, and the model continues. An empty line adds nothing.",
    .commands = commands,
    .take = take_text};
