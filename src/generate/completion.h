/* A prompt and the texts generated for it, as JSON in the format of OpenAI's completions. */
#ifndef INKLING_GENERATE_COMPLETION_H
#define INKLING_GENERATE_COMPLETION_H

#include "generate/outputs.h"

#include <jansson.h>

typedef struct Completion {
  json_t *id;     /* the caller's identifier, owned; NULL: none */
  json_t *prompt; /* the prompt as given, owned; NULL: none */
  json_t *score;  /* the score of the prompt, owned; NULL: not requested */
  int n;          /* the number of texts */
  json_t *choices;
  int64_t prompt_tokens, tokens; /* tokens: generated tokens of all texts */
  PatternList stops;             /* stop texts of this prompt; none: those of the command line */
  int64_t line;                  /* line number of the input */
  Error why;                     /* has a code when the prompt was refused */
} Completion;

/* Allocates a completion; NULL: EXIT_MEMORY. completion_free() accepts NULL. */
Completion *completion_new(Error *error);
void completion_free(Completion *completion);

/* Makes a JSON string in which each byte that is not UTF-8 becomes U+FFFD; *valid, unless `valid` is NULL, says
 * whether there is none. NULL: no memory. */
json_t *completion_string(const uint8_t *bytes, size_t size, bool *valid);

/* The same, but "bytes:\xe2\x80" where the bytes are not whole characters. */
json_t *completion_bytes(const uint8_t *bytes, size_t size);

/* Adds a finished text. EXIT_MEMORY. */
bool completion_add(const Tokenizer *tokenizer, Completion *completion, const Output *output, Error *error);

/* Prints a line on stdout: all texts, or the reason for refusal. `model` is the name of the model. EXIT_MEMORY, and the
 * errors of stdout_check(). */
bool completion_print(const char *model, const Completion *completion, Stdout *out, Error *error);

#endif
