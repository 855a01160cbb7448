/* Prompts: reading them, replacing escapes, and encoding them. */
#ifndef INKLING_GENERATING_PROMPT_H
#define INKLING_GENERATING_PROMPT_H

#include "generating/loaded.h"

/* The tokens of one prompt. */
typedef struct PromptTokens {
  BpeIds source;  /* for the encoder; empty: the model has none */
  BpeIds decoder; /* the first tokens that the decoder reads */
} PromptTokens;

void prompt_tokens_free(PromptTokens *tokens);

/* Returns the number of tokens that the text of the prompt has. */
static inline size_t prompt_tokens_count(const PromptTokens *t) {
  return t->source.count ? t->source.count : t->decoder.count;
}

/* The prompt of the command line. */
typedef struct Prompt {
  uint8_t *bytes; /* NULL: none was given */
  size_t size;
  PromptTokens tokens;
} Prompt;

void prompt_free(Prompt *prompt);

/* Reads -p or the file of -f. EXIT_USAGE if both are given, EXIT_INPUT, EXIT_MEMORY. */
bool prompt_read(Prompt *prompt, const GenerateSettings *settings, Error *error);

/* Reads a whole file (-: standard input) of less than `limit` bytes. The caller frees *out, also after a failure.
 * EXIT_INPUT, EXIT_MEMORY. */
bool prompt_read_file(const char *path, size_t limit, uint8_t **out, size_t *size, Error *error);

/* Encodes a prompt; replaces the contents of *out, which starts zeroed. With an encoder, the source is the tokens of
 * the text and the end token, and the decoder gets the start token and the tokens of --answer. Otherwise the decoder
 * gets the tokens of generation_prompt(). EXIT_INPUT when the tokens exceed the context and may not be truncated;
 * EXIT_USAGE for --answer without an encoder; EXIT_MEMORY. */
bool prompt_encode(const LoadedModel *m, const GenerateSettings *settings, const uint8_t *text, size_t size,
                   PromptTokens *out, Error *error);

/* ---- escapes (-e) ---- */

/* Replaces escapes in place; `text` ends with a 0 byte, before and after. EXIT_USAGE. */
bool prompt_replace_escapes(uint8_t *text, size_t *size, Error *error);
/* Returns whether the text contains \n, \t or \\ as two characters. */
bool prompt_has_escapes(const uint8_t *text, size_t size);
/* Copies a text of the command line into allocated memory, with a 0 byte at the end; with -e, replaces its escapes. The
 * caller frees *out, also after a failure. EXIT_USAGE, EXIT_MEMORY. */
bool prompt_copy_text(const GenerateSettings *settings, const char *given, uint8_t **out, size_t *size, Error *error);
/* Prints a note when texts of the command line contain escapes that are not replaced without -e. */
void prompt_note_escapes(const GenerateSettings *settings, Console *console);

#endif
