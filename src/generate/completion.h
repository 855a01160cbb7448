/* A prompt and the texts generated for it: as JSON, a line in and a line out, in the format of OpenAI's
 * completions and chat completions. */
#ifndef INKLING_GENERATE_COMPLETION_H
#define INKLING_GENERATE_COMPLETION_H

#include "generate/program.h"

#include <jansson.h>
#include <stdio.h>

typedef struct Completion {
  PromptTokens tokens; /* owned */
  Text settings;       /* of its texts; text i has seed + i */
  int n, begun;        /* the number of texts, and of those that were begun */
  int64_t line;        /* number of the input line; 0: the prompt of the command line */
  /* JSON */
  json_t *id;        /* the caller's identifier, owned; NULL: none */
  json_t *prompt;    /* the prompt or list of messages as given, owned; NULL: none */
  bool chat;         /* it is a list of messages */
  json_t *score;     /* the score of the prompt, owned; NULL: not requested */
  json_t *choices;   /* the finished texts, owned */
  int64_t generated; /* tokens of all texts */
  PatternList stops; /* stop texts of this prompt; none: those of the command line */
  Error why;         /* has a code when the prompt was refused */
} Completion;

/* Allocates a completion with n texts of these settings; NULL: EXIT_MEMORY. completion_free() accepts NULL. */
Completion *completion_new(const Text *settings, int n, Error *error);
void completion_free(Completion *completion);

/* Makes a JSON string in which each byte that is not UTF-8 becomes U+FFFD; *valid, unless `valid` is NULL, says
 * whether there is none. NULL: no memory. */
json_t *completion_string(const uint8_t *bytes, size_t size, bool *valid);

/* Writes such a string. A failed write is no error yet. EXIT_MEMORY. */
bool completion_write(FILE *out, const uint8_t *bytes, size_t size, Error *error);

/* The same as completion_string(), but "bytes:\xe2\x80" where the bytes are not whole characters. */
json_t *completion_bytes(const uint8_t *bytes, size_t size);

/* Takes prompt and settings from a line of --prompts. EXIT_INPUT says why the line is refused; EXIT_MEMORY. */
bool completion_read(Program *p, Completion *completion, const uint8_t *line, size_t size, Error *why);

/* Adds finished text number `index`. EXIT_MEMORY. */
bool completion_add(const Tokenizer *tokenizer, Completion *completion, const Text *text, int index, Error *error);

/* Prints a line on stdout: all texts, or the reason for refusal. EXIT_MEMORY, and the errors of program_check(). */
bool completion_print(Program *p, const Completion *completion, Error *error);

#endif
