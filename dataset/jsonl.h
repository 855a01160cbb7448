/* JSON lines: every line of the file is one JSON object, and one or two of its fields are a document. */
#ifndef INKLING_DATASET_JSONL_H
#define INKLING_DATASET_JSONL_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>

/* Longer lines are refused: parsing takes three to four times a line's size in memory. */
#define JSONL_LINE_LIMIT ((size_t)1 << 30)

/* Names of fields, UTF-8. */
typedef struct JsonlFields {
  const char *prompt; /* NULL: the document is the field `text` */
  const char *text;   /* the whole document, or the response that follows the prompt */
} JsonlFields;

/* The document of the line parsed last. Begins as {0}, ends with jsonl_free. */
typedef struct JsonlRecord {
  const uint8_t *text; /* UTF-8, NULs possible; valid until the next line is parsed */
  size_t size, prompt; /* bytes, and how many of them are the prompt */
  struct json_t *root; /* owns `text`, or */
  uint8_t *joined;     /* this does, where a prompt stands before the response */
  size_t capacity;
} JsonlRecord;

/* True for a line of nothing but spaces, tabs and carriage returns. */
bool jsonl_blank(const uint8_t *line, size_t size);

/* Parses one line, given without its newline; a carriage return at its end does no harm. `file` and `number` (from 1)
 * tell in messages where the line is.
 *
 * As jansson reads JSON: of equal keys the last one counts; invalid UTF-8, lone surrogates, more than 2048 levels, raw
 * control characters in strings, \u0000 in a key and anything after the object are errors; \u0000 in a value is kept.
 * Numbers may go up to 1e308. EXIT_INPUT names file, line and what is wrong; EXIT_MEMORY. */
bool jsonl_parse(JsonlRecord *record, const JsonlFields *fields, const uint8_t *line, size_t size, const char *file,
                 int64_t number, Error *error);

void jsonl_free(JsonlRecord *record);

#endif
