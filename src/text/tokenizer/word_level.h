/* Vocabularies of whole pieces, the WordLevel model of Hugging Face's tokenizers: a token is a character, a word, a
 * line or a number of the text. The kind of the pieces is a value; this module and the table in it are all that
 * depends on it.
 *   chars  every character is a piece. Decoding restores the text.
 *   words  a piece is a run of characters that are not white space, or a newline. Decoding puts one space between two
 *          words, and none beside a newline: other white space is not restored.
 *   lines  a piece is a line without its newline, or the newline of an empty line. Decoding ends every line with a
 *          newline, also the last one.
 *   ids    a piece is a run of characters that are not white space, and its id is the number that it is. Decoding puts
 *          one space between two numbers: newlines are not restored.
 * White space is Unicode's White_Space. */
#ifndef INKLING_TEXT_TOKENIZER_WORD_LEVEL_H
#define INKLING_TEXT_TOKENIZER_WORD_LEVEL_H

#include "text/tokenizer/pretokenize.h"

#define WORD_LEVEL_UNKNOWN "<unk>" /* the token of a piece that is not in the vocabulary */

typedef enum WordLevel {
  WORD_LEVEL_NONE, /* a BPE */
  WORD_LEVEL_CHARS,
  WORD_LEVEL_WORDS,
  WORD_LEVEL_LINES,
  WORD_LEVEL_IDS,
  WORD_LEVELS
} WordLevel;

typedef struct WordLevelKind {
  const char *name;                    /* value of --tokenizer */
  const char *piece;                   /* its name in messages */
  const char *before, *after;          /* what decoding puts around a piece that is not a newline */
  const char *pre_tokenizer, *decoder; /* in tokenizer.json, as the tokenizers library writes them */
} WordLevelKind;

extern const WordLevelKind word_level_kinds[WORD_LEVELS];

enum { WORD_LEVEL_TOKENS = 1 << 20 /* the most tokens of a vocabulary; MODEL_MAX_VOCAB */ };

/* Returns the kind with this name; WORD_LEVEL_NONE for any other name. */
WordLevel word_level_named(const char *name);

/* Returns whether a piece can be a token: valid UTF-8 without a zero byte, which tokenizer.json can hold. */
bool word_level_is_text(const uint8_t *piece, size_t size);

/* Finds the next piece of a text at or after *end, which starts as 0: text[*begin] to text[*end - 1]. */
bool word_level_next(WordLevel level, const CharClasses *classes, const uint8_t *text, size_t size, size_t *begin,
                     size_t *end);

/* Returns whether a text may be cut before text[at], at > 0: the pieces of both parts are those of the whole. */
bool word_level_cuts(WordLevel level, const uint8_t *text, size_t at);

#endif
