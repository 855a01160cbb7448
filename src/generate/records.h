/* Surprisal of each token or word of given texts, as CSV, TSV or JSON Lines (--per-token, --per-word).
 * A word is a run of characters that are not white space (Unicode's White_Space). A token counts for the word of its
 * first character that is not white space, a token of white space alone for the word after it. So every token of a text
 * counts for one word, except for white space and an end token after the last word. A word has no surprisal of its own
 * if it begins and ends within a token that counts for an earlier one. */
#ifndef INKLING_GENERATE_RECORDS_H
#define INKLING_GENERATE_RECORDS_H

#include "generate/program.h"
#include "text/tokenizer/pretokenize.h"

typedef enum RecordFormat { RECORDS_CSV, RECORDS_TSV, RECORDS_JSON } RecordFormat;
extern const char *const record_format_names[]; /* as RecordFormat, without RECORDS_JSON (--json), then NULL */

/* What a token or a word is written with. */
typedef struct RecordNumbers {
  int64_t tokens;
  double nats;                 /* the sum over the tokens; NaN: not known */
  PredictionMeasures measures; /* of the first token; rank 0: not known */
} RecordNumbers;

typedef struct Records {
  Program *p;
  CharClasses *classes;
  int64_t text;      /* number of the text, from 1 */
  const uint8_t *id; /* [id_size] of the text, if texts have one */
  size_t id_size;
  int64_t number;  /* records of the text so far */
  int64_t at;      /* bytes of the text before those of `held` */
  bool at_start;   /* as in tokenizer_decode_next() */
  Document source; /* the text itself: its prompt, then its response; text NULL: not known */
  bool responds;   /* the last piece of a vocabulary of whole pieces was in the response, where it ended at piece_end */
  size_t piece_end;
  ByteBuffer unknown; /* what the text has in place of a token that stands for any piece */
  bool titled;        /* the names of the columns have been printed */
  int columns;        /* printed in this line */
  ByteBuffer held;    /* bytes of an incomplete character */
  ByteBuffer word;    /* begins at byte `begin` of the text; size 0: none */
  int64_t begin;
  RecordNumbers of_word, waiting; /* waiting: tokens before their first character of a word */
} Records;

/* Returns whether records are to be written. */
bool records_wanted(const GenerateSettings *settings);
/* Returns whether a text is a line of an id, a tab and the text itself: --per-line with a file of TSV. */
bool records_have_ids(const GenerateSettings *settings);

/* EXIT_USAGE for a model with an encoder, EXIT_MEMORY. records_free() is harmless on a zeroed struct. */
bool records_open(Records *records, Program *p, Error *error);
void records_free(Records *records);

/* Begins text `number`, from 1. `text` is needed where a token may stand for any piece; its bytes and `id` [size] stay
 * valid until the text has ended. */
void records_begin_text(Records *records, int64_t number, const Document *text, const uint8_t *id, size_t size);
/* Adds the next token of the text. `nats` NaN: it was not predicted. `measures` NULL, or rank 0: not known. */
bool records_add(Records *records, int32_t token, double nats, const PredictionMeasures *measures, Error *error);
/* Ends a word at the end of a text, or where the response to a prompt begins. */
bool records_end_word(Records *records, Error *error);
/* After the last text: prints the names of the columns unless there was a record; checks stdout. */
bool records_finish(Records *records, Error *error);

#endif
