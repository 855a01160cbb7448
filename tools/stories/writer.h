/* Draws stories and assigns every byte the information that it contains; a self-check of grammar and writer. */
#ifndef INKLING_TOOLS_STORIES_WRITER_H
#define INKLING_TOOLS_STORIES_WRITER_H

#include "tools/stories/grammar.h"

#include <stdint.h>

#define STORY_SEPARATOR "<|endoftext|>\n"

/* The offsets in the story where a variable was last written: the word itself, or any form of it. */
typedef struct LastMention {
  size_t word;
  size_t any;
} LastMention;

/* One story. bits[t] = -log2 P(byte t | the bytes before it). */
typedef struct Writer {
  const Grammar *grammar;
  uint64_t random;
  size_t length;
  char text[MAX_STORY];
  double bits[MAX_STORY];
  int value[MAX_VARIABLES];
  LastMention last[MAX_VARIABLES];
  size_t max_distance; /* in all stories: most bytes from a fact's last mention to its next use */
  const char *max_distance_name;
  bool rule_used[MAX_RULES][MAX_ALTERNATIVES];
  bool word_used[MAX_VARIABLES][MAX_WORDS];
  const char *error; /* the first error; NULL: none */
} Writer;

/* Writes the next story, including its separator. On failure w->error has the cause. */
bool writer_story(Writer *w);
/* Measures the distance from an earlier mention of the item's variable to its use at the end of the text, and records a
 * new mention there. */
void writer_note_use(Writer *w, const Item *item);
/* Returns the sum of bits[begin .. end). */
double writer_bits(const Writer *w, size_t begin, size_t end);

/* ---- check.c ---- */

/* Checks that the grammar is unambiguous and that the writer's bits are correct, and prints a line; else EXIT_INTERNAL
 * with the cause. `always`: every story uses every fact; then facts must be near and must not contradict each other. */
bool check_grammar(const Grammar *g, Writer *w, bool always, Error *error);
/* Returns whether some story of the grammar begins with this text. */
bool check_begins(const Grammar *g, const char *text, size_t length);

#endif
