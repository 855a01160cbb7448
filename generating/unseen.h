/* Detection of prompt bytes that never appeared in training prompts; a model with an encoder has learned nothing about
 * them. */
#ifndef INKLING_GENERATING_UNSEEN_H
#define INKLING_GENERATING_UNSEEN_H

#include "generating/loaded.h"

/* Characters, separated by blanks. */
typedef struct UnseenText {
  char text[64];
} UnseenText;

/* The bytes that appear in the training prompts. Starts zeroed. */
typedef struct SeenBytes {
  bool looked, known; /* looked: for the tokens of the run; known: they were found */
  bool bytes[256];
  int64_t lines, first; /* lines: prompts with other bytes; first: the first such prompt */
  UnseenText in_first;
} SeenBytes;

/* Prints a note about the characters of an encoder's input that appear in no training prompt. Nothing is printed
 * without an encoder, or when the training prompts are unknown. */
void unseen_note(SeenBytes *seen, const LoadedModel *m, const BpeIds *source, Console *console);
/* For many prompts: unseen_count() counts the prompts with such characters; unseen_note_lines() prints a note about
 * them, out of `lines`. */
void unseen_count(SeenBytes *seen, const LoadedModel *m, int64_t line, const BpeIds *source);
void unseen_note_lines(const SeenBytes *seen, const LoadedModel *m, int64_t lines, Console *console);

#endif
