/* Interactive sessions (-i): a text that the model continues, or a chat. */
#ifndef INKLING_GENERATE_SESSION_H
#define INKLING_GENERATE_SESSION_H

#include "generate/line_input.h"
#include "generate/program.h"

#include <time.h>

enum { SESSION_LIMIT = 64 << 20 }; /* bytes of a session's text */

/* A state of a text that the model continues, as offsets into it. */
typedef struct TextState {
  size_t size;     /* of the text */
  size_t begin;    /* of the current text; /new and /load set it */
  size_t document; /* the beginning of what the model sees: after the last end-of-text token */
  size_t typed;    /* the beginning of the last line that was typed */
  size_t answer;   /* the beginning of the model's answer to it */
  bool answered;   /* there is such an answer */
  bool ended;      /* the model ended it with an end-of-text token */
} TextState;

typedef struct TextSession {
  uint8_t *text;
  size_t capacity;
  TextState now;
  TextState *before; /* [turns] the states before each turn, for /undo */
  int turns;
  size_t turns_capacity;
} TextSession;

typedef struct ChatSession {
  ChatTurn *messages; /* [count], which own their texts; the first one may be a system prompt */
  size_t count, capacity;
  size_t bytes;   /* of all messages */
  size_t dropped; /* the oldest messages, after a system prompt, that the model no longer sees */
} ChatSession;

typedef struct Session Session;

typedef struct SessionCommand {
  const char *name, *argument, *help;
  bool (*run)(Session *session, const char *argument, Error *error);
} SessionCommand;

/* A kind of session: what its lines and commands do. */
typedef struct SessionKind {
  const char *greeting, *help;                   /* help: what a line does */
  const SessionCommand *commands;                /* the last one has no name */
  bool (*begin)(Session *session, Error *error); /* NULL: there is nothing to do */
  bool (*take)(Session *session, const uint8_t *line, size_t size, Error *error);
} SessionKind;

extern const SessionKind session_of_text; /* continuation.c */
extern const SessionKind session_of_chat; /* chat.c */

struct Session {
  const SessionKind *kind;
  Program *p;
  LineInput input;
  TextSession text;
  ChatSession chat;
  uint64_t seed;            /* of the next answer */
  char *saved;              /* the file that /save wrote; it may replace the file while its time is saved_at */
  struct timespec saved_at; /* modification time */
  bool over;
  bool noted; /* the note about backslashes was printed */
};

/* Makes an answer to p->prompt.tokens with the next seed and prints it, with a newline after it. The first `cached` ids
 * of the prompt are in the decoder; `size`: bytes of the session so far. The caller frees *text, also after a failure.
 * Errors of program_make_text(). */
bool session_answer(Session *session, size_t cached, size_t size, Text *text, Error *error);

/* /save: writes a file, unless one is there that this session did not write. EXIT_USAGE, EXIT_OUTPUT, EXIT_MEMORY. */
bool session_save(Session *session, const char *path, const void *bytes, size_t size, Error *error);

#endif
