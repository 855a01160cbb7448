/* Draws stories and charges every byte of them the information that it holds. */
#ifndef INKLING_DATA_STORIES_WRITER_H
#define INKLING_DATA_STORIES_WRITER_H

#include "data/stories/compile.h"

#include <stdint.h>

#define STORY_SEPARATOR "<|endoftext|>\n"

/* Where a variable was last written, as an offset in the story: the word, or any form of it. */
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
  size_t max_distance; /* over all stories: bytes from a fact's last mention to its next use */
  const char *max_distance_name;
  bool rule_used[MAX_RULES][MAX_ALTERNATIVES];
  bool word_used[MAX_VARIABLES][MAX_WORDS];
  const char *error; /* sticky; NULL while all is well */
} Writer;

/* Writes the next story, separator included. False: w->error says why. */
bool writer_story(Writer *w);
/* The sum of bits[begin .. end). */
double writer_bits(const Writer *w, size_t begin, size_t end);

#endif
