/* Documents that are not a part of a file as it is: lines of JSON and TSV, and sequences of FASTA. */
#ifndef INKLING_TEXT_DATASET_RECORD_H
#define INKLING_TEXT_DATASET_RECORD_H

#include "base/error.h"
#include "text/tokenizer/chat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The document of the last parsed line. Begins as {0}; freed by record_free. */
typedef struct Record {
  const uint8_t *text; /* may contain NULs; valid until the next line is parsed */
  size_t size, prompt; /* bytes of the text, and of the prompt at its beginning; size 0: no document */
  struct json_t *root; /* owns `text`, or `joined` does */
  uint8_t *joined;     /* owns `text` where a prompt precedes the response, and the contents of turns */
  size_t capacity;
  ChatTurn *turns; /* [turn_count] of a conversation, whose contents make up the text; 0: it is none */
  size_t turn_count, turn_capacity;
} Record;

void record_free(Record *record);

/* Makes a conversation: forgets the old document, adds turns (joined to the last one, after a newline, if that is of
 * the same role), and sets the text. EXIT_MEMORY. */
void record_begin_turns(Record *record);
bool record_add_turn(Record *record, ChatRole role, const void *text, size_t size, Error *error);
void record_end_turns(Record *record);

/* Names of JSON fields, UTF-8. */
typedef struct RecordFields {
  const char *prompt; /* NULL: the document is the field `text` */
  const char *text;   /* the whole document, or the response that follows the prompt */
  bool conversations; /* objects that are one are read as such (text/dataset/conversation.h) */
  bool named;         /* the user chose `text`, which counts more than a conversation in the same object */
} RecordFields;

/* The first two functions parse one line, as line_take() returns it. Messages use `file` and `number` (from 1) for the
 * position of the line. EXIT_INPUT with file, line and cause; EXIT_MEMORY. */

/* Every line is a JSON object, and one or two of its fields make a document. A blank line is no document.
 * The JSON rules are jansson's: of equal keys the last one counts; invalid UTF-8, lone surrogates, more than 2048
 * levels, raw control characters in strings, \u0000 in a key and anything after the object are errors; \u0000 in a
 * value is kept. Numbers may go up to 1e308. */
bool record_parse_jsonl(Record *record, const RecordFields *fields, const uint8_t *line, size_t size, const char *file,
                        int64_t number, Error *error);

/* Returns the next element of a JSON array of objects and moves *at behind it; NULL: there is none. An object that is
 * no element of an array is returned, too. */
const uint8_t *record_json_element(const uint8_t *text, size_t size, size_t *at, size_t *length);

/* Every line is a prompt, a tab and a response; further columns are ignored. There are no escapes, quotes or header
 * line: bytes are used unchanged, as in a text file, so neither column can contain a tab or a newline. An empty line,
 * or one with two empty columns, is no document; one of the columns may be empty. A line without a tab is an error. */
bool record_parse_tsv(Record *record, const uint8_t *line, size_t size, const char *file, int64_t number, Error *error);

/* FASTA: a document is a sequence, whose lines are joined. The lines before it that begin with '>' or ';' are no part
 * of it; nor is white space. Reads from `text` to the next such line after a sequence, or to the end, and stores the
 * number of bytes and lines that it has read. EXIT_MEMORY. */
bool record_parse_fasta(Record *record, const uint8_t *text, size_t size, size_t *bytes, int64_t *lines, Error *error);
/* Returns whether a line that begins with this byte is not a part of a sequence. */
static inline bool record_is_fasta_header(uint8_t first) { return first == '>' || first == ';'; }
/* Returns the number of lines in `text`, as there, before the line that contains byte `at` of the sequence. */
int64_t record_fasta_lines_before(const uint8_t *text, size_t size, size_t at);

#endif
