/* A prompt and what was written after it, as JSON in the shape of OpenAI's completions. */
#ifndef INKLING_GENERATING_COMPLETION_H
#define INKLING_GENERATING_COMPLETION_H

#include "generating/program.h"

#include <jansson.h>

typedef struct Completion {
  json_t *id;     /* the caller's name for it, owned; NULL: none */
  json_t *prompt; /* as it was given, owned; NULL: none */
  json_t *score;  /* of the prompt, owned; NULL: none was asked for */
  int n;          /* texts */
  json_t *choices;
  int64_t prompt_tokens, tokens; /* tokens: of the texts */
  StopTexts stops;               /* its own; none: those of the program */
  int64_t line;                  /* of the input */
  Error why;                     /* with a code: it was refused, and this says why */
} Completion;

/* NULL: EXIT_MEMORY. completion_free takes NULL. */
Completion *completion_new(Error *error);
void completion_free(Completion *completion);

/* A string in which bytes that are not UTF-8 are U+FFFD, one for each; *whole: there are none. NULL: no memory. */
json_t *completion_string(const uint8_t *bytes, size_t size, bool *whole);

/* Adds a text that is done. EXIT_MEMORY. */
bool completion_add(const Program *p, Completion *completion, const Text *text, Error *error);

/* A line on stdout: all texts, or why it was refused. EXIT_MEMORY; what became of stdout is in p->write_error. */
bool completion_print(Program *p, const Completion *completion, Error *error);

#endif
